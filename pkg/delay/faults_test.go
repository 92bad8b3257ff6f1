package delay

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// everyFault are the standard faults, and requests that arrive late or twice.
func everyFault() []fault.Fault {
	return append(fault.Standard(), fault.Throttle, fault.Late, fault.Repeat)
}

func (r *rig) broken(plan *fault.Plan) *Service {
	return r.on(fault.Meta(r.store, plan), fault.Blob(r.blobs, plan))
}

// Invariants 6 and 8: whatever call of a promotion fails, in whatever way, the next one goes on, and
// each message is promoted once, none early, none that expired.
func TestPromoteAtEachFault(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t, delayedTopic(3))
		r.put(t, group{visible: r.in(10), slots: spread(7), name: "a"})
		r.put(t, group{visible: r.in(11), expires: r.in(5), name: "expired"})
		moved := r.put(t, group{visible: r.in(99), name: "b"})
		if _, err := r.Edit(t.Context(), topicName, moved[0], Edit{Delay: ptr(12 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			r.put(t, group{visible: r.in(20 + i), slots: spread(2), name: "c"})
		}
		r.put(t, group{visible: r.in(60), name: "early"})
		// A tail without room, so that the promotion has to roll.
		m := r.open(t)
		r.fill(t, m.Open[0])
		before := len(r.contents(t))
		r.pass(30 * time.Second)

		s := r.broken(plan)
		_, next, err := s.Promote(t.Context(), m, r.millis())
		if err == nil && (r.entries(t) != 1 || next != r.in(30)) {
			t.Errorf("promoted without an error, but %d entries are left, next %v", r.entries(t), next)
		}
		plan.Release() // what was late arrives
		if _, next, err = r.next().Promote(t.Context(), m, r.millis()); err != nil || next != r.in(30) {
			t.Fatalf("the next process: next %v, %v", next, err)
		}
		want := []string{"a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "b-0"}
		for range 6 {
			want = append(want, "c-0", "c-1")
		}
		slices.Sort(want)
		got := slices.DeleteFunc(bodies(r.contents(t)), func(b string) bool { return b == "x" })
		if !slices.Equal(got, want) || len(r.contents(t)) != before+len(want) {
			t.Errorf("promoted %v", got)
		}
		if r.entries(t) != 1 || r.forwards(t) != 1 {
			t.Errorf("%d entries, %d forwards", r.entries(t), r.forwards(t))
		}
		wantCode(t, r.Cancel(t.Context(), topicName, moved[0]), queue.CodeAlreadyPromoted)
	}, everyFault()...)
}

// fill appends to a head until its tail has no room.
func (r *rig) fill(t tester, seg *meta.Segment) {
	t.Helper()
	for range queue.MaxTailRefs {
		ref := meta.Ref{Kind: meta.RefPayload, ID: r.IDs.Nonce(), Object: r.object(t, "x"), Len: 1, Count: 1, Bytes: 1, Slot: 1, Created: r.millis()}
		op := meta.Append{Segment: seg.ID, Epoch: seg.Epoch, Refs: []meta.Ref{ref}, At: r.millis()}
		op.Buckets[0] = 1
		if _, err := r.store.Apply(background(), op); err != nil {
			t.Fatal(err)
		}
	}
}

// A promotion in parts is one of several transactions on one entry.
func TestPromoteInPartsAtEachFault(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t, delayedTopic(130))
		r.put(t, group{visible: r.in(1), slots: spread(260), name: "a"})
		m := r.open(t)
		r.pass(time.Second)
		_, _, err := r.broken(plan).Promote(t.Context(), m, r.millis())
		if n := r.entries(t); err == nil && n != 0 {
			t.Errorf("promoted without an error, but %d entries are left", n)
		}
		plan.Release()
		if _, _, err := r.next().Promote(t.Context(), m, r.millis()); err != nil {
			t.Fatal(err)
		}
		got := bodies(r.contents(t))
		if len(got) != 260 || len(slices.Compact(got)) != 260 || r.entries(t) != 0 {
			t.Errorf("%d messages, %d entries", len(got), r.entries(t))
		}
	}, everyFault()...)
}

// An edit that fails in any way leaves its message once, as it was or as it should be; one that was
// acknowledged leaves it as it should be.
func TestEditAtEachFault(t *testing.T) {
	large := string(make([]byte, 2*queue.InlinePayloadBytes))
	for _, c := range []struct {
		name  string
		first *Edit // made before, without faults
		edit  Edit
		body  string
		at    int
	}{
		{"out of a group", nil, Edit{Body: ptr([]byte("new")), Delay: ptr(90 * time.Second)}, "new", 90},
		{"large", nil, Edit{Body: ptr([]byte(large))}, large, 60},
		{"moved again", &Edit{Delay: ptr(70 * time.Second)}, Edit{Delay: ptr(20 * time.Second)}, "a-0", 20},
		{"in place", &Edit{Delay: ptr(70 * time.Second)}, Edit{Headers: &map[string]string{"x": "y"}}, "a-0", 70},
	} {
		t.Run(c.name, func(t *testing.T) {
			fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
				r := newRig(t, delayedTopic(1))
				ids := r.put(t, group{visible: r.in(60), slots: spread(2), name: "a"})
				was := Message{Visible: r.in(60), Body: []byte("a-0")}
				if c.first != nil {
					if _, err := r.Edit(t.Context(), topicName, ids[0], *c.first); err != nil {
						t.Fatal(err)
					}
					was.Visible = r.in(70)
				}
				_, err := r.broken(plan).Edit(t.Context(), topicName, ids[0], c.edit)
				plan.Release()
				if n := len(r.waiting(t)); n != 2 {
					t.Errorf("%d messages wait", n)
				}
				got, gerr := r.Get(t.Context(), topicName, ids[0])
				if gerr != nil {
					t.Fatal(gerr)
				}
				edited := string(got.Body) == c.body && got.Visible == r.in(c.at)
				if !edited && (err == nil || !bytes.Equal(got.Body, was.Body) || got.Visible != was.Visible) {
					t.Errorf("error %v, message %.20q at %v", err, got.Body, got.Visible)
				}
				r.pass(2 * time.Minute)
				r.promote(t)
				if got := bodies(r.contents(t)); len(got) != 2 || !slices.Contains(got, "a-1") || r.entries(t)+r.forwards(t) != 0 {
					t.Errorf("promoted %.40v; %d entries, %d forwards", got, r.entries(t), r.forwards(t))
				}
			}, everyFault()...)
		})
	}
}

func TestCancelAtEachFault(t *testing.T) {
	for _, c := range []struct {
		name  string
		moved bool
	}{{"in a group", false}, {"moved", true}} {
		t.Run(c.name, func(t *testing.T) {
			fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
				r := newRig(t, delayedTopic(1))
				ids := r.put(t, group{visible: r.in(60), slots: spread(2), name: "a"})
				if c.moved {
					if _, err := r.Edit(t.Context(), topicName, ids[0], Edit{Delay: ptr(30 * time.Second)}); err != nil {
						t.Fatal(err)
					}
				}
				err := r.broken(plan).Cancel(t.Context(), topicName, ids[0])
				plan.Release()
				_, gerr := r.Get(t.Context(), topicName, ids[0])
				if err == nil {
					wantCode(t, gerr, queue.CodeDelayedNotFound)
				}
				want := []string{"a-0", "a-1"}
				if gerr != nil {
					want = want[1:]
				}
				r.pass(time.Minute)
				r.promote(t)
				if got := bodies(r.contents(t)); !slices.Equal(got, want) || r.entries(t)+r.forwards(t) != 0 {
					t.Errorf("promoted %v, want %v; %d entries, %d forwards", got, want, r.entries(t), r.forwards(t))
				}
			}, everyFault()...)
		})
	}
}

// A cancel whose answer is lost while the message becomes due cannot tell what became of it, and says
// so.
func TestCancelOvertakenByPromotion(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	ids := r.put(t, group{visible: r.in(1), name: "a"})
	plan := fault.Script(fault.Options{}, fault.Rule{Op: "transact", Fault: fault.FailAfter})
	s := r.broken(plan)
	if _, err := s.Topics.Open(t.Context(), topicName); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Second)
	err := s.Cancel(t.Context(), topicName, ids[0])
	wantCode(t, err, queue.CodeOutcomeUnknown)
}

func TestSweepAtEachFault(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t, delayedTopic(1))
		ids := r.put(t, group{visible: r.in(60), slots: spread(3), name: "a"})
		for i, delay := range []time.Duration{time.Second, time.Second, 90 * time.Second} {
			if _, err := r.Edit(t.Context(), topicName, ids[i], Edit{Delay: &delay}); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(time.Second)
		r.promote(t)
		r.pass(time.Minute)
		_, _, _ = r.broken(plan).PromoteAll(t.Context())
		plan.Release()
		if _, _, err := r.next().PromoteAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The one that waits keeps its forward.
		if n := r.forwards(t); n != 1 {
			t.Errorf("%d forwards", n)
		}
		if _, err := r.Get(t.Context(), topicName, ids[2]); err != nil {
			t.Error(err)
		}
	}, everyFault()...)
}

// A cancel is overtaken by a promotion, by a process whose clock is ahead: by the canceller's clock the
// message's time has not come, and it must not take what is gone for cancelled.
func TestCancelOvertakenByClockAhead(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	ids := r.put(t, group{visible: r.in(1), name: "a"})
	fast := r.next()
	fast.Clock = func() time.Time { return r.clock().Add(2 * time.Second) }
	overtake := func(ctx context.Context, _ time.Duration) error {
		if n, _, err := fast.Promote(ctx, r.open(t), fast.Clock.Millis()); n != 1 || err != nil {
			t.Error(n, err)
		}
		return nil
	}
	plan := fault.Script(fault.Options{Sleep: overtake}, fault.Rule{Op: "transact", Nth: 1, Fault: fault.Delay})
	if err := r.broken(plan).Cancel(t.Context(), topicName, ids[0]); err == nil {
		t.Error("a message that was promoted is said to be cancelled")
	}
}
