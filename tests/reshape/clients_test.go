package reshape

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// over reports whether a call that failed with err was cut off by the end of the server, or met what such a one
// has left: it may be made again.
func over(err error) bool {
	var api *client.APIError
	return err != nil && (!errors.As(err, &api) || api.Code == queue.CodeIdempotencyInProgress)
}

// producer sends the messages of its keys, numbered by key.
type producer struct {
	name   string
	ledger *ledger
	client *client.Client
	rng    *rand.Rand
	next   map[string]int
	keys   int // 0: no key
	delay  time.Duration
}

// batch makes the next messages.
func (p *producer) batch(most int, guarded bool) (keys []string, ns []int, out []client.Message) {
	for range 1 + p.rng.IntN(most) {
		key := "-" + p.name
		if p.keys > 0 {
			key = fmt.Sprintf("%s.%d", p.name, p.rng.IntN(p.keys))
		}
		n := p.next[key]
		p.next[key]++
		p.ledger.send(key, n, guarded)
		m := client.Message{Body: []byte(bodyOf(key, n))}
		if p.keys > 0 {
			m.Key = []byte(key)
		}
		if p.delay > 0 {
			d := time.Duration(p.rng.Int64N(int64(p.delay)))
			m.Delay = &d
		}
		keys, ns, out = append(keys, key), append(ns, n), append(out, m)
	}
	return keys, ns, out
}

// calls makes one guarded call after another. Each is made until it has an answer; once it has one it is now
// and then made again, as if the answer had been lost, and has to be answered the same.
func (p *producer) calls(ctx context.Context, stop <-chan struct{}, guard func(n uint64) client.Guard) error {
	for call := uint64(1); !closed(stop); call++ {
		keys, ns, messages := p.batch(12, true)
		var results []client.Result
		for repeat := p.rng.IntN(10) == 0; ; {
			again, err := p.client.Produce(ctx, p.ledger.topic, messages, guard(call))
			if err == nil && results != nil {
				for i := range again {
					if again[i].ID != results[i].ID || again[i].Delayed != results[i].Delayed {
						return fmt.Errorf("%s: call %d answers %v and then %v", p.name, call, results[i], again[i])
					}
				}
				break
			}
			if err == nil {
				results = again
				if !repeat {
					break
				}
				_ = pause(ctx, time.Duration(p.rng.IntN(300))*time.Millisecond)
				continue
			}
			if !over(err) {
				return fmt.Errorf("%s: call %d: %w", p.name, call, err)
			}
			if closed(stop) && errors.Is(err, client.CodeError(queue.CodeIdempotencyInProgress)) {
				return nil // what became of it does not matter any more
			}
			if pause(ctx, 20*time.Millisecond) != nil {
				return fmt.Errorf("%s: call %d: %w", p.name, call, err)
			}
		}
		for i := range results {
			d := time.Duration(0)
			if messages[i].Delay != nil {
				d = *messages[i].Delay
			}
			p.ledger.answer(keys[i], ns[i], &results[i], d)
		}
		_ = pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// loose makes calls without a guard; one whose answer is lost is not made again.
func (p *producer) loose(ctx context.Context, stop <-chan struct{}) error {
	for !closed(stop) {
		keys, ns, messages := p.batch(5, false)
		results, err := p.client.Produce(ctx, p.ledger.topic, messages, client.Guard{})
		if err != nil && !over(err) {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for i := range results {
			p.ledger.answer(keys[i], ns[i], &results[i], 0)
		}
		_ = pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// stream sends through the SDK's Producer, and flushes now and then.
func (p *producer) stream(ctx context.Context, stop <-chan struct{}) error {
	producer, err := client.NewProducer(p.client, p.ledger.topic, client.ProducerOptions{MaxBatchMessages: 20, Lanes: 3})
	if err != nil {
		return err
	}
	for !closed(stop) {
		var futures []*client.Future
		keys, ns, messages := p.batch(60, true)
		for i := range messages {
			f, err := producer.Send(ctx, messages[i])
			if err != nil {
				return err
			}
			futures = append(futures, f)
		}
		if err := producer.Flush(ctx); err != nil {
			return fmt.Errorf("%s: flush: %w", p.name, err)
		}
		for i, f := range futures {
			r, ok := f.Result()
			if !ok {
				return fmt.Errorf("%s: Flush came back without an outcome", p.name)
			}
			p.ledger.answer(keys[i], ns[i], &r, 0)
		}
		_ = pause(ctx, 10*time.Millisecond)
	}
	return producer.Close(ctx)
}

const (
	visibility = 1500 * time.Millisecond
	claimWait  = 300 * time.Millisecond
)

// consumer claims, and acks, releases or forgets what it gets, until everything that was acknowledged is
// consumed.
type consumer struct {
	ledger *ledger
	sub    string
	client *client.Client
	rng    *rand.Rand
}

func (c *consumer) run(ctx context.Context, stop <-chan struct{}) error {
	for ctx.Err() == nil {
		drain := closed(stop)
		if drain && len(c.ledger.missing(c.sub)) == 0 {
			return nil
		}
		o := client.ClaimOptions{MaxMessages: 1 + c.rng.IntN(40), Wait: claimWait, VisibilityTimeout: visibility}
		if drain {
			o.MaxMessages = 500
		}
		got, err := c.client.Claim(ctx, c.ledger.topic, c.sub, o)
		c.ledger.deliver(c.sub, got)
		if err != nil && !over(err) {
			return fmt.Errorf("claim of %s: %w", c.sub, err)
		}
		if err := c.settle(ctx, got, drain); err != nil {
			return fmt.Errorf("settle of %s: %w", c.sub, err)
		}
		if err != nil {
			_ = pause(ctx, 20*time.Millisecond)
		}
	}
	return fmt.Errorf("consumer of %s: %w", c.sub, ctx.Err())
}

func (c *consumer) settle(ctx context.Context, got []*client.Received, drain bool) error {
	var acks, releases []client.Receipt
	var acked []*client.Received
	forget := !drain && c.rng.IntN(20) == 0
	for _, m := range got {
		switch dice := c.rng.IntN(100); {
		case forget:
		case drain || dice < 88:
			c.ledger.settle(c.sub, m, true)
			acks, acked = append(acks, m.Receipt), append(acked, m)
		case dice < 96:
			c.ledger.settle(c.sub, m, false)
			releases = append(releases, m.Receipt)
		}
	}
	if len(acks) > 0 {
		results, err := c.client.Ack(ctx, c.ledger.topic, c.sub, acks)
		if err != nil && !over(err) {
			return err
		}
		for i := range results {
			c.ledger.ack(c.sub, acked[i], results[i])
		}
	}
	if len(releases) > 0 {
		o := client.ReleaseOptions{HasDelay: true, Delay: time.Duration(c.rng.IntN(200)) * time.Millisecond}
		if _, err := c.client.Release(ctx, c.ledger.topic, c.sub, releases, o); err != nil && !over(err) {
			return err
		}
	}
	return nil
}

func closed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
