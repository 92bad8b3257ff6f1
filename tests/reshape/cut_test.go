package reshape

import (
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
)

// cut is a subscription that was made from the latest message on while segments changed.
type cut struct {
	name     string
	from, to time.Time // when its making was asked for, and answered
	ready    chan struct{}
}

// laterSubscription makes one after a while.
func (r *run) laterSubscription(after time.Duration) *cut {
	c := &cut{name: "cut", ready: make(chan struct{})}
	r.work.subscribe(c.name, true)
	r.start(&r.producers, func() error {
		defer close(c.ready)
		time.Sleep(after)
		c.from = time.Now()
		_, err := r.admin.CreateSubscription(r.ctx, work, c.name, client.SubscriptionConfig{
			Ordering: client.Of(client.OrderingKey), Start: &client.Position{Word: client.Latest},
		})
		c.to = time.Now()
		return err
	})
	return c
}

// check takes everything that the subscription has: all that was sent after it was made, nothing that was
// acknowledged before.
func (c *cut) check(r *run) {
	r.t.Helper()
	<-c.ready
	got := map[string]bool{}
	for idle := time.Now(); time.Since(idle) < 2*time.Second; {
		messages, err := r.admin.Claim(r.ctx, work, c.name, client.ClaimOptions{MaxMessages: 500, Wait: time.Second})
		r.must(err)
		var receipts []client.Receipt
		for _, m := range messages {
			got[string(m.Body)] = true
			receipts = append(receipts, m.Receipt)
		}
		if len(messages) > 0 {
			idle = time.Now()
			results, err := r.admin.Ack(r.ctx, work, c.name, receipts)
			r.must(err)
			for _, err := range results {
				r.must(err)
			}
		}
	}
	r.work.mu.Lock()
	defer r.work.mu.Unlock()
	var early, lost []string
	for body, m := range r.work.sent {
		switch {
		case m.acked && m.to.Before(c.from) && got[body]:
			early = append(early, body)
		case m.acked && m.from.After(c.to) && !got[body]:
			lost = append(lost, body)
		}
	}
	if len(early) > 0 {
		r.work.fault("cut: %d messages of before it, such as %s", len(early), strings.Join(early[:min(5, len(early))], " "))
	}
	if len(lost) > 0 {
		r.work.fault("cut: %d messages of after it are missing, such as %s", len(lost), strings.Join(lost[:min(5, len(lost))], " "))
	}
}
