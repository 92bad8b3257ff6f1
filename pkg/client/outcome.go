package client

import (
	"errors"
	"fmt"
	"time"
)

// RetryError is a handler's way to say when the message is to come back.
type RetryError struct {
	// After is how long the message stays hidden, 0 to queue.MaxVisibilityTimeout.
	After time.Duration
	Err   error
}

// RetryAfter makes a handler's error release the message for delivery after d, in place of the
// subscription's backoff.
func RetryAfter(d time.Duration, err error) error { return &RetryError{After: d, Err: err} }

// Error is the cause's.
func (e *RetryError) Error() string { return fmt.Sprintf("retry after %v: %v", e.After, e.Err) }

// Unwrap gives the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// DeadLetterError is a handler's way to say that a message will never be handled.
type DeadLetterError struct{ Err error }

// DeadLetter makes a handler's error send the message to the dead-letter topic now.
func DeadLetter(err error) error { return &DeadLetterError{Err: err} }

// Error is the cause's.
func (e *DeadLetterError) Error() string { return fmt.Sprintf("dead letter: %v", e.Err) }

// Unwrap gives the cause.
func (e *DeadLetterError) Unwrap() error { return e.Err }

// PanicError is a panic of a handler.
type PanicError struct {
	Value any
	Stack []byte
}

// Error says what the handler panicked with.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// MessageError is what a Consumer reports about one message.
type MessageError struct {
	ID  MessageID
	Err error
}

// Error names the message.
func (e *MessageError) Error() string { return fmt.Sprintf("message %s: %v", e.ID, e.Err) }

// Unwrap gives the cause.
func (e *MessageError) Unwrap() error { return e.Err }

// releaseOf says how a message is given back whose handler failed.
func releaseOf(err error) ReleaseOptions {
	o := ReleaseOptions{Reason: err.Error()}
	var retry *RetryError
	var dead *DeadLetterError
	switch {
	case errors.As(err, &dead):
		o.DeadLetter, o.Reason = true, fmt.Sprint(dead.Err)
	case errors.As(err, &retry):
		o.Delay, o.HasDelay, o.Reason = max(retry.After, 0), true, fmt.Sprint(retry.Err)
	}
	return o
}
