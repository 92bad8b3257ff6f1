package latency_test

import (
	"flag"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/latency"
	"github.com/spillway-mq/spillway/pkg/queue"
)

var write = flag.String("write", "", "`folder` that TestPage writes latency.md and latency.svg to")

// whole makes the study once for all tests of a run.
var whole struct {
	once sync.Once
	study
}

func theStudy(t *testing.T) *study {
	whole.once.Do(func() {
		const percent = 800 // calls of a megabyte each are most of the work, and little of it lives on
		defer debug.SetGCPercent(debug.SetGCPercent(percent))
		calls := fewCalls
		if *write != "" {
			calls = manyCalls
		}
		whole.study = *newStudy(t, calls)
	})
	if whole.large == nil {
		t.Fatal("the study was not made")
	}
	return &whole.study
}

// TestPage makes the page, and writes it where -write says.
func TestPage(t *testing.T) {
	s := theStudy(t)
	page, plot := s.page(), s.plot()
	if *write == "" {
		return
	}
	const mode = 0o644
	if err := os.WriteFile(filepath.Join(*write, "latency.md"), []byte(page), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*write, "latency.svg"), []byte(plot), mode); err != nil {
		t.Fatal(err)
	}
}

// TestGoals holds each goal to be met, or missed, as the page explains it.
func TestGoals(t *testing.T) {
	for _, g := range theStudy(t).goals() {
		if g.met() != g.want {
			t.Errorf("%s: %v of %v; met: %v, want %v", g.name, g.got, g.bound, g.met(), g.want)
		}
		if g.want == (g.cause != "") {
			t.Errorf("%s: a goal that is missed, and only such a one, has a cause", g.name)
		}
	}
}

// TestNothingBesideTheStores: a produce call takes the time of its put and its head update, one after the
// other, and nothing else, unless it rolls.
func TestNothingBesideTheStores(t *testing.T) {
	s := theStudy(t)
	table := latency.DynamoDB()
	update := table.Write.Curve()
	sumOf := func(put latency.Curve) time.Duration {
		const draws = 20_000
		from, sums := rng(), make([]time.Duration, draws)
		for i := range sums {
			sums[i] = put.Draw(from) + update.Draw(from)
		}
		slices.Sort(sums)
		return sums[draws/2]
	}
	near := func(what string, got, want time.Duration) {
		if d := (got - want).Abs(); d > want/50 {
			t.Errorf("%s: the median is %v, that of put and update %v", what, got, want)
		}
	}
	near("inline", s.inline[1].unrolled.at(0.5), sumOf(update))
	for i, st := range stores() {
		near(st.name, s.large[i][10].unrolled.at(0.5), sumOf(st.figures.Put.Curve()))
	}
}

// TestRolls: one call in 32 meets a roll; the last call begins one that none meets.
func TestRolls(t *testing.T) {
	one := theStudy(t).inline[1]
	if got := len(one.acknowledged) - len(one.unrolled); got != manyCalls/queue.RollRefs {
		t.Errorf("%d of %d calls rolled", got, manyCalls)
	}
}

// TestNothingIsLost: every call is acknowledged, none throttled, and what had a consumer was received.
func TestNothingIsLost(t *testing.T) {
	s := theStudy(t)
	for _, l := range slices.Concat(s.steady, s.ways) {
		if len(l.acknowledged) != l.calls || l.throttles > 0 {
			t.Errorf("%s: %d of %d calls acknowledged, %d requests throttled", l.name, len(l.acknowledged), l.calls, l.throttles)
		}
		if l.who != nobody && len(l.received) != l.calls {
			t.Errorf("%s: %d of %d calls received", l.name, len(l.received), l.calls)
		}
	}
}

// TestThrottling: a load that one segment does not carry is refused.
func TestThrottling(t *testing.T) {
	const tooMuch = 3000
	out := simulate(t, scenario{batch: 1, rate: tooMuch, calls: 2 * tooMuch, refused: true})
	if out.throttles == 0 || len(out.acknowledged) == 0 || len(out.acknowledged) == 2*tooMuch {
		t.Errorf("of %d calls in two seconds %d were acknowledged, %d requests throttled", 2*tooMuch, len(out.acknowledged), out.throttles)
	}
}

// TestSameEachTime: equal scenarios give equal durations.
func TestSameEachTime(t *testing.T) {
	for _, s := range []scenario{
		{batch: 1, rate: 100, calls: 1000},
		{batch: 10, bodies: latency.S3Express(), rate: 20, calls: 500, who: within},
		{batch: 10, bodies: latency.S3Express(), rate: 20, calls: 500, who: apart},
	} {
		a, b := simulate(t, s), simulate(t, s)
		if !slices.Equal(a.acknowledged, b.acknowledged) || !slices.Equal(a.received, b.received) {
			t.Errorf("two runs of %+v differ", s)
		}
	}
}
