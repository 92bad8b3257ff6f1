package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/bench/internal/machine"
	"github.com/spillway-mq/spillway/bench/internal/result"
	"github.com/spillway-mq/spillway/bench/internal/systems"
)

// TestMain lets this program stand in for bench where a plan starts it again for one run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "one" {
		if err := Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// docs is the project's folder of documents.
const docs = "../../../docs"

// TestPageIsCurrent holds the page and its plots against the medians that are kept beside them.
func TestPageIsCurrent(t *testing.T) {
	rows, err := result.LoadRows(filepath.Join(docs, mediansFile))
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	m, err := readMachine(filepath.Join(docs, filepath.Dir(mediansFile), machineFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages(m, rows) {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("docs/%s is not what the medians give: make bench-page", name)
		}
	}
}

func TestPageFromRuns(t *testing.T) {
	out, docs := t.TempDir(), t.TempDir()
	args := []string{"page", "--out", out, "--docs", docs}
	if err := Run(t.Context(), args, os.Stdout, os.Stderr); err == nil {
		t.Error("a page was made of nothing")
	}
	for _, r := range []result.Run{
		{Workload: "batch", Peer: "spillway", Scale: 1, Status: result.OK, Sent: 10, In: 1000, Out: 900},
		{Workload: "batch", Peer: "nats-sync", Scale: 1, Status: result.OK, Sent: 10, In: 4000, Out: 3600},
		{Workload: "batch", Peer: "goaws", Scale: 1, Status: "failed: 3 missing, 0 damaged, 0 early"},
	} {
		if err := result.Append(filepath.Join(out, runsFile), &r); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeMachine(filepath.Join(out, machineFile), machine.Machine{CPU: "a CPU", Cores: 2}); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), args, os.Stdout, os.Stderr); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, pageFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.25×", "3 missing", "a CPU"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if err := os.Remove(filepath.Join(docs, pageFile)); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), []string{"page", "--kept", "--out", t.TempDir(), "--docs", docs}, os.Stdout, os.Stderr); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(filepath.Join(docs, pageFile)); err != nil || !bytes.Equal(again, text) {
		t.Errorf("from the medians the page is another: %v", err)
	}
	// Every peer has a line in the table, whatever became of it.
	_, table, _ := strings.Cut(string(text), "## batch:")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, p := range systems.All() {
		if !strings.Contains(table, "| "+p.Title+" |") {
			t.Errorf("no line for %s in:\n%s", p.Title, table)
		}
	}
}

// TestOneSeries: runs of another commit are not mixed with those that are there.
func TestOneSeries(t *testing.T) {
	out := t.TempDir()
	run := func(commit string) error {
		return Run(t.Context(), []string{"run", "--out", out, "--commit", commit, "--peers", "goaws", "--workloads", "batch", "--pairs", "1", "--tools", t.TempDir()}, os.Stdout, os.Stderr)
	}
	if err := run("one"); err != nil {
		t.Fatal(err)
	}
	runs, err := result.Load(filepath.Join(out, runsFile))
	if err != nil || len(runs) != 1 || !strings.HasPrefix(runs[0].Status, result.NotRun) {
		t.Fatalf("a peer that is not installed: %+v, %v", runs, err)
	}
	if err := run("two"); err == nil || !strings.Contains(err.Error(), "commit one") {
		t.Errorf("a second commit: %v", err)
	}
	m, err := readMachine(filepath.Join(out, machineFile))
	if err != nil || m.Cores < 1 || m.Memory < 1<<20 || m.Syncs <= 0 || strings.Contains(m.Kernel, "-") {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestArguments(t *testing.T) {
	cases := map[string][]string{
		"run, page or list": nil, "no command": {"walk"}, "--pairs": {"run", "--pairs", "0"}, "no \"x\"": {"run", "--peers", "x"},
		"no \"y\"": {"run", "--workloads", "y"}, "one --peer": {"one", "--peer", "spillway,nats"}, "follow": {"list", "more"},
	}
	for want, args := range cases {
		var out, log bytes.Buffer
		if err := Run(t.Context(), args, &out, &log); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(want, "follow")) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	var out bytes.Buffer
	if err := Run(t.Context(), []string{"list"}, &out, &out); err != nil || !strings.Contains(out.String(), "backlog-10m") {
		t.Errorf("%v: %s", err, out.String())
	}
}
