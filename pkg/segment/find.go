package segment

import (
	"context"
	"sync"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// sealedHeads keeps heads that take no more appends. What one of them says of its refs and producers stays
// true, though the tail may have been rolled since. Safe for concurrent use.
type sealedHeads struct {
	mu    sync.Mutex // guards heads
	heads map[queue.SegmentID]*meta.Head
}

// maxSealed bounds the heads kept; losing one costs a read.
const maxSealed = 256

func (s *sealedHeads) get(id queue.SegmentID) *meta.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heads[id]
}

func (s *sealedHeads) put(h *meta.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heads == nil || len(s.heads) >= maxSealed {
		s.heads = make(map[queue.SegmentID]*meta.Head)
	}
	s.heads[h.Segment] = h
}

// Last is the head of a segment as its last append left it, if it is sealed: read once, then kept. Of an
// open one it is as Head.
func (l *Log) Last(ctx context.Context, id queue.SegmentID) (*meta.Head, error) {
	if h := l.sealed.get(id); h != nil {
		return h, nil
	}
	h, err := l.Head(ctx, id)
	if err == nil && h.Sealed {
		l.sealed.put(h)
	}
	return h, err
}

// Find gives the refs of a segment that have one of ids and were appended at since or later, clocks
// allowing: those of a tail first, then page by page back.
//
// Errors: OutcomeUnknown if the segment moved on too far since to tell; the store's.
func (l *Log) Find(ctx context.Context, head *meta.Head, ids map[meta.RefID]bool, since queue.Millis) ([]Located, error) {
	var out []Located
	keep := func(loc Located, _ error) bool {
		if ids[loc.Ref.ID] {
			out = append(out, loc)
		}
		return true
	}
	each(place{head.Segment, head.TailFirst, 0, false}, head.Tail, head.TailFirst, keep)
	edge := head.TailFirst
	for range maxWalk {
		if edge == 0 {
			return out, nil
		}
		page, version, err := l.page(ctx, head.Segment, edge-1)
		if err != nil {
			return nil, err
		}
		if page.Rolled < since.Add(-queue.ClockSlack) {
			return out, nil
		}
		each(place{head.Segment, page.First, version, true}, page.Refs, page.First, keep)
		edge = page.First
	}
	return nil, &queue.Error{
		Op: "find refs", Subject: string(head.Segment), Kind: queue.KindOutcomeUnknown,
		Message: "the segment moved on too far to tell",
	}
}
