// Package digest makes a checksum of a set of bodies that does not depend on their order, so that what
// was sent can be compared with what was received by several workers.
//
// It is the sum, modulo 2^256, of the SHA-256 of each body. Unlike an exclusive or, a sum does not
// cancel out when a body comes twice, so a doubled message shows.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math/bits"
	"sync"
)

// Sum is a checksum in the making. The zero value is empty and ready. Not safe for concurrent use.
type Sum struct {
	words [4]uint64 // most significant first
	Count uint64
	Bytes uint64
}

// Add adds one body.
func (s *Sum) Add(body []byte) {
	s.addHash(sha256.Sum256(body), uint64(len(body)))
}

func (s *Sum) addHash(h [sha256.Size]byte, n uint64) {
	var o Sum
	for i := range o.words {
		o.words[i] = binary.BigEndian.Uint64(h[8*i:])
	}
	o.Count, o.Bytes = 1, n
	s.Merge(o)
}

// Body hashes one body that comes in pieces; it is an io.Writer.
type Body struct {
	hash hash.Hash
	n    uint64
}

// NewBody begins a body.
func NewBody() *Body { return &Body{hash: sha256.New()} }

// Write implements io.Writer; it never fails.
func (b *Body) Write(p []byte) (int, error) {
	b.n += uint64(len(p))
	return b.hash.Write(p)
}

// Sum is the checksum of the body as a set of one.
func (b *Body) Sum() Sum {
	var s Sum
	s.addHash([sha256.Size]byte(b.hash.Sum(nil)), b.n)
	return s
}

// Merge adds all that was added to o.
func (s *Sum) Merge(o Sum) {
	var carry uint64
	for i := len(s.words) - 1; i >= 0; i-- {
		s.words[i], carry = bits.Add64(s.words[i], o.words[i], carry)
	}
	s.Count += o.Count
	s.Bytes += o.Bytes
}

// String is the sum in hexadecimal.
func (s *Sum) String() string {
	var b [32]byte
	for i, w := range s.words {
		binary.BigEndian.PutUint64(b[8*i:], w)
	}
	return hex.EncodeToString(b[:])
}

// Shared is a Sum for many goroutines.
type Shared struct {
	mu  sync.Mutex // guards sum
	sum Sum
}

// Add adds one body; the hash is made outside of the lock.
func (s *Shared) Add(body []byte) {
	var one Sum
	one.Add(body)
	s.Merge(one)
}

// Merge adds all that was added to o.
func (s *Shared) Merge(o Sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Merge(o)
}

// Sum is what was added so far.
func (s *Shared) Sum() Sum {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum
}
