package scale_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// everyFault are the standard faults, and requests that are refused, arrive late or twice.
func everyFault() []fault.Fault {
	return append(fault.Standard(), fault.Throttle, fault.Late, fault.Repeat)
}

// next makes the rig another process, on the bare store.
func (r *rig) next() { r.assemble(r.bare) }

// TestByHandAtEachFault stops a split, and then a merge, at each store call in each way. Whatever became of
// it, the topic is whole, and the next process produces and changes it.
func TestByHandAtEachFault(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		r.create("t", topics.Config{})
		r.send("t", produce.Guard{}, keys("k", 60)...)
		seg := r.load("t").Open[0].ID
		r.assemble(fault.Meta(r.bare, plan))
		made, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: seg, Into: 3})
		if err == nil {
			_, err = r.scale.Merge(t.Context(), scale.MergeRequest{Topic: "t", Segments: made.Made[:2]})
		}
		plan.Release() // what was late arrives
		r.next()
		r.tiles("t")
		switch n := len(r.load("t").Open); {
		case err == nil && n != 2:
			t.Errorf("%d open segments", n)
		case len(made.Made) > 0 && n == 1:
			t.Error("the split is said to be made, and is not")
		}
		r.send("t", produce.Guard{}, keys("k", 60)...)
		if _, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: r.load("t").Open[0].ID}); err != nil {
			t.Errorf("the next split: %v", err)
		}
		r.tiles("t")
		if n := r.messages("t"); n != 120 {
			t.Errorf("%d messages, want 120", n)
		}
	}, everyFault()...)
}

// hot makes a topic whose load asks for a split.
func (r *rig) hot() {
	r.t.Helper()
	r.create("t", topics.Config{TargetMessages: 10})
	for range 90 {
		r.send("t", produce.Guard{}, keys("k", 200)...)
		r.now = r.now.Add(time.Second)
	}
}

// TestLeaderAtEachFault stops a leader at each store call in each way: the next one finishes, later by the
// lease at most.
func TestLeaderAtEachFault(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		r.hot()
		r.assemble(fault.Meta(r.bare, plan))
		_, _ = r.scale.Run(t.Context()) // what it could not do the next one does
		plan.Release()
		r.next()
		r.tiles("t")
		for range 3 {
			r.send("t", produce.Guard{}, keys("k", 1000)...)
			r.runLeader()
			r.now = r.now.Add(scale.LeaderTTL + time.Second)
		}
		r.tiles("t")
		if n := len(r.load("t").Open); n < 8 {
			t.Errorf("%d open segments", n)
		}
		if n := r.messages("t"); n != 90*200+3000 {
			t.Errorf("%d messages", n)
		}
	}, everyFault()...)
}

// stalled holds one transaction back until it is released: a leader that is frozen in the middle.
type stalled struct {
	meta.Store
	hold, reached chan struct{}
}

func (s *stalled) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	for _, op := range ops {
		if put, ok := op.(meta.Put); ok && put.Record.Kind() == meta.KindSegment {
			select {
			case s.reached <- struct{}{}:
				<-s.hold
			default:
			}
		}
	}
	return s.Store.Transact(ctx, ops)
}

// TestTwoLeaders: a leader that was frozen before its change, while another took over and made changes of
// its own, changes nothing when it goes on.
func TestTwoLeaders(t *testing.T) {
	r := newRig(t)
	r.hot()
	st := &stalled{Store: r.bare, hold: make(chan struct{}), reached: make(chan struct{}, 1)}
	r.assemble(st)
	old := r.scale
	done := make(chan error, 1)
	go func() { _, err := old.Run(context.Background()); done <- err }()
	select {
	case <-st.reached:
	case err := <-done:
		t.Fatalf("the first leader changed nothing: %v", err)
	}
	r.next()
	r.runLeader() // sees the other's lease
	r.now = r.now.Add(scale.LeaderTTL + time.Second)
	if rep := r.runLeader(); rep.Splits != 1 {
		t.Fatalf("the second leader: %+v", rep)
	}
	epoch := r.load("t").Topic.Epoch
	close(st.hold)
	if err := <-done; !queue.Is(err, queue.KindFenced) {
		t.Errorf("the first leader: %v", err)
	}
	if got := r.load("t").Topic.Epoch; got != epoch {
		t.Errorf("topic epoch %d became %d", epoch, got)
	}
	r.tiles("t")
}

// overtaken carries out the first change that it is given, lets another in, and loses the answer.
type overtaken struct {
	meta.Store
	then func(made queue.SegmentID)
}

func (o *overtaken) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	results, err := o.Store.Transact(ctx, ops)
	for _, op := range ops {
		put, ok := op.(meta.Put)
		if !ok || o.then == nil {
			continue
		}
		if seg, ok := put.Record.(*meta.Segment); ok {
			then := o.then
			o.then = nil
			then(seg.ID)
			return nil, &queue.Error{Op: "transact", Kind: queue.KindOutcomeUnknown}
		}
	}
	return results, err
}

// TestOvertakenByHand: a change whose answer is lost was made, also if somebody has changed what it made before
// its outcome is looked up.
func TestOvertakenByHand(t *testing.T) {
	r := newRig(t)
	r.create("t", topics.Config{})
	r.next()
	other := r.scale
	r.assemble(&overtaken{Store: r.bare, then: func(made queue.SegmentID) {
		if _, err := other.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: made}); err != nil {
			t.Errorf("the second split: %v", err)
		}
	}})
	made, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: r.load("t").Open[0].ID})
	if err != nil || len(made.Made) != 2 {
		t.Errorf("the split that was made is answered %+v, %v", made, err)
	}
	r.tiles("t")
	if n := len(r.load("t").Open); n != 3 {
		t.Errorf("%d open segments, want 3", n)
	}
}
