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
}

// End is the offset after the last message.
func (l Located) End() queue.Offset { return l.Offset + queue.Offset(l.Ref.Count) }

// Refs gives the refs of a segment in order, from the one that holds offset from up to the head's
// next offset as head tells it. Pages are read as they are needed, one store call each unless they
// are cached. After an error the iteration ends.
func (l *Log) Refs(ctx context.Context, head *meta.Head, from queue.Offset) iter.Seq2[Located, error] {
	return func(yield func(Located, error) bool) {
		for from < head.TailFirst {
			page, err := l.page(ctx, head.Segment, from)
			if err != nil {
				yield(Located{}, err)
				return
			}
			if !each(page.First, page.Refs, from, yield) {
				return
			}
			from = page.Next()
		}
		each(head.TailFirst, head.Tail, from, yield)
	}
}

// each yields the refs at or after from; it reports false if the consumer has had enough.
func each(first queue.Offset, refs []meta.Ref, from queue.Offset, yield func(Located, error) bool) bool {
	off := first
	for i := range refs {
		loc := Located{off, &refs[i]}
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
	page, err := l.page(ctx, id, offset)
	if err != nil {
		return nil, err
	}
	var out []Located
	each(page.First, page.Refs, offset, func(loc Located, _ error) bool {
		out = append(out, loc)
		return true
	})
	return out, nil
}

// page finds the page that holds offset.
func (l *Log) page(ctx context.Context, id queue.SegmentID, offset queue.Offset) (*meta.RefPage, error) {
	if p := l.cache.page(id, offset); p != nil {
		return p, nil
	}
	found, err := l.meta.Query(ctx, meta.PageAt(id, offset))
	if err != nil {
		return nil, err
	}
	if len(found.Items) == 1 {
		if p, ok := found.Items[0].Record.(*meta.RefPage); ok && offset < p.Next() {
			l.cache.putPage(p, found.Items[0].Size)
			return p, nil
		}
	}
	return nil, &queue.Error{
		Op: "read page", Subject: queue.MessageID{Segment: id, Offset: offset}.String(),
		Kind: queue.KindCorrupt, Message: "no page holds an offset that the head has rolled",
	}
}
