package consume

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// cutter cuts ranges of offsets into runs that may be delivered, by expiry, truncation and size.
type cutter struct {
	view *view
	now  queue.Millis
	// bytes is what may still be taken, if bounded. The first message is taken however large.
	bytes   int64
	bounded bool
	taken   bool
	// full says that bytes ran out: nothing more is taken.
	full bool
	// room bounds the runs and gaps that are made; crowded says that it ran out.
	room    int
	crowded bool
	// refs bounds the refs looked at, so that a desert of expired messages ends a call, not its
	// patience; tired says that it ran out.
	refs  int
	tired bool
}

// maxRefs bounds the refs that one plan looks at.
const maxRefs = 1024

// cutting is what became of the ranges: every offset is in exactly one of runs, gone and rest.
type cutting struct {
	runs []run
	// gone are expired or truncated.
	gone []meta.OffsetRange
	// rest was not looked at, or does not fit.
	rest []meta.OffsetRange
	// count is the number of messages in runs.
	count int
}

func (c *cutting) drop(r meta.OffsetRange) {
	if n := len(c.gone); n > 0 && c.gone[n-1].Hi == r.Lo {
		c.gone[n-1].Hi = r.Hi
		return
	}
	c.gone = append(c.gone, r)
}

// cut takes up to limit messages out of ranges, which ascend. A range may reach past the end of the
// segment; what lies there is rest.
func (k *cutter) cut(ctx context.Context, ranges []meta.OffsetRange, limit int) (cutting, error) {
	var c cutting
	for _, r := range ranges {
		for r.Lo < r.Hi && c.count < limit && !k.stopped(&c) {
			n, err := k.step(ctx, &c, r, limit-c.count)
			if err != nil {
				return cutting{}, err
			}
			if n == 0 {
				break
			}
			r.Lo += n
		}
		if r.Lo < r.Hi {
			c.rest = append(c.rest, r)
		}
	}
	for i := range c.runs {
		k.spend(c.runs[i].bytes)
	}
	k.room -= len(c.runs) + len(c.gone)
	return c, nil
}

func (k *cutter) stopped(c *cutting) bool {
	k.crowded = k.crowded || len(c.runs)+len(c.gone) >= k.room
	k.tired = k.tired || k.refs <= 0
	return k.full || k.crowded || k.tired
}

func (k *cutter) spend(n int64) {
	k.bytes -= n
	k.taken = true
}

// left is how many bytes may still be taken, c's own runs deducted.
func (k *cutter) left(c *cutting) int64 {
	n := k.bytes
	for i := range c.runs {
		n -= c.runs[i].bytes
	}
	return n
}

// step deals with the start of r: what of one ref lies in it, or what was truncated. It says how many
// offsets that were; 0 at the end of the segment and where nothing fits.
func (k *cutter) step(ctx context.Context, c *cutting, r meta.OffsetRange, limit int) (queue.Offset, error) {
	if r.Lo < k.view.start {
		r.Hi = min(r.Hi, k.view.start)
		c.drop(r)
		return r.Hi - r.Lo, nil
	}
	k.refs--
	loc, ok, err := k.view.at(ctx, r.Lo)
	if queue.Is(err, queue.KindCorrupt) {
		if gone, terr := k.view.truncated(ctx, r.Lo); terr == nil && gone {
			return k.step(ctx, c, r, limit)
		}
	}
	if err != nil || !ok {
		return 0, err
	}
	if r.Lo < k.view.start {
		return k.step(ctx, c, r, limit) // the head was read just now, and told of a truncation
	}
	r.Hi = min(r.Hi, loc.End())
	switch {
	case loc.Ref.Expired(k.now):
		c.drop(r)
		return r.Hi - r.Lo, nil
	case loc.Ref.PartlyExpired(k.now):
		return k.byRecord(ctx, c, loc, r, limit)
	}
	take := run{seg: k.view.id, loc: loc, OffsetRange: r, bytes: loc.Ref.Bytes}
	take.Hi = min(take.Hi, take.Lo+queue.Offset(limit)) // #nosec G115 -- limit is positive
	if !k.bounded || take.bytes <= k.left(c) || take.count() == loc.Ref.Count && loc.Ref.Count == 1 && !k.any(c) {
		c.add(take)
		return take.Hi - take.Lo, nil
	}
	return k.byRecord(ctx, c, loc, r, limit)
}

func (k *cutter) any(c *cutting) bool { return k.taken || c.count > 0 }

func (c *cutting) add(r run) {
	c.count += r.Len()
	if n := len(c.runs); n > 0 && c.runs[n-1].loc.Ref == r.loc.Ref && c.runs[n-1].Hi == r.Lo {
		c.runs[n-1].Hi = r.Hi
		c.runs[n-1].bytes += r.bytes
		return
	}
	c.runs = append(c.runs, r)
}

// byRecord goes through the records of a ref one by one, by its index: which have expired, and how
// large they are. Of a ref whose index cannot be read each record counts as its share of the whole
// and as not expired: delivering it will fail, and that is dealt with there.
func (k *cutter) byRecord(ctx context.Context, c *cutting, loc segment.Located, r meta.OffsetRange, limit int) (queue.Offset, error) {
	ref := loc.Ref
	sizes, err := k.view.records(ctx, loc, r)
	if err != nil {
		return 0, err
	}
	off := r.Lo
	for ; off < r.Hi && limit > 0; off++ {
		if len(c.runs)+len(c.gone) >= k.room {
			k.crowded = true
			break
		}
		one := run{seg: k.view.id, loc: loc, OffsetRange: meta.OffsetRange{Lo: off, Hi: off + 1}, bytes: ref.Bytes / int64(ref.Count)}
		if sizes != nil {
			e := sizes[off-r.Lo]
			if e.expires != 0 && e.expires <= k.now {
				c.drop(one.OffsetRange)
				continue
			}
			one.bytes = e.bytes
		}
		if k.bounded && one.bytes > k.left(c) && k.any(c) {
			k.full = true
			break
		}
		c.add(one)
		limit--
	}
	return off - r.Lo, nil
}

// record is what the index of a batch says of a record.
type record struct {
	bytes   int64
	expires queue.Millis
	slot    queue.Slot
}

// records reads what a ref's index says of the records at offsets r; nil if it will never be readable.
func (v *view) records(ctx context.Context, loc segment.Located, r meta.OffsetRange) ([]record, error) {
	ref := loc.Ref
	if ref.Kind == meta.RefPayload {
		return []record{{bytes: ref.Bytes, expires: ref.MinExpires, slot: ref.Slot}}, nil
	}
	idx, now, err := v.s.index(ctx, loc)
	if now.Ref != ref {
		v.page = nil
		loc, ref = now, now.Ref
	}
	if err != nil {
		if unreadable(err) {
			return nil, nil
		}
		return nil, err
	}
	one := run{loc: loc, OffsetRange: r}
	out := make([]record, 0, one.count())
	for _, e := range idx.EntriesOf(int(one.first()), int(one.count())) {
		out = append(out, record{bytes: e.BodyLen, expires: expiryOf(ref, &e.Record), slot: e.Slot})
	}
	if len(out) != int(one.count()) {
		return nil, nil // the ref points outside its batch
	}
	return out, nil
}

// index reads the index of a batch ref; now is where its bytes are, which a compactor may have changed
// since loc was read.
func (s *Service) index(ctx context.Context, loc segment.Located) (idx *batch.Index, now segment.Located, err error) {
	idx, _, err = s.log.Index(ctx, loc.Ref)
	if queue.Is(err, queue.KindNotFound) {
		if now, moved, _ := s.log.Relocate(ctx, loc); moved {
			idx, _, err = s.log.Index(ctx, now.Ref)
			return idx, now, err
		}
	}
	return idx, loc, err
}

// unreadable reports whether an error of reading a payload will stay: the bytes are gone or damaged.
func unreadable(err error) bool {
	switch queue.KindOf(err) {
	case queue.KindNotFound, queue.KindCorrupt, queue.KindInvalid:
		return true
	default:
		return false
	}
}
