package meter

import (
	"math/bits"
	"sync/atomic"

	"github.com/spillway-mq/spillway/pkg/meta"
)

const (
	// sizeSlots bounds the memory of what sizes were seen (8 bytes each); a power of two.
	sizeSlots = 4096
	// sizeBits is enough for meta.MaxRecordBytes with room; the rest of a slot is the key's tag.
	sizeBits = 24
	sizeMask = 1<<sizeBits - 1
)

// sizes remembers the last seen size of records: a direct-mapped table whose slots hold 40 bits of
// the key's hash and 24 of the size. Two keys of one slot evict each other, which costs precision and
// nothing else.
type sizes [sizeSlots]atomic.Uint64

// see notes the size of the record whose key has the hash h.
func (s *sizes) see(h uint64, size int) {
	s[h%sizeSlots].Store(h&^sizeMask | uint64(min(max(size, 0), sizeMask))) // #nosec G115 -- clamped
}

// last is the size that the record was last seen with; 0 if none is remembered.
func (s *sizes) last(h uint64) int {
	v := s[h%sizeSlots].Load()
	if v&^sizeMask != h&^sizeMask {
		return 0
	}
	return int(v & sizeMask) // #nosec G115 -- 24 bits
}

// hashKey hashes by eight bytes at a time, for speed, and without a random seed, so that equal runs
// give equal counts: hash/maphash does not offer that.
func hashKey(key meta.Key) uint64 {
	h := fold(uint64(len(key.PK)), key.PK)
	return fold(h, key.SK)
}

// fold mixes s into h. Each round multiplies to 128 bits and folds the halves, by the constants of
// wyhash (https://github.com/wangyi-fudan/wyhash, public domain).
func fold(h uint64, s string) uint64 {
	const k0, k1 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db
	for len(s) >= 8 {
		h = mix(h^word(s[:8]), k0)
		s = s[8:]
	}
	var rest uint64
	for i := range len(s) {
		rest = rest<<8 | uint64(s[i])
	}
	return mix(h^rest, k1^uint64(len(s)))
}

func word(s string) uint64 {
	_ = s[7] // one bounds check for all
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
