package meta

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Which fields of a ref are present. The numbers are stored.
const (
	refInline = 1 << iota
	refPos
	refFirst
	refPrefix
	refCRC
	refHasCRC
	refVisible
	refTTL
	refMinExpires
	refMaxExpires
	refSlot
	refKey
	refHeaders
	refTotal
	refHold
	refKnownFlags = 1<<iota - 1
)

// minRefBytes is the least that an encoded ref takes: kind, flags, id and five numbers.
const minRefBytes = 1 + 1 + len(RefID{}) + 5

// AppendRef appends the stored form of a ref. It stands alone (no deltas to its neighbours) and equal
// refs give equal bytes, so that a store can look for a ref by its bytes.
func AppendRef(dst []byte, r *Ref) []byte {
	flags := refFlags(r)
	dst = append(dst, byte(r.Kind))
	dst = putUint(dst, flags)
	dst = append(dst, r.ID[:]...)
	dst = putBytes(dst, r.Object)
	dst = putUint(dst, uint64(r.Len)) // #nosec G115 -- read back as it was
	dst = putUint(dst, uint64(r.Count))
	dst = putInt(dst, int64(r.Created))
	dst = putUint(dst, uint64(r.Bytes)) // #nosec G115 -- read back as it was
	if flags&refPos != 0 {
		dst = putUint(dst, uint64(r.Pos)) // #nosec G115 -- read back as it was
	}
	if flags&refFirst != 0 {
		dst = putUint(dst, uint64(r.First))
	}
	if flags&refPrefix != 0 {
		dst = putUint(dst, uint64(r.Prefix))
	}
	if flags&refCRC != 0 {
		dst = binary.BigEndian.AppendUint32(dst, r.CRC)
	}
	if flags&refVisible != 0 {
		dst = putInt(dst, int64(r.Visible-r.Created))
	}
	if flags&refTTL != 0 {
		dst = putInt(dst, r.DefaultTTL)
	}
	if flags&refMinExpires != 0 {
		dst = putInt(dst, int64(r.MinExpires-r.Created))
	}
	if flags&refMaxExpires != 0 {
		dst = putInt(dst, int64(r.MaxExpires-r.Created))
	}
	if flags&refSlot != 0 {
		dst = putUint(dst, uint64(r.Slot))
	}
	if flags&refKey != 0 {
		dst = putBytes(dst, r.Key)
	}
	if flags&refHeaders != 0 {
		dst = putBytes(dst, r.Headers)
	}
	if flags&refTotal != 0 {
		dst = putUint(dst, uint64(r.Total))
	}
	if flags&refHold != 0 {
		dst = append(dst, r.Hold[:]...)
	}
	return dst
}

func refFlags(r *Ref) uint64 {
	var flags uint64
	set := func(flag uint64, present bool) {
		if present {
			flags |= flag
		}
	}
	set(refInline, r.Inline)
	set(refPos, r.Pos != 0)
	set(refFirst, r.First != 0)
	set(refPrefix, r.Prefix != 0)
	set(refCRC, r.CRC != 0)
	set(refHasCRC, r.HasCRC)
	set(refVisible, r.Visible != 0)
	set(refTTL, r.DefaultTTL != 0)
	set(refMinExpires, r.MinExpires != 0)
	set(refMaxExpires, r.MaxExpires != 0)
	set(refSlot, r.Slot != 0)
	set(refKey, r.Key != nil)
	set(refHeaders, r.Headers != nil)
	set(refTotal, r.Total != 0)
	set(refHold, r.Hold != RefID{})
	return flags
}

// DecodeRef reads what AppendRef wrote, to the last byte of data. Every failure is KindCorrupt.
func DecodeRef(data []byte) (Ref, error) {
	var ref Ref
	r := bodyReader{b: data}
	r.ref(&ref)
	if err := r.done(); err != nil {
		return Ref{}, &queue.Error{Op: "decode ref", Kind: queue.KindCorrupt, Err: err}
	}
	return ref, nil
}

func (r *bodyReader) ref(ref *Ref) {
	if kind := r.take(1); kind != nil {
		ref.Kind = RefKind(kind[0])
	}
	flags := r.uintTo(refKnownFlags)
	copy(ref.ID[:], r.take(len(ref.ID)))
	ref.Object = r.string()
	ref.Len = int64(r.uint())                    // #nosec G115 -- as it was written
	ref.Count = uint32(r.uintTo(math.MaxUint32)) // #nosec G115 -- bounded
	ref.Created = queue.Millis(r.int())
	ref.Bytes = int64(r.uint()) // #nosec G115 -- as it was written
	ref.Inline, ref.HasCRC = flags&refInline != 0, flags&refHasCRC != 0
	if flags&refPos != 0 {
		ref.Pos = int64(r.uint()) // #nosec G115 -- as it was written
	}
	if flags&refFirst != 0 {
		ref.First = uint32(r.uintTo(math.MaxUint32)) // #nosec G115 -- bounded
	}
	if flags&refPrefix != 0 {
		ref.Prefix = uint32(r.uintTo(math.MaxUint32)) // #nosec G115 -- bounded
	}
	if sum := flags & refCRC; sum != 0 {
		if b := r.take(4); b != nil {
			ref.CRC = binary.BigEndian.Uint32(b)
		}
	}
	if flags&refVisible != 0 {
		ref.Visible = ref.Created + queue.Millis(r.int())
	}
	if flags&refTTL != 0 {
		ref.DefaultTTL = r.int()
	}
	if flags&refMinExpires != 0 {
		ref.MinExpires = ref.Created + queue.Millis(r.int())
	}
	if flags&refMaxExpires != 0 {
		ref.MaxExpires = ref.Created + queue.Millis(r.int())
	}
	if flags&refSlot != 0 {
		ref.Slot = queue.Slot(r.uintTo(math.MaxUint16)) // #nosec G115 -- bounded
	}
	if flags&refKey != 0 {
		ref.Key = r.bytes()
	}
	if flags&refHeaders != 0 {
		ref.Headers = r.bytes()
	}
	if flags&refTotal != 0 {
		ref.Total = uint32(r.uintTo(math.MaxUint32)) // #nosec G115 -- bounded
	}
	if flags&refHold != 0 {
		copy(ref.Hold[:], r.take(len(ref.Hold)))
	}
}

func appendRefs(dst []byte, refs []Ref) []byte {
	dst = putUint(dst, uint64(len(refs)))
	for i := range refs {
		dst = AppendRef(dst, &refs[i])
	}
	return dst
}

func (r *bodyReader) refs() []Ref {
	n := r.count(minRefBytes)
	if n == 0 {
		return nil
	}
	refs := make([]Ref, n)
	for i := range refs {
		r.ref(&refs[i])
	}
	return refs
}

// The flags of a head's body. The numbers are stored.
const (
	headSealed = 1 << iota
	headTotals // written by no program any more: messages and bytes, which Next and Bytes say
	headLoad
	headKnownFlags = 1<<iota - 1
)

func appendHead(dst []byte, h *Head) []byte {
	var flags uint64
	if h.Sealed {
		flags |= headSealed
	}
	if h.Load != (Load{}) {
		flags |= headLoad
	}
	dst = putUint(dst, flags)
	dst = putUint(dst, uint64(h.Epoch))
	dst = putUint(dst, uint64(h.Range.Lo))
	dst = putUint(dst, uint64(h.Range.Hi))
	dst = putUint(dst, uint64(h.Start))
	dst = putUint(dst, uint64(h.Next))
	dst = putUint(dst, h.Bytes)
	dst = putUint(dst, uint64(h.TailFirst))
	dst = putInt(dst, int64(h.LastAppend))
	if flags&headLoad != 0 {
		dst = putUint(dst, h.Load.Commits)
		for _, n := range h.Load.Buckets {
			dst = putUint(dst, n)
		}
	}
	dst = putUint(dst, uint64(len(h.Producers)))
	for i := range h.Producers {
		p := &h.Producers[i]
		dst = putBytes(dst, p.ID)
		dst = putUint(dst, p.Sequence)
		dst = putUint(dst, uint64(p.First))
		dst = putUint(dst, uint64(p.Count))
		dst = putInt(dst, int64(p.At-h.LastAppend))
	}
	return appendRefs(dst, h.Tail)
}

func decodeHead(key Key, body []byte) (Record, error) {
	segment, ok := strings.CutPrefix(key.PK, "s/")
	if !ok {
		return nil, errNotItsKey
	}
	r := bodyReader{b: body}
	h := &Head{Segment: queue.SegmentID(segment)}
	flags := r.uintTo(headKnownFlags)
	h.Sealed = flags&headSealed != 0
	h.Epoch = queue.Epoch(r.uint())
	h.Range.Lo = uint32(r.uintTo(math.MaxUint32)) // #nosec G115 -- bounded
	h.Range.Hi = uint32(r.uintTo(math.MaxUint32)) // #nosec G115 -- bounded
	h.Start = queue.Offset(r.uint())
	h.Next = queue.Offset(r.uint())
	h.Bytes = r.uint()
	h.TailFirst = queue.Offset(r.uint())
	h.LastAppend = queue.Millis(r.int())
	if flags&headTotals != 0 {
		r.uint()
		r.uint()
		for i := range h.Load.Buckets {
			h.Load.Buckets[i] = r.uint()
		}
	}
	if flags&headLoad != 0 {
		h.Load.Commits = r.uint()
		for i := range h.Load.Buckets {
			h.Load.Buckets[i] = r.uint()
		}
	}
	if n := r.count(5); n > 0 {
		h.Producers = make(Producers, n)
		for i := range h.Producers {
			h.Producers[i] = Producer{ID: r.string(), ProducerState: ProducerState{
				Sequence: r.uint(), First: queue.Offset(r.uint()),
				Count: uint32(r.uintTo(math.MaxUint32)), // #nosec G115 -- bounded
				At:    h.LastAppend + queue.Millis(r.int()),
			}}
			if i > 0 && h.Producers[i-1].ID >= h.Producers[i].ID {
				r.fail(errOrder)
			}
		}
	}
	h.Tail = r.refs()
	return h, r.done()
}

var errOrder = errors.New("the producers are out of order")

var errNotItsKey = errors.New("the key is none of this kind's")

func decodePage(key Key, body []byte) (Record, error) {
	segment, ok := strings.CutPrefix(key.PK, "s/")
	first, isPage := strings.CutPrefix(key.SK, pagePrefix)
	if !ok || !isPage {
		return nil, errNotItsKey
	}
	offset, err := strconv.ParseUint(first, 16, 64)
	if err != nil {
		return nil, errNotItsKey
	}
	r := bodyReader{b: body}
	p := &RefPage{Segment: queue.SegmentID(segment), First: queue.Offset(offset), Rolled: queue.Millis(r.int())}
	p.Refs = r.refs()
	return p, r.done()
}

func decodePayload(key Key, body []byte) (Record, error) {
	return &Payload{ID: key.SK, Data: append([]byte{}, body...)}, nil // that it is its key is checked after
}
