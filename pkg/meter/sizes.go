package meter

import (
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
// nothing else. The hash is fixed, not seeded, so that equal runs give equal counts.
type sizes [sizeSlots]atomic.Uint64

func (s *sizes) see(key meta.Key, size int) {
	h := hashKey(key)
	s[h%sizeSlots].Store(h&^sizeMask | uint64(min(max(size, 0), sizeMask))) // #nosec G115 -- clamped
}

// last is the size that key was last seen with; 0 if none is remembered.
func (s *sizes) last(key meta.Key) int {
	h := hashKey(key)
	v := s[h%sizeSlots].Load()
	if v&^sizeMask != h&^sizeMask {
		return 0
	}
	return int(v & sizeMask) // #nosec G115 -- 24 bits
}

// hashKey is 64-bit FNV-1a with a finalizer, as in queue.SlotOf: FNV leaves upper bits badly mixed.
func hashKey(key meta.Key) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range len(key.PK) {
		h = (h ^ uint64(key.PK[i])) * prime
	}
	h *= prime // the NUL between the parts
	for i := range len(key.SK) {
		h = (h ^ uint64(key.SK[i])) * prime
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}
