package topics

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	// StartCut: the offsets of Start.Cut; a segment that is not in it from its first message.
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

// cut finds the first offset of each segment for a start; nil stands for the earliest.
func (s *Service) cut(ctx context.Context, m *Map, start Start) (map[queue.SegmentID]queue.Offset, error) {
	switch start.Kind {
	case StartEarliest:
		return nil, nil
	case StartLatest:
		return s.cutBy(ctx, m.Segments, func(_ context.Context, h *meta.Head) (queue.Offset, error) { return h.Next, nil })
	case StartTime:
		if start.Time <= 0 {
			return nil, queue.Invalid("start", nil, "must be a time after 1970")
		}
		return s.cutBy(ctx, m.Segments, func(ctx context.Context, h *meta.Head) (queue.Offset, error) {
			return s.firstVisible(ctx, h, start.Time)
		})
	case StartCut:
		segs := make([]*meta.Segment, 0, len(start.Cut))
		for id := range start.Cut {
			seg := m.Segment(id)
			if seg == nil {
				return nil, queue.Invalid("start", nil, "the topic has no segment %q", id)
			}
			segs = append(segs, seg)
		}
		return s.cutBy(ctx, segs, func(_ context.Context, h *meta.Head) (queue.Offset, error) {
			off := start.Cut[h.Segment]
			if off > h.Next {
				return 0, queue.Invalid("start", uint64(h.Next), "offset %d of segment %s is past its next offset %d", off, h.Segment, h.Next)
			}
			return off, nil
		})
	}
	return nil, queue.Invalid("start", nil, "must be earliest, latest, a time or a cut")
}

// cutBy asks at for the offset of each segment, several at a time.
func (s *Service) cutBy(ctx context.Context, segs []*meta.Segment, at func(context.Context, *meta.Head) (queue.Offset, error)) (map[queue.SegmentID]queue.Offset, error) {
	offsets := make([]queue.Offset, len(segs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(headReaders)
	for i, seg := range segs {
		g.Go(func() error {
			h, _, err := meta.Fetch[*meta.Head](ctx, s.meta, meta.HeadKey(seg.ID))
			if err == nil {
				offsets[i], err = at(ctx, h)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	cut := make(map[queue.SegmentID]queue.Offset, len(segs))
	for i, seg := range segs {
		cut[seg.ID] = offsets[i]
	}
	return cut, nil
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
