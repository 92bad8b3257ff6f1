//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	visibility = 3 * time.Second
	claimWait  = 500 * time.Millisecond
)

// consumer claims, and acks, releases, extends or forgets what it gets, until everything that was acknowledged is
// done.
type consumer struct {
	ledger *ledger
	sub    string
	client *client.Client
	rng    *rand.Rand
	count  *counters
	// poison is the share of messages, in hundredths, that are given back whatever happens, until they are dead.
	poison int
}

func (c *consumer) run(ctx context.Context, drain <-chan struct{}) error {
	for ctx.Err() == nil {
		draining := closed(drain)
		if draining && len(c.ledger.missing(c.sub)) == 0 {
			return nil
		}
		o := client.ClaimOptions{MaxMessages: 1 + c.rng.IntN(40), Wait: claimWait, VisibilityTimeout: visibility}
		if draining {
			o.MaxMessages = 500
		}
		asked := time.Now()
		got, err := c.client.Claim(ctx, c.ledger.topic, c.sub, o)
		c.count.refuse(err)
		if err != nil && !passing(err) && !errors.Is(err, client.ErrTooManyInFlight) {
			return fmt.Errorf("claim of %s/%s: %w", c.ledger.topic, c.sub, err)
		}
		messages := open(ctx, got)
		c.ledger.deliver(c.sub, messages, asked)
		if err := c.settle(ctx, messages, draining); err != nil {
			return fmt.Errorf("settle of %s/%s: %w", c.ledger.topic, c.sub, err)
		}
		if err != nil {
			_ = pause(ctx, retryPause)
		}
	}
	return nil // judged by what is missing
}

// settle does with each message what chance says.
func (c *consumer) settle(ctx context.Context, got []delivered, draining bool) error {
	var acks, releases, extends []*delivered
	forget := !draining && c.rng.IntN(20) == 0
	for i := range got {
		m := &got[i]
		switch dice := c.rng.IntN(100); {
		case m.wrong != "" || forget:
		case m.name.n%100 < c.poison:
			releases = append(releases, m)
		case !draining && dice < 3:
			extends = append(extends, m)
		case draining || dice < 88:
			acks = append(acks, m)
		case dice < 96:
			releases = append(releases, m)
		}
	}
	if len(extends) > 0 {
		for _, m := range extends {
			c.ledger.extended(c.sub, m)
		}
		if _, err := c.client.Extend(ctx, c.ledger.topic, c.sub, receipts(extends), visibility); err != nil && !passing(err) {
			return err
		}
		acks = append(acks, extends...)
	}
	if err := c.release(ctx, releases); err != nil {
		return err
	}
	return c.ack(ctx, acks)
}

func receipts(of []*delivered) []client.Receipt {
	out := make([]client.Receipt, len(of))
	for i, m := range of {
		out[i] = m.Receipt
	}
	return out
}

func (c *consumer) release(ctx context.Context, of []*delivered) error {
	if len(of) == 0 {
		return nil
	}
	for _, m := range of {
		c.ledger.settle(c.sub, m, false)
	}
	o := client.ReleaseOptions{HasDelay: true, Delay: time.Duration(c.rng.IntN(200)) * time.Millisecond, Uncounted: c.poison == 0, Reason: "chance"}
	_, err := c.client.Release(ctx, c.ledger.topic, c.sub, receipts(of), o)
	c.count.refuse(err)
	if err != nil && !passing(err) {
		return err
	}
	return nil
}

func (c *consumer) ack(ctx context.Context, of []*delivered) error {
	if len(of) == 0 {
		return nil
	}
	for _, m := range of {
		c.ledger.settle(c.sub, m, true)
	}
	results, err := c.client.Ack(ctx, c.ledger.topic, c.sub, receipts(of))
	c.count.refuse(err)
	if err != nil {
		for _, m := range of {
			c.ledger.ack(c.sub, m, err, !unchanged(err))
		}
		if !passing(err) {
			return err
		}
		return nil
	}
	for i, m := range of {
		one := results[i]
		if one != nil && !passing(one) && !errors.Is(one, client.ErrClaimLost) {
			return one
		}
		c.ledger.ack(c.sub, m, one, one != nil && !unchanged(one))
	}
	return nil
}

// undertaker reads the dead-letter topic of a subscription.
type undertaker struct {
	of     *ledger
	sub    string // of the topic whose messages die
	topic  string
	client *client.Client
}

func (u *undertaker) run(ctx context.Context, drain <-chan struct{}) error {
	for ctx.Err() == nil && (!closed(drain) || len(u.of.missing(u.sub)) > 0) {
		got, err := u.client.Claim(ctx, u.topic, deadSub, client.ClaimOptions{MaxMessages: 100, Wait: claimWait, VisibilityTimeout: visibility})
		if err != nil && !passing(err) {
			return fmt.Errorf("claim of %s: %w", u.topic, err)
		}
		messages := open(ctx, got)
		var all []client.Receipt
		for i := range messages {
			m := &messages[i]
			if m.wrong != "" {
				return fmt.Errorf("%s: %s: %s", u.topic, m.ID, m.wrong)
			}
			u.of.bury(u.sub, m.name)
			all = append(all, m.Receipt)
		}
		if len(all) > 0 {
			if _, err := u.client.Ack(ctx, u.topic, deadSub, all); err != nil && !passing(err) {
				return fmt.Errorf("ack of %s: %w", u.topic, err)
			}
		}
		if err != nil {
			_ = pause(ctx, retryPause)
		}
	}
	return nil
}

const deadSub = "all"

// handled consumes with the SDK's Consumer.
func handled(ctx context.Context, c *client.Client, l *ledger, sub string, drain <-chan struct{}) error {
	runner, err := client.NewConsumer(c, l.topic, sub, client.ConsumerOptions{
		Parallelism: 4, MaxMessages: 30, Wait: claimWait, VisibilityTimeout: visibility, DrainTimeout: time.Second,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		for ctx.Err() == nil && (!closed(drain) || len(l.missing(sub)) > 0) {
			_ = pause(ctx, 100*time.Millisecond)
		}
	}()
	for ctx.Err() == nil {
		err = runner.Run(ctx, func(ctx context.Context, m *client.Received) error {
			asked := time.Now().Add(-visibility) // when its claim was made is the Consumer's to know
			one := open(ctx, []*client.Received{m})
			if len(one) == 0 {
				return errors.New("the body did not come")
			}
			l.deliver(sub, one, asked)
			// The Consumer does not tell whether its ack was confirmed.
			l.settle(sub, &one[0], true)
			return nil
		})
		if err != nil && ctx.Err() == nil && !passing(err) {
			return fmt.Errorf("consumer of %s/%s: %w", l.topic, sub, err)
		}
		_ = pause(ctx, retryPause)
	}
	return nil
}

// seeks sets a subscription back to its beginning now and then.
func seeks(ctx context.Context, c *client.Client, l *ledger, sub string, rng *rand.Rand, stop <-chan struct{}) error {
	for !closed(stop) {
		_ = pause(ctx, time.Duration(2000+rng.IntN(6000))*time.Millisecond)
		back := l.seek(sub)
		if err := c.Seek(ctx, l.topic, sub, client.Position{Word: client.Earliest}); err != nil {
			if !passing(err) {
				return fmt.Errorf("seek of %s/%s: %w", l.topic, sub, err)
			}
			back()
		}
	}
	return nil
}

// changes splits and merges at random, and sets policies by which the leader does.
func changes(ctx context.Context, c *client.Client, topic string, rng *rand.Rand, stop <-chan struct{}) error {
	mayRefuse := func(err error) bool {
		return err == nil || passing(err) || errors.Is(err, client.ErrSegmentSealed) || errors.Is(err, client.ErrSegmentBounds)
	}
	for !closed(stop) {
		_ = pause(ctx, time.Duration(1000+rng.IntN(4000))*time.Millisecond)
		var open []*client.Segment
		var err error
		for seg, e := range c.OpenSegments(ctx, topic) {
			if err = e; err != nil {
				break
			}
			open = append(open, seg)
		}
		switch i := rng.IntN(max(1, len(open))); {
		case err != nil || len(open) == 0:
		case rng.IntN(4) == 0:
			least := 1 + rng.IntN(3)
			_, err = c.UpdateTopic(ctx, topic, client.TopicPatch{Scaling: &client.Scaling{
				MinSegments: &least, MaxSegments: client.Of(8), TargetMessagesPerSecond: client.Of(2 + rng.Int64N(100)),
			}})
		case len(open) < 6 && open[i].Range.Len() >= 16:
			_, err = c.Split(ctx, topic, open[i].ID, client.SplitOptions{Into: 2})
		case len(open) > 1:
			left := open[i].Range
			for _, other := range open {
				if other.Range.Lo == left.Hi {
					_, err = c.Merge(ctx, topic, []queue.SegmentID{open[i].ID, other.ID}, client.MergeOptions{})
					break
				}
			}
		}
		if !mayRefuse(err) {
			return fmt.Errorf("change of %s: %w", topic, err)
		}
	}
	return nil
}
