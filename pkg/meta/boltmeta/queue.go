package boltmeta

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The states of a request. It leaves waiting once: the committer takes it or its caller gives up.
const (
	waiting int32 = iota
	taken
	canceled
)

type request struct {
	ops   []meta.Op
	state atomic.Int32
	done  chan struct{} // closed by the committer, after it has set results and err
	// results and err belong to the committer until done is closed.
	results []meta.Result
	err     error
}

func newRequest(ops []meta.Op) *request {
	return &request{ops: ops, done: make(chan struct{})}
}

func (r *request) take() bool   { return r.state.CompareAndSwap(waiting, taken) }
func (r *request) cancel() bool { return r.state.CompareAndSwap(waiting, canceled) }

// grows reports whether the request adds to the file: what only gives messages out, settles or removes
// them does not, but for the pages it changes.
func (r *request) grows() bool {
	return slices.ContainsFunc(r.ops, func(op meta.Op) bool {
		switch op.(type) {
		case meta.Append, meta.Put:
			return true
		default:
			return false
		}
	})
}

// requestQueue hands requests to the committer.
type requestQueue struct {
	limit int
	wake  chan struct{} // holds a token when there may be something to do

	closed atomic.Bool // changes under mu

	mu      sync.Mutex // guards what is below
	waiting []*request
}

func (q *requestQueue) init(limit int) {
	q.limit = limit
	q.wake = make(chan struct{}, 1)
}

func (q *requestQueue) add(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() {
		return errClosed()
	}
	if len(q.waiting) >= q.limit {
		return &queue.Error{Op: "queue request", Kind: queue.KindThrottled, Message: "too many requests wait for the disk"}
	}
	q.waiting = append(q.waiting, r)
	q.signal()
	return nil
}

func (q *requestQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take gives up to n requests and whether the queue is closed and this was its end. into is a slice
// to use again.
func (q *requestQueue) take(n int, into []*request) (batch []*request, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.waiting))
	batch = into[:0]
	batch = append(batch, q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:]) // for the garbage collector
	q.waiting = q.waiting[:rest]
	if rest > 0 {
		q.signal()
	}
	return batch, q.closed.Load() && rest == 0
}

func (q *requestQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// close refuses further requests; false if it was closed before.
func (q *requestQueue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.signal()
	return !q.closed.Swap(true)
}
