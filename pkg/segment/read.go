package segment

import (
	"context"
	"iter"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Located is a ref with its place in the segment.
type Located struct {
	// Offset is the first message's.
	Offset queue.Offset
	Ref    *meta.Ref

	// Where the ref was read: in a page, as it was then, or in the tail that begins at first.
	segment queue.SegmentID
	first   queue.Offset
	page    meta.Version
	paged   bool
}

// Check is an op that holds only while the ref still stands where it was read. In a transaction with
// one that makes another ref to the same bytes, it sees to it that these are still owned: what is
// dropped is first taken out of its page. Refs of one page or tail have one Check.
func (l Located) Check() meta.Op {
	if l.paged {
		return meta.Check{Key: meta.PageKey(l.segment, l.first), If: meta.At(l.page), Kind: meta.KindPage}
	}
	return meta.Trim{Segment: l.segment, First: l.first}
}

// TailOf gives the refs of a head's tail.
func TailOf(head *meta.Head) []Located {
	out := make([]Located, 0, len(head.Tail))
	each(place{head.Segment, head.TailFirst, 0, false}, head.Tail, head.TailFirst, func(loc Located, _ error) bool {
		out = append(out, loc)
		return true
	})
	return out
}

// Relocate finds out where the bytes of a ref are now, if the object that it names is gone: a compactor
// may have moved them since its page was read. moved is false if they are where they were.
func (l *Log) Relocate(ctx context.Context, loc Located) (now Located, moved bool, err error) {
	l.Forget(loc.segment, loc.Offset)
	refs, err := l.PageRefs(ctx, loc.segment, loc.Offset)
	if err != nil {
		if queue.Is(err, queue.KindCorrupt) {
			return loc, false, nil // no page holds it yet: tails are not compacted
		}
		return loc, false, err
	}
	if len(refs) == 0 || refs[0].Offset != loc.Offset || refs[0].Ref.Count != loc.Ref.Count {
		return loc, false, nil
	}
	r := refs[0].Ref
	return refs[0], r.Object != loc.Ref.Object || r.Pos != loc.Ref.Pos, nil
}

// Forget drops the cached page that holds offset.
func (l *Log) Forget(id queue.SegmentID, offset queue.Offset) { l.cache.forget(id, offset) }

// place is where refs were read.
type place struct {
	segment queue.SegmentID
	first   queue.Offset
	page    meta.Version
	paged   bool
}

// End is the offset after the last message.
func (l Located) End() queue.Offset { return l.Offset + queue.Offset(l.Ref.Count) }

// Refs gives the refs of a segment in order, from the one that holds offset from up to the head's
// next offset as head tells it. Pages are read as they are needed, one store call each unless they
// are cached. After an error the iteration ends.
func (l *Log) Refs(ctx context.Context, head *meta.Head, from queue.Offset) iter.Seq2[Located, error] {
	return func(yield func(Located, error) bool) {
		for from < head.TailFirst {
			page, version, err := l.page(ctx, head.Segment, from)
			if err != nil {
				yield(Located{}, err)
				return
			}
			if !each(place{head.Segment, page.First, version, true}, page.Refs, from, yield) {
				return
			}
			from = page.Next()
		}
		each(place{head.Segment, head.TailFirst, 0, false}, head.Tail, from, yield)
	}
}

// each yields the refs at or after from; it reports false if the consumer has had enough.
func each(at place, refs []meta.Ref, from queue.Offset, yield func(Located, error) bool) bool {
	off := at.first
	for i := range refs {
		loc := Located{Offset: off, Ref: &refs[i], segment: at.segment, first: at.first, page: at.page, paged: at.paged}
		off = loc.End()
		if off > from && !yield(loc, nil) {
			return false
		}
	}
	return true
}

// PageRefs gives the refs of the page that holds offset, from the one that holds it on. It reads no
// head: for offsets below TailFirst.
func (l *Log) PageRefs(ctx context.Context, id queue.SegmentID, offset queue.Offset) ([]Located, error) {
	page, version, err := l.page(ctx, id, offset)
	if err != nil {
		return nil, err
	}
	var out []Located
	each(place{id, page.First, version, true}, page.Refs, offset, func(loc Located, _ error) bool {
		out = append(out, loc)
		return true
	})
	return out, nil
}

// page finds the page that holds offset, and its version.
func (l *Log) page(ctx context.Context, id queue.SegmentID, offset queue.Offset) (*meta.RefPage, meta.Version, error) {
	now := l.clock()
	if p, version := l.cache.page(id, offset, now); p != nil {
		return p, version, nil
	}
	found, err := l.meta.Query(ctx, meta.PageAt(id, offset))
	if err != nil {
		return nil, 0, err
	}
	if len(found.Items) == 1 {
		if p, ok := found.Items[0].Record.(*meta.RefPage); ok && offset < p.Next() {
			l.cache.putPage(p, &found.Items[0], now)
			return p, found.Items[0].Version, nil
		}
	}
	return nil, 0, &queue.Error{
		Op: "read page", Subject: queue.MessageID{Segment: id, Offset: offset}.String(),
		Kind: queue.KindCorrupt, Message: "no page holds an offset that the head has rolled",
	}
}
