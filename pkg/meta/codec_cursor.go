package meta

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Offsets of a cursor are stored as distances from its floor, times as distances from the time stored
// before them: claims made together expire together.

func appendCursor(dst []byte, c *Cursor) ([]byte, error) {
	if strings.Contains(string(c.Segment), "/") {
		// The key alone tells where the subscription's id ends.
		return dst, queue.Invalid("segment", nil, "holds a slash")
	}
	dst = putUint(dst, uint64(c.Floor))
	dst = putUint(dst, uint64(c.Next))
	var last queue.Millis
	dst = putUint(dst, uint64(len(c.Claims)))
	for _, id := range sortedClaims(c.Claims) {
		cl := c.Claims[id]
		dst = append(dst, id[:]...)
		dst = putUint(dst, uint64(cl.Attempt))
		dst = putUint(dst, uint64(len(cl.Parts)))
		for _, p := range cl.Parts {
			dst = appendRange(dst, p.OffsetRange, c.Floor)
			dst = putInt(dst, int64(p.Expires-last))
			last = p.Expires
		}
	}
	dst = putUint(dst, uint64(len(c.Done)))
	from := c.Floor
	for _, d := range c.Done {
		dst = appendRange(dst, d, from)
		from = d.Hi
	}
	dst = putUint(dst, uint64(len(c.Retries)))
	for _, r := range c.Retries {
		dst = appendRange(dst, r.OffsetRange, c.Floor)
		dst = putUint(dst, uint64(r.Attempts)<<1|oneIf(r.Alone))
		dst = putInt(dst, int64(r.NotBefore-last))
		dst = putBytes(dst, r.Reason)
		last = r.NotBefore
	}
	return dst, nil
}

func sortedClaims(claims map[queue.ClaimID]Claim) []queue.ClaimID {
	ids := make([]queue.ClaimID, 0, len(claims))
	for id := range claims {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b queue.ClaimID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

func oneIf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func appendRange(dst []byte, r OffsetRange, from queue.Offset) []byte {
	dst = putUint(dst, uint64(r.Lo-from))
	return putUint(dst, uint64(r.Hi-r.Lo))
}

func (r *bodyReader) offsets(from queue.Offset) OffsetRange {
	lo := from + queue.Offset(r.uint())
	return OffsetRange{lo, lo + queue.Offset(r.uint())}
}

func decodeCursor(key Key, body []byte) (Record, error) {
	ids, ok := strings.CutPrefix(key.PK, "c/")
	slash := strings.LastIndexByte(ids, '/')
	if !ok || slash < 0 {
		return nil, errNotItsKey
	}
	c := &Cursor{Subscription: queue.SubscriptionID(ids[:slash]), Segment: queue.SegmentID(ids[slash+1:])}
	r := bodyReader{b: body}
	c.Floor = queue.Offset(r.uint())
	c.Next = queue.Offset(r.uint())
	last := r.claims(c)
	if n := r.count(2); n > 0 {
		c.Done = make([]OffsetRange, n)
		from := c.Floor
		for i := range c.Done {
			c.Done[i] = r.offsets(from)
			from = c.Done[i].Hi
		}
	}
	if n := r.count(5); n > 0 {
		c.Retries = make([]Retry, n)
		for i := range c.Retries {
			rt := &c.Retries[i]
			rt.OffsetRange = r.offsets(c.Floor)
			attempts := r.uintTo(math.MaxUint32<<1 | 1)
			rt.Attempts, rt.Alone = uint32(attempts>>1), attempts&1 != 0 // #nosec G115 -- bounded
			rt.NotBefore = last + queue.Millis(r.int())
			rt.Reason = r.string()
			last = rt.NotBefore
		}
	}
	return c, r.done()
}

func (r *bodyReader) claims(c *Cursor) (last queue.Millis) {
	n := r.count(len(queue.ClaimID{}) + 2)
	if n == 0 {
		return 0
	}
	c.Claims = make(map[queue.ClaimID]Claim, n)
	for range n {
		var cl Claim
		copy(cl.ID[:], r.take(len(cl.ID)))
		cl.Attempt = uint32(r.uintTo(math.MaxUint32)) // #nosec G115 -- bounded
		if parts := r.count(3); parts > 0 {
			cl.Parts = make([]Part, parts)
		}
		for i := range cl.Parts {
			cl.Parts[i].OffsetRange = r.offsets(c.Floor)
			last += queue.Millis(r.int())
			cl.Parts[i].Expires = last
		}
		c.Claims[cl.ID] = cl
	}
	return last
}

func appendDelayed(dst []byte, d *Delayed) []byte {
	dst = AppendRef(dst, &d.Ref)
	dst = putUint(dst, uint64(len(d.Slots)))
	var slot queue.Slot
	for _, s := range d.Slots {
		dst = putInt(dst, int64(s)-int64(slot))
		slot = s
	}
	dst = putUint(dst, uint64(len(d.Sizes)))
	for _, n := range d.Sizes {
		dst = putUint(dst, uint64(n))
	}
	dst = putUint(dst, uint64(len(d.Gone)))
	var gone uint32
	for _, g := range d.Gone {
		dst = putInt(dst, int64(g)-int64(gone))
		gone = g
	}
	dst = putUint(dst, oneIf(d.Home != nil))
	if d.Home != nil {
		dst = putInt(dst, int64(d.Home.Visible-d.Visible))
		dst = putBytes(dst, string(d.Home.Entry))
		dst = putUint(dst, uint64(d.Home.Index))
	}
	return dst
}

func decodeDelayed(key Key, body []byte) (Record, error) {
	d, err := delayedOfKey(key)
	if err != nil {
		return nil, err
	}
	r := bodyReader{b: body}
	r.ref(&d.Ref)
	if n := r.count(1); n > 0 {
		d.Slots = make([]queue.Slot, n)
		var slot int64
		for i := range d.Slots {
			slot = r.step(slot, math.MaxUint16)
			d.Slots[i] = queue.Slot(slot) // #nosec G115 -- bounded
		}
	}
	if n := r.count(1); n > 0 {
		d.Sizes = make([]uint32, n)
		for i := range d.Sizes {
			d.Sizes[i] = uint32(r.uintTo(math.MaxUint32)) // #nosec G115 -- bounded
		}
	}
	if n := r.count(1); n > 0 {
		d.Gone = make([]uint32, n)
		var gone int64
		for i := range d.Gone {
			gone = r.step(gone, math.MaxUint32)
			d.Gone[i] = uint32(gone) // #nosec G115 -- bounded
		}
	}
	if r.uintTo(1) == 1 {
		d.Home = &queue.DelayedID{
			Visible: d.Visible + queue.Millis(r.int()), Entry: queue.EntryID(r.string()),
			Index: uint32(r.uintTo(math.MaxUint32)), // #nosec G115 -- bounded
		}
	}
	return d, r.done()
}

// step reads a distance from prev to a number in [0, limit].
func (r *bodyReader) step(prev, limit int64) int64 {
	n := prev + r.int()
	if n < 0 || n > limit {
		r.fail(errOverflow)
		return 0
	}
	return n
}

func delayedOfKey(key Key) (*Delayed, error) {
	ids, ok := strings.CutPrefix(key.PK, "d/")
	slash := strings.LastIndexByte(ids, '/')
	at, id, cut := strings.Cut(key.SK, "/")
	if !ok || slash < 0 || !cut {
		return nil, errNotItsKey
	}
	shard, err1 := strconv.Atoi(ids[slash+1:])
	visible, err2 := strconv.ParseInt(at, 10, 64)
	if err1 != nil || err2 != nil {
		return nil, errNotItsKey
	}
	return &Delayed{
		Topic: queue.TopicID(ids[:slash]), Shard: shard,
		Visible: queue.Millis(visible), ID: queue.EntryID(id),
	}, nil
}
