package meta

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Check reports the first invariant that the head breaks, as a KindCorrupt error: offsets follow from
// the tail's counts, bounds hold, no ref stands twice in the tail.
func (h *Head) Check() error {
	bad := func(format string, args ...any) error { return broken(h, format, args...) }
	switch {
	case !h.Range.Valid():
		return bad("the range %v is none", h.Range)
	case h.Next > queue.MaxOffset:
		return bad("next %d is past the greatest offset", h.Next)
	case h.Start > h.Next:
		return bad("start %d is above next %d", h.Start, h.Next)
	case h.TailFirst+queue.Offset(CountOf(h.Tail)) != h.Next:
		return bad("the tail covers [%d,+%d), which does not end at next %d", h.TailFirst, CountOf(h.Tail), h.Next)
	case len(h.Tail) > queue.MaxTailRefs:
		return bad("the tail holds %d refs", len(h.Tail))
	case len(h.Producers) > queue.MaxHeadProducers:
		return bad("it remembers %d producers", len(h.Producers))
	}
	for i := range h.Tail {
		if h.Tail[i].Count == 0 {
			return bad("ref %d of the tail stands for no message", i)
		}
		if containsRef(h.Tail[:i], &h.Tail[i]) {
			return bad("ref %d stands in the tail twice", i)
		}
	}
	for i := range h.Producers {
		p := &h.Producers[i]
		switch {
		case p.First+queue.Offset(p.Count) > h.Next:
			return bad("producer %q has offsets past next", p.ID)
		case i > 0 && h.Producers[i-1].ID >= p.ID:
			return bad("producer %q is out of order", p.ID)
		}
	}
	return nil
}

// Check reports the first invariant that the cursor breaks, as a KindCorrupt error: every offset
// below Next is in exactly one of the done prefix, Done, the claims and the retries, and each of
// these is in its order.
func (c *Cursor) Check() error {
	bad := func(format string, args ...any) error { return broken(c, format, args...) }
	if c.Floor > c.Next || c.Next > queue.MaxOffset {
		return bad("floor %d and next %d are out of order", c.Floor, c.Next)
	}
	var all []OffsetRange
	last := c.Floor
	for _, d := range c.Done {
		if d.Lo >= d.Hi || d.Lo <= last {
			return bad("done range [%d,%d) is empty, or not apart from what is done before it", d.Lo, d.Hi)
		}
		last = d.Hi
		all = append(all, d)
	}
	for id, cl := range c.Claims {
		if cl.ID != id || cl.Attempt == 0 || len(cl.Parts) == 0 {
			return bad("claim %s is not well formed", id)
		}
		if !slices.IsSortedFunc(cl.Parts, func(a, b Part) int { return cmp.Compare(a.Lo, b.Lo) }) {
			return bad("the parts of claim %s are out of order", id)
		}
		all = appendParts(all, cl)
	}
	if !slices.IsSortedFunc(c.Retries, func(a, b Retry) int { return cmp.Compare(a.Lo, b.Lo) }) {
		return bad("the retries are out of order")
	}
	for _, r := range c.Retries {
		all = append(all, r.OffsetRange)
	}
	for _, r := range all {
		if r.Lo >= r.Hi {
			return bad("range [%d,%d) is empty", r.Lo, r.Hi)
		}
	}
	joined, ok := joinRanges(all)
	switch {
	case !ok:
		return bad("an offset is in two places")
	case c.Floor == c.Next && len(joined) == 0:
		return nil
	case len(joined) != 1 || joined[0] != OffsetRange{c.Floor, c.Next}:
		return bad("the offsets of [%d,%d) are not each in one place: %v", c.Floor, c.Next, joined)
	}
	return nil
}

func broken(r Record, format string, args ...any) error {
	return &queue.Error{Op: "check " + r.Kind().String(), Subject: r.Key().String(), Kind: queue.KindCorrupt, Message: fmt.Sprintf(format, args...)}
}
