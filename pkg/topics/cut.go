package topics

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// StartKind says what a Start goes by.
type StartKind uint8

// The kinds of starts.
const (
	// StartEarliest: the first message that can be read.
	StartEarliest StartKind = iota
	// StartLatest: after the last message there is now.
	StartLatest
	// StartTime: the first message that became visible at Start.Time or later.
	StartTime
	// StartCut: the offsets of Start.Cut. The ancestors of a segment in it lie behind it, unless they
	// are in it themselves; every other segment is read from its first message.
	StartCut
)

// Start says where a subscription begins to read. Segments made later (by a split or merge) are
// always read from their first message.
type Start struct {
	Kind StartKind
	Time queue.Millis
	Cut  map[queue.SegmentID]queue.Offset
}

// text is the canonical text of a start: equal starts have equal texts.
func (s Start) text() string {
	switch s.Kind {
	case StartLatest:
		return "latest"
	case StartTime:
		return s.Time.String()
	case StartCut:
		h := sha256.New()
		for _, id := range slices.Sorted(maps.Keys(s.Cut)) {
			// A hash takes every write; a text of the whole cut could be larger than a record.
			_, _ = fmt.Fprintf(h, "%s-%d\n", id, s.Cut[id])
		}
		return "cut:" + hex.EncodeToString(h.Sum(nil)[:16])
	case StartEarliest:
	}
	return "earliest"
}

// errTorn says that the map was read while segments were made, half before and half after.
var errTorn = errors.New("the segment map lacks segments that the topic has")

// cut finds the first offset of each segment for a start; nil stands for the earliest. drained are the
// sealed segments that the start passes with all their predecessors. errTorn asks for another map.
func (s *Service) cut(ctx context.Context, m *Map, start Start) (cut map[queue.SegmentID]queue.Offset, drained []queue.SegmentID, _ error) {
	if start.Kind == StartEarliest {
		return nil, nil, nil
	}
	if err := s.checkWhole(ctx, m); err != nil {
		return nil, nil, err
	}
	segs := m.Segments
	var at func(context.Context, *meta.Head) (queue.Offset, error)
	switch start.Kind {
	case StartLatest:
		at = func(_ context.Context, h *meta.Head) (queue.Offset, error) { return h.Next, nil }
	case StartTime:
		if start.Time <= 0 {
			return nil, nil, queue.Invalid("start", nil, "must be a time after 1970")
		}
		at = func(ctx context.Context, h *meta.Head) (queue.Offset, error) {
			return s.firstVisible(ctx, h, start.Time)
		}
	case StartCut:
		var err error
		if segs, err = named(m, start.Cut); err != nil {
			return nil, nil, err
		}
		at = func(_ context.Context, h *meta.Head) (queue.Offset, error) {
			off, ok := start.Cut[h.Segment]
			if !ok {
				off = h.Next
			}
			if off > h.Next {
				return 0, queue.Invalid("start", uint64(h.Next), "offset %d of segment %s is past its next offset %d", off, h.Segment, h.Next)
			}
			return off, nil
		}
	default:
		return nil, nil, queue.Invalid("start", nil, "must be earliest, latest, a time or a cut")
	}
	return s.cutBy(ctx, m, segs, at)
}

// checkWhole is errTorn if a segment that another one of the map names as its predecessor or successor is
// not in the map, but in the store. One that is in neither was removed.
func (s *Service) checkWhole(ctx context.Context, m *Map) error {
	var absent []queue.SegmentID
	for _, seg := range m.Segments {
		for _, id := range slices.Concat(seg.Predecessors, seg.Successors) {
			if m.Segment(id) == nil {
				absent = append(absent, id)
			}
		}
	}
	slices.Sort(absent)
	for _, id := range slices.Compact(absent) {
		_, _, err := meta.Fetch[*meta.Segment](ctx, s.meta, (&meta.Segment{Topic: m.ID(), ID: id}).Key())
		switch {
		case err == nil:
			return errTorn
		case !queue.Is(err, queue.KindNotFound):
			return err
		}
	}
	return nil
}

// named are the segments of a cut, and their ancestors.
func named(m *Map, cut map[queue.SegmentID]queue.Offset) ([]*meta.Segment, error) {
	var out []*meta.Segment
	seen := make(map[queue.SegmentID]bool)
	for id := range cut {
		if m.Segment(id) == nil {
			return nil, queue.Invalid("start", nil, "the topic has no segment %q", id)
		}
	}
	ids := slices.Sorted(maps.Keys(cut))
	for len(ids) > 0 {
		id := ids[0]
		ids = ids[1:]
		seg := m.Segment(id)
		if seg == nil || seen[id] {
			continue // an ancestor that is gone has no messages to pass over
		}
		seen[id] = true
		out = append(out, seg)
		ids = append(ids, seg.Predecessors...)
	}
	return out, nil
}

// cutBy asks at for the offset of each segment, several at a time.
func (s *Service) cutBy(ctx context.Context, m *Map, segs []*meta.Segment, at func(context.Context, *meta.Head) (queue.Offset, error)) (map[queue.SegmentID]queue.Offset, []queue.SegmentID, error) {
	offsets := make([]queue.Offset, len(segs))
	passed := make([]bool, len(segs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(headReaders)
	for i, seg := range segs {
		g.Go(func() error {
			h, _, err := meta.Fetch[*meta.Head](ctx, s.meta, meta.HeadKey(seg.ID))
			if err == nil {
				offsets[i], err = at(ctx, h)
				passed[i] = h.Sealed && offsets[i] >= h.Next
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	cut := make(map[queue.SegmentID]queue.Offset, len(segs))
	ends := make(map[queue.SegmentID]bool)
	for i, seg := range segs {
		cut[seg.ID] = offsets[i]
		ends[seg.ID] = passed[i]
	}
	return cut, drainedBy(m, ends), nil
}

// drainedBy are those of the segments passed to their end whose predecessors are so, too: an empty segment
// is not drained before those that it comes after are. Of more than meta.MaxDrained they are the newest.
func drainedBy(m *Map, passed map[queue.SegmentID]bool) []queue.SegmentID {
	known := make(map[queue.SegmentID]bool)
	var drained func(seg *meta.Segment) bool
	drained = func(seg *meta.Segment) bool {
		if is, ok := known[seg.ID]; ok {
			return is
		}
		is := passed[seg.ID]
		for _, id := range seg.Predecessors {
			if p := m.Segment(id); p != nil && is {
				is = drained(p)
			}
		}
		known[seg.ID] = is
		return is
	}
	var out []queue.SegmentID
	for _, seg := range m.Segments {
		if drained(seg) {
			out = append(out, seg.ID)
		}
	}
	return out[max(0, len(out)-meta.MaxDrained):]
}

// firstVisible finds the offset of the first message that became visible at t or later; the next
// offset if there is none.
//
// Visible times need not rise with offsets: a message that was promoted late stands behind younger
// ones. But a page's Rolled is the time of the head's last append before its roll: it rises from page
// to page, and no message of a page became visible after it. So the page is found by halving, and
// from there on every ref is looked at.
func (s *Service) firstVisible(ctx context.Context, h *meta.Head, t queue.Millis) (queue.Offset, error) {
	lo, hi := h.Start, h.TailFirst
	for lo < hi {
		page, err := s.pageAt(ctx, h.Segment, lo+(hi-lo)/2)
		if err != nil {
			return 0, err
		}
		if page.Rolled < t {
			lo = page.Next()
		} else {
			hi = max(page.First, h.Start)
		}
	}
	for from := hi; from < h.TailFirst; {
		page, err := s.pageAt(ctx, h.Segment, from)
		if err != nil {
			return 0, err
		}
		if off, ok := firstOf(page.First, page.Refs, t); ok {
			return max(off, h.Start), nil
		}
		from = page.Next()
	}
	if off, ok := firstOf(h.TailFirst, h.Tail, t); ok {
		return max(off, h.Start), nil
	}
	return h.Next, nil
}

func firstOf(off queue.Offset, refs []meta.Ref, t queue.Millis) (queue.Offset, bool) {
	for i := range refs {
		if refs[i].VisibleAt() >= t {
			return off, true
		}
		off += queue.Offset(refs[i].Count)
	}
	return 0, false
}

// pageAt reads the page that holds an offset below the head's tail.
func (s *Service) pageAt(ctx context.Context, id queue.SegmentID, off queue.Offset) (*meta.RefPage, error) {
	found, err := s.meta.Query(ctx, meta.PageAt(id, off))
	if err != nil {
		return nil, err
	}
	if len(found.Items) == 1 {
		if page, ok := found.Items[0].Record.(*meta.RefPage); ok && off < page.Next() {
			return page, nil
		}
	}
	return nil, &queue.Error{
		Op: "read page", Subject: queue.MessageID{Segment: id, Offset: off}.String(), Kind: queue.KindCorrupt,
		Message: "no page holds an offset that the head has rolled",
	}
}
