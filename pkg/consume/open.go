package consume

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// visitInOrder claims for a subscription that keeps each key's messages in order: a segment is open to it
// only once it has drained all of its predecessors. What turns out drained opens its successors in the
// same look.
//
// The map may be older than the store. That does no harm: a segment's predecessors never change, and that
// one is drained is known by its head and cursor alone.
func (s *Service) visitInOrder(ctx context.Context, c *call) {
	seen := make(map[queue.SegmentID]bool)
	for {
		var open []*meta.Segment
		for _, seg := range c.m.Segments {
			if !seen[seg.ID] && !s.known.isDrained(cursorID{c.sub.ID, seg.ID}) && s.isOpen(ctx, c, seg) {
				seen[seg.ID] = true
				open = append(open, seg)
			}
		}
		if len(open) == 0 || !s.sweep(ctx, c, open) {
			return
		}
	}
}

// isOpen reports whether the subscription has drained all predecessors of a segment.
func (s *Service) isOpen(ctx context.Context, c *call, seg *meta.Segment) bool {
	for _, id := range seg.Predecessors {
		if s.known.isDrained(cursorID{c.sub.ID, id}) {
			continue
		}
		if c.m.Segment(id) != nil || !s.isGone(ctx, c, id) {
			return false
		}
	}
	return true
}

// isGone reports whether a segment that the map does not have is gone from the store, too: then nothing
// of it is left to wait for. The map may as well have been read while segments were made, half before
// and half after.
func (s *Service) isGone(ctx context.Context, c *call, id queue.SegmentID) bool {
	key := (&meta.Segment{Topic: c.m.ID(), ID: id}).Key()
	_, _, err := meta.Fetch[*meta.Segment](ctx, s.meta, key)
	switch {
	case queue.Is(err, queue.KindNotFound):
		s.known.drain(cursorID{c.sub.ID, id})
		return true
	case err != nil:
		c.fail(err)
	default:
		c.behind = true
	}
	return false
}

// noteDrained adds to the subscription's record what the call found drained, so that other processes need
// not look there. It is no harm if that is refused or fails: they find it out themselves.
func (s *Service) noteDrained(ctx context.Context, c *call) {
	found := c.drained
	c.drained = nil
	if len(found) == 0 {
		return
	}
	old, version, err := meta.Fetch[*meta.Subscription](ctx, s.meta, meta.SubscriptionKey(c.m.ID(), c.sub.Name))
	if err != nil || old.ID != c.sub.ID {
		return
	}
	drained := make(map[queue.SegmentID]bool)
	for _, id := range append(found, old.Drained...) {
		drained[id] = true
	}
	next := *old
	next.Drained = nil
	for _, seg := range c.m.Segments { // so the topic's oldest come first, and what it has no more goes
		if drained[seg.ID] {
			next.Drained = append(next.Drained, seg.ID)
		}
	}
	if n := len(next.Drained); n > meta.MaxDrained {
		next.Drained = next.Drained[n-meta.MaxDrained:]
	}
	_, _ = s.meta.Apply(ctx, meta.Put{Record: &next, If: meta.At(version), Version: meta.NewVersion(s.ids)})
}
