package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// lane sends messages in order, one call at a time, as one idempotent producer.
type lane struct {
	p     *Producer
	index uint32
	// slots is the lane's part of the ring. Records without a key get a slot of it, too: they then
	// cost no head update besides those of the batch's other records.
	slots queue.SlotRange

	// What follows belongs to run alone.
	id       string // the producer id
	sequence uint64
	encoder  *batch.Encoder
	buffer   []byte    // of the last encoded batch, if it may be used again
	group    []*Future // the messages of the call under way
	added    []*Future // those of them that the encoder took

	// busy: a call is under way. queued: the bytes that wait. They steer messages without a key and
	// may be behind.
	busy   atomic.Bool
	queued atomic.Int64

	wake chan struct{} // holds a token if run has to look again

	mu sync.Mutex // guards what follows
	// pending[head:] waits, oldest first; since is when pending[head] or one before it came.
	pending []*Future
	head    int
	since   time.Time
	closed  bool
	// accepted and done count messages; those up to flushTo do not linger.
	accepted, done, flushTo uint64
	// progress, if anyone waits, is closed when done grows.
	progress chan struct{}
}

func newLane(p *Producer, slots queue.SlotRange) *lane {
	return &lane{
		p: p, index: uint32(len(p.lanes)), slots: slots, id: p.client.ids.ID(), // #nosec G115 -- at most maxLanes
		encoder: batch.NewEncoder(batch.Options{Codec: p.options.Codec}), wake: make(chan struct{}, 1),
	}
}

// add queues a message; false after close.
func (l *lane) add(f *Future) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	first := l.head == len(l.pending)
	if first {
		l.since = time.Now()
	}
	l.pending = append(l.pending, f)
	l.accepted++
	size := f.size()
	before := l.queued.Add(size) - size
	// run has to look when there is something to linger for, and when it need not linger any more.
	full := before < l.p.options.MaxBatchBytes && before+size >= l.p.options.MaxBatchBytes ||
		len(l.pending)-l.head == l.p.options.MaxBatchMessages
	l.mu.Unlock()
	if first || full {
		l.nudge()
	}
	return true
}

func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// full reports whether what waits makes a batch, by its bytes. It is a hint.
func (l *lane) full() bool { return l.queued.Load() >= l.p.options.MaxBatchBytes }

// flush lets what was accepted go without lingering; it gives the count to wait for.
func (l *lane) flush() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushTo = l.accepted
	l.nudge()
	return l.accepted
}

// wait waits until target messages are done; false if ctx ended first.
func (l *lane) wait(ctx context.Context, target uint64) bool {
	for {
		l.mu.Lock()
		if l.done >= target {
			l.mu.Unlock()
			return true
		}
		if l.progress == nil {
			l.progress = make(chan struct{})
		}
		progress := l.progress
		l.mu.Unlock()
		select {
		case <-progress:
		case <-ctx.Done():
			return false
		}
	}
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.nudge()
}

// run sends until the lane is closed and empty.
func (l *lane) run(ctx context.Context) {
	for l.next() {
		l.busy.Store(true)
		l.deliver(ctx)
		l.finish()
		l.busy.Store(false)
	}
}

// next waits for messages that are to be sent now and moves them to group; false at the end.
func (l *lane) next() bool {
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		l.mu.Lock()
		waiting := len(l.pending) - l.head
		linger := l.p.options.Linger - time.Since(l.since)
		switch {
		case waiting > 0 && (linger <= 0 || l.closed || l.done < l.flushTo || l.full() || waiting >= l.p.options.MaxBatchMessages):
			l.cut()
			l.mu.Unlock()
			return true
		case waiting == 0 && l.closed:
			l.mu.Unlock()
			return false
		}
		l.mu.Unlock()
		var due <-chan time.Time
		if waiting > 0 {
			if timer == nil {
				timer = time.NewTimer(linger)
			} else {
				timer.Reset(linger)
			}
			due = timer.C
		}
		select {
		case <-l.wake:
		case <-due:
		}
	}
}

// cut moves the oldest messages to group: either small ones that make a batch, or large ones that go
// by reference. The two do not mix, which keeps the order. Called under mu.
func (l *lane) cut() {
	o := &l.p.options
	l.group = l.group[:0]
	bytes, large := int64(0), l.large(l.pending[l.head])
	for _, f := range l.pending[l.head:] {
		limit := o.MaxBatchMessages
		if large {
			limit = queue.MaxReferences
		}
		if len(l.group) == limit || l.large(f) != large || !large && len(l.group) > 0 && bytes+f.size() > o.MaxBatchBytes {
			break
		}
		bytes += f.size()
		l.group = append(l.group, f)
	}
	clear(l.pending[l.head : l.head+len(l.group)])
	l.head += len(l.group)
	l.queued.Add(-bytes)
	switch {
	case l.head == len(l.pending):
		l.pending, l.head = l.pending[:0], 0
	case l.head > len(l.pending)/2:
		// Moved less often than there are messages in front, so it costs little for each.
		n := copy(l.pending, l.pending[l.head:])
		clear(l.pending[n:])
		l.pending, l.head = l.pending[:n], 0
	}
}

func (l *lane) large(f *Future) bool { return int64(len(f.record.Body)) > l.p.options.ReferenceAbove }

// finish counts group as done.
func (l *lane) finish() {
	total := int64(0)
	for _, f := range l.group {
		total += f.cost
	}
	l.p.budget.release(total)
	n := uint64(len(l.group))
	clear(l.group)
	clear(l.added)
	l.group, l.added = l.group[:0], l.added[:0]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done += n
	if l.progress != nil {
		close(l.progress)
		l.progress = nil
	}
}

// resolve gives one message its outcome.
func (l *lane) resolve(f *Future, r Result) {
	if r.Err != nil {
		l.p.fail(r.Err)
	}
	f.resolve(r)
}
