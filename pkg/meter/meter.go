package meter

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Meter counts the ops of the stores that it wraps, all together. Safe for concurrent use; counting
// takes no lock.
type Meter struct {
	// rows is replaced, never changed, so that a reader needs no lock. There are few names, and
	// soon no new ones.
	rows atomic.Pointer[map[string]*counters]
	// grow guards the replacing of rows.
	grow  sync.Mutex
	sizes sizes
}

// counters are the counts of one row.
type counters struct {
	calls, ops, errors, refusals, bytes atomic.Int64
	readUnits, writeUnits, gets, puts   atomic.Int64
}

// New makes a meter whose counts are zero.
func New() *Meter {
	m := &Meter{}
	m.rows.Store(&map[string]*counters{})
	return m
}

func (m *Meter) row(name string) *counters {
	if c := (*m.rows.Load())[name]; c != nil {
		return c
	}
	return m.newRow(name)
}

func (m *Meter) newRow(name string) *counters {
	m.grow.Lock()
	defer m.grow.Unlock()
	old := *m.rows.Load()
	// Another goroutine may have added it between the look without the lock and here.
	if c := old[name]; c != nil {
		return c
	}
	next := maps.Clone(old)
	c := &counters{}
	// The name may be built in a buffer of the caller's stack; the map's key must not be.
	next[string([]byte(name))] = c
	m.rows.Store(&next)
	return c
}

// count is one more op of the row.
func (c *counters) count(bytes int, err error) {
	c.ops.Add(1)
	if bytes != 0 {
		c.bytes.Add(int64(bytes))
	}
	if err != nil {
		c.errors.Add(1)
	}
}

// charged reports whether a store charges for a call that ended so. A request that was turned away
// is free; one that was carried out and answered with bad news, or whose answer was lost, is not.
func charged(err error) bool {
	if err == nil {
		return true
	}
	switch queue.KindOf(err) {
	case queue.KindThrottled, queue.KindUnavailable, queue.KindInvalid, queue.KindFull, queue.KindCanceled:
		return false
	default:
		return true
	}
}
