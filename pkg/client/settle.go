package client

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxSettle is how many messages one flush of the settler takes.
const maxSettle = 2000

// maxReleases is how many release calls are under way at once.
const maxReleases = 8

// settling is what is to be done with one message.
type settling struct {
	d       *delivery
	ack     bool
	release ReleaseOptions // unless ack
}

// settler joins acks and releases into few calls.
type settler struct {
	c     *Consumer
	holds *holds
	// in takes what is to be settled; closing it ends run. Whoever writes waits when the server
	// cannot follow.
	in chan settling
}

func newSettler(c *Consumer, h *holds, bound int) *settler {
	return &settler{c: c, holds: h, in: make(chan settling, bound+maxSettle)}
}

// run settles until in is closed and empty.
func (s *settler) run(ctx context.Context) {
	var pending []settling
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for first := range s.in {
		pending = append(pending[:0], first)
		timer.Reset(s.c.options.AckLinger)
		pending = s.gather(pending, timer.C)
		s.flush(ctx, pending)
		clear(pending)
	}
}

// gather takes what comes until the time is up or there is enough.
func (s *settler) gather(pending []settling, due <-chan time.Time) []settling {
	for len(pending) < maxSettle {
		select {
		case next, ok := <-s.in:
			if !ok {
				return pending
			}
			pending = append(pending, next)
		case <-due:
			return pending
		}
	}
	return pending
}

// flush makes one call for the acks and one for each way to release.
func (s *settler) flush(ctx context.Context, pending []settling) {
	var acked []*delivery
	released := make(map[ReleaseOptions][]*delivery)
	for _, p := range pending {
		if p.ack {
			acked = append(acked, p.d)
		} else {
			released[p.release] = append(released[p.release], p.d)
		}
	}
	if len(acked) > 0 {
		s.settle(ctx, acked, func(receipts []Receipt) ([]error, error) {
			return s.c.client.Ack(ctx, s.c.topic, s.c.subscription, receipts)
		})
	}
	// Reasons differ from message to message, so there may be many of these.
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxReleases)
	for o, ds := range released {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.settle(ctx, ds, func(receipts []Receipt) ([]error, error) {
				return s.c.client.Release(ctx, s.c.topic, s.c.subscription, receipts, o)
			})
		})
	}
	wg.Wait()
}

// persist makes the call until it has an answer, but no longer than claims hold: a server that is
// away for a moment must not cost every message that was handled in it another delivery. Whoever
// comes to settle more waits meanwhile.
func (s *settler) persist(ctx context.Context, receipts []Receipt, call func([]Receipt) ([]error, error)) ([]error, error) {
	began := time.Now()
	for failed := 1; ; failed++ {
		results, err := call(receipts)
		if err == nil {
			return results, nil
		}
		s.c.options.OnError(err)
		if !retryable(err, true) || time.Since(began) > s.holds.visibility || !sleep(ctx, s.c.client.pause(failed, err)) {
			return nil, err
		}
	}
}

// settle makes the call. Messages whose outcome did not get through are let go: they come back when
// their claim ends.
func (s *settler) settle(ctx context.Context, ds []*delivery, call func([]Receipt) ([]error, error)) {
	defer s.holds.settle(ds)
	todo := spans(ds)
	results, err := s.persist(ctx, receiptsOf(todo), call)
	if err != nil {
		return
	}
	var again []span
	for i, bad := range results {
		switch {
		case bad == nil:
		case len(todo[i].deliveries) == 1:
			s.report(todo[i], bad)
		default:
			again = append(again, singles(todo[i].deliveries)...)
		}
	}
	if len(again) == 0 {
		return
	}
	// One message of a run may be gone (expired, say) and must not cost the others their ack.
	if results, err = s.persist(ctx, receiptsOf(again), call); err != nil {
		return
	}
	for i, bad := range results {
		if bad != nil {
			s.report(again[i], bad)
		}
	}
}

func (s *settler) report(of span, err error) {
	s.c.options.OnError(&MessageError{ID: of.deliveries[0].message.ID, Err: err})
}

// spans joins messages that follow each other under one claim.
func spans(ds []*delivery) []span {
	slices.SortFunc(ds, func(a, b *delivery) int {
		x, y := &a.message.Receipt, &b.message.Receipt
		return cmp.Or(strings.Compare(string(x.Segment), string(y.Segment)),
			slices.Compare(x.Claim[:], y.Claim[:]), cmp.Compare(x.Lo, y.Lo))
	})
	var out []span
	for i, d := range ds {
		r := d.message.Receipt
		if n := len(out); n > 0 && follows(out[n-1].receipt, r) && r.Hi-out[n-1].receipt.Lo <= queue.MaxClaimMessages {
			out[n-1].receipt.Hi = r.Hi
			out[n-1].deliveries = ds[i-len(out[n-1].deliveries) : i+1]
			continue
		}
		out = append(out, span{receipt: r, deliveries: ds[i : i+1]})
	}
	return out
}

func singles(ds []*delivery) []span {
	out := make([]span, len(ds))
	for i, d := range ds {
		out[i] = span{receipt: d.message.Receipt, deliveries: ds[i : i+1]}
	}
	return out
}

func receiptsOf(spans []span) []Receipt {
	out := make([]Receipt, len(spans))
	for i := range spans {
		out[i] = spans[i].receipt
	}
	return out
}
