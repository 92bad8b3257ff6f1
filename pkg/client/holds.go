package client

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// delivery is one claimed message from its claim to its settling.
type delivery struct {
	message *Received
	hold    *hold
	// next is the next message of the same key in the answer, if these are handled in order.
	next *delivery
	// Guarded by holds.mu:
	settled bool
	lost    bool
	cancel  context.CancelCauseFunc // of the running handler; nil otherwise
}

// hold is what is known of one claim in one segment: consecutive messages.
type hold struct {
	deliveries []*delivery // in order of offset
	live       int         // of them, those that are neither settled nor lost
	// until is when the claim ends, by our clock and at the earliest; next is when to extend it.
	until, next time.Time
}

// holds keeps claims alive while their messages wait or are worked on, and tells handlers when one is
// lost nevertheless.
type holds struct {
	c          *Consumer
	visibility time.Duration
	wake       chan struct{} // holds a token if run has to look again

	mu   sync.Mutex // guards all holds and the marked fields of their deliveries
	live map[*hold]struct{}
}

func newHolds(c *Consumer, visibility time.Duration) *holds {
	return &holds{c: c, visibility: visibility, wake: make(chan struct{}, 1), live: make(map[*hold]struct{})}
}

// add starts holding messages that were claimed by a call made at began.
func (h *holds) add(messages []*Received, began time.Time) []*delivery {
	out := make([]*delivery, len(messages))
	h.mu.Lock()
	defer h.mu.Unlock()
	var last *hold
	for i, m := range messages {
		if last == nil || !follows(messages[i-1].Receipt, m.Receipt) {
			last = &hold{until: began.Add(h.visibility), next: began.Add(h.visibility / 2)}
			h.live[last] = struct{}{}
		}
		out[i] = &delivery{message: m, hold: last}
		last.deliveries = append(last.deliveries, out[i])
		last.live++
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
	return out
}

// follows reports whether b is of the same claim as a and of the messages right after it.
func follows(a, b Receipt) bool { return a.Segment == b.Segment && a.Claim == b.Claim && a.Hi == b.Lo }

// start gives the context of a handler; false if the claim is lost already.
func (h *holds) start(parent context.Context, d *delivery) (context.Context, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.lost {
		return nil, false
	}
	ctx, cancel := context.WithCancelCause(parent)
	d.cancel = cancel
	return ctx, true
}

// stop ends a handler's context; it reports whether the claim was lost.
func (h *holds) stop(d *delivery) (lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.cancel(context.Canceled)
	d.cancel = nil
	return d.lost
}

// settle ends the holding of messages.
func (h *holds) settle(ds []*delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range ds {
		if !d.settled && !d.lost {
			h.drop(d.hold)
		}
		d.settled = true
	}
}

// lose marks a message as no longer ours and cancels its handler. Called under mu.
func (h *holds) lose(d *delivery) {
	if d.settled || d.lost {
		return
	}
	d.lost = true
	if d.cancel != nil {
		d.cancel(ErrClaimLost)
	}
	h.drop(d.hold)
}

// drop counts one message of a hold less. Called under mu.
func (h *holds) drop(hold *hold) {
	if hold.live--; hold.live == 0 {
		delete(h.live, hold)
	}
}

// run extends until ctx ends.
func (h *holds) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(h.wait())
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
			continue
		case <-timer.C:
		}
		h.expire()
		if due := h.due(); len(due) > 0 {
			h.extend(ctx, due)
		}
	}
}

// wait is how long nothing is to be done; an hour where nothing is held.
func (h *holds) wait() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	wait := time.Hour
	for hold := range h.live {
		at := hold.next
		if h.c.options.NoAutoExtend || hold.until.Before(at) {
			at = hold.until
		}
		wait = min(wait, time.Until(at))
	}
	return max(wait, 0)
}

// expire gives up what has run out.
func (h *holds) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for hold := range h.live {
		if !hold.until.After(now) {
			for _, d := range hold.deliveries {
				h.lose(d)
			}
		}
	}
}

// span is consecutive messages of one claim, under one receipt.
type span struct {
	receipt    Receipt
	deliveries []*delivery
}

// due gives the spans to extend now: of every hold that is due, or nearly, so that claims made one
// after another soon share their calls.
func (h *holds) due() []span {
	if h.c.options.NoAutoExtend {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	soon := time.Now().Add(h.visibility / 8)
	first := false
	var all []*delivery
	for hold := range h.live {
		if hold.next.After(soon) {
			continue
		}
		first = first || !hold.next.After(time.Now())
		for _, d := range hold.deliveries {
			if !d.settled && !d.lost {
				all = append(all, d)
			}
		}
	}
	if !first {
		return nil
	}
	return spans(all)
}

// extend asks for more time, by calls of at most queue.MaxReceipts.
func (h *holds) extend(ctx context.Context, due []span) {
	for len(due) > 0 {
		n := min(len(due), queue.MaxReceipts)
		h.extendSome(ctx, due[:n])
		due = due[n:]
	}
}

func (h *holds) extendSome(ctx context.Context, due []span) {
	began := time.Now()
	// Half of the time is left: a call that hangs leaves time for another.
	tryCtx, cancel := context.WithTimeout(ctx, h.visibility/4)
	defer cancel()
	results, err := h.c.client.Extend(tryCtx, h.c.topic, h.c.subscription, receiptsOf(due), h.visibility)
	if ctx.Err() != nil {
		return // the run is over
	}
	var reports []error
	h.mu.Lock()
	for i, s := range due {
		bad := err
		if err == nil {
			bad = results[i]
		}
		next, until := began.Add(h.visibility/2), began.Add(h.visibility)
		if bad != nil {
			next, until = time.Now().Add(h.visibility/16), time.Time{}
			if err == nil {
				reports = append(reports, &MessageError{ID: s.deliveries[0].message.ID, Err: bad})
			}
		}
		for _, d := range s.deliveries {
			if bad != nil && claimLost(bad) {
				h.lose(d)
				continue
			}
			d.hold.next = next
			if bad == nil && until.After(d.hold.until) {
				d.hold.until = until
			}
		}
	}
	h.mu.Unlock()
	if err != nil {
		reports = append(reports, err)
	}
	for _, r := range reports {
		h.c.options.OnError(r)
	}
}
