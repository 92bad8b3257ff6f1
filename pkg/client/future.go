package client

import (
	"context"
	"sync"

	"github.com/spillway-mq/spillway/pkg/batch"
)

// Future is one accepted message on its way.
type Future struct {
	record batch.Record
	// cost is what the message counts against MaxInFlightBytes.
	cost int64

	mu sync.Mutex // guards what follows
	// ready is set once; result does not change after it.
	ready  bool
	result Result
	// waiting is made by the first who waits: most futures are done before anyone asks, or nobody
	// asks at all.
	waiting chan struct{}
}

// size is about what the message adds to a batch, in bytes.
func (f *Future) size() int64 {
	const entry = 16 // what the index holds besides key and headers
	return int64(len(f.record.Body) + len(f.record.Key) + len(f.record.Headers) + entry)
}

// Done is closed when the message has its outcome.
func (f *Future) Done() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		f.waiting = make(chan struct{})
		if f.ready {
			close(f.waiting)
		}
	}
	return f.waiting
}

// Wait gives the outcome. Without an error the message is durable. The error is the message's (then
// Result.Err too), or a KindCanceled one if ctx ended first; the message is then still on its way.
func (f *Future) Wait(ctx context.Context) (Result, error) {
	if r, ok := f.Result(); ok {
		return r, r.Err
	}
	select {
	case <-f.Done():
		r, _ := f.Result()
		return r, r.Err
	case <-ctx.Done():
		return Result{}, canceled(ctx, opProduce)
	}
}

// Result gives the outcome if there is one already.
func (f *Future) Result() (r Result, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.result, f.ready
}

// resolve gives the future its outcome and lets go of the caller's memory.
func (f *Future) resolve(r Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record = batch.Record{}
	f.result, f.ready = r, true
	if f.waiting != nil {
		close(f.waiting)
	}
}
