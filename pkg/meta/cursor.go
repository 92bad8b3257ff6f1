package meta

import (
	"cmp"
	"maps"
	"slices"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Cursor is a subscription's state in one segment. Every offset is in exactly one place: below
// Floor or in Done (done), in a part of a claim (in flight), in a retry (to be claimed again), or at
// or above Next (never claimed).
type Cursor struct {
	Subscription queue.SubscriptionID
	Segment      queue.SegmentID
	Floor        queue.Offset
	Next         queue.Offset
	Claims       map[queue.ClaimID]Claim
	// Done holds what is done at or above Floor, ascending, disjoint, never adjacent.
	Done []OffsetRange
	// Retries are ascending and disjoint.
	Retries []Retry
}

// OffsetRange is the half-open range [Lo, Hi) of offsets.
type OffsetRange struct {
	Lo, Hi queue.Offset
}

// Len is the number of offsets in r.
func (r OffsetRange) Len() int { return int(r.Hi - r.Lo) } // #nosec G115 -- ranges are bounded

// Claim is a consumer's hold on messages of one delivery count.
type Claim struct {
	ID queue.ClaimID
	// Attempt is the delivery count of its messages, from 1.
	Attempt uint32
	// Parts are what of the claim is not yet settled: ascending, disjoint, never empty.
	Parts []Part
}

// Part is a run of a claim's messages that end by one expiry.
type Part struct {
	OffsetRange
	Expires queue.Millis
}

// Retry is a run of messages that were delivered and are not done, or that were passed over on the way to
// others because those of their keys were in flight: these have no Attempts.
type Retry struct {
	OffsetRange
	// Attempts is how often they were delivered so far (what was released uncounted does not
	// count).
	Attempts uint32
	// NotBefore is when they may be claimed again.
	NotBefore queue.Millis
	// Alone says that an expired claim left them, so nobody said which message failed: they
	// are claimed apart from others, in ever smaller runs.
	Alone bool
	// Reason is what the consumer gave at its release; at most MaxReasonBytes.
	Reason string
}

// MaxReasonBytes bounds a retry's reason.
const MaxReasonBytes = 256

// CursorKey is where a cursor stands.
func CursorKey(sub queue.SubscriptionID, segment queue.SegmentID) Key {
	return Key{"c/" + string(sub) + "/" + string(segment), "cursor"}
}

// Key implements Record.
func (c *Cursor) Key() Key { return CursorKey(c.Subscription, c.Segment) }

// Kind implements Record.
func (c *Cursor) Kind() Kind { return KindCursor }

// InFlight is the number of messages in claims, expired or not.
func (c *Cursor) InFlight() int {
	n := 0
	for _, cl := range c.Claims {
		for _, p := range cl.Parts {
			n += p.Len()
		}
	}
	return n
}

// Entries is the number of claim parts, retries and done ranges: what the record's size goes by.
func (c *Cursor) Entries() int {
	n := len(c.Done) + len(c.Retries)
	for _, cl := range c.Claims {
		n += len(cl.Parts)
	}
	return n
}

// IsDone reports whether the message at off has left the subscription.
func (c *Cursor) IsDone(off queue.Offset) bool {
	if off < c.Floor {
		return true
	}
	i, found := slices.BinarySearchFunc(c.Done, off, func(r OffsetRange, o queue.Offset) int {
		switch {
		case r.Hi <= o:
			return -1
		case r.Lo > o:
			return 1
		}
		return 0
	})
	return found && i < len(c.Done)
}

// Holds reports whether the claim still holds the message at off.
func (c Claim) Holds(off queue.Offset) bool {
	return slices.ContainsFunc(c.Parts, func(p Part) bool { return off >= p.Lo && off < p.Hi })
}

// Same reports whether two states of a claim are equal.
func (c Claim) Same(o Claim) bool {
	return c.ID == o.ID && c.Attempt == o.Attempt && slices.Equal(c.Parts, o.Parts)
}

func (c *Cursor) clone() *Cursor {
	n := *c
	n.Claims = maps.Clone(c.Claims)
	if n.Claims == nil {
		n.Claims = make(map[queue.ClaimID]Claim)
	}
	n.Done = slices.Clone(c.Done)
	n.Retries = slices.Clone(c.Retries)
	return &n
}

// finish adds ranges to what is done and moves the floor over the contiguous prefix.
func (c *Cursor) finish(ranges []OffsetRange) {
	for _, r := range ranges {
		if r.Lo < c.Floor {
			r.Lo = c.Floor
		}
		if r.Lo < r.Hi {
			c.Done = append(c.Done, r)
		}
	}
	slices.SortFunc(c.Done, func(a, b OffsetRange) int { return cmp.Compare(a.Lo, b.Lo) })
	merged := c.Done[:0]
	for _, r := range c.Done {
		if n := len(merged); n > 0 && r.Lo <= merged[n-1].Hi {
			merged[n-1].Hi = max(merged[n-1].Hi, r.Hi)
			continue
		}
		merged = append(merged, r)
	}
	if len(merged) > 0 && merged[0].Lo <= c.Floor {
		c.Floor = merged[0].Hi
		merged = merged[1:]
	}
	c.Done = merged
}

func (c *Cursor) addRetries(retries []Retry) {
	for _, r := range retries {
		if r.Lo < r.Hi {
			c.Retries = append(c.Retries, r)
		}
	}
	slices.SortFunc(c.Retries, func(a, b Retry) int { return cmp.Compare(a.Lo, b.Lo) })
}

func cursorOf(op Op, cur *Item) (*Cursor, error) {
	if cur == nil {
		return nil, refuse(op, nil, ReasonAbsent)
	}
	c, ok := cur.Record.(*Cursor)
	if !ok {
		return nil, corruptKind(op)
	}
	return c, nil
}
