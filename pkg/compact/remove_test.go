package compact_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// doomed makes a topic that holds a bit of everything: pages and tails, inline and not, shared by segments
// and by dead letters; delayed entries, some edited and some cancelled; uploads; cursors of subscriptions
// that live, were moved or were deleted; an idempotent producer and an Idempotency-Key. beside is another
// topic, with dead letters out of it.
func (r *rig) doomed(name, beside string) {
	r.t.Helper()
	r.create(beside, topics.Config{})
	r.create(name, topics.Config{MinSegments: 2, MaxDelay: 100 * time.Hour})
	sub := topics.SubscriptionConfig{MaxDeliveries: 1, DeadLetterTopic: beside}
	for _, s := range []string{"sub", "sought", "gone", "stays"} {
		cfg := sub
		if s != "sub" {
			cfg = topics.SubscriptionConfig{}
		}
		if _, _, err := r.sys.Topics.CreateSubscription(r.t.Context(), name, s, cfg); err != nil {
			r.t.Fatal(err)
		}
	}
	r.send(name, large(4)...)
	r.fill(name, 6, 0)
	r.rollAll(name)
	r.fill(name, 3, 7)
	r.letters(r.sys, name, 4)
	for _, s := range []string{"sought", "gone", "stays"} {
		if _, err := r.sys.Consume.Claim(r.t.Context(), consume.ClaimRequest{Topic: name, Subscription: s, MaxMessages: 100}); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := r.sys.Topics.Seek(r.t.Context(), name, "sought", topics.Start{}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.sys.Topics.DeleteSubscription(r.t.Context(), name, "gone"); err != nil {
		r.t.Fatal(err)
	}
	upload := r.upload(name, "payload")
	if err := r.submit(name, upload, upload); err != nil {
		r.t.Fatal(err)
	}
	for i, g := range []produce.Guard{{ProducerID: "p", Sequence: 1}, {IdempotencyKey: "k"}} {
		_, err := r.sys.Produce.Produce(r.t.Context(), produce.Request{Topic: name, Messages: sized(2, 50+i), Guard: g})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	delayed := 50 * time.Hour
	if _, err := r.sys.Topics.Update(r.t.Context(), name, topics.Patch{DefaultDelay: &delayed}); err != nil {
		r.t.Fatal(err)
	}
	r.pass(5 * time.Second)
	r.send(name, large(3)...)
	r.send(name, sized(6, 50)...)
	listed, _, err := r.sys.Delay.List(r.t.Context(), name, delay.Listing{Limit: 4})
	if err != nil {
		r.t.Fatal(err)
	}
	wait, body := 60*time.Hour, []byte("other")
	if err := r.sys.Delay.Cancel(r.t.Context(), name, listed[0].ID); err != nil {
		r.t.Fatal(err)
	}
	for i, e := range []delay.Edit{{Delay: &wait}, {Body: &body}} {
		if _, err := r.sys.Delay.Edit(r.t.Context(), name, listed[i+1].ID, e); err != nil {
			r.t.Fatal(err)
		}
	}
}

// gone holds that nothing of a topic is left but what expires by itself.
func (r *rig) gone(id queue.TopicID) {
	r.t.Helper()
	for _, item := range r.meta.All() {
		switch rec := item.Record.(type) {
		case *meta.Topic:
			if rec.ID == id {
				r.t.Errorf("the topic is there: %+v", rec)
			}
		case *meta.Removal:
			r.t.Errorf("a removal is left: %+v", rec)
		case *meta.Attempt:
			if rec.Expires == 0 {
				r.t.Errorf("an attempt that never expires: %+v", rec)
			}
		}
	}
	r.audit()
}

// TestTopicRemoved: a deleted topic's records and bytes go, after the grace period and not before, and what
// another topic shares with it stays.
func TestTopicRemoved(t *testing.T) {
	r := newRig(t)
	r.doomed("one", "beside")
	m, err := r.sys.Topics.Open(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	want := r.read("beside")
	if len(want) == 0 {
		t.Fatal("no dead letter shares bytes with the topic")
	}
	before := r.stored()
	if err := r.sys.Topics.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	r.pass(2 * time.Minute)
	r.run()
	r.pass(queue.GracePeriod - time.Minute)
	r.run()
	if got := r.stored(); got != before {
		t.Errorf("within the grace period %d of %d objects are left", got, before)
	}
	removed := 0
	for range 6 {
		r.pass(queue.GracePeriod)
		removed += r.run().Removed
	}
	if removed < 3 { // the topic, and the ids of two subscriptions
		t.Errorf("%d removals came to their end", removed)
	}
	r.pass(25 * time.Hour)
	r.sweep()
	r.settle()
	r.same("the other topic", r.read("beside"), want)
	r.gone(m.ID())
}

// TestRemovalCrashes stops the deletion of a topic, and the compactors that remove it, at each of their
// calls: others finish, nothing is left and nothing else is lost.
func TestRemovalCrashes(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		r.seed(1) // which segment comes first, and so the number of calls, goes by their ids
		r.doomed("one", "beside")
		m, err := r.sys.Topics.Open(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		want := r.read("beside")
		sys := r.system(fault.Meta(r.meta, plan), fault.Blob(r.blob, plan), r.clock)
		begun := sys.Topics.Delete(t.Context(), "one")
		s := r.compactor(fault.Meta(r.meta, plan), fault.Blob(r.blob, plan))
		for range 5 {
			r.pass(queue.GracePeriod + time.Minute)
			_, _ = s.Run(t.Context())
		}
		r.same("after the first compactor", r.read("beside"), want)
		plan.Heal()
		if begun != nil {
			// Who died before the note was made has deleted nothing. Who died after it need not come again.
			if _, _, err := meta.Fetch[*meta.Name](t.Context(), r.meta, meta.NameKey("one")); err == nil {
				if err := r.sys.Topics.Delete(t.Context(), "one"); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 3 {
			r.settle()
			r.sweep()
		}
		r.same("in the end", r.read("beside"), want)
		r.gone(m.ID())
	}, append(fault.Standard(), fault.Repeat)...)
}

// TestDeleterDies: a deletion that stopped after its first step is finished by the compactor, and the name
// is free in minutes.
func TestDeleterDies(t *testing.T) {
	r := newRig(t)
	m := r.create("one", topics.Config{MinSegments: 2})
	r.send("one", large(4)...)
	plan := fault.Script(fault.Options{}, fault.Rule{Op: "seal", Nth: 1, Fault: fault.CrashBefore})
	if err := r.system(fault.Meta(r.meta, plan), r.blob, r.clock).Topics.Delete(t.Context(), "one"); err == nil {
		t.Fatal("the deleter lives")
	}
	r.pass(2 * time.Minute)
	r.run()
	if _, err := r.meta.Get(t.Context(), meta.NameKey("one")); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("the name is not free: %v", err)
	}
	next := r.create("one", topics.Config{})
	r.send("one", large(1)...)
	want := r.read("one")
	for range 5 {
		r.settle()
	}
	r.same("the new topic of that name", r.read("one"), want)
	if next.ID() == m.ID() {
		t.Error("the new topic is the old one")
	}
	r.gone(m.ID())
}

// TestHalfMade: a topic of many segments whose maker dies before it is there leaves nothing.
func TestHalfMade(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		sys := r.system(fault.Meta(r.meta, plan), r.blob, r.clock)
		_, _, err := sys.Topics.Create(t.Context(), "wide", topics.Config{MinSegments: 120})
		plan.Heal()
		for range 2 {
			r.settle()
		}
		if err == nil {
			if _, err := r.sys.Topics.Reload(t.Context(), "wide"); err != nil {
				t.Errorf("it was made, and: %v", err)
			}
		}
		r.audit()
	}, append(fault.Standard(), fault.Repeat)...)
}

// TestMakerStalls: a maker who stalls until what it has put was taken for garbage makes no topic without
// segments.
func TestMakerStalls(t *testing.T) {
	r := newRig(t)
	slow := &stall{Store: r.meta, match: "put name", while: func() { r.settle() }}
	_, _, err := r.system(slow, r.blob, r.clock).Topics.Create(t.Context(), "wide", topics.Config{MinSegments: 120})
	if err == nil || !slow.met {
		t.Errorf("made a topic whose segments are gone: %v", err)
	}
	for range 2 {
		r.settle()
	}
	r.audit()
}

// TestSweepSparesTheDeleted: within the grace period of a deletion the sweep takes nothing of the topic for
// an orphan.
func TestSweepSparesTheDeleted(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{MinSegments: 2})
	r.send("one", large(4)...)
	r.send("one", sized(4, 100)...)
	r.pass(3 * time.Hour)
	before := r.stored()
	if err := r.sys.Topics.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if n := r.sweep(); n != 0 || r.stored() != before {
		t.Errorf("the sweep removed %d of %d", n, before)
	}
	for range 3 {
		r.settle()
	}
	r.audit()
}

// TestRemovalInSteps: a removal that has more to do than one run has time for goes on where it stopped.
func TestRemovalInSteps(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{MinSegments: 8})
	for i := range 40 {
		r.send("one", produce.Message{Key: fmt.Appendf(nil, "k%d", i), Body: []byte("x")})
	}
	if err := r.sys.Topics.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	r.pass(2 * time.Minute)
	r.run()
	r.pass(queue.GracePeriod + time.Minute)
	steps := 0
	for ; steps < 50; steps++ {
		ctx := &brief{Context: t.Context(), looks: 4}
		if _, err := r.compactor(r.meta, r.blob).Run(ctx); err != nil {
			t.Fatal(err)
		}
		if due := r.query(meta.WorkPK(0))[0].Record.Key().SK; due > meta.WorkSK(queue.MillisOf(r.clock()), "") {
			break
		}
	}
	if steps < 2 || steps == 50 {
		t.Errorf("it took %d runs", steps)
	}
	for range 3 {
		r.settle()
	}
	r.audit()
}

// TestRemovalCost: what is deleted adds a bounded number of calls, and nothing when it is gone.
func TestRemovalCost(t *testing.T) {
	r := newRig(t)
	r.target = 1 << 30
	r.create("one", topics.Config{})
	r.fill("one", 320, 0)
	m := meter.New()
	if err := r.system(m.Meta(r.meta), r.blob, r.clock).Topics.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if got := m.Snapshot(); got.Ops("put removal") != 1 || got.Total().Calls != 6 {
		t.Errorf("a deletion costs\n%s", got)
	}
	m = meter.New()
	s := r.compactor(m.Meta(r.meta), m.Blob(r.blob))
	var last compact.Report
	for range 7 {
		r.pass(queue.GracePeriod + time.Minute)
		got, err := s.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last.Deleted += got.Deleted
		last.Removed += got.Removed
	}
	snap := m.Snapshot()
	if last.Removed != 1 || last.Deleted < 320 || snap.Ops("delete page") != 10 || snap.Ops("put drop") > 3 || snap.Ops("put removal") > 4 {
		t.Errorf("a removal (%+v) costs\n%s", last, snap)
	}
	m = meter.New()
	if _, err := r.compactor(m.Meta(r.meta), m.Blob(r.blob)).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.Snapshot(); got.Total().Calls != 1 {
		t.Errorf("after it, a run costs\n%s", got)
	}
	r.audit()
}

// brief is a context whose time is up after some looks at it.
type brief struct {
	context.Context
	looks int
}

// Deadline implements context.Context.
func (b *brief) Deadline() (time.Time, bool) {
	if b.looks--; b.looks < 0 {
		return time.Now(), true
	}
	return time.Now().Add(time.Hour), true
}

// seededSource is a source of random bytes that many may read.
type seededSource struct {
	mu  sync.Mutex // guards src
	src *rand.ChaCha8
}

// Read implements io.Reader.
func (s *seededSource) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.Read(b)
}

// seed makes the rig's ids follow from a number.
func (r *rig) seed(n byte) {
	r.ids = queue.NewIDs(&seededSource{src: rand.NewChaCha8([32]byte{n})})
	r.blob = memblob.New(r.t, r.clock, memblob.Options{IDs: r.ids})
	r.sys = r.system(r.meta, r.blob, r.clock)
}
