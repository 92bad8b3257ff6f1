package flood_test

import (
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// short is the flood at a tenth, over a store of a tenth, for a few minutes.
func short() plan {
	return plan{
		limit: 100, target: 500, calm: time.Minute, flood: 3 * time.Minute,
		single: 10, small: 20, bigs: 98, big: 100, window: 10 * time.Second,
	}
}

// full is the flood of docs/scaling.md.
func full() plan {
	return plan{
		limit: 1000, target: 5000, calm: 10 * time.Minute, flood: 10 * time.Minute,
		single: 100, small: 20, bigs: 980, big: 100, window: 10 * time.Second,
	}
}

// TestFlood offers little load, then a thousand times as much, then none. Nothing that was acknowledged is
// lost or out of order, latency is back to normal soon, and the segments go up with the load and back.
// SPILLWAY_FLOOD=full makes the whole flood, SPILLWAY_FLOOD_PLOT is a file for its plot.
func TestFlood(t *testing.T) {
	p := short()
	if os.Getenv("SPILLWAY_FLOOD") == "full" {
		p = full()
	}
	var r *run
	synctest.Test(t, func(t *testing.T) {
		r = newRun(t, p)
		r.make()
	})
	r.t = t
	total := r.check()
	counts := r.store.Counts()
	t.Logf("%d messages, in order by key; %d calls of the store, %.0f write units, %d throttled; %d calls not offered for want of room\n%s",
		total, counts.Requests, counts.Units, counts.Throttles, r.missed, r.table())
	if file := os.Getenv("SPILLWAY_FLOOD_PLOT"); file != "" {
		if err := os.WriteFile(file, []byte(r.plot()), 0o600); err != nil {
			t.Error(err)
		}
	}
	r.judge()
}

// judge holds the curve to what was promised.
func (r *run) judge() {
	t := r.t
	normal, most := time.Duration(0), 0
	calm, flood := int(r.plan.calm/r.plan.window), int((r.plan.calm+r.plan.flood)/r.plan.window)
	for i, w := range r.curve {
		if i < calm && i > 0 {
			normal = max(normal, w.p99)
		}
		most = max(most, w.segments)
	}
	// Normal again: from when on no window of the flood is much slower than the slowest one before it.
	back := flood
	for back > calm && r.curve[back-1].p99 <= normal*3/2 {
		back--
	}
	if back == flood {
		t.Errorf("latency does not get back to normal (%v): p99 is %v in the end", normal, r.curve[flood-1].p99)
		return
	}
	doublings := int(math.Ceil(math.Log2(float64(most))))
	since, until, runs := r.plan.calm, r.curve[back].at, 0
	for _, one := range r.rounds {
		if one.rep.Led && one.at > since && one.at <= until {
			runs++
		}
	}
	t.Logf("p99 %v before the flood, back within half more of it %v after its begin, after %d runs of the leader for %d doublings (%d segments)", normal, until-since, runs, doublings, most)
	if runs > 2*doublings {
		t.Errorf("%d runs of the leader for %d doublings", runs, doublings)
	}
	_, offered := r.plan.offered()
	if least := offered / int(r.plan.target) / 2; most < least || most > 6*least {
		t.Errorf("%d segments for %d messages a second at %d each", most, offered, r.plan.target)
	}
	last := r.curve[len(r.curve)-1]
	if last.segments != 1 {
		t.Errorf("%d segments are left after %v", last.segments, last.at)
	}
	t.Logf("one segment again %v after the flood", r.mergedAt()-r.plan.calm-r.plan.flood)
}

// mergedAt is when the segments were first down to the minimum for good.
func (r *run) mergedAt() time.Duration {
	i := len(r.curve)
	for i > 0 && r.curve[i-1].segments == 1 {
		i--
	}
	return time.Duration(i) * r.plan.window
}
