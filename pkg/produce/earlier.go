package produce

import (
	"context"
	"strings"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// A guarded call may have been tried before a split or merge: then what it committed stands in segments
// that are sealed now, and their successors know nothing of it. So a guarded call looks there before it
// appends to a young segment. Heads of sealed segments do not change: each is read once and then kept.

// ancestors are the segments that owned slots of seg at horizon or later, other than itself.
func (c *call) ancestors(seg *meta.Segment, horizon queue.Millis) []*meta.Segment {
	var out []*meta.Segment
	seen := make(map[queue.SegmentID]bool)
	var visit func(*meta.Segment)
	visit = func(child *meta.Segment) {
		if child.Created < horizon {
			return
		}
		for _, id := range child.Predecessors {
			if p := c.topic.Segment(id); p != nil && !seen[id] {
				seen[id] = true
				out = append(out, p)
				visit(p)
			}
		}
	}
	visit(seg)
	return out
}

// horizon is how far back an earlier try of the call may lie; not ok if there can be none.
func (c *call) horizon() (queue.Millis, bool) {
	switch {
	case c.guard == nil:
		return 0, false
	case c.guard.producer != "":
		return c.Clock.Millis().Add(-queue.ProducerWindow - queue.ClockSlack), true
	default:
		return c.created.Add(-queue.ClockSlack), c.again
	}
}

// withoutEarlier answers for the messages that an earlier try committed to predecessors of the segments that
// parts go to, and gives the parts that are still to be appended. What cannot be judged is refused. It comes
// before parts are shared out: the shares of what is left must not depend on what is there already.
func (c *call) withoutEarlier(ctx context.Context, parts []part) (rest []part) {
	horizon, possible := c.horizon()
	if !possible {
		return parts
	}
	for _, sh := range c.shares(parts) {
		var err error
		for _, old := range c.ancestors(sh.segment, horizon) {
			if sh.parts, err = c.lookIn(ctx, old, sh.parts); err != nil || len(sh.parts) == 0 {
				break
			}
		}
		if err != nil {
			c.refuse(sh.parts, err)
			continue
		}
		rest = append(rest, sh.parts...)
	}
	return c.joined(rest)
}

// lookIn takes out of parts what stands in a sealed segment already.
func (c *call) lookIn(ctx context.Context, old *meta.Segment, parts []part) ([]part, error) {
	head, err := c.Log.Last(ctx, old.ID)
	if err != nil {
		return parts, err
	}
	since := c.created
	if p := c.guard.producer; p != "" {
		last, known := c.lastOf(head)
		switch {
		case !known || last.Sequence < c.guard.sequence:
			return parts, nil
		case last.Sequence > c.guard.sequence:
			return parts, &queue.Error{
				Op: "produce", Subject: c.topic.Name, Kind: queue.KindConflict, Code: queue.CodeSequenceOutOfOrder,
				Field: "producer.sequence", Limit: last.Sequence,
				Message: "the producer's sequence is older than its last one",
			}
		}
		if c.voidedIn(head) {
			return parts, c.isVoided()
		}
		since = last.At
	}
	ids := make(map[meta.RefID]bool)
	for _, p := range parts {
		ids[p.unit.ref.ID] = true
	}
	found, err := c.Log.Find(ctx, head, ids, since)
	if err != nil {
		return parts, err
	}
	for _, loc := range found {
		var rest []part
		for _, p := range parts {
			rest = append(rest, c.standing(old.ID, loc, p)...)
		}
		parts = rest
	}
	return parts, nil
}

// lastOf is the newest of what a head remembers of the call's producer: each share of a segment has a name of
// its own, and of those of one call a later one may be there without an earlier one.
func (c *call) lastOf(head *meta.Head) (last meta.ProducerState, known bool) {
	for i := range head.Producers {
		p := &head.Producers[i]
		rest, ok := strings.CutPrefix(p.ID, c.guard.producer)
		if ok && (rest == "" || rest[0] == '/') && (!known || p.Sequence > last.Sequence) {
			last, known = p.ProducerState, true
		}
	}
	return last, known
}

// standing answers for the messages of p that loc stands for, and gives what of p remains.
func (c *call) standing(id queue.SegmentID, loc segment.Located, p part) []part {
	if p.unit.ref.ID != loc.Ref.ID {
		return []part{p}
	}
	first := int(loc.Ref.First)
	lo, hi := max(p.first, first), min(p.first+p.count, first+int(loc.Ref.Count))
	if lo >= hi {
		return []part{p}
	}
	for i := lo; i < hi; i++ {
		r := &c.results[p.unit.records[i].pos]
		r.id = queue.MessageID{Segment: id, Offset: loc.Offset + queue.Offset(i-first)} // #nosec G115 -- i is within the ref
		r.committedAt(loc.Ref.Created)
	}
	var rest []part
	if p.first < lo {
		rest = append(rest, part{p.unit, p.first, lo - p.first})
	}
	if end := p.first + p.count; hi < end {
		rest = append(rest, part{p.unit, hi, end - hi})
	}
	return rest
}
