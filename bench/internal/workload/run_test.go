package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/result"
)

func small(k kind) Workload {
	return Workload{
		Name: "small", kind: k, Senders: 3, Receivers: 2, Groups: 2, Batch: 7, Size: 100, Messages: 3000, Time: 2 * time.Second, Rate: 500,
	}
}

func run1(t *testing.T, f *fake, w Workload) result.Run {
	t.Helper()
	return Run(t.Context(), Options{Peer: f.peer(), Workload: w, Scale: 1})
}

func TestFlowIsMeasured(t *testing.T) {
	f := &fake{}
	r := run1(t, f, small(flow))
	if r.Status != result.OK || r.Sent != 3000 || r.Missing != 0 || r.Twice != 0 {
		t.Fatalf("%+v", r)
	}
	if r.In <= 0 || r.Out <= 0 || r.Call.Max <= 0 || r.ClientCPU <= 0 || r.Peak <= 0 || r.PeakAnonymous <= 0 {
		t.Errorf("figures are missing: %+v", r)
	}
	if f.reused {
		t.Error("two senders had the same number, so a system that knows repetitions would have dropped messages")
	}
}

// TestClosingIsNotSending: what a client does after its last acknowledgement is not in the rate.
func TestClosingIsNotSending(t *testing.T) {
	r := run1(t, &fake{closing: 100 * time.Millisecond}, small(backlog))
	// Three senders that close in 0.1 s each would leave at most 10,000 a second.
	if r.Status != result.OK || r.In < 20_000 {
		t.Errorf("%.0f a second, %s", r.In, r.Status)
	}
}

func TestSendingEndsByTime(t *testing.T) {
	w := small(flow)
	w.Messages, w.Time = 1<<22, 200*time.Millisecond
	r := run1(t, &fake{}, w)
	if r.Status != result.OK || r.Sent == 0 || r.Sent >= w.Messages {
		t.Errorf("%+v", r)
	}
}

// TestEachSenderSends, even where all of the time is gone before the first call.
func TestEachSenderSends(t *testing.T) {
	r := &run{workload: small(flow), began: time.Now().Add(-time.Hour), ledger: newLedger(1000, 1)}
	next := r.closedLoop(1000, -time.Second)
	if first, n, _, more := next(0); !more || n != 7 || first != 0 {
		t.Errorf("a sender that has sent nothing gets %d messages, %t", n, more)
	}
	if _, _, _, more := next(1); more {
		t.Error("a sender that has sent gets more when the time is over")
	}
}

func TestBacklogIsDrained(t *testing.T) {
	r := run1(t, &fake{}, small(backlog))
	if r.Status != result.OK || r.Sent != 3000 || r.Out <= 0 || r.In <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestFaultsAreFound(t *testing.T) {
	nth := func(n int, change func([]byte) [][]byte) func(int, []byte) [][]byte {
		return func(i int, body []byte) [][]byte {
			if i != n {
				return [][]byte{body}
			}
			return change(slices.Clone(body))
		}
	}
	stranger := newBody(100, rand.New(rand.NewPCG(1, 1)))
	mark(stranger, 1<<40, 0)
	cases := map[string]struct {
		on   func(int, []byte) [][]byte
		want string
	}{
		"damaged": {nth(2500, func(b []byte) [][]byte { b[50] ^= 1; return [][]byte{b} }), "failed: 2 missing, 2 damaged, 0 early"},
		"cut":     {nth(2500, func(b []byte) [][]byte { return [][]byte{b[:10]} }), "failed: 2 missing, 2 damaged, 0 early"},
		"strange": {nth(2500, func(b []byte) [][]byte { return [][]byte{b, stranger} }), "failed: 0 missing, 2 damaged, 0 early"},
		"twice":   {nth(2500, func(b []byte) [][]byte { return [][]byte{b, b} }), result.OK},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := small(backlog)
			r := Run(t.Context(), Options{Peer: (&fake{on: c.on}).peer(), Workload: w, Scale: 1, Patience: 200 * time.Millisecond})
			if r.Status != c.want {
				t.Errorf("status %q, want %q", r.Status, c.want)
			}
			if name == "twice" && r.Twice != 2 {
				t.Errorf("%d came twice, want one in each of two groups", r.Twice)
			}
		})
	}
}

func TestLossIsFound(t *testing.T) {
	f := &fake{on: func(n int, body []byte) [][]byte {
		if n == 2999 {
			return nil
		}
		return [][]byte{body}
	}}
	r := Run(t.Context(), Options{Peer: f.peer(), Workload: small(backlog), Scale: 1, Patience: 200 * time.Millisecond})
	if want := "failed: 2 missing, 0 damaged, 0 early"; r.Status != want {
		t.Errorf("status %q, want %q", r.Status, want)
	}
}

func TestWarmUpFindsWhatDoesNotWork(t *testing.T) {
	for want, from := range map[string]int{"failed: nothing arrived: of ": 0, "failed: warm-up: 200 of ": 100} {
		f := &fake{on: func(n int, body []byte) [][]byte {
			if n >= from {
				return nil
			}
			return [][]byte{body}
		}}
		r := Run(t.Context(), Options{Peer: f.peer(), Workload: small(flow), Scale: 1, Patience: 200 * time.Millisecond})
		if !strings.HasPrefix(r.Status, want) {
			t.Errorf("status %q, want %q", r.Status, want)
		}
	}
}

func TestDelaysAreHeld(t *testing.T) {
	w := small(flow)
	w.Messages, w.Delay = 300, 300*time.Millisecond
	r := run1(t, &fake{}, w)
	if r.Status != result.OK || r.End.P50 <= 0 || r.End.Max > 0.2 {
		t.Errorf("late by %+v: %s", r.End, r.Status)
	}
	r = run1(t, &fake{early: 100 * time.Millisecond}, w)
	if want := "failed: 0 missing, 0 damaged, 600 early"; r.Status != want {
		t.Errorf("status %q, want %q", r.Status, want)
	}
}

// TestStallIsNotHidden: all that was due while the system stalled was late, not only the one that waited.
func TestStallIsNotHidden(t *testing.T) {
	w := small(trickle)
	w.Batch, w.Groups, w.Time = 1, 1, time.Second
	r := run1(t, &fake{stall: 600 * time.Millisecond}, w)
	if r.Status != result.OK || r.Sent != 500 {
		t.Fatalf("%+v", r)
	}
	// The stall falls into the warm-up or the run, by where the 100th message is: it is in the warm-up's 500.
	stalled := &fake{}
	stalled.on = func(n int, body []byte) [][]byte {
		if n == 600 {
			time.Sleep(600 * time.Millisecond)
		}
		return [][]byte{body}
	}
	r = run1(t, stalled, w)
	if r.Status != result.OK || r.End.P50 < 0.05 || r.End.Max < 0.5 {
		t.Errorf("a stall of 0.6 s in a second of load shows as %+v", r.End)
	}
}

func TestWhatCannotRunSaysWhy(t *testing.T) {
	cases := map[string]struct {
		fake *fake
		want string
	}{
		"not installed": {&fake{start: errors.New("no program\nand more")}, "not run: no program"},
		"no feature":    {&fake{queue: fmt.Errorf("a delay: %w", peer.ErrNoFeature)}, "no such feature: a delay"},
		"no queue":      {&fake{queue: errors.New("refused | so")}, "failed: refused , so"},
	}
	for name, c := range cases {
		if r := run1(t, c.fake, small(flow)); r.Status != c.want {
			t.Errorf("%s: status %q, want %q", name, r.Status, c.want)
		}
	}
}

func TestBody(t *testing.T) {
	body := newBody(500, rand.New(rand.NewPCG(1, 2)))
	mark(body, 12345, 678*time.Second)
	if len(body) != 500 || strings.ContainsFunc(string(body), func(r rune) bool { return r < '+' || r > 'z' }) {
		t.Errorf("%q is not text of 500 bytes", body)
	}
	if number, stamp, ok := read(body); !ok || number != 12345 || stamp != 678*time.Second {
		t.Errorf("read %d, %s, %t", number, stamp, ok)
	}
	for at := range body {
		body[at]++
		if _, _, ok := read(body); ok {
			t.Fatalf("a change of byte %d is not seen", at)
		}
		body[at]--
	}
}

func TestTimes(t *testing.T) {
	var samples []time.Duration
	for i := range 1001 {
		samples = append(samples, time.Duration(1000-i)*time.Millisecond)
	}
	if got, want := times(samples), (result.Times{P50: 0.5, P99: 0.99, P999: 0.999, Max: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWorkloadsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range All() {
		if seen[w.Name] || w.Title == "" || w.Senders < 1 || w.Receivers < 1 || w.Groups < 1 || w.Batch < 1 || w.Size < minBody || w.Time <= 0 {
			t.Errorf("%+v", w)
		}
		seen[w.Name] = true
		if (w.kind == trickle) != (w.Rate > 0) {
			t.Errorf("%s: only a trickle has a rate", w.Name)
		}
	}
}
