package queue

import (
	"fmt"
	"math/bits"
)

// Slot is a position on the ring of 65,536; the hash of a message's partition key. It decides the
// message's segment and never changes.
type Slot uint16

// Slots is the size of the ring.
const Slots = 1 << 16

// SlotOf hashes a partition key onto the ring: 64-bit FNV-1a (its reference constants), then the
// 64-bit finalizer of MurmurHash3, of which the upper 16 bits are taken. FNV alone leaves the upper
// bits of short keys badly mixed. docs/FORMAT.md pins test vectors.
func SlotOf(key []byte) Slot {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h ^= uint64(c)
		h *= 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return Slot(h >> 48)
}

// SlotRange is the half-open range [Lo, Hi) of slots. Hi may be Slots, so both are wider than Slot.
type SlotRange struct {
	Lo uint32 `json:"lo"`
	Hi uint32 `json:"hi"`
}

// Ring is the whole ring.
func Ring() SlotRange { return SlotRange{0, Slots} }

// Contains reports whether s lies in r.
func (r SlotRange) Contains(s Slot) bool { return uint32(s) >= r.Lo && uint32(s) < r.Hi }

// Len is the number of slots in r.
func (r SlotRange) Len() uint32 { return r.Hi - r.Lo }

// Valid reports whether r is a non-empty part of the ring.
func (r SlotRange) Valid() bool { return r.Lo < r.Hi && r.Hi <= Slots }

// String renders "[lo,hi)".
func (r SlotRange) String() string { return fmt.Sprintf("[%d,%d)", r.Lo, r.Hi) }

// Tile cuts the ring into n ranges whose lengths differ by at most one slot. n is clamped to
// 1..MaxSegments.
func Tile(n int) []SlotRange {
	n = max(1, min(n, MaxSegments))
	out := make([]SlotRange, n)
	for i := range out {
		out[i] = SlotRange{tileEdge(i, n), tileEdge(i+1, n)}
	}
	return out
}

func tileEdge(i, n int) uint32 {
	hi, lo := bits.Mul64(uint64(i), Slots)
	q, _ := bits.Div64(hi, lo, uint64(n))
	return uint32(q) // #nosec G115 -- q <= Slots
}

// LoadBucket is the bucket of a head's slot histogram that s counts in, for a segment of range r.
func (r SlotRange) LoadBucket(s Slot) int {
	if !r.Contains(s) {
		return 0
	}
	return int(uint64(uint32(s)-r.Lo) * LoadBuckets / uint64(r.Len()))
}
