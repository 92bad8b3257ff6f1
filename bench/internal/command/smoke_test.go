//go:build peers

package command

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/bench/internal/result"
)

// TestSmoke runs workloads of each kind, small, on Spillway and NATS, as processes, and asks that nothing was lost.
func TestSmoke(t *testing.T) {
	out, program := t.TempDir(), filepath.Join(t.TempDir(), "spillway")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/spillway")
	build.Dir = "../../.."
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, text)
	}
	args := []string{
		"run", "--spillway", program, "--tools", "../../../.tools/peers", "--out", out, "--pairs", "1", "--scale", "0.02",
		"--peers", "spillway,spillway-4,nats-sync", "--workloads", "batch,single,reference,fanout,delayed,latency,backlog", "--commit", "test",
	}
	if err := Run(t.Context(), args, t.Output(), t.Output()); err != nil {
		t.Fatal(err)
	}
	runs, err := result.Load(filepath.Join(out, runsFile))
	if err != nil || len(runs) != 3*7 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	for i := range runs {
		r := &runs[i]
		if r.Status != result.OK || r.Sent == 0 || r.Missing != 0 || r.ServerCPU < 0 || r.Peak == 0 {
			t.Errorf("%+v", r)
		}
		if strings.Contains(r.Workload, "latency") && r.End.P50 <= 0 {
			t.Errorf("%+v", r)
		}
	}
}
