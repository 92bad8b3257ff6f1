// Package later keeps track of work that its caller need not wait for.
//
// Invariants: work begins at once, in a goroutine of its own; whoever waits, waits for all that had begun.
//
// Non-goals: a queue, a bound on how much runs at once, work that must happen: what runs here may be cut off with
// the process.
package later

import (
	"context"
	"sync"
)

// Work is a set of goroutines. The zero value is ready. Safe for concurrent use; unlike with a sync.WaitGroup, Go
// may be called while others wait.
type Work struct {
	mu      sync.Mutex // guards the rest
	running int
	idle    chan struct{} // closed once nothing runs; nil if nobody waits
}

// Go runs f.
func (w *Work) Go(f func()) {
	w.mu.Lock()
	w.running++
	w.mu.Unlock()
	go func() {
		defer w.end()
		f()
	}()
}

func (w *Work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// Wait returns once nothing runs, or with ctx's error.
func (w *Work) Wait(ctx context.Context) error {
	w.mu.Lock()
	if w.running == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
