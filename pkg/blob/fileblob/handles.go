package fileblob

import (
	"container/list"
	"errors"
	"sync"
)

// handles keeps packs open for reading and for marking deletions, the most recently used ones.
type handles struct {
	disk disk
	max  int

	mu   sync.Mutex // guards all below and every handle's refs, stale and place
	open map[uint32]*handle
	// order has the most recently used handle in front.
	order *list.List
}

type handle struct {
	owner *handles
	seq   uint32
	f     file
	refs  int
	stale bool // no longer in the map; the last release closes it
	place *list.Element
}

func newHandles(d disk, limit int) *handles {
	return &handles{disk: d, max: limit, open: map[uint32]*handle{}, order: list.New()}
}

func (hs *handles) count() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.open)
}

// acquire gives an open handle of a pack; the caller must release it. The error is that of the disk.
func (hs *handles) acquire(seq uint32) (*handle, error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h, ok := hs.open[seq]; ok {
		h.refs++
		hs.order.MoveToFront(h.place)
		return h, nil
	}
	// Opening under the lock makes others wait some microseconds, and never opens a pack twice.
	f, err := hs.disk.Open(packName(seq), false)
	if err != nil {
		return nil, err
	}
	h := &handle{owner: hs, seq: seq, f: f, refs: 1}
	h.place = hs.order.PushFront(h)
	hs.open[seq] = h
	hs.evict()
	return h, nil
}

// evict closes the least recently used handles that nobody holds until at most max are open.
func (hs *handles) evict() {
	for e := hs.order.Back(); e != nil && len(hs.open) > hs.max; {
		h := e.Value.(*handle)
		e = e.Prev()
		if h.refs == 0 {
			_ = hs.remove(h)
		}
	}
}

// remove takes h out of the map and closes it when it is free.
func (hs *handles) remove(h *handle) error {
	delete(hs.open, h.seq)
	hs.order.Remove(h.place)
	h.stale = true
	if h.refs > 0 {
		return nil
	}
	return h.f.Close()
}

func (h *handle) release() {
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	h.refs--
	if h.stale && h.refs == 0 {
		_ = h.f.Close() // it was read, or synced before; there is nothing to lose
	}
	h.owner.evict()
}

// drop forgets the handle of a pack that is removed.
func (hs *handles) drop(seq uint32) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h, ok := hs.open[seq]; ok {
		_ = hs.remove(h)
	}
}

func (hs *handles) close() error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var errs []error
	for _, h := range hs.open {
		errs = append(errs, hs.remove(h))
	}
	return errors.Join(errs...)
}
