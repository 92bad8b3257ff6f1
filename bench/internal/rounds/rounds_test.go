package rounds

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/result"
	"github.com/spillway-mq/spillway/bench/internal/workload"
)

// plan runs a shell script in place of the program; its arguments begin with $0.
func plan(t *testing.T, script string) *Plan {
	t.Helper()
	return &Plan{
		Peers: []peer.Peer{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Workloads: []workload.Workload{{Name: "w", Time: time.Second}},
		Pairs: 2, Scale: 1, File: filepath.Join(t.TempDir(), "runs"), Program: "/bin/sh", Args: []string{"-c", script}, Scratch: t.TempDir(),
		Report: func(line string) { t.Log(line) },
	}
}

const answer = `printf '{"workload":"%s","peer":"%s","scale":1,"status":"ok","sent":1}' "$3" "$1"`

func peers(t *testing.T, p *Plan) (names []string, statuses map[string]string) {
	t.Helper()
	runs, err := result.Load(p.File)
	if err != nil {
		t.Fatal(err)
	}
	statuses = map[string]string{}
	for i := range runs {
		names = append(names, runs[i].Peer)
		statuses[runs[i].Peer] = runs[i].Status
	}
	return names, statuses
}

func TestRoundsAreInTurnAndGoOn(t *testing.T) {
	p := plan(t, answer)
	if err := result.Append(p.File, &result.Run{Workload: "w", Peer: "b", Round: 0, Scale: 1, Status: result.OK}); err != nil {
		t.Fatal(err)
	}
	if runs, long := p.Estimate(nil); runs != 6 || long != 6*(time.Second+overhead) {
		t.Errorf("estimate %d, %s", runs, long)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// b of the first round was there; the second round begins with b.
	names, _ := peers(t, p)
	if want := []string{"b", "a", "c", "b", "c", "a"}; !slices.Equal(names, want) {
		t.Errorf("order %v, want %v", names, want)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, _ := peers(t, p); len(again) != len(names) {
		t.Errorf("%d runs after a second time, want %d", len(again), len(names))
	}
}

func TestFailedRunIsAResult(t *testing.T) {
	p := plan(t, `if [ "$1" = b ]; then echo "panic: b" >&2; exit 3; fi; `+answer)
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, statuses := peers(t, p); statuses["b"] != "failed: exit status 3: panic: b" || statuses["c"] != result.OK {
		t.Errorf("%v", statuses)
	}
}

// TestHungRunIsKilled, and with it what it has started.
func TestHungRunIsKilled(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	p := plan(t, `sleep 600 & echo $! > `+pidFile+`; wait`)
	p.Peers, p.Pairs, p.Slack, p.Scale = p.Peers[:1], 1, 500*time.Millisecond, 0.1
	began := time.Now()
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, statuses := peers(t, p); !strings.HasPrefix(statuses["a"], "failed: it hung and was killed") || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %s", statuses, time.Since(began))
	}
	if left, err := os.ReadDir(p.Scratch); err != nil || len(left) != 0 {
		t.Errorf("its data is left: %v, %v", left, err)
	}
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	// A killed process may be there for a moment until somebody has waited for it.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("what the run has started lives on: %s", stat)
		}
	}
}

func TestAbsentFeatureIsAskedForOnce(t *testing.T) {
	t.Run("absent", func(t *testing.T) { askedOnce(t, "no such feature: x") })
	t.Run("silent", func(t *testing.T) { askedOnce(t, "failed: nothing arrived: x") })
}

func askedOnce(t *testing.T, status string) {
	t.Helper()
	p := plan(t, "")
	log := filepath.Join(t.TempDir(), "calls")
	p.Args = []string{"-c", `echo run >> ` + log + `; printf '{"workload":"w","peer":"%s","scale":1,"status":"` + status + `"}' "$1"`}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := peers(t, p); strings.Count(string(calls), "run") != 3 || len(names) != 6 {
		t.Errorf("%d calls and %d runs, want 3 and 6", strings.Count(string(calls), "run"), len(names))
	}
}

func TestInterruptKeepsWhatIsThere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := plan(t, `if [ "$1" = b ]; then sleep 600; fi; `+answer)
	p.Report = func(line string) {
		if strings.Contains(line, "1/6") {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
	}
	if err := p.Run(ctx); err == nil {
		t.Fatal("an interrupted plan ended without an error")
	}
	if names, _ := peers(t, p); !slices.Equal(names, []string{"a"}) {
		t.Errorf("%v", names)
	}
}
