//go:build linux

package soak

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// lane is one topic under load.
type lane struct {
	ledger *ledger
	subs   []subscription
	// from is up to where each segment has been verified.
	from map[queue.SegmentID]queue.Offset
	// producers go on over the rounds, so that the numbers of their keys do.
	producers []*producer
}

type subscription struct {
	name     string
	keyed    bool
	replayed bool
	dead     bool // it has a dead-letter topic
	handled  bool // it is read by the SDK's Consumer
}

func (l *lane) topic() string { return l.ledger.topic }
func (l *lane) grave() string { return l.ledger.topic + ".dead" }

// makeLane creates a topic with its subscriptions. No fault is under way.
func (s *soak) makeLane(topic string, delay time.Duration, subs ...subscription) *lane {
	l := &lane{ledger: newLedger(topic, s.clock), subs: subs, from: map[queue.SegmentID]queue.Offset{}}
	l.ledger.delayed = delay > 0
	cfg := client.TopicConfig{Scaling: &client.Scaling{MinSegments: client.Of(2), MaxSegments: client.Of(8)}}
	if delay > 0 {
		cfg.DefaultDelay = client.Seconds(time.Second)
	}
	_, err := s.admin.CreateTopic(s.ctx, topic, cfg)
	s.must(err)
	for _, sub := range subs {
		l.ledger.subscribe(sub.name, sub.keyed, sub.replayed)
		var cfg client.SubscriptionConfig
		if sub.keyed {
			cfg.Ordering = client.Of(client.OrderingKey)
		}
		if sub.dead {
			_, err := s.admin.CreateTopic(s.ctx, l.grave(), client.TopicConfig{})
			s.must(err)
			_, err = s.admin.CreateSubscription(s.ctx, l.grave(), deadSub, client.SubscriptionConfig{})
			s.must(err)
			cfg.MaxDeliveries, cfg.DeadLetterTopic = client.Of(4), client.Of(l.grave())
		}
		_, err := s.admin.CreateSubscription(s.ctx, topic, sub.name, cfg)
		s.must(err)
	}
	l.producers = s.makeProducers(l, delay)
	return l
}

// makeProducers makes one of each kind for a topic.
func (s *soak) makeProducers(l *lane, delay time.Duration) []*producer {
	kinds := []struct {
		name string
		keys int
	}{{"sequence", 20}, {"key", 3}, {"loose", 0}, {"stream", 20}, {"file", 10}, {"reference", 5}}
	if delay > 0 {
		kinds = kinds[:2]
	}
	var out []*producer
	for _, k := range kinds {
		attempts := 1
		if k.name == "stream" {
			attempts = 5 // as the Producer's callers have it
		}
		out = append(out, &producer{
			name: k.name, client: s.clientTrying(attempts), rng: s.rng(), pace: pace, next: map[string]int{}, keys: k.keys, delay: delay,
			count: s.count, ledger: l.ledger,
		})
	}
	return out
}

// pace is the pause between two calls of a producer: the load is for hours and beside others.
const pace = 250 * time.Millisecond

// run is the load of one round.
type run struct {
	*soak
	ctx                  context.Context
	stop, drain          chan struct{}
	producers, consumers sync.WaitGroup
}

// begin starts the load on lanes.
func (s *soak) begin(ctx context.Context, lanes []*lane) *run {
	r := &run{soak: s, ctx: ctx, stop: make(chan struct{}), drain: make(chan struct{})}
	for _, l := range lanes {
		for _, p := range l.producers {
			r.start(&r.producers, func() error { return r.produce(p) })
		}
		for _, sub := range l.subs {
			r.consume(l, sub)
		}
		c, rng := s.client(), s.rng()
		r.start(&r.producers, func() error { return changes(ctx, c, l.topic(), rng, r.stop) })
	}
	c, rng := s.client(), s.rng()
	prefix := "churn." + queue.NewIDs(nil).ID()
	r.start(&r.producers, func() error { return churn(ctx, c, prefix, rng, r.stop) })
	return r
}

func (r *run) start(wg *sync.WaitGroup, f func() error) {
	wg.Go(func() {
		if err := f(); err != nil {
			r.fail("%v", err)
		}
	})
}

func (r *run) produce(p *producer) error {
	id := fmt.Sprintf("%s-%s", p.ledger.topic, p.name)
	bySequence := func(n uint64) client.Guard { return client.Guard{ProducerID: id, Sequence: n} }
	byKey := func(n uint64) client.Guard { return client.Guard{IdempotencyKey: fmt.Sprintf("%s-%d", id, n)} }
	switch p.name {
	case "key":
		return p.guarded(r.ctx, r.stop, p.direct, byKey)
	case "loose":
		return p.loose(r.ctx, r.stop)
	case "stream":
		return p.stream(r.ctx, r.stop)
	case "file":
		return p.guarded(r.ctx, r.stop, p.encoded, bySequence)
	case "reference":
		return p.guarded(r.ctx, r.stop, p.references, byKey)
	}
	return p.guarded(r.ctx, r.stop, p.direct, bySequence)
}

func (r *run) consume(l *lane, sub subscription) {
	c := &consumer{ledger: l.ledger, sub: sub.name, client: r.client(), rng: r.rng(), count: r.count}
	if sub.dead {
		c.poison = 3
		u := &undertaker{of: l.ledger, sub: sub.name, topic: l.grave(), client: r.client()}
		r.start(&r.consumers, func() error { return u.run(r.ctx, r.drain) })
	}
	if sub.handled {
		r.start(&r.consumers, func() error { return handled(r.ctx, c.client, l.ledger, sub.name, r.drain) })
		return
	}
	if sub.replayed {
		rng := r.rng()
		r.start(&r.producers, func() error { return seeks(r.ctx, c.client, l.ledger, sub.name, rng, r.stop) })
	}
	r.start(&r.consumers, func() error { return c.run(r.ctx, r.drain) })
}

// churn makes topics with subscriptions and deletes them.
func churn(ctx context.Context, c *client.Client, prefix string, rng *rand.Rand, stop <-chan struct{}) error {
	steps := func(topic string) []func() error {
		return []func() error{
			func() error { _, err := c.CreateTopic(ctx, topic, client.TopicConfig{}); return err },
			func() error { _, err := c.CreateSubscription(ctx, topic, "s", client.SubscriptionConfig{}); return err },
			func() error {
				_, err := c.Produce(ctx, topic, []client.Message{{Body: make([]byte, 20<<10)}}, client.Guard{})
				return err
			},
			func() error { _, err := c.Claim(ctx, topic, "s", client.ClaimOptions{MaxMessages: 1}); return err },
			func() error { return c.DeleteSubscription(ctx, topic, "s") },
			func() error { return c.DeleteTopic(ctx, topic) },
		}
	}
	for n := 0; !closed(stop); n++ {
		for i, step := range steps(fmt.Sprintf("%s.%d", prefix, n)) {
			for {
				err := step()
				if err == nil || i >= 4 && queue.Is(err, queue.KindNotFound) { // a deletion whose answer was lost
					break
				}
				if !passing(err) {
					return fmt.Errorf("churn, step %d: %w", i, err)
				}
				if pause(ctx, 4*retryPause) != nil {
					return fmt.Errorf("churn, step %d: %w", i, err)
				}
			}
		}
		_ = pause(ctx, time.Duration(500+rng.IntN(2000))*time.Millisecond)
	}
	return nil
}

// finish lets the load end, drains it and verifies all of it. Faults are over.
func (r *run) finish(lanes []*lane) {
	close(r.stop)
	r.producers.Wait()
	close(r.drain)
	r.consumers.Wait()
	for _, l := range lanes {
		for _, sub := range l.subs {
			if missing := l.ledger.missing(sub.name); len(missing) > 0 {
				r.fail("%s/%s: %d messages were acknowledged and did not come: %v", l.topic(), sub.name, len(missing), missing[:min(5, len(missing))])
			}
		}
		log, wrong, err := l.read(r.soak.ctx, r.admin)
		if err != nil {
			r.fail("read %s: %v", l.topic(), err)
			continue
		}
		for _, w := range append(wrong, l.ledger.balance(log)...) {
			r.fail("%s", w)
		}
	}
}

// read reads what the log of a lane has got since it was last read, in order, and checks that offsets are dense and that
// the open segments tile the ring.
func (l *lane) read(ctx context.Context, c *client.Client) (log map[string][]found, wrong []string, err error) {
	log = map[string][]found{}
	var segments []*client.Segment
	for seg, err := range c.Segments(ctx, l.topic()) {
		if err != nil {
			return nil, nil, err
		}
		segments = append(segments, seg)
	}
	slices.SortFunc(segments, func(a, b *client.Segment) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Range.Lo, b.Range.Lo))
	})
	at, slots := 0, uint32(0)
	for _, seg := range segments {
		if seg.State == "open" {
			slots += seg.Range.Len()
		}
		for next := l.from[seg.ID]; next < seg.NextOffset; {
			page, err := c.ReadRecords(ctx, l.topic(), client.RecordsOptions{Segment: seg.ID, Offset: next, Limit: queue.MaxPageSize})
			if err != nil {
				return nil, nil, err
			}
			messages := open(ctx, page.Messages)
			if len(messages) == 0 {
				return nil, nil, fmt.Errorf("segment %s has nothing at %d, its next offset is %d", seg.ID, next, seg.NextOffset)
			}
			for i := range messages {
				m := &messages[i]
				if m.ID.Segment != seg.ID || m.ID.Offset != next || m.wrong != "" {
					wrong = append(wrong, fmt.Sprintf("%s: %s where offset %d of %s should be: %s", l.topic(), m.ID, next, seg.ID, m.wrong))
				}
				at++
				next = m.ID.Offset + 1
				log[m.name.String()] = append(log[m.name.String()], found{m.ID, at})
			}
		}
		l.from[seg.ID] = seg.NextOffset
	}
	if slots != queue.Slots {
		wrong = append(wrong, fmt.Sprintf("%s: the open segments own %d slots of %d", l.topic(), slots, queue.Slots))
	}
	return log, wrong, nil
}
