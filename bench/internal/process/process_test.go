package process

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestUseOfThisProcess(t *testing.T) {
	before, err := Used([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if before.Peak < 1<<20 || before.Anonymous < 1<<18 || before.Anonymous > before.Peak {
		t.Errorf("%+v", before)
	}
	sum := 0
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		sum++
	}
	after, err := Used([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if used := after.CPU - before.CPU; used <= 0 || used > 10*time.Second {
		t.Errorf("a busy loop of 0.3 s (%d turns) used %s", sum, used)
	}
	both, err := Used([]int{os.Getpid(), os.Getpid()})
	if err != nil || both.Peak < 2*before.Peak {
		t.Errorf("twice: %+v, %v", both, err)
	}
	if _, err := Used([]int{1 << 30}); err == nil {
		t.Error("a process that is not there has used something")
	}
}

func TestStartAndStop(t *testing.T) {
	p, err := Start(Options{Name: "sleeper", Dir: t.TempDir(), Path: "/bin/sleep", Args: []string{"600"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Await(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	began := time.Now()
	p.Stop()
	if _, err := Used([]int{p.Pid()}); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("after Stop: %v, %s", err, time.Since(began))
	}
}

func TestAwaitSaysWhyItEnded(t *testing.T) {
	p, err := Start(Options{Name: "failing", Dir: t.TempDir(), Path: "/bin/sh", Args: []string{"-c", "echo no such disk; exit 4"}})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Await(t.Context(), func(context.Context) error { return errors.New("refused") })
	if err == nil || !strings.Contains(err.Error(), "no such disk") || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("%v", err)
	}
	if p.Logged("such disk") != nil || p.Logged("such luck") == nil {
		t.Error("what is in its log is not found, or what is not is")
	}
	if _, err := Start(Options{Name: "absent", Dir: t.TempDir(), Path: "/no/such/program"}); err == nil {
		t.Error("a program that is not there was started")
	}
}

func TestFreePortsDiffer(t *testing.T) {
	ports, err := FreePorts(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		seen[port] = true
	}
	if len(seen) != 5 {
		t.Errorf("%v", ports)
	}
}
