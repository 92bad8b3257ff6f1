package consume

import (
	"context"
	"sort"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// view finds the refs of one segment for one call. It reads the head once at most, and not at all
// while everything asked for lies in pages and the head was seen a moment ago. Not safe for
// concurrent use.
type view struct {
	s   *Service
	id  queue.SegmentID
	now queue.Millis

	head *meta.Head
	tail []segment.Located
	page []segment.Located
	// start is the first offset that is known to be readable.
	start queue.Offset
}

func (s *Service) view(id queue.SegmentID, now queue.Millis) *view {
	return &view{s: s, id: id, now: now, start: s.known.sight(id).start}
}

// load reads the head unless it was read.
func (v *view) load(ctx context.Context) error {
	if v.head != nil {
		return nil
	}
	h, err := v.s.log.Head(ctx, v.id)
	if err != nil {
		return err
	}
	v.s.known.see(h, v.now)
	v.head, v.start = h, max(v.start, h.Start)
	v.tail = segment.TailOf(h)
	return nil
}

// reset forgets what was read.
func (v *view) reset() { v.head, v.tail, v.page = nil, nil, nil }

// at finds the ref that holds off; ok is false at or past the end of the segment. What is below
// start need not be asked for.
func (v *view) at(ctx context.Context, off queue.Offset) (loc segment.Located, ok bool, err error) {
	if v.head == nil {
		fresh := v.now.Sub(v.s.known.sight(v.id).at) < v.s.headMaxAge
		if !fresh || off >= v.s.log.TailFirst(v.id) {
			if err := v.load(ctx); err != nil {
				return segment.Located{}, false, err
			}
		}
	}
	if v.head != nil && off >= v.head.Next {
		return segment.Located{}, false, nil
	}
	if v.head != nil && off >= v.head.TailFirst {
		loc, ok = find(v.tail, off)
		return loc, ok, nil
	}
	if loc, ok = find(v.page, off); ok {
		return loc, true, nil
	}
	page, err := v.s.log.PageRefs(ctx, v.id, off)
	if err != nil {
		return segment.Located{}, false, err
	}
	v.page = page
	loc, ok = find(v.page, off)
	return loc, ok, nil
}

// ahead is about how many messages there are from off on, as far as at has looked; never negative.
func (v *view) ahead(off queue.Offset) int {
	end := off
	switch {
	case v.head != nil:
		end = v.head.Next
	case len(v.page) > 0:
		end = v.page[len(v.page)-1].End()
	}
	return int(max(end, off) - off) // #nosec G115 -- bounded by MaxOffset
}

func find(refs []segment.Located, off queue.Offset) (segment.Located, bool) {
	i := sort.Search(len(refs), func(i int) bool { return refs[i].End() > off })
	if i == len(refs) || refs[i].Offset > off {
		return segment.Located{}, false
	}
	return refs[i], true
}

// following are the refs from the one that at found last for off on, as far as they were read with it.
func (v *view) following(off queue.Offset) []segment.Located {
	refs := v.page
	if v.head != nil && off >= v.head.TailFirst {
		refs = v.tail
	}
	return refs[sort.Search(len(refs), func(i int) bool { return refs[i].End() > off }):]
}

// locate is at for an offset that may have been truncated: then gone is set.
func (v *view) locate(ctx context.Context, off queue.Offset) (loc segment.Located, ok, gone bool, err error) {
	if off < v.start {
		return loc, false, true, nil
	}
	loc, ok, err = v.at(ctx, off)
	if queue.Is(err, queue.KindCorrupt) {
		if gone, terr := v.truncated(ctx, off); terr == nil && gone {
			return loc, false, true, nil
		}
	}
	// The head may have been read just now, and have told of a truncation.
	return loc, ok, err == nil && off < v.start, err
}

// truncated reports whether off lies below what is readable. An offset whose page is gone may have
// been truncated since the head was last seen, so the head decides.
func (v *view) truncated(ctx context.Context, off queue.Offset) (bool, error) {
	if off < v.start {
		return true, nil
	}
	if v.head != nil {
		return false, nil
	}
	if err := v.load(ctx); err != nil {
		return false, err
	}
	return off < v.start, nil
}

// expiryOf is when a record of ref expires; 0 for never. Where all messages of a ref expire at one
// time the ref decides, whatever ttl a record was made with: so a dead letter outlives its ttl.
func expiryOf(ref *meta.Ref, rec *batch.Record) queue.Millis {
	if ref.MinExpires == ref.MaxExpires {
		return ref.MinExpires
	}
	return segment.ExpiryOf(ref, rec)
}

// run is consecutive messages of one ref.
type run struct {
	seg queue.SegmentID
	loc segment.Located
	meta.OffsetRange
	// bytes is the length of the bodies, or more where that was good enough.
	bytes int64
	// keys has the key of each message where the subscription keeps them in order; nil elsewhere.
	keys []keyHash
}

// first is the batch record of the first message.
func (r *run) first() uint32 {
	return r.loc.Ref.First + uint32(r.Lo-r.loc.Offset) // #nosec G115 -- within the ref's count
}

func (r *run) count() uint32 { return uint32(r.Hi - r.Lo) } // #nosec G115 -- within the ref's count
