package meta

import (
	"bytes"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// RefKind says what a ref's bytes are.
type RefKind uint8

// The kinds of refs. The numbers are stored.
const (
	// RefBatch: the span holds a batch in the format of docs/FORMAT.md; the ref stands for its
	// run of records [First, First+Count).
	RefBatch RefKind = 1
	// RefPayload: the span is the body of one message whose key and headers the ref carries.
	RefPayload RefKind = 2
)

// RefID identifies the call that appended a ref and the ref's place in it: random bytes, drawn by the
// server. With First it identifies an append among all of a segment.
type RefID [16]byte

// Ref says where the bytes of messages are, and what a reader must know before fetching them.
// Immutable.
type Ref struct {
	Kind RefKind `json:"kind"`
	// Inline: the bytes are in the Payload record whose id is Object; else in the blob Object.
	Inline bool   `json:"inline,omitempty"`
	ID     RefID  `json:"id"`
	Object string `json:"object"`
	// Pos and Len are the byte span of the batch or payload in the object.
	Pos int64 `json:"pos"`
	Len int64 `json:"len"`
	// First and Count are the run of records; 0 and 1 for a payload.
	First uint32 `json:"first"`
	Count uint32 `json:"count"`
	// Total is the number of records that refs own in the object together; when all of them were
	// dropped the object is deleted. 0 is not known: the object is kept. With Hold set, Total counts
	// the records owned under that hold, which is a record of its own (docs/decisions/0007).
	Total uint32 `json:"total,omitempty"`
	Hold  RefID  `json:"hold,omitzero"`
	// Prefix is the length of the batch's header, index and block table, so that a run can be
	// fetched by two ranges; 0 for a payload.
	Prefix uint32 `json:"prefix,omitempty"`
	// CRC, if HasCRC, is a payload's CRC32C, or a batch's header checksum, which covers the index and
	// through it every body.
	CRC    uint32 `json:"crc,omitempty"`
	HasCRC bool   `json:"has_crc,omitempty"`
	// Created is the commit time by the server's clock; a record's own times count from it.
	Created queue.Millis `json:"created"`
	// Visible is when the messages became or become visible; 0 stands for Created.
	Visible queue.Millis `json:"visible,omitempty"`
	// DefaultTTL, in ms, holds for records that have no ttl of their own; 0 is none.
	DefaultTTL int64 `json:"default_ttl,omitempty"`
	// MinExpires is the earliest expiry among the messages, 0 if none expires. MaxExpires is the
	// latest, 0 if any never expires.
	MinExpires queue.Millis `json:"min_expires,omitempty"`
	MaxExpires queue.Millis `json:"max_expires,omitempty"`
	// Bytes is the length of all bodies together, uncompressed.
	Bytes int64 `json:"bytes"`
	// Slot and Key are a payload message's; Headers (the block form of the batch format) are a
	// payload message's, or are laid over the headers of each record of a batch: that is how a
	// dead letter carries its reason.
	Slot    queue.Slot `json:"slot,omitempty"`
	Key     []byte     `json:"key,omitempty"`
	Headers []byte     `json:"headers,omitempty"`
}

// VisibleAt is when the messages became or become visible.
func (r *Ref) VisibleAt() queue.Millis {
	if r.Visible != 0 {
		return r.Visible
	}
	return r.Created
}

// Expired reports whether every message of the ref has expired at now; PartlyExpired whether any has.
func (r *Ref) Expired(now queue.Millis) bool { return r.MaxExpires != 0 && r.MaxExpires <= now }

// PartlyExpired reports whether any message of the ref has expired at now.
func (r *Ref) PartlyExpired(now queue.Millis) bool { return r.MinExpires != 0 && r.MinExpires <= now }

// Same reports whether r and o are the same append: the same run of the same bytes, under the same
// headers.
func (r *Ref) Same(o *Ref) bool {
	return r.ID == o.ID && r.First == o.First && r.Count == o.Count && r.Object == o.Object &&
		r.Created == o.Created && bytes.Equal(r.Headers, o.Headers)
}

// RefPage is an immutable record of older refs of one segment: a head's tail, rolled.
type RefPage struct {
	Segment queue.SegmentID
	// First is the offset of the first message of Refs[0].
	First queue.Offset
	Refs  []Ref
	// Rolled is the head's LastAppend when it was rolled: no ref of the page was appended later.
	Rolled queue.Millis
}

// HeadPK is the partition of a segment's head and pages.
func HeadPK(segment queue.SegmentID) string { return "s/" + string(segment) }

// pagePrefix begins the sort key of a page; it is below "head" in no order that matters.
const pagePrefix = "page/"

// PageKey is where the page stands whose first offset is first: 16 hexadecimal digits, so that sort
// keys order as offsets do.
func PageKey(segment queue.SegmentID, first queue.Offset) Key {
	return Key{HeadPK(segment), pagePrefix + hex16(uint64(first))}
}

// PagesFrom is the range of pages of a segment that start at or after first.
func PagesFrom(segment queue.SegmentID, first queue.Offset, limit int) Range {
	return Range{PK: HeadPK(segment), From: PageKey(segment, first).SK, To: "page0", Limit: limit}
}

// PageAt is the range whose one item is the newest page that starts at or below offset.
func PageAt(segment queue.SegmentID, offset queue.Offset) Range {
	return Range{PK: HeadPK(segment), From: pagePrefix, To: PageKey(segment, offset+1).SK, Limit: 1, Reverse: true}
}

func hex16(n uint64) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 16)
	for i := range b {
		b[len(b)-1-i] = digits[n&15]
		n >>= 4
	}
	return string(b)
}

// Key implements Record.
func (p *RefPage) Key() Key { return PageKey(p.Segment, p.First) }

// Kind implements Record.
func (p *RefPage) Kind() Kind { return KindPage }

// Next is the offset after the page's last message.
func (p *RefPage) Next() queue.Offset { return p.First + queue.Offset(CountOf(p.Refs)) }

// CountOf is the number of messages that refs stand for.
func CountOf(refs []Ref) uint64 {
	var n uint64
	for i := range refs {
		n += uint64(refs[i].Count)
	}
	return n
}

func containsRef(tail []Ref, r *Ref) bool {
	for i := range tail {
		if tail[i].Same(r) {
			return true
		}
	}
	return false
}
