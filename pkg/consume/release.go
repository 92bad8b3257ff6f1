package consume

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Release gives messages back: to be claimed again at once, after a delay, or never, if they go to
// the dead-letter topic, because it says so or because their deliveries are used up. Released messages
// come back by themselves: what else was in their claim stays as it is. Answers are as for Extend; the
// cost is one read per claim and one update.
//
// Errors of the call besides Ack's: Invalid for a delay or reason out of range, and for DeadLetter
// where the subscription has no dead-letter topic. A dead-letter topic that is gone or sealed is the
// receipts' error under DeadLetter; messages whose deliveries are used up are then kept back as when
// their claim expires.
func (s *Service) Release(ctx context.Context, topic, subscription string, receipts []queue.Receipt, how Release) ([]error, error) {
	_, sub, err := s.subscription(ctx, topic, subscription)
	if err != nil {
		return nil, err
	}
	if err := how.check(sub); err != nil {
		return nil, err
	}
	return s.settle(ctx, topic, subscription, receipts, func(ctx context.Context, g *group) ([]error, error) {
		return s.releaseGroup(ctx, g, &how)
	})
}

func (s *Service) releaseGroup(ctx context.Context, g *group, how *Release) ([]error, error) {
	cur, err := s.reread(ctx, g.sub.ID, g.seg.ID)
	if err != nil {
		return nil, err
	}
	held := heldBy(cur, g.claim)
	g.met(cur)
	if len(held) == 0 {
		return g.judge(nil), nil
	}
	attempt := cur.Claims[g.claim].Attempt
	if how.DeadLetter || !how.Uncounted && spent(g.sub, attempt) {
		answers, err := s.reject(ctx, g, cur, how)
		parkable := queue.Is(err, queue.KindNotFound) || queue.Is(err, queue.KindSealed)
		if how.DeadLetter || !parkable {
			return answers, err
		}
	}
	now := s.clock.Millis()
	back := meta.Retry{Attempts: attempt, Reason: how.Reason}
	if how.Uncounted {
		back.Attempts--
	}
	wait := how.wait(g.sub, attempt)
	back.NotBefore = now.Add(wait)
	op := meta.Settle{Subscription: g.sub.ID, Segment: g.seg.ID, Claim: g.claim}
	for _, r := range g.ranges {
		back.OffsetRange = r
		op.Release = append(op.Release, back)
	}
	before, unknown, err := s.apply(ctx, op)
	if !unknown && queue.Is(err, queue.KindTooLarge) && how.Reason != "" {
		// The cursor has no room for the reason; the release matters more.
		back.Reason = ""
		for i := range op.Release {
			op.Release[i].Reason = ""
		}
		before, unknown, err = s.apply(ctx, op)
	}
	if err != nil {
		return nil, err
	}
	if wait <= pollMax {
		// Who waits must learn when to look; a longer delay is found by looking now and then.
		s.hub.Signal(g.m.ID())
	}
	if !unknown {
		// The store's client may have sent the request twice and given the second answer: then
		// what was held when we read is back by our own doing.
		held = append(heldBy(before, g.claim), within(held, backIn(before, &back))...)
	}
	// After a lost answer: what the claim held before and holds no longer has been given back, by
	// us or, if the claim had expired, by its end. Either is what was asked for.
	return g.judge(held), nil
}

// backIn are the offsets that a cursor has as retries like back: our own release.
func backIn(cur *meta.Cursor, back *meta.Retry) []meta.OffsetRange {
	if cur == nil {
		return nil
	}
	var out []meta.OffsetRange
	for _, r := range cur.Retries {
		own := *back
		if own.OffsetRange = r.OffsetRange; r == own {
			out = append(out, r.OffsetRange)
		}
	}
	return out
}

// wait is how long released messages stay hidden.
func (r *Release) wait(sub *meta.Subscription, attempt uint32) time.Duration {
	switch {
	case r.HasDelay:
		return r.Delay
	case len(sub.Backoff) == 0:
		return 0
	}
	return sub.Backoff[min(int(max(attempt, 1))-1, len(sub.Backoff)-1)]
}

// reject moves a group's messages to the dead-letter topic, some at a time; those of them that have
// expired are done without being moved.
func (s *Service) reject(ctx context.Context, g *group, cur *meta.Cursor, how *Release) ([]error, error) {
	reason := how.Reason
	switch {
	case reason != "":
	case how.DeadLetter:
		reason = ReasonRejected
	default:
		reason = ReasonMaxDeliveries
	}
	v := s.view(g.seg.ID, s.clock.Millis())
	from := mail{g.m, g.sub, g.seg, v}
	var moved []meta.OffsetRange
	most := maxLetters
	for refusals := 0; refusals < maxTries; {
		claim := cur.Claims[g.claim]
		left := within(heldBy(cur, g.claim), g.ranges)
		if len(left) == 0 {
			break
		}
		k := cutter{view: v, now: v.now, room: 2 * queue.MaxCursorEntries, refs: maxRefs}
		cut, err := k.cut(ctx, left, most)
		if err != nil {
			return nil, err
		}
		if len(cut.runs)+len(cut.gone) == 0 {
			break
		}
		op := meta.Settle{Subscription: g.sub.ID, Segment: g.seg.ID, Claim: g.claim, Done: cut.gone, All: true}
		var letters []letter
		for i := range cut.runs {
			op.Done = append(op.Done, cut.runs[i].OffsetRange)
			letters = appendLetters(letters, &cut.runs[i], claim.Attempt, reason)
		}
		next, err := s.post(ctx, from, op, letters)
		if errors.Is(err, errMoved) {
			refusals++
			continue
		}
		if refused, ok := meta.AsRefused(err); ok {
			refusals++
			if cur = cursorIn(refused); cur == nil {
				break
			}
			continue
		}
		if queue.Is(err, queue.KindTooLarge) && most > 1 {
			most = 1
			continue
		}
		if err != nil {
			return nil, err
		}
		cur, moved = next, append(moved, op.Done...)
	}
	s.freed(g)
	return g.judge(moved), nil
}
