package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/pkg/sim"
)

// inProcess runs the program in the test's own process.
func inProcess(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(args, &stdout, &stderr, func(o sim.Options) (res *sim.Result) {
		synctest.Test(t, func(*testing.T) { res = sim.Run(o) })
		return res
	})
	return code, stdout.String(), stderr.String()
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name string
		args string
		code int
		want []string
	}{
		{"coarse", "--seed 1 --steps 200 --times coarse", 0, []string{"seed 1, coarse times: every promise held; ", "produce "}},
		{"published", "--seed 1 --steps 200 --times published", 0, []string{"seed 1, published times: every promise held"}},
		{"history", "--seed 4 --steps 50 --history", 0, []string{"seed 4, ", "\nseed 4, "}},
		{"several", "--seed 7 --steps 50 --seeds 2", 0, []string{"seed 7, ", "seed 8, "}},
		{"of the clock", "--steps 20", 0, []string{"every promise held"}},
		{"unknown times", "--times slow", 2, []string{"--times must be"}},
		{"steps", "--steps -1", 2, []string{"--steps must be 0 or more"}},
		{"unknown mutation", "--mutation x", 2, []string{"knows no \"x\""}},
		{"unknown kind", "--without x", 2, []string{"knows no \"x\"", "freeze"}},
		{"without", "--seed 1 --steps 50 --without freeze,kill", 0, []string{"every promise held"}},
		{"argument", "x", 2, []string{"unknown command"}},
		{"mutations", "--mutation list", 0, []string{"roll loses the page\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := inProcess(t, strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("ended with %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("does not say %q:\n%.2000s%s", want, out, errs)
				}
			}
		})
	}
}

// TestFinding: a broken promise is told with its seed, a shrunk run and how to repeat it.
func TestFinding(t *testing.T) {
	code, out, _ := inProcess(t, "--seed", "1", "--mutation", "roll loses the page", "--shrink", "100ms", "--times", "coarse")
	if code != 1 {
		t.Errorf("ended with %d, want 1", code)
	}
	for _, want := range []string{
		"the last lines of a shrunk run", "seed 1, coarse times: step ", ": log: ", "shrunk: step ",
		`repeat: go run ./cmd/spillway-sim --seed 1 --steps 0 --times coarse --mutation "roll loses the page"`, "1 of 1 runs broke a promise",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("does not say %q:\n%.1000s ... %s", want, out, out[max(0, len(out)-1000):])
		}
	}
}

// TestProgram: the program opens a bubble although it is no test, and the same seed prints the same.
func TestProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spillway-sim")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var prints [2]string
	for i := range prints {
		cmd := exec.CommandContext(t.Context(), file, "--seed", "3", "--seeds", "2", "--steps", "300", "--history")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 {
			t.Fatalf("%v\n%s%s", err, out, &stderr)
		}
		prints[i] = string(out)
	}
	if prints[0] != prints[1] || !strings.Contains(prints[0], "seed 4, ") {
		t.Errorf("two runs print\n%.2000s\nand\n%.2000s", prints[0], prints[1])
	}
}
