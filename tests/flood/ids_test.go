package flood_test

import (
	"math/rand/v2"
	"sync"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// stream is a process's random bytes, which follow from a seed and are drawn by all of its goroutines.
type stream struct {
	mu     sync.Mutex // guards source
	source *rand.ChaCha8
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Read(p)
}

// newIDs makes a process's ids.
func newIDs(seed byte) *queue.IDs {
	return queue.NewIDs(&stream{source: rand.NewChaCha8([32]byte{seed})})
}
