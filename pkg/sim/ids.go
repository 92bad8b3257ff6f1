package sim

import (
	"bytes"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// idSource gives every op random bytes of its own, so that what an op draws does not depend on which of
// the goroutines that run at the same time draws first. A reader of random bytes is told by nobody whom
// it reads for; the goroutine tells: the op's own, or one that was started, at whatever remove, by it.
type idSource struct {
	seed  uint64
	baton *baton

	mu      sync.Mutex // guards all below
	labels  map[string]string
	streams map[string]*rand.Rand
	// strays counts draws of goroutines that belong to no op: their order is not decided by the seed.
	strays int
}

func newIDSource(seed uint64, b *baton) *idSource {
	return &idSource{seed: seed, baton: b, labels: make(map[string]string), streams: make(map[string]*rand.Rand)}
}

var _ io.Reader = (*idSource)(nil)

// Read implements io.Reader.
func (s *idSource) Read(b []byte) (int, error) {
	label, id := s.find()
	s.baton.yield(label, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if label == "" {
		s.strays++
	}
	stream := s.streams[label]
	if stream == nil {
		stream = rand.New(rand.NewPCG(s.seed, hash(label))) // #nosec G404 -- must be repeatable, not secret
		s.streams[label] = stream
	}
	for i := range b {
		b[i] = byte(stream.Uint32()) // #nosec G115 -- the low byte
	}
	return len(b), nil
}

func (s *idSource) ids() *queue.IDs { return queue.NewIDs(s) }

// name notes whose goroutine this is, and gives its number.
func (s *idSource) name(label string) string {
	id, _ := goroutine(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labels[id] = label
	return id
}

// find tells whose goroutine this is, and its number.
func (s *idSource) find() (label, id string) {
	id, _ = goroutine(false)
	s.mu.Lock()
	label, ok := s.labels[id]
	s.mu.Unlock()
	if ok {
		return label, id
	}
	_, parent := goroutine(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	label = s.labels[parent]
	s.labels[id] = label
	return label, id
}

// goroutine reads the numbers of this goroutine and, if asked, of the one that started it, off a stack
// trace; nothing else tells them. They are never used again in one process.
func goroutine(creator bool) (id, parent string) {
	size := 64
	if creator {
		size = 64 << 10
	}
	buf := make([]byte, size)
	buf = buf[:runtime.Stack(buf, false)]
	id = word(bytes.TrimPrefix(buf, []byte("goroutine ")))
	if at := bytes.LastIndex(buf, []byte(" in goroutine ")); at >= 0 {
		parent = word(buf[at+len(" in goroutine "):])
	}
	return id, parent
}

func word(b []byte) string {
	if i := bytes.IndexAny(b, " \n"); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = io.WriteString(h, p) // a hash never fails
		_, _ = h.Write([]byte{0})
	}
	// The finalizer of MurmurHash3: FNV alone leaves the upper bits of short texts badly mixed.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// coin decides by request and purpose, one in n: for decisions that are made outside of the scheduler.
func (w *world) coin(r *request, purpose string, n uint64) bool {
	if w.healed.Load() {
		return false
	}
	return hash(strconv.FormatUint(w.opts.Seed, 10), r.label, r.name, r.key, strconv.Itoa(r.nth), purpose)%n == 0
}
