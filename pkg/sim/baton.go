package sim

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// baton lets one goroutine at a time go on. Where several wake at once (a timer, a lock, a shared load
// that ended), whichever came first would get the next lock, or lead the next shared load, and a run
// would not be repeatable. So whoever reads the clock, draws an id or looks at its context without
// having the baton waits until the scheduler hands it over, in the order of the ops.
type baton struct {
	mu      sync.Mutex // guards what follows
	holder  string
	waiting []*waiter
	over    bool
}

type waiter struct {
	label, id string
	turn      chan struct{}
}

// yield waits for the baton; the goroutine that has it goes on at once.
func (b *baton) yield(label, id string) {
	if label == scheduler {
		return
	}
	b.mu.Lock()
	if b.over || b.holder == id {
		b.mu.Unlock()
		return
	}
	w := &waiter{label, id, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	<-w.turn
}

// give makes a goroutine the holder.
func (b *baton) give(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holder = id
}

// next hands the baton to the first who waits; false if nobody does. Goroutines of one op are started in
// the order of their numbers.
func (b *baton) next() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return false
	}
	slices.SortFunc(b.waiting, func(a, o *waiter) int {
		return cmp.Or(cmp.Compare(a.label, o.label), cmp.Compare(len(a.id), len(o.id)), cmp.Compare(a.id, o.id))
	})
	w := b.waiting[0]
	b.waiting = b.waiting[1:]
	b.holder = w.id
	close(w.turn)
	return true
}

// end lets everybody go on.
func (b *baton) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for _, w := range b.waiting {
		close(w.turn)
	}
	b.waiting = nil
}

// scheduler is the label of the scheduler's own goroutine.
const scheduler = "scheduler"

// yielding is an op's context: whoever looks at it needs the baton.
type yielding struct {
	context.Context
	world *world
}

// Done implements context.Context.
func (c *yielding) Done() <-chan struct{} {
	c.world.yield()
	return c.Context.Done()
}

// Err implements context.Context.
func (c *yielding) Err() error {
	c.world.yield()
	return c.Context.Err()
}

func (w *world) yield() { w.baton.yield(w.ids.find()) }

// clock is an instance's.
func (w *world) clock(skew time.Duration) func() time.Time {
	return func() time.Time {
		w.yield()
		return time.Now().Add(skew)
	}
}
