package consume_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestPoisonIsIsolated lets every consumer die that is handed the poison message: all others get
// through, and the poison ends in the dead-letter topic by itself.
func TestPoisonIsIsolated(t *testing.T) {
	const n, poison, deliveries = 40, 17, 5
	e := newEnv(t, options{})
	dead := e.topic("dead", 1, nil)
	m := e.topic("a", 1, func(_ *meta.Topic, s *meta.Subscription) {
		s.MaxDeliveries, s.DeadLetterTopic = deliveries, "dead"
	})
	seg := m.Open[0]
	e.add(seg, false, numbered(n)...)
	acked := make(map[queue.Offset]bool)
	mates := n // how many messages the poison was with the last time
	for range 200 {
		got := e.claim("a", 100)
		for _, with := range byClaim(got) {
			i := slices.IndexFunc(with, func(g msg) bool { return g.off == poison })
			if i < 0 {
				for _, g := range with {
					acked[g.off] = true
				}
				e.ack("a", with)
				continue
			}
			switch attempt := with[i].attempt; {
			case attempt == 2 && len(with) > mates/2:
				t.Errorf("second delivery: %d of %d together", len(with), mates)
			case attempt > 2 && len(with) > 1:
				t.Errorf("delivery %d: %d together", attempt, len(with))
			}
			mates = len(with)
		}
		e.pass(30 * time.Second)
	}
	if len(acked) != n-1 {
		t.Errorf("%d messages were acked, want %d", len(acked), n-1)
	}
	got := e.claim("dead", 10)
	if len(got) != 1 || got[0].body != "m17" {
		t.Fatalf("the dead-letter topic holds %v", got)
	}
	_ = dead
	if cur := e.cursor(m, seg); cur.Floor != n || len(cur.Claims)+len(cur.Retries) != 0 {
		t.Errorf("cursor is %+v", cur)
	}
}

func byClaim(ms []msg) [][]msg {
	var out [][]msg
	index := make(map[queue.ClaimID]int)
	for _, m := range ms {
		i, ok := index[m.claim]
		if !ok {
			i = len(out)
			index[m.claim] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], m)
	}
	return out
}

func TestRedeliveryOfARun(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(8)...)
	e.claim("a", 8)
	e.pass(30 * time.Second)
	first := e.claim("a", 100)
	wantOffsets(t, "second delivery, first piece", first, 0, 1, 2, 3)
	second := e.claim("a", 100)
	wantOffsets(t, "second delivery, second piece", second, 4, 5, 6, 7)
	wantOffsets(t, "nothing more", e.claim("a", 100))
	e.pass(30 * time.Second)
	var seen []queue.Offset
	for range 8 {
		got := e.claim("a", 100)
		if len(got) != 1 || got[0].attempt != 3 {
			t.Fatalf("third delivery: %+v", got)
		}
		seen = append(seen, got[0].off)
	}
	slices.Sort(seen)
	if !slices.Equal(seen, span(0, 8)) {
		t.Errorf("third deliveries were of %v", seen)
	}
}

func TestRedeliveryOfAPart(t *testing.T) {
	for _, tc := range []struct {
		name string
		n    int
		max  int
		want []queue.Offset
	}{
		{"odd run", 5, 100, span(0, 2)},
		{"one message", 1, 100, span(0, 1)},
		{"two messages", 2, 100, span(0, 1)},
		{"fewer wanted than half", 10, 2, span(0, 2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			m := e.topic("a", 1, nil)
			e.add(m.Open[0], false, numbered(tc.n)...)
			e.claim("a", tc.n)
			e.pass(30 * time.Second)
			seen := e.claim("a", tc.max)
			wantOffsets(t, "first piece", seen, tc.want...)
			for range 10 {
				got := e.claim("a", 100)
				if len(got) > max(1, tc.n/2) {
					t.Errorf("a piece of %d out of %d", len(got), tc.n)
				}
				seen = append(seen, got...)
			}
			if len(seen) != tc.n {
				t.Errorf("%d messages came back, want %d", len(seen), tc.n)
			}
		})
	}
}

func TestLastDeliveryIsAlone(t *testing.T) {
	e := newEnv(t, options{})
	e.topic("dead", 1, nil)
	m := e.topic("a", 1, func(_ *meta.Topic, s *meta.Subscription) { s.MaxDeliveries, s.DeadLetterTopic = 2, "dead" })
	e.add(m.Open[0], false, numbered(4)...)
	e.claim("a", 4)
	e.pass(30 * time.Second)
	for range 4 {
		if got := e.claim("a", 100); len(got) != 1 {
			t.Fatalf("last delivery: %d together", len(got))
		}
	}
}

func TestExpiryOfAPartKeepsTheLivePart(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(6)...)
	got := e.claim("a", 6)
	errs, err := e.svc.Extend(context.Background(), "a", "sub", receipts(got[2:4]), time.Hour)
	e.noErrors("extend", errs, err)
	e.pass(30 * time.Second)
	again := append(e.claim("a", 100), e.claim("a", 100)...)
	slices.SortFunc(again, func(a, b msg) int { return int(a.off) - int(b.off) })
	wantOffsets(t, "expired parts", again, 0, 1, 4, 5)
	e.ack("a", got[2:4])
	e.ack("a", again)
	if cur := e.cursor(m, m.Open[0]); cur.Floor != 6 {
		t.Errorf("cursor is %+v", cur)
	}
}

func TestReleasedComeBackByThemselves(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(6)...)
	got := e.claim("a", 6)
	e.release("a", got[2:4], consume.Release{Reason: "bad"})
	again := e.claim("a", 100)
	wantOffsets(t, "released", again, 2, 3)
	if again[0].attempt != 2 {
		t.Errorf("attempt is %d", again[0].attempt)
	}
	e.ack("a", append(again, got[0], got[1], got[4], got[5]))
	if cur := e.cursor(m, m.Open[0]); cur.Floor != 6 {
		t.Errorf("cursor is %+v", cur)
	}
}

func TestNeitherKindStarvesTheOther(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		e := newEnv(t, options{})
		m := e.topic("a", 1, nil)
		e.add(m.Open[0], false, numbered(1000)...)
		e.release("a", e.claim("a", 400), consume.Release{})
		due, fresh := 0, 0
		for range 60 {
			got := e.claim("a", n)
			if len(got) != n {
				t.Fatalf("claimed %d, want %d", len(got), n)
			}
			for _, g := range got {
				if g.attempt > 1 {
					due++
				} else {
					fresh++
				}
			}
		}
		if due < 10*n || fresh < 10*n {
			t.Errorf("claims of %d: %d due, %d fresh", n, due, fresh)
		}
	}
}

func TestWhatOneKindLeavesTheOtherTakes(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(20)...)
	got := e.claim("a", 10)
	e.release("a", got[:2], consume.Release{})
	wantOffsets(t, "few due", e.claim("a", 10), append([]queue.Offset{0, 1}, span(10, 18)...)...)
	e.release("a", got[2:], consume.Release{})
	wantOffsets(t, "few fresh", e.claim("a", 10), append(span(2, 10), 18, 19)...)
}

func TestDueComeOldestFirst(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(6)...)
	got := e.claim("a", 6)
	for _, i := range []int{4, 2, 0} {
		e.release("a", got[i:i+1], consume.Release{})
		e.pass(time.Second)
	}
	for _, want := range []queue.Offset{4, 2, 0} {
		wantOffsets(t, "next", e.claim("a", 1), want)
	}
}

// TestAckRacesWithExpiry is what races between an ack, a timeout and a truncation must come to,
// whichever is first.
func TestAckRacesWithExpiry(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(e *env)
		lost   bool
	}{
		{"expired, not claimed anew", func(*env) {}, false},
		{"claimed anew", func(e *env) { e.claim("a", 10) }, true},
		{"truncated while claimed", func(e *env) { e.truncate(e.names.maps["a"].Open[0], 1) }, false},
		{"truncated and passed over", func(e *env) {
			e.truncate(e.names.maps["a"].Open[0], 1)
			e.claim("a", 10)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			m := e.topic("a", 1, nil)
			e.add(m.Open[0], false, numbered(1)...)
			got := e.claim("a", 1)
			e.pass(30 * time.Second)
			tc.before(e)
			errs, err := e.svc.Ack(t.Context(), "a", "sub", receipts(got))
			if err != nil {
				t.Fatal(err)
			}
			if tc.lost {
				wantCode(t, errs[0], queue.CodeClaimLost)
			} else if errs[0] != nil {
				t.Errorf("ack: %v", errs[0])
			}
		})
	}
}
