package compact_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// stall is a store whose next transaction with a matching op waits for what happens meanwhile.
type stall struct {
	meta.Store
	match string
	once  sync.Once
	while func()
	// met says that it happened.
	met bool
}

func (s *stall) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	for _, op := range ops {
		if op.Name() == s.match {
			s.once.Do(func() { s.met = true; s.while() })
		}
	}
	return s.Store.Transact(ctx, ops)
}

// TestOldEpoch: a compactor that stalls before its transaction, while another takes its lease and does
// the work, changes nothing when it goes on; its object is collected.
func TestOldEpoch(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	r.fill("one", 200, 0)
	want := r.read("one")
	r.pass(queue.CompactAge + time.Minute)
	r.note("one")
	other := r.compactor(r.meta, r.blob)
	slow := &stall{Store: r.meta, match: "put page", while: func() {
		for range 2 { // the first look begins the watch over the lease
			if _, err := other.Run(t.Context()); err != nil {
				t.Error(err)
			}
			r.pass(3 * time.Minute)
		}
	}}
	got, err := r.compactor(slow, r.blob).Run(t.Context())
	if err != nil || got.Objects != 0 || !slow.met {
		t.Errorf("the stalled compactor: %+v, %v", got, err)
	}
	r.same("after the race", r.read("one"), want)
	r.settle()
	r.same("after the grace period", r.read("one"), want)
	r.audit()
}

// TestIntentIsTaken: a compactor that stalls until its intent is due must not use the object any more.
func TestIntentIsTaken(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	r.fill("one", 200, 0)
	want := r.read("one")
	r.pass(queue.CompactAge + time.Minute)
	r.note("one")
	slow := &stall{Store: r.meta, match: "put page", while: func() {
		// Others see nothing but the intent: nobody takes the lease over.
		for _, item := range r.query(meta.WorkPK(0)) {
			if w, ok := item.Record.(*meta.Work); ok {
				_, _ = r.meta.Apply(t.Context(), meta.Delete{Key: w.Key(), Kind: w.Kind()})
			}
		}
		r.pass(queue.GracePeriod + time.Minute)
		if got := r.run(); got.Deleted != 1 {
			t.Errorf("the intent led to %+v", got)
		}
	}}
	// It may go on with another note for the segment, with an intent of its own.
	if _, err := r.compactor(slow, r.blob).Run(t.Context()); !meta.IsRefused(err, meta.ReasonAbsent) || !slow.met {
		t.Errorf("the stalled compactor: %v", err)
	}
	r.same("after the race", r.read("one"), want)
	r.settle()
	r.same("after the grace period", r.read("one"), want)
	r.audit()
}

// TestLateRoll: a writer that stalls before it puts a page must not bring that page back after a
// compactor has replaced it.
func TestLateRoll(t *testing.T) {
	r := newRig(t)
	m := r.create("one", topics.Config{})
	seg := m.Open[0].ID
	var late []meta.Op
	writer := &stall{Store: r.meta, match: "put page"}
	slow := r.system(&capture{Store: writer, ops: &late}, r.blob, r.clock)
	r.fill("one", 31, 0)
	// The 32nd commit rolls, through a writer whose transaction is held up.
	if _, err := slow.Produce.Produce(t.Context(), produce.Request{Topic: "one", Messages: []produce.Message{{Key: []byte("k"), Body: []byte("b")}}}); err != nil {
		t.Fatal(err)
	}
	if len(late) == 0 {
		t.Fatal("no roll was held up")
	}
	r.fill("one", 200, 1000) // others roll what it would have
	want := r.read("one")
	r.pass(queue.CompactAge + time.Minute)
	r.note("one")
	if got := r.run(); got.NewPages >= got.Pages {
		t.Fatalf("the page was not replaced: %+v", got)
	}
	r.settle()
	if _, err := r.meta.Transact(t.Context(), late); !meta.IsRefused(err, meta.ReasonTrim) && !meta.IsRefused(err, meta.ReasonExists) {
		t.Errorf("the late roll ended with %v", err)
	}
	// Nor after the key of the page has been deleted.
	for _, item := range r.query(meta.HeadPK(seg)) {
		if p, ok := item.Record.(*meta.RefPage); ok && p.First == 0 && len(p.Refs) <= queue.RollRefs {
			t.Error("the first page is the old one")
		}
	}
	r.same("after the late roll", r.read("one"), want)
	r.audit()
}

// capture keeps the first transaction that puts a page, and answers that it was not made.
type capture struct {
	meta.Store
	ops *[]meta.Op
}

func (c *capture) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if len(*c.ops) == 0 && strings.HasPrefix(ops[0].Name(), "put page") {
		*c.ops = ops
		return nil, &queue.Error{Op: "transact", Kind: queue.KindUnavailable}
	}
	return c.Store.Transact(ctx, ops)
}

// TestStaleReader: a reader that still goes by pages from before, though the grace period is over, reads
// them again and sees no error.
func TestStaleReader(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	if _, _, err := r.sys.Topics.CreateSubscription(t.Context(), "one", "sub", topics.SubscriptionConfig{}); err != nil {
		t.Fatal(err)
	}
	r.fill("one", 200, 0)
	want := r.read("one")
	frozen := r.clock()
	// Its pages stay good, by its own clock, and what it has read of batches is forgotten: the cache of
	// batches is another's.
	stale := r.system(r.meta, r.blob, func() time.Time { return frozen })
	if _, err := stale.Consume.Records(t.Context(), consume.RecordsRequest{Topic: "one", Segment: r.segment("one"), Limit: 1}); err != nil {
		t.Fatal(err)
	}
	r.pass(queue.CompactAge + time.Minute)
	r.note("one")
	r.settle()
	got := make(map[queue.MessageID]seen)
	for len(got) < len(want) {
		claimed, err := stale.Consume.Claim(t.Context(), consume.ClaimRequest{Topic: "one", Subscription: "sub", MaxMessages: 50})
		if err != nil || len(claimed.Deliveries) == 0 {
			t.Fatalf("after %d of %d messages: %+v, %v", len(got), len(want), claimed, err)
		}
		for _, d := range claimed.Deliveries {
			r.decode(d, got)
		}
	}
	r.same("claimed", got, want)
	r.same("read", r.readBy(stale, "one"), want)
}

func (r *rig) segment(topic string) queue.SegmentID {
	r.t.Helper()
	m, err := r.sys.Topics.Open(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	return m.Open[0].ID
}

// TestDeadLetters: dead letters keep the bytes that they share with their source, before it is compacted
// and after; one that is moved while its source is replaced and deleted is read again.
func TestDeadLetters(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	r.create("dead", topics.Config{})
	r.create("dead2", topics.Config{})
	sub := topics.SubscriptionConfig{MaxDeliveries: 1, DeadLetterTopic: "dead"}
	if _, _, err := r.sys.Topics.CreateSubscription(t.Context(), "one", "sub", sub); err != nil {
		t.Fatal(err)
	}
	sub.DeadLetterTopic = "dead2"
	if _, _, err := r.sys.Topics.CreateSubscription(t.Context(), "dead", "sub", sub); err != nil {
		t.Fatal(err)
	}
	r.fill("one", 200, 0)
	want := r.read("one")
	reject := func(topic string, n int, meanwhile func()) {
		t.Helper()
		slow := &stall{Store: r.meta, match: "put hold", while: func() {
			if meanwhile != nil {
				meanwhile()
			}
		}}
		sys := r.system(slow, r.blob, r.clock)
		claimed, err := sys.Consume.Claim(t.Context(), consume.ClaimRequest{Topic: topic, Subscription: "sub", MaxMessages: n, Visibility: queue.MaxVisibilityTimeout})
		if err != nil {
			t.Fatal(err)
		}
		var receipts []queue.Receipt
		for _, d := range claimed.Deliveries {
			receipts = append(receipts, queue.Receipt{Segment: d.Segment, Claim: d.Claim, Lo: d.Offset, Hi: d.Offset + queue.Offset(d.Count)})
		}
		errs, err := sys.Consume.Release(t.Context(), topic, "sub", receipts, consume.Release{DeadLetter: true})
		if err != nil || !slow.met {
			t.Fatal(err, slow.met)
		}
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	reject("one", 40, nil)
	early := r.read("dead")
	if len(early) != 40 {
		t.Fatalf("%d dead letters", len(early))
	}
	r.pass(queue.CompactAge + time.Minute)
	r.note("one")
	reject("one", 40, func() { r.settle() })
	all := r.read("dead")
	if len(all) != 80 {
		t.Fatalf("%d dead letters", len(all))
	}
	reject("dead", 20, nil)
	r.settle()
	second := r.read("dead2")
	if len(second) != 20 {
		t.Fatalf("%d dead letters of dead letters", len(second))
	}
	r.same("source", r.read("one"), want)
	r.same("dead", r.read("dead"), all)
	r.audit()
	// Now the dead letters are compacted: their holds go, and with them what only they kept.
	r.note("dead")
	r.target = 1000
	r.settle()
	r.same("dead, compacted", r.read("dead"), all)
	r.same("second", r.read("dead2"), second)
	r.same("source", r.read("one"), want)
	r.audit()
}

// upload puts an object as a client does.
func (r *rig) upload(topic, body string) string {
	r.t.Helper()
	terms := blob.Terms{Size: int64(len(body))}
	up, err := r.sys.Produce.Uploads(r.t.Context(), topic, []blob.Terms{terms})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.blob.Put(r.t.Context(), up[0].Object, strings.NewReader(body), terms); err != nil {
		r.t.Fatal(err)
	}
	return up[0].Object
}

func (r *rig) submit(topic string, objects ...string) error {
	r.t.Helper()
	req := produce.ReferencesRequest{Topic: topic}
	for _, o := range objects {
		req.References = append(req.References, produce.Reference{Object: o, Key: []byte("k")})
	}
	got, err := r.sys.Produce.References(r.t.Context(), req)
	if err != nil {
		return err
	}
	for _, run := range got.Runs {
		if run.Err != nil {
			return run.Err
		}
	}
	return nil
}

// TestUploads: uploads that were submitted, once or twice, stay; those that were not go; one that is
// about to go is not taken any more.
func TestUploads(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	once, twice, never := r.upload("one", "once"), r.upload("one", "twice"), r.upload("one", "never")
	late := r.upload("one", "late")
	if err := r.submit("one", once, twice, twice); err != nil {
		t.Fatal(err)
	}
	r.pass(25 * time.Hour)
	if err := r.submit("one", twice); err != nil {
		t.Fatal(err)
	}
	fresh := r.upload("one", "fresh")
	// A submission that stalls before it takes hold of the upload that is being swept.
	slow := &stall{Store: r.meta, match: "put hold", while: func() {
		if n, err := r.compactor(r.meta, r.blob).Sweep(t.Context()); err != nil || n != 2 {
			t.Errorf("swept %d, %v", n, err)
		}
	}}
	r.sys = r.system(slow, r.blob, r.clock)
	if err := r.submit("one", late); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("an upload that was removed: %v", err)
	}
	r.sys = r.system(r.meta, r.blob, r.clock)
	if err := r.submit("one", never); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("an upload that was removed: %v", err)
	}
	if err := r.submit("one", fresh); err != nil {
		t.Error(err)
	}
	if got := r.read("one"); len(got) != 5 {
		t.Errorf("%d messages", len(got))
	}
	r.settle()
	r.audit()
	// The walk begins anew only a while later.
	if n, err := r.compactor(r.meta, r.blob).Sweep(t.Context()); err != nil || n != 0 {
		t.Errorf("swept %d, %v", n, err)
	}
}

// TestSeeded mixes everything in one order per seed: calls of all sizes, delays that are edited and
// cancelled and expire, dead letters, acks, compactions, passing time. Nothing is lost, and in the end
// nothing is left over.
func TestSeeded(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { seeded(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func seeded(t *testing.T, rng *rand.Rand) {
	r := newRig(t)
	r.seed(byte(rng.Uint32()))
	r.target = 10_000
	r.create("one", topics.Config{MinSegments: 3})
	r.create("late", topics.Config{MinSegments: 2, DefaultDelay: time.Minute, MaxDelay: time.Hour})
	r.create("dead", topics.Config{})
	for _, topic := range []string{"one", "late"} {
		sub := topics.SubscriptionConfig{MaxDeliveries: 2, DeadLetterTopic: "dead"}
		if _, _, err := r.sys.Topics.CreateSubscription(t.Context(), topic, "sub", sub); err != nil {
			t.Fatal(err)
		}
	}
	known := make(map[string]map[queue.MessageID]seen)
	check := func() {
		t.Helper()
		for _, topic := range []string{"one", "late", "dead"} {
			now := r.read(topic)
			for id, was := range known[topic] {
				if is, ok := now[id]; (!ok || is != was) && (was.expires == 0 || was.expires > queue.MillisOf(r.clock())) {
					t.Fatalf("%s %s is %+v (%t), was %+v", topic, id, is, ok, was)
				}
			}
			known[topic] = now
		}
	}
	did := compact.Report{}
	defer func() {
		if did.Refs == 0 {
			t.Errorf("the seed tries nothing: %+v", did)
		}
	}()
	for step := range 60 {
		switch rng.IntN(8) {
		case 0, 1:
			r.fill("one", 10+rng.IntN(30), step*100)
		case 2, 3:
			r.delayed(rng, step)
		case 4:
			r.consume(rng, []string{"one", "late"}[rng.IntN(2)])
		case 5:
			r.pass(time.Duration(rng.IntN(30)) * time.Minute)
		case 6:
			for _, topic := range []string{"one", "late", "dead"} {
				r.note(topic)
			}
			got := r.run()
			did.Refs, did.Deleted = did.Refs+got.Refs, did.Deleted+got.Deleted
			if rng.IntN(3) == 0 {
				r.pass(7 * time.Hour)
				r.sweep()
			}
		case 7:
			check()
		}
	}
	check()
	r.pass(2 * time.Hour)
	for _, topic := range []string{"one", "late", "dead"} {
		r.note(topic)
	}
	if _, _, err := r.sys.Delay.PromoteAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settle()
	check()
	r.audit()
}

// delayed produces with delay, and then changes some of it.
func (r *rig) delayed(rng *rand.Rand, step int) {
	r.t.Helper()
	var msgs []produce.Message
	for i := range 1 + rng.IntN(12) {
		msg := produce.Message{Key: fmt.Appendf(nil, "k%d", i), Body: fmt.Appendf(nil, "late %d/%d", step, i)}
		if rng.IntN(2) == 0 {
			msg.Body = append(msg.Body, make([]byte, 3000)...)
		}
		msg.Delay, msg.HasDelay = time.Duration(rng.IntN(3))*10*time.Minute, true
		if rng.IntN(4) == 0 {
			msg.TTL = 5 * time.Minute // some expire before they are due
		}
		msgs = append(msgs, msg)
	}
	got, err := r.sys.Produce.Produce(r.t.Context(), produce.Request{Topic: "late", Messages: msgs})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, run := range got.Runs {
		for i := range run.Count {
			if run.Delayed == nil {
				continue
			}
			id := *run.Delayed
			id.Index += uint32(i)
			switch rng.IntN(4) {
			case 0:
				r.edit(rng, id)
			case 1:
				if err := r.sys.Delay.Cancel(r.t.Context(), "late", id); err != nil {
					r.t.Fatal(err)
				}
			}
		}
	}
}

func (r *rig) edit(rng *rand.Rand, id queue.DelayedID) {
	r.t.Helper()
	body, wait := []byte("edited"), time.Duration(rng.IntN(40))*time.Minute
	e := delay.Edit{Delay: &wait}
	switch rng.IntN(3) {
	case 0:
		e.Delay = nil
		e.Body = &body
	case 1:
		body = make([]byte, 10_000)
		e.Body = &body
	}
	if _, err := r.sys.Delay.Edit(r.t.Context(), "late", id, e); err != nil && queue.CodeOf(err) != queue.CodeAlreadyPromoted {
		r.t.Fatal(err)
	}
}

// consume claims some, acks a part and rejects a part.
func (r *rig) consume(rng *rand.Rand, topic string) {
	r.t.Helper()
	claimed, err := r.sys.Consume.Claim(r.t.Context(), consume.ClaimRequest{Topic: topic, Subscription: "sub", MaxMessages: 1 + rng.IntN(40)})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, d := range claimed.Deliveries {
		receipt := []queue.Receipt{{Segment: d.Segment, Claim: d.Claim, Lo: d.Offset, Hi: d.Offset + queue.Offset(d.Count)}}
		var errs []error
		switch rng.IntN(3) {
		case 0:
			errs, err = r.sys.Consume.Ack(r.t.Context(), topic, "sub", receipt)
		case 1:
			errs, err = r.sys.Consume.Release(r.t.Context(), topic, "sub", receipt, consume.Release{DeadLetter: true})
		}
		for _, e := range append(errs, err) {
			if e != nil {
				r.t.Fatal(e)
			}
		}
	}
}

// held is a store whose first append waits for what happens meanwhile.
type held struct {
	meta.Store
	once  sync.Once
	while func()
	met   bool
}

func (h *held) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if op.Name() == "append" {
		h.once.Do(func() { h.met = true; h.while() })
	}
	return h.Store.Apply(ctx, op)
}

// letters rejects n messages of a topic's subscription.
func (r *rig) letters(sys *assembly.System, topic string, n int) {
	r.t.Helper()
	claimed, err := sys.Consume.Claim(r.t.Context(), consume.ClaimRequest{Topic: topic, Subscription: "sub", MaxMessages: n})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, d := range claimed.Deliveries {
		receipt := []queue.Receipt{{Segment: d.Segment, Claim: d.Claim, Lo: d.Offset, Hi: d.Offset + queue.Offset(d.Count)}}
		errs, err := sys.Consume.Release(r.t.Context(), topic, "sub", receipt, consume.Release{DeadLetter: true})
		for _, e := range append(errs, err) {
			if e != nil {
				r.t.Fatal(e)
			}
		}
	}
}

// TestCrashHolds stops the compactor at each of its calls while it gives back what is held: the dead
// letters and the uploads of both topics are compacted.
func TestCrashHolds(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		r.target = 120_000
		r.create("one", topics.Config{})
		r.create("dead", topics.Config{})
		sub := topics.SubscriptionConfig{MaxDeliveries: 1, DeadLetterTopic: "dead"}
		if _, _, err := r.sys.Topics.CreateSubscription(t.Context(), "one", "sub", sub); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			r.send("one", large(4)...)
		}
		r.letters(r.sys, "one", 16)
		upload := r.upload("one", "payload")
		if err := r.submit("one", upload, upload); err != nil {
			t.Fatal(err)
		}
		r.rollAll("one", "dead")
		one, dead := r.read("one"), r.read("dead")
		r.pass(queue.CompactAge + time.Minute)
		s := r.compactor(fault.Meta(r.meta, plan), fault.Blob(r.blob, plan))
		for range 3 {
			r.note("one")
			r.note("dead")
			_, _ = s.Run(t.Context())
			r.pass(queue.GracePeriod + 3*time.Minute)
		}
		plan.Heal()
		r.note("one")
		r.note("dead")
		r.settle()
		r.same("one", r.read("one"), one)
		r.same("dead", r.read("dead"), dead)
		r.audit()
		for _, o := range r.objects() {
			if strings.HasPrefix(o, "batches") {
				t.Errorf("not compacted: %s", o)
			}
		}
	})
}

// rollAll rolls the tails of topics, however short.
func (r *rig) rollAll(names ...string) {
	r.t.Helper()
	log := segment.New(segment.Deps{Meta: r.meta, Blob: r.blob, IDs: r.ids, Clock: r.clock})
	for _, name := range names {
		m, err := r.sys.Topics.Open(r.t.Context(), name)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, seg := range m.Open {
			head, err := log.Head(r.t.Context(), seg.ID)
			if err == nil {
				err = log.Roll(r.t.Context(), head)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// TestAtOnce lets producers, readers, dead letters and compactors work at once, for the race detector
// and for what interleavings there are.
func TestAtOnce(t *testing.T) {
	r := newRig(t)
	r.target = 20_000
	r.create("one", topics.Config{MinSegments: 2})
	r.create("dead", topics.Config{})
	sub := topics.SubscriptionConfig{MaxDeliveries: 1, DeadLetterTopic: "dead"}
	if _, _, err := r.sys.Topics.CreateSubscription(t.Context(), "one", "sub", sub); err != nil {
		t.Fatal(err)
	}
	r.fill("one", 300, 0)
	r.pass(queue.CompactAge + time.Minute)
	before := r.read("one")
	r.note("one")
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() { r.fill("one", 100, 1000*(i+1)) })
		wg.Go(func() { r.letters(r.system(r.meta, r.blob, r.clock), "one", 150) })
		wg.Go(func() {
			s := r.compactor(r.meta, r.blob)
			for range 5 {
				r.note("one")
				if _, err := s.Run(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 3 {
				r.readBy(r.system(r.meta, r.blob, r.clock), "one")
			}
		})
	}
	wg.Wait()
	after := r.read("one")
	for id, m := range before {
		if after[id] != m {
			t.Fatalf("%s is %+v, was %+v", id, after[id], m)
		}
	}
	dead := r.read("dead")
	if len(dead) == 0 {
		t.Error("no dead letter")
	}
	r.settle()
	r.same("one", r.read("one"), after)
	r.same("dead", r.read("dead"), dead)
	r.audit()
}

// beforePut is a store that does something before its first put of a drop.
type beforePut struct {
	meta.Store
	once  sync.Once
	first func()
}

func (b *beforePut) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if op.Name() == "put drop" {
		b.once.Do(b.first)
	}
	return b.Store.Apply(ctx, op)
}

// TestIntentIsUsed: one that has found an intent due, and stalls before it takes the mark off, must not
// delete the object if it was made reachable meanwhile.
func TestIntentIsUsed(t *testing.T) {
	r := newRig(t)
	r.target = 100_000
	r.create("one", topics.Config{})
	r.send("one", large(8)...)
	r.send("one", sized(8, 9000)...)
	for range 2 {
		r.send("one", large(8)...)
	}
	r.rollAll("one")
	want := r.read("one")
	r.target = 200_000
	r.pass(queue.CompactAge + time.Minute)
	r.note("one")
	stalled, release := make(chan struct{}), make(chan struct{})
	slow := &stall{Store: r.meta, match: "put page", while: func() { close(stalled); <-release }}
	done := make(chan compact.Report)
	go func() {
		got, _ := r.compactor(slow, r.blob).Run(context.Background())
		done <- got
	}()
	<-stalled
	r.pass(queue.GracePeriod + time.Minute)
	finder := &beforePut{Store: r.meta, first: func() {
		close(release)
		if got := <-done; got.Objects != 1 {
			t.Errorf("the other did %+v", got)
		}
	}}
	if got, err := r.compactor(finder, r.blob).Run(t.Context()); err != nil || got.Deleted != 0 {
		t.Errorf("the finder: %+v, %v", got, err)
	}
	r.same("after the race", r.read("one"), want)
	r.settle()
	r.same("after the grace period", r.read("one"), want)
	r.audit()
}
