package client

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// fetchRetry is how long a message stays hidden whose body could not be fetched for the store's sake.
const fetchRetry = time.Second

// handleAll works on a message and on what is tied to it, one after another. Once one was not done the
// rest goes back: it comes again behind that one.
func (r *running) handleAll(d *delivery) {
	done := true
	for ; d != nil; d = d.next {
		if done {
			done = r.handle(d)
			continue
		}
		r.release(d, ReleaseOptions{HasDelay: true, Uncounted: true, Reason: "an earlier message of the key was not done"})
		r.give(1)
	}
}

// handle works on one message, to its outcome; it reports whether the message is done.
func (r *running) handle(d *delivery) bool {
	defer r.give(1)
	select {
	case <-r.draining:
		r.release(d, ReleaseOptions{HasDelay: true, Uncounted: true, Reason: "consumer is stopping"})
		return false
	default:
	}
	if d.message.Err != nil {
		r.report(d, d.message.Err)
		r.release(d, releaseOf(d.message.Err))
		return false
	}
	ctx, ok := r.holds.start(r.handlers, d)
	if !ok {
		r.report(d, ErrClaimLost)
		return false
	}
	err := r.attend(ctx, d.message)
	if lost := r.holds.stop(d); lost {
		r.report(d, errors.Join(ErrClaimLost, err))
		return false
	}
	if err == nil {
		r.acks.in <- settling{d: d, ack: true}
		return true
	}
	r.report(d, err)
	o := releaseOf(err)
	var fetch *fetchError
	switch {
	case r.handlers.Err() != nil:
		o.Uncounted = true // the drain cut it off
	case errors.As(err, &fetch) && retryable(fetch.error, true):
		// The store's fault, not the message's: it must not end as a dead letter for it.
		o.Uncounted, o.Delay, o.HasDelay = true, fetchRetry, true
	}
	r.release(d, o)
	return false
}

func (r *running) release(d *delivery, o ReleaseOptions) {
	r.acks.in <- settling{d: d, release: o}
}

func (r *running) report(d *delivery, err error) {
	r.options.OnError(&MessageError{ID: d.message.ID, Err: err})
}

// fetchError is the error of a body that could not be fetched.
type fetchError struct{ error }

func (e *fetchError) Unwrap() error { return e.error }

// attend fetches a small body, and runs the handler. A panic is an error.
func (r *running) attend(ctx context.Context, m *Received) (err error) {
	if m.ByReference() && m.Size >= 0 && m.Size <= r.options.FetchBelow {
		body, err := m.Bytes(ctx)
		if err != nil {
			return &fetchError{err}
		}
		if m.Body = body; body == nil {
			m.Body = []byte{} // nil would mean that it is still to be fetched
		}
	}
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return r.handler(ctx, m)
}

// claimLost reports whether an error about a receipt means that the message is not ours any more.
func claimLost(err error) bool { return queue.CodeOf(err) == queue.CodeClaimLost }
