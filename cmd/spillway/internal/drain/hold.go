package drain

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
)

// hold keeps one claim alive while its messages are worked on.
type hold struct {
	loop  *loop
	every time.Duration
	until time.Duration

	mu       sync.Mutex // guards receipts
	receipts []client.Receipt
}

// newHold reads the length of the claim off its messages, by the server's clock alone: their claim
// time is not told, so the local clock stands in for it, which is good to a network round trip.
func newHold(l *loop, messages []*client.Received) *hold {
	h := &hold{loop: l, receipts: receiptsOf(messages)}
	if len(messages) > 0 && !l.options.NoAck {
		h.until = time.Until(messages[0].ClaimExpires)
		if l.options.Visibility > 0 {
			h.until = l.options.Visibility
		}
		// A clock that is off must not make it too short or too long to be of use.
		h.until = min(max(h.until, time.Second), time.Hour)
		h.every = h.until / 3
	}
	return h
}

// settled takes a message out of what is extended.
func (h *hold) settled(r client.Receipt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.receipts = slices.DeleteFunc(h.receipts, func(o client.Receipt) bool { return o == r })
}

// start extends the claim until the function it gives is called. The context ends when a message's
// claim is lost: its work is in vain, because somebody else has the message.
func (h *hold) start(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	if h.every == 0 {
		return ctx, func() { cancel(nil) }
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(h.every)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				h.extend(ctx, cancel)
			}
		}
	}()
	return ctx, func() {
		close(stop)
		cancel(nil)
		<-stopped
	}
}

func (h *hold) extend(ctx context.Context, lost context.CancelCauseFunc) {
	h.mu.Lock()
	runs := Merge(h.receipts)
	h.mu.Unlock()
	if len(runs) == 0 {
		return
	}
	o := h.loop.options
	// An error of the call itself is no loss yet: the next tick tries again.
	results, err := h.loop.client.Extend(ctx, o.Topic, o.Subscription, runs, h.until)
	if err != nil {
		return
	}
	for _, err := range results {
		if err != nil {
			lost(err)
			return
		}
	}
}
