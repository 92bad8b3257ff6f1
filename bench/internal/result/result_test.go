package result

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestFileGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	if runs, err := Load(path); err != nil || runs != nil {
		t.Fatalf("no file: %v, %v", runs, err)
	}
	want := []Run{
		{Workload: "w", Peer: "a", Round: 0, Scale: 1, Status: OK, Sent: 5, End: Times{P99: 0.5}},
		{Workload: "w", Peer: "b", Round: 0, Scale: 1, Status: "failed: x"},
	}
	for i := range want {
		if err := Append(path, &want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Load(path); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestCutLineIsDropped: a run that was being written when the machine stopped is made again.
func TestCutLineIsDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	whole, next := Run{Workload: "w", Peer: "a", Status: OK}, Run{Workload: "w", Peer: "b", Status: OK}
	if err := Append(path, &whole); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, `{"workload":"w","pe`...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := Append(path, &next); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || !reflect.DeepEqual(got, []Run{whole, next}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("{\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a damaged line: %v", err)
	}
}

func TestMedians(t *testing.T) {
	run := func(peer string, round int, out, p99 float64, status string) Run {
		return Run{Workload: "w", Peer: peer, Round: round, Scale: 1, Status: status, Version: "v", Sent: 1000, In: out, Out: out, End: Times{P99: p99}, ServerCPU: 2}
	}
	runs := []Run{
		run("base", 0, 100, 2, OK), run("other", 0, 50, 1, OK),
		run("base", 1, 300, 6, OK), run("other", 1, 100, 1, OK),
		run("base", 2, 200, 4, "failed: it hung"), run("other", 2, 400, 1, OK),
		run("other", 3, 1e9, 1, "failed: 3 missing, 0 damaged, 0 early"),
		{Workload: "w", Peer: "third", Scale: 1, Status: "no such feature: a delay"},
		{Workload: "w", Peer: "base", Round: 9, Scale: 0.1, Status: OK, Out: 1},
	}
	rows := Medians(runs, "base", 1)
	if len(rows) != 3 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	base, other, third := rows[0], rows[1], rows[2]
	if base.Runs != 2 || base.Out != (Spread{200, 100, 300}) || base.Status != "failed: it hung" || base.RatioOut != (Spread{1, 1, 1}) {
		t.Errorf("base: %+v", base)
	}
	if other.Runs != 3 || other.Out != (Spread{100, 50, 400}) || other.ServerCPU.Median != 2000 || !strings.Contains(other.Status, "3 missing") {
		t.Errorf("other: %+v", other)
	}
	// Of rounds 0 and 1 only: in the others one of the two failed.
	if other.RatioOut != (Spread{2.5, 2, 3}) || other.RatioEnd != (Spread{4, 2, 6}) {
		t.Errorf("ratios: %+v %+v", other.RatioOut, other.RatioEnd)
	}
	if third.Runs != 0 || third.Status != "no such feature: a delay" {
		t.Errorf("third: %+v", third)
	}
	path := filepath.Join(t.TempDir(), "rows")
	if err := SaveRows(path, rows); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadRows(path); err != nil || !reflect.DeepEqual(got, rows) {
		t.Errorf("read back %+v, %v", got, err)
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 123456: 123500, 0.00123456: 0.001235, 99999: 100000, 7: 7, 1234: 1234} {
		if got := digits(v); got != want {
			t.Errorf("digits(%g) = %g, want %g", v, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	long := strings.Repeat("é", 200)
	if got := Line(Failed, errors.New("a | b\nc")); got != "failed: a , b" {
		t.Errorf("%q", got)
	}
	if got := Line(NotRun, errors.New("open /some/folder-1/data.x/file: no such file")); got != "not run: open …: no such file" {
		t.Errorf("%q", got)
	}
	if got := Line(Failed, errors.New(long)); len(got) > maxReason+len("failed: ") || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("%q", got)
	}
}
