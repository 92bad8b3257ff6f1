package fault_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// drawn is what a random plan does to a fixed sequence of calls.
func drawn(t *testing.T, plan *fault.Plan, calls int) string {
	t.Helper()
	s := fault.Meta(memmeta.New(t), plan)
	for i := range calls {
		_ = create(t.Context(), s, fmt.Sprint(i))
	}
	var b strings.Builder
	for _, c := range plan.Calls() {
		b.WriteString(c.Fault.String() + ",")
	}
	return b.String()
}

func TestRandomRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odds := fault.Odds{fault.FailBefore: 0.1, fault.FailAfter: 0.1, fault.Delay: 0.2, fault.Repeat: 0.1}
		opts := fault.Options{MaxPause: time.Second}
		start := time.Now()
		first := drawn(t, fault.Random(7, odds, opts), 200)
		took := time.Since(start)
		start = time.Now()
		if again := drawn(t, fault.Random(7, odds, opts), 200); again != first || time.Since(start) != took {
			t.Errorf("seed 7 gave\n%s in %v, then\n%s in %v", first, took, again, time.Since(start))
		}
		if other := drawn(t, fault.Random(8, odds, opts), 200); other == first {
			t.Error("seeds 7 and 8 gave the same")
		}
		for f, p := range odds {
			if n := float64(strings.Count(first, f.String())) / 200; n < p/2 || n > p*2 {
				t.Errorf("%s came with frequency %g, its odds are %g", f, n, p)
			}
		}
		if took == 0 || took > 200*time.Second {
			t.Errorf("delays took %v", took)
		}
	})
}

// An armed rule decides before the odds and does not shift them.
func TestArmGoesBeforeTheOdds(t *testing.T) {
	odds := fault.Odds{fault.Throttle: 0.5}
	plain := strings.Split(drawn(t, fault.Random(3, odds, fault.Options{}), 20), ",")
	plan := fault.Random(3, odds, fault.Options{})
	plan.Arm(fault.Rule{Nth: 5, Fault: fault.FailBefore})
	armed := strings.Split(drawn(t, plan, 20), ",")
	for i := range plain {
		want := plain[i]
		if i == 4 {
			want = fault.FailBefore.String()
		}
		if armed[i] != want {
			t.Errorf("call %d got %s, want %s", i+1, armed[i], want)
		}
	}
}

func TestRandomRefusesBadOdds(t *testing.T) {
	for name, odds := range map[string]fault.Odds{
		"negative":     {fault.Throttle: -0.1},
		"more than 1":  {fault.Throttle: 1.1},
		"sum past 1":   {fault.Throttle: 0.6, fault.Delay: 0.6},
		"of no fault":  {fault.None: 0.1},
		"of none such": {fault.Fault(200): 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("accepted")
				}
			}()
			fault.Random(1, odds, fault.Options{})
		})
	}
}

func TestTrace(t *testing.T) {
	plan := fault.Random(42, fault.Odds{fault.Throttle: 0}, fault.Options{})
	plan.Arm(fault.Rule{Nth: 2, Fault: fault.FailAfter})
	s := fault.Meta(memmeta.New(t), plan)
	_ = create(t.Context(), s, "a")
	_ = create(t.Context(), s, "a")
	_, _ = s.Get(t.Context(), meta.NameKey("b"))
	want := []string{
		"fault plan, seed 42: 3 calls",
		`  step 1 put name n a: ok`,
		`  step 2 put name n a: FAIL AFTER: put name "n a": outcome unknown: injected at step 2: fail after (the store said: put name "n a" refused: exists)`,
		`  step 3 get n b: `,
	}
	got := strings.Split(plan.Trace(), "\n")
	if len(got) < len(want) {
		t.Fatalf("trace:\n%s", plan.Trace())
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("line %d:\n%s\nwant\n%s", i, got[i], w)
		}
	}
	if plan.String() != want[0] {
		t.Errorf("plan renders as %q", plan)
	}
	if fired := plan.Fired(); len(fired) != 1 || fired[0].Step != 2 {
		t.Errorf("fired: %v", fired)
	}
}

func TestLogIsBounded(t *testing.T) {
	plan := fault.Script(fault.Options{}, fault.Rule{Fault: fault.Throttle})
	s := fault.Meta(memmeta.New(t), plan)
	const calls = 25_000
	for range calls {
		_, _ = s.Get(t.Context(), meta.NameKey("a"))
	}
	log := plan.Calls()
	if plan.Steps() != calls || len(log) > 10_000 || log[len(log)-1].Step != calls {
		t.Errorf("%d steps, %d remembered, the last %d", plan.Steps(), len(log), log[len(log)-1].Step)
	}
}

func TestConcurrentUse(t *testing.T) {
	plan := fault.Random(1, fault.Odds{
		fault.FailBefore: 0.1, fault.FailAfter: 0.1, fault.Freeze: 0.2, fault.Late: 0.2, fault.Delay: 0.1,
	}, fault.Options{MaxPause: time.Millisecond})
	bare := memmeta.New(t)
	s := fault.Meta(bare, plan)
	const workers, each = 8, 40
	done := make(chan struct{})
	var helpers, wg sync.WaitGroup
	helpers.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				plan.Release()
				_ = plan.Trace()
			}
		}
	})
	acked := make([][]string, workers)
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				n := fmt.Sprintf("%d.%d", w, i)
				switch err := create(t.Context(), s, n); {
				case err == nil:
					acked[w] = append(acked[w], n)
				case !queue.Is(err, queue.KindUnavailable) && !queue.Is(err, queue.KindOutcomeUnknown):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	helpers.Wait()
	for _, names := range acked {
		for _, n := range names {
			if !exists(t, bare, n) {
				t.Errorf("%s was acknowledged and is not there", n)
			}
		}
	}
	if plan.Steps() != workers*each {
		t.Errorf("%d steps", plan.Steps())
	}
}
