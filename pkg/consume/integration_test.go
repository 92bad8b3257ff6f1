package consume_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// queues are the real use cases together, in a bubble.
type queues struct {
	t       *testing.T
	meter   *meter.Meter
	topics  *topics.Service
	produce *produce.Service
	consume *consume.Service
}

func newQueues(t *testing.T) *queues {
	q := &queues{t: t, meter: meter.New()}
	ids, hub := queue.NewIDs(nil), notify.NewHub()
	records := q.meter.Meta(memmeta.New(t))
	objects := memblob.New(t, time.Now, memblob.Options{})
	log := segment.New(segment.Deps{Meta: records, Blob: objects, IDs: ids, Clock: time.Now})
	q.topics = topics.New(topics.Deps{Meta: records, IDs: ids, Clock: time.Now})
	q.produce = produce.New(produce.Deps{
		Meta: records, Blob: objects, Presigner: signer{}, Log: log, Topics: q.topics, Hub: hub, IDs: ids, Clock: time.Now,
	})
	q.consume = consume.New(consume.Deps{
		Meta: records, Presigner: signer{}, Log: log, Topics: q.topics, Hub: hub, IDs: ids, Clock: time.Now,
		Delay: delay.New(delay.Deps{Meta: records, Blob: objects, Log: log, Topics: q.topics, IDs: ids, Clock: time.Now, Hub: hub}),
	})
	return q
}

func (q *queues) create(topic string, cfg topics.Config) {
	q.t.Helper()
	if _, _, err := q.topics.Create(q.t.Context(), topic, cfg); err != nil {
		q.t.Fatal(err)
	}
}

func (q *queues) subscribe(topic string, cfg topics.SubscriptionConfig) {
	q.t.Helper()
	if _, _, err := q.topics.CreateSubscription(q.t.Context(), topic, "sub", cfg); err != nil {
		q.t.Fatal(err)
	}
}

func (q *queues) send(topic string, msgs ...produce.Message) {
	q.t.Helper()
	got, err := q.produce.Produce(q.t.Context(), produce.Request{Topic: topic, Messages: msgs})
	if err != nil {
		q.t.Fatal(err)
	}
	for _, r := range got.Runs {
		if r.Err != nil {
			q.t.Fatal(r.Err)
		}
	}
}

// claim gives bodies and messages, sorted by body.
func (q *queues) claim(topic string, wait time.Duration) ([]string, []msg) {
	q.t.Helper()
	got, err := q.consume.Claim(q.t.Context(), consume.ClaimRequest{Topic: topic, Subscription: "sub", MaxMessages: 100, Wait: wait})
	if err != nil {
		q.t.Fatal(err)
	}
	ms := messages(q.t, got.Deliveries)
	var bodies []string
	for _, m := range ms {
		bodies = append(bodies, m.body)
	}
	slices.Sort(bodies)
	return bodies, ms
}

func TestDelayedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueues(t)
		q.create("a", topics.Config{DefaultDelay: 10 * time.Second, MinSegments: 2})
		q.subscribe("a", topics.SubscriptionConfig{})
		start := time.Now()
		q.send("a",
			produce.Message{Key: []byte("x"), Body: []byte("default")},
			produce.Message{Key: []byte("y"), Body: []byte("now"), HasDelay: true},
			produce.Message{Key: []byte("z"), Body: []byte("soon"), Delay: 3 * time.Second, HasDelay: true},
		)
		for _, want := range []struct {
			at   time.Duration
			body string
		}{{0, "now"}, {3 * time.Second, "soon"}, {10 * time.Second, "default"}} {
			bodies, ms := q.claim("a", queue.MaxWait)
			if !slices.Equal(bodies, []string{want.body}) || time.Since(start) != want.at {
				t.Errorf("got %q at %v, want %q at %v", bodies, time.Since(start), want.body, want.at)
			}
			errs, err := q.consume.Ack(t.Context(), "a", "sub", receipts(ms))
			wantNone(t, "ack", errs, err)
		}
	})
}

// TestNormalTopicMakesNoCallForDelay holds the counts of a whole round: produce, claim, ack.
func TestNormalTopicMakesNoCallForDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueues(t)
		q.create("a", topics.Config{})
		q.subscribe("a", topics.SubscriptionConfig{})
		round := func() {
			q.send("a", produce.Message{Body: []byte("x"), Delay: time.Minute, HasDelay: true})
			bodies, ms := q.claim("a", 0)
			if len(bodies) != 1 {
				t.Fatalf("claimed %q", bodies)
			}
			errs, err := q.consume.Ack(t.Context(), "a", "sub", receipts(ms))
			wantNone(t, "ack", errs, err)
		}
		round()
		before := q.meter.Snapshot()
		round()
		wantOps(t, "a round", q.meter.Snapshot().Sub(before),
			"append 1, get cursor 1, get head 1, get payload 1, put payload 1, settle 1, take 1")
	})
}

func TestWakesAcrossUseCases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueues(t)
		q.create("dead", topics.Config{})
		q.create("a", topics.Config{})
		q.subscribe("a", topics.SubscriptionConfig{MaxDeliveries: 1, DeadLetterTopic: "dead"})
		q.subscribe("dead", topics.SubscriptionConfig{})
		start := time.Now()
		go func() {
			time.Sleep(1234 * time.Millisecond)
			q.send("a", produce.Message{Body: []byte("x"), Headers: map[string]string{"own": "header"}})
		}()
		_, ms := q.claim("a", queue.MaxWait)
		if len(ms) != 1 || time.Since(start) != 1234*time.Millisecond {
			t.Fatalf("got %v at %v", ms, time.Since(start))
		}
		go func() {
			time.Sleep(1234 * time.Millisecond)
			errs, err := q.consume.Release(t.Context(), "a", "sub", receipts(ms), consume.Release{Reason: "why"})
			wantNone(t, "release", errs, err)
		}()
		_, ms = q.claim("dead", queue.MaxWait)
		if len(ms) != 1 || time.Since(start) != 2468*time.Millisecond {
			t.Fatalf("got %v at %v", ms, time.Since(start))
		}
		if h := ms[0].headers; h["own"] != "header" || h[consume.HeaderReason] != "why" {
			t.Errorf("headers are %v", h)
		}
	})
}

func TestManySegmentsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueues(t)
		q.create("a", topics.Config{MinSegments: 8})
		q.subscribe("a", topics.SubscriptionConfig{})
		var want []string
		for i := range 50 {
			body := fmt.Sprintf("m%02d", i)
			want = append(want, body)
			q.send("a", produce.Message{Key: []byte(body), Body: []byte(body)})
		}
		bodies, ms := q.claim("a", 0)
		if !slices.Equal(bodies, want) {
			t.Errorf("claimed %q", bodies)
		}
		errs, err := q.consume.Ack(t.Context(), "a", "sub", receipts(ms))
		wantNone(t, "ack", errs, err)
		st, err := q.consume.Status(t.Context(), "a", "sub")
		if err != nil || st.Ready != 0 || st.InFlight != 0 || st.HasOldest || len(st.Segments) != 8 {
			t.Errorf("status is %+v, %v", st, err)
		}
	})
}
