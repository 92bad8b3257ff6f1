package consume

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// group is the receipts of one claim.
type group struct {
	m        *topics.Map
	sub      *meta.Subscription
	seg      *meta.Segment
	claim    queue.ClaimID
	receipts []queue.Receipt
	// places are where the receipts stand in the call.
	places []int
	// ranges are the receipts' offsets, joined.
	ranges []meta.OffsetRange
	// stray: the cursor does not know the claim.
	stray bool
}

// Ack ends claims: their messages are done. There is an error (or nil) for each receipt, in order. A
// receipt whose messages are done already is no error, so an ack may be repeated; one of whose
// messages the claim holds no longer is answered with CodeClaimLost, while the others of the call are
// acked. The cost is one update per claim.
//
// The second error is of the call as a whole: NotFound for topic or subscription, Invalid for a number
// of receipts outside 1 to queue.MaxReceipts.
func (s *Service) Ack(ctx context.Context, topic, subscription string, receipts []queue.Receipt) ([]error, error) {
	return s.settle(ctx, topic, subscription, receipts, func(ctx context.Context, g *group) ([]error, error) {
		before, _, err := s.apply(ctx, meta.Settle{Subscription: g.sub.ID, Segment: g.seg.ID, Claim: g.claim, Done: g.ranges})
		if err != nil {
			return nil, err
		}
		g.met(before)
		s.freed(g)
		return g.judge(append(heldBy(before, g.claim), doneIn(before)...)), nil
	})
}

// freed wakes who waits for what the keys of ended claims held up.
func (s *Service) freed(g *group) {
	if g.sub.Keyed() {
		s.hub.Signal(g.m.ID())
	}
}

// Extend makes claims end visibility from now, queue.MinVisibilityTimeout to
// queue.MaxVisibilityTimeout. Answers and errors are as for Ack, but that what is done is CodeClaimLost.
func (s *Service) Extend(ctx context.Context, topic, subscription string, receipts []queue.Receipt, visibility time.Duration) ([]error, error) {
	if err := checkVisibility(visibility); err != nil {
		return nil, err
	}
	until := s.clock.Millis().Add(visibility)
	return s.settle(ctx, topic, subscription, receipts, func(ctx context.Context, g *group) ([]error, error) {
		before, _, err := s.apply(ctx, meta.Settle{Subscription: g.sub.ID, Segment: g.seg.ID, Claim: g.claim, Extend: g.ranges, Until: until})
		if err != nil {
			return nil, err
		}
		g.met(before)
		return g.judge(heldBy(before, g.claim)), nil
	})
}

// settle groups receipts by claim and lets act work on several groups at a time. act answers for each
// receipt of its group, or with one error for all of them.
func (s *Service) settle(ctx context.Context, topic, subscription string, receipts []queue.Receipt, act func(context.Context, *group) ([]error, error)) ([]error, error) {
	if n := len(receipts); n < 1 || n > queue.MaxReceipts {
		return nil, queue.Invalid("receipts", queue.MaxReceipts, "must be 1 to %d, not %d", queue.MaxReceipts, n)
	}
	m, sub, err := s.subscription(ctx, topic, subscription)
	if err != nil {
		return nil, err
	}
	groups, errs, err := s.groups(ctx, m, sub, receipts)
	if err != nil {
		return nil, err
	}
	s.actAll(ctx, groups, errs, act)
	stray := slices.DeleteFunc(groups, func(g *group) bool { return !g.stray })
	if len(stray) == 0 {
		return errs, nil
	}
	// Claims that the cursors do not know may have ended, or be of the subscription as it is since
	// another process moved it, or made it anew: under the old id, what is done says nothing.
	now, err := s.topics.Reload(ctx, topic)
	if err == nil && now.Subscriptions[subscription] == nil {
		err = noSubscription(subscription)
	}
	if err != nil {
		for _, g := range stray {
			for _, place := range g.places {
				errs[place] = err
			}
		}
		return errs, nil
	}
	moved := now.Subscriptions[subscription]
	if moved.ID == sub.ID {
		return errs, nil
	}
	for _, g := range stray {
		g.m, g.sub = now, moved
	}
	s.actAll(ctx, stray, errs, act)
	return errs, nil
}

// actAll lets act work on several groups at a time.
func (s *Service) actAll(ctx context.Context, groups []*group, errs []error, act func(context.Context, *group) ([]error, error)) {
	each(len(groups), func(i int) {
		g := groups[i]
		answers, err := act(ctx, g)
		for j, place := range g.places {
			if errs[place] = err; err == nil {
				errs[place] = answers[j]
			}
		}
	})
}

// met notes whether the cursor that a settle found knows the group's claim.
func (g *group) met(cur *meta.Cursor) {
	known := false
	if cur != nil {
		_, known = cur.Claims[g.claim]
	}
	g.stray = !known
}

// groups sorts receipts by claim. A receipt of a segment that the topic does not have is lost.
func (s *Service) groups(ctx context.Context, m *topics.Map, sub *meta.Subscription, receipts []queue.Receipt) ([]*group, []error, error) {
	type key struct {
		seg   queue.SegmentID
		claim queue.ClaimID
	}
	var groups []*group
	index := make(map[key]*group)
	absent := make(map[queue.SegmentID]bool)
	errs := make([]error, len(receipts))
	reloaded := false
	for i, r := range receipts {
		if r.Lo >= r.Hi || r.Hi-r.Lo > queue.MaxClaimMessages || r.Hi > queue.MaxOffset+1 {
			errs[i] = queue.Invalid("receipts", nil, "not a receipt")
			continue
		}
		if absent[r.Segment] {
			errs[i] = lost(&r)
			continue
		}
		g := index[key{r.Segment, r.Claim}]
		if g == nil {
			seg := m.Segment(r.Segment)
			if seg == nil && !reloaded {
				// The claim may be of a process that knew the segment first. One look is enough
				// for all receipts of the call.
				var err error
				if m, err = s.topics.Reload(ctx, m.Name); err != nil {
					return nil, nil, err
				}
				seg, reloaded = m.Segment(r.Segment), true
			}
			if seg == nil {
				absent[r.Segment] = true
				errs[i] = lost(&r)
				continue
			}
			g = &group{m: m, sub: sub, seg: seg, claim: r.Claim}
			index[key{r.Segment, r.Claim}] = g
			groups = append(groups, g)
		}
		g.receipts, g.places = append(g.receipts, r), append(g.places, i)
		g.ranges = append(g.ranges, meta.OffsetRange{Lo: r.Lo, Hi: r.Hi})
	}
	for _, g := range groups {
		g.ranges = union(g.ranges)
	}
	return groups, errs, nil
}

// union sorts ranges and joins what overlaps or touches.
func union(ranges []meta.OffsetRange) []meta.OffsetRange {
	slices.SortFunc(ranges, func(a, b meta.OffsetRange) int { return cmp.Compare(a.Lo, b.Lo) })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// within cuts a out of b: both ascending and disjoint.
func within(a, b []meta.OffsetRange) []meta.OffsetRange {
	var out []meta.OffsetRange
	for i, j := 0, 0; i < len(a) && j < len(b); {
		lo, hi := max(a[i].Lo, b[j].Lo), min(a[i].Hi, b[j].Hi)
		if lo < hi {
			out = append(out, meta.OffsetRange{Lo: lo, Hi: hi})
		}
		if a[i].Hi < b[j].Hi {
			i++
		} else {
			j++
		}
	}
	return out
}

func heldBy(cur *meta.Cursor, id queue.ClaimID) []meta.OffsetRange {
	if cur == nil {
		return nil
	}
	var out []meta.OffsetRange
	for _, p := range cur.Claims[id].Parts {
		out = appendRange(out, p.OffsetRange)
	}
	return out
}

func doneIn(cur *meta.Cursor) []meta.OffsetRange {
	if cur == nil {
		return nil
	}
	return append([]meta.OffsetRange{{Lo: 0, Hi: cur.Floor}}, cur.Done...)
}

// judge answers for each receipt whether ranges cover all of it.
func (g *group) judge(ranges []meta.OffsetRange) []error {
	ranges = union(ranges)
	errs := make([]error, len(g.receipts))
	for i := range g.receipts {
		r := &g.receipts[i]
		j := sort.Search(len(ranges), func(j int) bool { return ranges[j].Hi > r.Lo })
		if j == len(ranges) || ranges[j].Lo > r.Lo || ranges[j].Hi < r.Hi {
			errs[i] = lost(r)
		}
	}
	return errs
}

func lost(r *queue.Receipt) error {
	return &queue.Error{
		Op: "settle claim", Subject: queue.MessageID{Segment: r.Segment, Offset: r.Lo}.String(),
		Kind: queue.KindConflict, Code: queue.CodeClaimLost,
		Message: "the claim no longer holds the message",
	}
}

// apply carries out a settle and gives the cursor as it was before; nil if there was none. A settle
// whose answer was lost is sent again, which both finds out and finishes: acks and extensions have
// the same effect twice, and a second release finds nothing to release. unknown says that an earlier
// try may have taken effect before the one that before tells of.
func (s *Service) apply(ctx context.Context, op meta.Settle) (before *meta.Cursor, unknown bool, err error) {
	for try := 0; ; try++ {
		res, err := s.meta.Apply(ctx, op)
		if err == nil {
			before, _ = res.Before.(*meta.Cursor)
			return before, unknown, nil
		}
		if refused, ok := meta.AsRefused(err); ok {
			return cursorIn(refused), unknown, nil
		}
		unknown = unknown || queue.Is(err, queue.KindOutcomeUnknown)
		switch {
		case !queue.Retryable(err), queue.Is(err, queue.KindCanceled), try == maxTries, !pause(ctx, try):
			return nil, unknown, queue.Unsure(err, unknown)
		}
	}
}

// check refuses a release that breaks a rule whatever it is of.
func (r *Release) check(sub *meta.Subscription) error {
	switch {
	case r.HasDelay && (r.Delay < 0 || r.Delay > queue.MaxVisibilityTimeout):
		return queue.Invalid("delay", queue.MaxVisibilityTimeout.Seconds(), "must be 0 to %s seconds", queue.Plain(queue.MaxVisibilityTimeout.Seconds()))
	case len(r.Reason) > meta.MaxReasonBytes:
		return queue.Invalid("reason", meta.MaxReasonBytes, "is longer than %d bytes", meta.MaxReasonBytes)
	case !utf8.ValidString(r.Reason):
		return queue.Invalid("reason", nil, "is not UTF-8")
	case r.DeadLetter && sub.DeadLetterTopic == "":
		return queue.Invalid("dead_letter", nil, "the subscription has no dead-letter topic")
	}
	return nil
}
