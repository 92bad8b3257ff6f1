package load

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

// The topics of the load.
const (
	Plain = "plain" // a normal topic
	Later = "later" // a delayed one
)

// Subscriptions are the load's, by topic.
func Subscriptions() map[string][]string { return map[string][]string{Plain: {"a", "b"}, Later: {"a"}} }

// claimWait is how long the consumers' polls wait.
const claimWait = time.Second

// Load is producers of every kind, and consumers that ack, release or forget what they get.
type Load struct {
	Target Target
	Ledger *Ledger
	// Seed decides what is sent, and what is done with what comes.
	Seed uint64
	// Pace is the pause between two calls of a producer: the load grows with what is kept, and the final check
	// must be able to read it quickly.
	Pace time.Duration
	// Visibility is how long the consumers' claims hold.
	Visibility time.Duration
	// Claim bounds the messages of one claim, which are any number up to it.
	Claim int

	stopProducers, stopConsumers chan struct{}
	producers, consumers         sync.WaitGroup
}

// SetUp makes the topics and subscriptions.
func (d *Load) SetUp(t testing.TB) {
	t.Helper()
	for topic, cfg := range map[string]wire.TopicConfig{
		Plain: {Scaling: &wire.Scaling{MinSegments: wire.Of(3)}},
		Later: {Scaling: &wire.Scaling{MinSegments: wire.Of(2)}, DefaultDelay: wire.Of(1.0), MaxDelay: wire.Of(10.0)},
	} {
		if err := Call(t.Context(), d.Target, Request{http.MethodPut, "/v1/topics/" + topic, nil, cfg}, nil); err != nil {
			t.Fatal(err)
		}
		for _, sub := range Subscriptions()[topic] {
			path := "/v1/topics/" + topic + "/subscriptions/" + sub
			in := map[string]any{"visibility_timeout": d.Visibility.Seconds()}
			if err := Call(t.Context(), d.Target, Request{http.MethodPut, path, nil, in}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Start begins to produce and consume; ctx is the end of patience, not of the load.
func (d *Load) Start(ctx context.Context, t testing.TB) {
	d.stopProducers, d.stopConsumers = make(chan struct{}), make(chan struct{})
	for _, p := range d.producersOf() {
		d.producers.Go(func() {
			if err := p.run(ctx, d.stopProducers); err != nil {
				t.Error(err)
			}
		})
	}
	for topic, subs := range Subscriptions() {
		for _, sub := range subs {
			for i := range 2 {
				c := &consumer{Load: d, topic: topic, sub: sub, rng: rand.New(rand.NewPCG(d.Seed, uint64(i)))} // #nosec G404 -- a seed decides
				d.consumers.Go(func() {
					if err := c.run(ctx, d.stopConsumers); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// Finish lets the producers end, waits until nothing is delayed any more, lets the consumers end once nothing has
// come for longer than a claim holds, and holds what the servers have against the ledger.
func (d *Load) Finish(ctx context.Context, t testing.TB) {
	t.Helper()
	close(d.stopProducers)
	d.producers.Wait()
	d.awaitPromotion(ctx, t)
	close(d.stopConsumers)
	d.consumers.Wait()
	d.verify(ctx, t)
	sent, acknowledged, acks := d.Ledger.Counts()
	t.Logf("%d messages sent, %d acknowledged, %d acks", sent, acknowledged, acks)
	if acknowledged == 0 || acks == 0 {
		t.Error("the load did nothing: the test shows nothing")
	}
}

func (d *Load) producersOf() []*producer {
	ps := []*producer{
		{name: "sequence-1", topic: Plain, guard: bySequence("sequence-1")},
		{name: "sequence-2", topic: Plain, guard: bySequence("sequence-2")},
		{name: "key", topic: Plain, guard: byKey("key")},
		{name: "bare", topic: Plain},
		{name: "reference", topic: Plain, guard: bySequence("reference"), upload: true},
		{name: "later-sequence", topic: Later, guard: bySequence("later-sequence")},
		{name: "later-key", topic: Later, guard: byKey("later-key")},
		{name: "later-bare", topic: Later},
	}
	for i, p := range ps {
		p.Load, p.rng = d, rand.New(rand.NewPCG(d.Seed, uint64(100+i))) // #nosec G404,G115 -- a seed decides
	}
	return ps
}

// awaitPromotion waits until no message is delayed any more.
func (d *Load) awaitPromotion(ctx context.Context, t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var list wire.DelayedList
		if err := Call(ctx, d.Target, Request{http.MethodGet, "/v1/topics/" + Later + "/delayed?limit=1", nil, nil}, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Messages) == 0 {
			return
		}
	}
	t.Error("invariant 8: delayed messages are not promoted")
}
