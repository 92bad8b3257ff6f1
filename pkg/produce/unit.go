package produce

import (
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// unit is one batch or payload of a call: bytes that lie together, and the messages in them.
type unit struct {
	// ref is the part of a ref that all runs of the unit share.
	ref meta.Ref
	// own: the bytes are in the call's object, whose key the ref gets once it is put.
	own     bool
	records []record
}

// record is one message of a unit, in the unit's order (by slot).
type record struct {
	slot queue.Slot
	// size is the body's length.
	size int64
	// pos is the message's place in the call.
	pos int
	// visible is when a delayed message becomes visible; 0 if it goes to a segment now.
	visible queue.Millis
	expires queue.Millis
}

// result is what a call says of one message.
type result struct {
	err      error
	warnings []Warning
	// created is the call's time, or, of what an earlier try committed, that try's.
	created queue.Millis
	visible queue.Millis
	expires queue.Millis
	id      queue.MessageID
	delayed *queue.DelayedID
}

// committedAt gives a message that went to a segment the times that it has there: those of the try that
// committed it, which may have been an earlier one.
func (r *result) committedAt(at queue.Millis) {
	if r.expires != 0 {
		r.expires = r.expires.Add(at.Sub(r.created))
	}
	r.created, r.visible = at, at
}

// class is what decides where a message goes, apart from its slot.
type class struct {
	visible, expires queue.Millis
}

// judgeTimes judges a message's delay and ttl on the call's topic: section 3.5 of the architecture. ttl 0
// takes the topic's default.
func (c *call) judgeTimes(delay time.Duration, hasDelay bool, ttl time.Duration) (class, []Warning, error) {
	var cl class
	var warnings []Warning
	if ttl == 0 {
		ttl = c.times.DefaultTTL
	}
	if ttl > 0 {
		cl.expires = c.created.Add(ttl)
	}
	switch {
	case c.times.DefaultDelay == 0:
		if hasDelay {
			warnings = append(warnings, WarnDelayIgnored)
		}
		return cl, warnings, nil
	case !hasDelay:
		delay = c.times.DefaultDelay
	case delay > c.times.MaxDelay:
		return cl, nil, queue.Invalid("delay", c.times.MaxDelay.Seconds(), "must be at most the topic's max_delay of %s seconds", queue.Plain(c.times.MaxDelay.Seconds()))
	}
	if delay > 0 {
		cl.visible = c.created.Add(delay)
		if cl.expires != 0 && cl.expires <= cl.visible {
			warnings = append(warnings, WarnExpiresBeforeVisible)
		}
	}
	return cl, warnings, nil
}

// accept notes what is known of a message before it is committed.
func (c *call) accept(pos int, cl class, warnings []Warning) {
	r := &c.results[pos]
	r.created, r.expires, r.warnings = c.created, cl.expires, warnings
	if r.visible = cl.visible; r.visible == 0 {
		r.visible = c.created
	}
}

// keylessSlot is the slot of the call's messages without key: one for all, so that they cost one
// head update; the same in each try of a guarded call.
func (c *call) keylessSlot() queue.Slot { return queue.SlotOf(c.nonce[:]) }

// unitID derives the ref id of the n-th unit, the same in each try of a guarded call.
func (c *call) unitID(n int) meta.RefID {
	id := meta.RefID(c.nonce)
	id[14] ^= byte(n >> 8)
	id[15] ^= byte(n)
	return id
}

// batchUnit makes a unit of a batch that begins at pos in its object.
func (c *call) batchUnit(h batch.Header, pos int64, records []record, own bool) *unit {
	u := &unit{own: own, records: records, ref: meta.Ref{
		Kind: meta.RefBatch, ID: c.unitID(len(c.units)), Pos: pos, Len: h.Len(),
		Prefix: uint32(h.PrefixLen()), CRC: h.CRC, HasCRC: true, // #nosec G115 -- bounded by MaxBatchIndexBytes
		Created: c.created, DefaultTTL: c.times.DefaultTTL.Milliseconds(),
	}}
	c.units = append(c.units, u)
	return u
}

// part is a run of a unit's records that have one destination.
type part struct {
	unit         *unit
	first, count int
}

func (p part) records() []record { return p.unit.records[p.first : p.first+p.count] }

// ref is the part's ref.
func (p part) ref() meta.Ref {
	r := p.unit.ref
	if r.Kind == meta.RefBatch {
		r.First = uint32(p.first) // #nosec G115 -- bounded by MaxBatchRecords
	}
	r.Count = uint32(p.count) // #nosec G115 -- bounded by MaxBatchRecords
	never := false
	for _, rec := range p.records() {
		r.Bytes += rec.size
		switch {
		case rec.expires == 0:
			never = true
		case r.MinExpires == 0 || rec.expires < r.MinExpires:
			r.MinExpires = rec.expires
		}
		r.MaxExpires = max(r.MaxExpires, rec.expires)
	}
	if never {
		r.MaxExpires = 0
	}
	return r
}

// destinations cuts the units into runs of one destination each: those for a segment now, and those
// for the delayed index. Messages that were refused belong to none.
func (c *call) destinations() (now, later []part) {
	for _, u := range c.units {
		for i := 0; i < len(u.records); {
			j := i + 1
			for j < len(u.records) && c.together(&u.records[i], &u.records[j]) {
				j++
			}
			p := part{u, i, j - i}
			switch {
			case c.results[u.records[i].pos].err != nil:
			case u.records[i].visible != 0:
				later = append(later, p)
			default:
				now = append(now, p)
			}
			i = j
		}
	}
	return now, later
}

func (c *call) together(a, b *record) bool {
	if c.results[a.pos].err != nil || c.results[b.pos].err != nil {
		return c.results[a.pos].err != nil && c.results[b.pos].err != nil
	}
	if a.visible != b.visible {
		return false
	}
	return a.visible == 0 || a.expires == b.expires
}
