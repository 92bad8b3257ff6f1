package client

import (
	"context"
	"sync"
)

// budget bounds the bytes that a producer has accepted and not yet sent. Whoever waits is served in
// order, so that a large message is not passed by small ones for ever.
type budget struct {
	size int64

	mu      sync.Mutex // guards what follows
	free    int64
	waiters []*waiter
}

type waiter struct {
	n     int64
	ready chan struct{}
}

func newBudget(size int64) *budget { return &budget{size: size, free: size} }

// acquire takes n bytes, or the whole budget if n is more; it gives what it took. It waits until
// there are as many, ctx ends, or closing is closed.
func (b *budget) acquire(ctx context.Context, n int64, closing <-chan struct{}) (int64, error) {
	n = min(n, b.size)
	b.mu.Lock()
	if len(b.waiters) == 0 && b.free >= n {
		b.free -= n
		b.mu.Unlock()
		return n, nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()

	var err error
	select {
	case <-w.ready:
		return n, nil
	case <-ctx.Done():
		err = canceled(ctx, opProduce)
	case <-closing:
		err = ErrClosed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // granted in the meantime: it goes to the next
		b.free += n
	default:
		for i := range b.waiters {
			if b.waiters[i] == w {
				b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
				break
			}
		}
	}
	b.grant()
	return 0, err
}

// release gives bytes back.
func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.grant()
}

func (b *budget) grant() {
	for len(b.waiters) > 0 && b.free >= b.waiters[0].n {
		w := b.waiters[0]
		b.waiters = b.waiters[1:]
		b.free -= w.n
		close(w.ready)
	}
}
