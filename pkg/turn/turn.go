// Package turn lets one at a time pass for each key, within one process.
//
// It is no part of any correctness, which rests on the conditions of the stores' ops: it keeps callers of
// one process from refusing each other's writes, and from reading the same twice.
//
// A turn is waited for on a channel and not on a mutex: store calls are made within turns, and only waits on
// channels end with a context, and let a test's clock go on meanwhile (testing/synctest).
//
// Non-goals: fairness beyond that of channels, crossing processes.
package turn

import (
	"context"
	"sync"
)

// Turns holds the turns of any number of keys; a key that nobody holds or waits for takes no memory. Make it
// with New. Safe for concurrent use.
type Turns[K comparable] struct {
	mu   sync.Mutex // guards held, and the counts in it
	held map[K]*turn
}

type turn struct {
	taken chan struct{} // holds one token while it is somebody's turn
	count int           // holder and waiters
}

// New makes turns that nobody holds.
func New[K comparable]() *Turns[K] { return &Turns[K]{held: make(map[K]*turn)} }

// Take waits for key's turn. done ends it and must be called once. The error is the cause of ctx's end; then
// there is no turn to end.
func (t *Turns[K]) Take(ctx context.Context, key K) (done func(), err error) {
	one := t.join(key)
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			t.leave(key, one)
		}, nil
	case <-ctx.Done():
		t.leave(key, one)
		return nil, context.Cause(ctx)
	}
}

// Held is the number of keys that somebody holds or waits for.
func (t *Turns[K]) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}

func (t *Turns[K]) join(key K) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.held[key]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		t.held[key] = one
	}
	one.count++
	return one
}

func (t *Turns[K]) leave(key K, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.count--; one.count == 0 {
		delete(t.held, key)
	}
}
