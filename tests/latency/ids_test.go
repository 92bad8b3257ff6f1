package latency_test

import (
	"math/rand/v2"
	"sync"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// stream is a process's random bytes, which follow from a number.
type stream struct {
	mu     sync.Mutex // guards source
	source *rand.ChaCha8
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Read(p)
}

func newIDs(n byte) *queue.IDs {
	return queue.NewIDs(&stream{source: rand.NewChaCha8([32]byte{n})})
}

// rng draws for what a test works out beside the model.
func rng() *rand.Rand {
	return rand.New(rand.NewPCG(seed, 9)) // #nosec G404 -- repeatable
}
