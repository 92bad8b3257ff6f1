package latency

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Source is one caller's random numbers. Safe for concurrent use; but what calls side by side draw from one
// source depends on which comes first.
type Source struct {
	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// NewSource gives the numbers that follow from a seed and a caller's number.
func NewSource(seed, caller uint64) *Source {
	return &Source{rng: rand.New(rand.NewPCG(seed, caller))} // #nosec G404 -- repeatable
}

func (s *Source) draw(c *Curve) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.Draw(s.rng)
}

// jitter draws half of d to all of it.
func (s *Source) jitter(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d/2 + time.Duration(s.rng.Int64N(int64(d/2)))
}

type sourceKey struct{}

// With makes calls under the context draw from a source of their own, and not from their store's.
func With(ctx context.Context, s *Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

func sourceOf(ctx context.Context, own *Source) *Source {
	if s, ok := ctx.Value(sourceKey{}).(*Source); ok {
		return s
	}
	return own
}
