package page

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/machine"
	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/result"
	"github.com/spillway-mq/spillway/bench/internal/workload"
)

func example() *Page {
	one := func(v float64) result.Spread { return result.Spread{Median: v, Least: v / 2, Most: v * 2} }
	full := func(w, p string) result.Row {
		return result.Row{
			Workload: w, Peer: p, Runs: 3, Version: "9.9", In: one(12345), Out: one(12000), EndP50: one(0.004), EndP99: one(0.03), EndP999: one(1.5),
			CallP50: one(0.002), CallP99: one(0.2), ServerCPU: one(12.3), ClientCPU: one(4.5), Peak: one(1e8), PeakAnonymous: one(5e7), Sent: one(1000),
			RatioOut: one(0.25), RatioEnd: one(12),
		}
	}
	p := &Page{
		Machine: machine.Machine{CPU: "some CPU", Cores: 2},
		Peers: []peer.Peer{
			{Name: "base", Title: "Base"},
			{Name: "fast", Title: "Fast", Durability: "none", Notes: map[string]string{"batch": "10 a call"}},
			{Name: "poor", Title: "Poor"},
			{Name: "gone", Title: "Gone"},
		},
		Workloads: workload.All(),
	}
	for _, w := range []string{"batch", "delayed", "latency", "backlog"} {
		p.Rows = append(p.Rows, full(w, "base"), full(w, "fast"), result.Row{Workload: w, Peer: "poor", Status: "no such feature: a delay"})
	}
	p.Rows[1].Status, p.Rows[1].Twice = "failed: 7 missing, 0 damaged, 0 early", one(4)
	return p
}

func TestNoLineIsLeftOut(t *testing.T) {
	text := example().Markdown()
	for _, w := range []string{"batch", "delayed", "latency", "backlog"} {
		_, table, found := strings.Cut(text, "\n## "+w+": ")
		if !found {
			t.Fatalf("no table of %s", w)
		}
		table, _, _ = strings.Cut(table, "\n## ")
		columns := 0
		for line := range strings.Lines(table) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			if n := strings.Count(line, "|"); columns == 0 {
				columns = n
			} else if n != columns {
				t.Errorf("%s: %d columns in a table of %d: %s", w, n, columns, line)
			}
		}
		for _, want := range []string{"| Base |", "| Fast |", "| Poor |", "no such feature: a delay", "| Gone |", "not run in this series"} {
			if !strings.Contains(table, want) {
				t.Errorf("%s lacks %q:\n%s", w, want, table)
			}
		}
	}
	for _, want := range []string{"only 3 runs count; failed: 7 missing", "up to 8 came twice", "10 a call", "0.25× (0.12×–0.5×)", "some CPU", "12,345", "1.5 s"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestBusyMachineIsTold(t *testing.T) {
	p := example()
	if strings.Contains(p.Markdown(), "figures are rough") {
		t.Error("a quiet machine's figures are called rough")
	}
	p.Machine.Load = 3
	if !strings.Contains(p.Markdown(), "these figures are rough") {
		t.Error("nobody is told that the machine was busy")
	}
}

func TestPlotsAreWhole(t *testing.T) {
	p := example()
	for name, plot := range map[string]string{"rates": p.Rates(), "times": p.Times()} {
		d := xml.NewDecoder(strings.NewReader(plot))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if strings.Contains(plot, "NaN") || strings.Contains(plot, "Inf") {
			t.Errorf("%s has a place that is no number", name)
		}
		for _, want := range []string{">Base<", ">Gone<", ">not run<", ">–<"} {
			if !strings.Contains(plot, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	// No figures at all must not break it.
	p.Rows = []result.Row{{Workload: "batch", Peer: "base", Status: "not run: x"}}
	if plot := p.Rates(); strings.Contains(plot, "NaN") || !strings.Contains(plot, "not run") {
		t.Error(plot)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 9.25: "9.2", 99: "99", 1234567: "1,234,567", 100: "100", 123456: "123,456"} {
		if got := count(v); got != want {
			t.Errorf("count(%g) = %s, want %s", v, got, want)
		}
	}
	for v, want := range map[time.Duration]string{1500 * time.Microsecond: "1.5 ms", 20 * time.Millisecond: "20 ms", 2 * time.Second: "2.0 s"} {
		if got := duration(v.Seconds()); got != want {
			t.Errorf("duration(%s) = %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.034: "0.034×", 1.26: "1.3×", 9.99: "10×", 194: "194×"} {
		if got := times(v); got != want {
			t.Errorf("times(%g) = %s, want %s", v, got, want)
		}
	}
}
