package lag_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/lag"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// rig is a deployment of two processes on memory stores: one that takes calls, and the leader, whose reads
// are counted. Its clock is moved by hand.
type rig struct {
	t       *testing.T
	calls   *assembly.System
	leader  *assembly.System
	meter   *meter.Meter
	records meta.Store
	now     time.Time
}

type noURLs struct{}

func (noURLs) PresignPut(context.Context, string, blob.Terms, time.Time) (blob.Request, error) {
	return blob.Request{}, errors.New("no URLs here")
}

func (noURLs) PresignGet(context.Context, string, time.Time) (blob.Request, error) {
	return blob.Request{}, errors.New("no URLs here")
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, meter: meter.New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return r.now }
	r.records = memmeta.New(t)
	objects := memblob.New(t, clock, memblob.Options{})
	system := func(m meta.Store) *assembly.System {
		return assembly.New(assembly.Deps{Meta: m, Blob: objects, Presigner: noURLs{}, Clock: clock, Marked: true})
	}
	r.calls, r.leader = system(r.records), system(r.meter.Meta(r.records))
	return r
}

func (r *rig) topic(name string, subscriptions ...string) {
	r.t.Helper()
	if _, _, err := r.calls.Topics.Create(r.t.Context(), name, topics.Config{}); err != nil {
		r.t.Fatal(err)
	}
	for _, s := range subscriptions {
		if _, _, err := r.calls.Topics.CreateSubscription(r.t.Context(), name, s, topics.SubscriptionConfig{}); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) produce(topic string, ttl time.Duration) {
	r.t.Helper()
	a, err := r.calls.Produce.Produce(r.t.Context(), produce.Request{Topic: topic, Messages: []produce.Message{{Body: []byte("x"), TTL: ttl}}})
	if err != nil || a.Runs[0].Err != nil {
		r.t.Fatal(err, a)
	}
}

func (r *rig) claim(topic, subscription string) []queue.Receipt {
	r.t.Helper()
	got, err := r.calls.Consume.Claim(r.t.Context(), consume.ClaimRequest{Topic: topic, Subscription: subscription, MaxMessages: 100})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []queue.Receipt
	for _, d := range got.Deliveries {
		out = append(out, queue.Receipt{Segment: d.Segment, Claim: d.Claim, Lo: d.Offset, Hi: d.Offset + queue.Offset(d.Count)})
	}
	return out
}

func (r *rig) ack(topic, subscription string, receipts []queue.Receipt) {
	r.t.Helper()
	if _, err := r.calls.Consume.Ack(r.t.Context(), topic, subscription, receipts); err != nil {
		r.t.Fatal(err)
	}
}

// look makes a run a minute later.
func (r *rig) look() lag.Report {
	r.t.Helper()
	r.now = r.now.Add(time.Minute)
	report, err := r.leader.Lag.Look(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

func (r *rig) want(age time.Duration, waiting int) {
	r.t.Helper()
	if got := r.look(); got.Oldest != age || got.Waiting != waiting {
		r.t.Errorf("waits for %s in %d places, want %s in %d", got.Oldest, got.Waiting, age, waiting)
	}
}

// TestAge follows messages from their production to their end.
func TestAge(t *testing.T) {
	r := newRig(t)
	r.want(0, 0)
	r.topic("a", "s", "slow")
	r.want(0, 0)
	r.produce("a", 0)
	r.want(time.Minute, 2)
	r.want(2*time.Minute, 2)
	r.claim("a", "s") // for 30 seconds
	if got, err := r.leader.Lag.Look(t.Context()); err != nil || got.Waiting != 1 || got.Oldest != 2*time.Minute {
		t.Errorf("in flight for one, waiting for the other: %+v, %v", got, err)
	}
	r.want(3*time.Minute, 2) // the claim has ended
	r.ack("a", "s", r.claim("a", "s"))
	r.ack("a", "slow", r.claim("a", "slow"))
	r.want(0, 0)
	r.produce("a", 0)
	r.want(time.Minute, 2)
	if err := r.calls.Topics.DeleteSubscription(t.Context(), "a", "slow"); err != nil {
		t.Fatal(err)
	}
	r.want(2*time.Minute, 1)
	if err := r.calls.Topics.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	r.want(0, 0)
}

// TestExpired: what has expired waits for nobody, and does not hide what has not.
func TestExpired(t *testing.T) {
	r := newRig(t)
	r.topic("a", "s")
	r.produce("a", 90*time.Second)
	r.want(time.Minute, 1)
	r.want(0, 0)
	r.produce("a", 0)
	r.want(time.Minute, 1)
}

// TestSeek: messages that a seek brings back wait again.
func TestSeek(t *testing.T) {
	r := newRig(t)
	r.topic("a", "s")
	r.produce("a", 0)
	r.ack("a", "s", r.claim("a", "s"))
	for range 5 {
		r.want(0, 0)
	}
	r.produce("a", 0)
	r.ack("a", "s", r.claim("a", "s"))
	if _, err := r.calls.Topics.Seek(t.Context(), "a", "s", topics.Start{}); err != nil {
		t.Fatal(err)
	}
	r.want(6*time.Minute, 1)
}

// settle runs until the mark is old and a walk is over.
func (r *rig) settle() {
	for range 10 {
		r.look()
	}
}

// TestIdleCost: an idle system costs a read of the mark and a step of the walk, however many topics it has.
func TestIdleCost(t *testing.T) {
	r := newRig(t)
	for i := range 60 {
		r.topic(fmt.Sprintf("t%02d", i), "s")
		r.produce(fmt.Sprintf("t%02d", i), 0)
		r.ack(fmt.Sprintf("t%02d", i), "s", r.claim(fmt.Sprintf("t%02d", i), "s"))
	}
	r.settle()
	before := r.meter.Snapshot()
	const runs = 100
	for range runs {
		if got := r.look(); got.Oldest != 0 {
			t.Fatalf("%+v", got)
		}
	}
	used := r.meter.Snapshot().Sub(before)
	for op, want := range map[string]int64{"get progress": runs, "query name": runs, "get name": runs, "query topic": runs, "get cursor": 0} {
		if got := used.Ops(op); got > want {
			t.Errorf("%d of %q in %d runs, want at most %d:\n%s", got, op, runs, want, used)
		}
	}
	if got := used.Total().ReadUnits; got > 5*runs {
		t.Errorf("%d read units in %d runs:\n%s", got, runs, used)
	}
	if got := used.Total().WriteUnits; got != 0 {
		t.Errorf("%d write units:\n%s", got, used)
	}
}

// TestMarkEndsIdleness: what is appended after a long time of nothing is seen by the next run, wherever it is.
func TestMarkEndsIdleness(t *testing.T) {
	r := newRig(t)
	for i := range 60 {
		r.topic(fmt.Sprintf("t%02d", i), "s")
	}
	r.settle()
	for range 7 {
		r.look() // somewhere in the middle
	}
	r.produce("t03", 0)
	for n := time.Duration(1); n <= 3; n++ {
		r.want(n*time.Minute, 1)
	}
}

// TestLostMark: without a mark, by a writer that could not write it, the walk comes by.
func TestLostMark(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		r.topic(fmt.Sprintf("t%d", i), "s")
	}
	r.settle()
	plain := assembly.New(assembly.Deps{
		Meta: r.records, Blob: memblob.New(t, time.Now, memblob.Options{}), Presigner: noURLs{}, Clock: func() time.Time { return r.now },
	})
	r.calls.Produce = plain.Produce
	r.produce("t7", 0)
	for n := 1; ; n++ {
		if n > 22 {
			t.Fatal("two looks a run, and ten topics: not seen after 22 runs")
		}
		if r.look().Waiting == 1 {
			return
		}
	}
}

// TestManyPlaces: with more places than one run looks at, what waits stays in sight once it was seen, and
// the age is never less than that.
func TestManyPlaces(t *testing.T) {
	r := newRig(t)
	for i := range 300 {
		r.topic(fmt.Sprintf("t%03d", i), "s")
	}
	r.produce("t250", 0)
	var first int
	for n := 1; n <= 10; n++ {
		got := r.look()
		switch {
		case got.Looks > 400:
			t.Errorf("%d looks in one run", got.Looks)
		case got.Waiting == 1 && first == 0:
			first = n
		case first > 0 && (got.Waiting != 1 || got.Oldest != time.Duration(n)*time.Minute):
			t.Errorf("run %d: %+v", n, got)
		}
	}
	if first == 0 || first > 4 {
		t.Errorf("first seen by run %d", first)
	}
}

// TestFaults: every read of a run fails once; the next run makes good, and what was known is still told.
func TestFaults(t *testing.T) {
	r := newRig(t)
	r.topic("a", "s")
	r.topic("b", "s")
	r.produce("b", 0)
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		waiting := lag.New(lag.Deps{
			Topics:   topics.New(topics.Deps{Meta: fault.Meta(r.records, plan), IDs: queue.NewIDs(nil), Clock: func() time.Time { return r.now }}),
			Backlogs: r.calls.Consume, Clock: func() time.Time { return r.now }, Meta: fault.Meta(r.records, plan),
		})
		got, err := waiting.Look(t.Context())
		if err == nil && got.Waiting != 1 {
			t.Errorf("no fault, and %+v", got)
		}
		again, err := waiting.Look(t.Context())
		if err == nil && again.Waiting != 1 || again.Waiting < got.Waiting {
			t.Errorf("after %+v: %+v, %v", got, again, err)
		}
		if again, err = waiting.Look(t.Context()); again.Waiting != 1 {
			t.Errorf("two runs later: %+v, %v", again, err)
		}
	}, fault.FailBefore, fault.Throttle)
}

// TestMark: a process marks once a minute, before it appends, and not for other writes.
func TestMark(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	m := meter.New()
	s := lag.Watch(m.Meta(memmeta.New(t)), queue.NewIDs(nil), clock)
	head := &meta.Head{Segment: "0123456789abcdef", Range: queue.Ring()}
	if _, err := s.Apply(t.Context(), meta.Put{Record: head, Version: 1}); err != nil {
		t.Fatal(err)
	}
	if n := m.Snapshot().Ops("put progress"); n != 0 {
		t.Errorf("%d marks for a put", n)
	}
	for i := range 10 {
		op := meta.Append{Segment: head.Segment, Refs: []meta.Ref{{Kind: meta.RefBatch, Object: "batches/x", ID: meta.RefID{byte(i + 1)}, Count: 1}}, At: 1}
		var err error
		if i%2 == 0 {
			_, err = s.Apply(t.Context(), op)
		} else {
			_, err = s.Transact(t.Context(), []meta.Op{op})
		}
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(20 * time.Second)
	}
	if n := m.Snapshot().Ops("put progress"); n != 4 {
		t.Errorf("%d marks in 200 seconds, want 4", n)
	}
}
