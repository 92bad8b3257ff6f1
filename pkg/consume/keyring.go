package consume

import (
	"hash/maphash"
	"sync"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// keyHash stands for a message's key within this process; 0 for a message without one. Two keys of one
// hash are held to be the same: that costs one of them time, and neither its order.
type keyHash uint64

const noKey keyHash = 0

// keyring remembers the keys of messages by their offsets. What is at an offset never changes, so what
// it knows stays true; what it forgets costs a read. Safe for concurrent use.
type keyring struct {
	seed maphash.Seed

	mu sync.Mutex // guards all below
	// young takes what is new or was used; when it is full it becomes old, and what was old is
	// forgotten.
	young, old map[stripeID]*stripe
}

// stripe has the keys of stripeLen neighbouring offsets.
type stripe struct {
	known uint64 // a bit for each
	keys  [stripeLen]keyHash
}

type stripeID struct {
	segment queue.SegmentID
	n       queue.Offset
}

const (
	stripeLen = 64
	// maxStripes bounds each of the two maps: about 5 MB.
	maxStripes = 8192
)

func newKeyring() *keyring {
	return &keyring{seed: maphash.MakeSeed(), young: make(map[stripeID]*stripe)}
}

func (k *keyring) hash(key []byte) keyHash {
	if len(key) == 0 {
		return noKey
	}
	return max(keyHash(maphash.Bytes(k.seed, key)), 1)
}

// put notes the keys of the messages from first on.
func (k *keyring) put(seg queue.SegmentID, first queue.Offset, keys []keyHash) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(keys) > 0 {
		s := k.at(stripeID{seg, first / stripeLen}, true)
		i := int(first % stripeLen)
		n := copy(s.keys[i:], keys)
		for j := i; j < i+n; j++ {
			s.known |= 1 << j
		}
		keys, first = keys[n:], first+queue.Offset(n) // #nosec G115 -- n is positive
	}
}

// get appends the keys of the messages of r to dst, up to the first that is not known.
func (k *keyring) get(dst []keyHash, seg queue.SegmentID, r meta.OffsetRange) []keyHash {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r.Lo < r.Hi {
		s := k.at(stripeID{seg, r.Lo / stripeLen}, false)
		if s == nil {
			break
		}
		for i := r.Lo % stripeLen; i < stripeLen && r.Lo < r.Hi; i++ {
			if s.known&(1<<i) == 0 {
				return dst
			}
			dst = append(dst, s.keys[i])
			r.Lo++
		}
	}
	return dst
}

// at finds a stripe, and makes one if it shall. Called under mu.
func (k *keyring) at(id stripeID, create bool) *stripe {
	s := k.young[id]
	if s != nil {
		return s
	}
	if s = k.old[id]; s == nil {
		if !create {
			return nil
		}
		s = new(stripe)
	}
	if len(k.young) >= maxStripes {
		k.young, k.old = make(map[stripeID]*stripe), k.young
	}
	k.young[id] = s
	return s
}
