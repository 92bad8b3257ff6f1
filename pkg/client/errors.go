package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// CodeError is a code of the API as an error, to be looked for with errors.Is. Any code may be
// converted to it; the usual ones have names below.
type CodeError queue.Code

// Error is the code itself.
func (e CodeError) Error() string { return string(e) }

// The codes that callers usually look for. queue.Codes lists all of them.
const (
	ErrInvalidArgument      = CodeError(queue.CodeInvalidArgument)
	ErrUnauthorized         = CodeError(queue.CodeUnauthorized)
	ErrForbidden            = CodeError(queue.CodeForbidden)
	ErrTopicNotFound        = CodeError(queue.CodeTopicNotFound)
	ErrTopicExists          = CodeError(queue.CodeTopicExists)
	ErrTopicSealed          = CodeError(queue.CodeTopicSealed)
	ErrSubscriptionNotFound = CodeError(queue.CodeSubscriptionNotFound)
	ErrSubscriptionExists   = CodeError(queue.CodeSubscriptionExists)
	ErrSegmentSealed        = CodeError(queue.CodeSegmentSealed)
	ErrSegmentBounds        = CodeError(queue.CodeSegmentBounds)
	ErrSegmentNotFound      = CodeError(queue.CodeSegmentNotFound)
	ErrMessageNotFound      = CodeError(queue.CodeMessageNotFound)
	ErrDelayedNotFound      = CodeError(queue.CodeDelayedNotFound)
	ErrAlreadyPromoted      = CodeError(queue.CodeAlreadyPromoted)
	ErrClaimLost            = CodeError(queue.CodeClaimLost)
	ErrTooLarge             = CodeError(queue.CodeTooLarge)
	ErrThrottled            = CodeError(queue.CodeThrottled)
	ErrTooManyInFlight      = CodeError(queue.CodeTooManyInFlight)
	ErrUnavailable          = CodeError(queue.CodeUnavailable)
	ErrOutcomeUnknown       = CodeError(queue.CodeOutcomeUnknown)
)

// ErrClosed is what a Producer answers after Close.
var ErrClosed = errors.New("producer is closed")

// APIError is an error that the server answered with, for a call or for one entry of it.
type APIError struct {
	// Op is what the client was doing, as in "create topic".
	Op string
	// Status is the HTTP status; of an entry's error, the one that goes with its code.
	Status  int
	Code    queue.Code
	Message string
	// Field names the field that broke a rule, Limit is the rule's bound; each may be absent.
	Field string
	Limit any
	// Retryable: the same call may succeed if it is made again as it is.
	Retryable bool
	// RetryAfter is how long the server asks to wait; 0 if it does not say.
	RetryAfter time.Duration
	// RequestID names the call in the server's log; empty in an entry's error.
	RequestID string
	// Advice is what the Signer says to do about a call that was refused before it reached the server.
	Advice string

	// gateway is what something before the server said, in its own words.
	gateway string
}

// Error says what failed, with the code and, where there is one, the request id.
func (e *APIError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Op, e.Code)
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", e.RequestID)
	}
	if e.Advice != "" {
		fmt.Fprintf(&b, "; %s", e.Advice)
	}
	return b.String()
}

// Is lets errors.Is find a CodeError.
func (e *APIError) Is(target error) bool {
	code, ok := target.(CodeError)
	return ok && queue.Code(code) == e.Code
}

// Unwrap gives the error in the domain's terms, so that queue.Is and queue.CodeOf work.
func (e *APIError) Unwrap() error {
	return &queue.Error{
		Op: e.Op, Kind: wire.KindOf(e.Code), Code: e.Code, Message: e.Message, Field: e.Field,
		Limit: e.Limit, RetryAfter: e.RetryAfter,
	}
}

// apiError gives an entry's error; nil for nil.
func apiError(op string, e *wire.Error) error {
	if e == nil {
		return nil
	}
	return newAPIError(op, e)
}

func newAPIError(op string, e *wire.Error) *APIError {
	out := &APIError{Op: op, Status: e.Code.Status(), Code: e.Code, Message: e.Message, Retryable: e.Retryable}
	if d := e.Details; d != nil {
		out.Field, out.Limit = d.Field, d.Limit
		out.RetryAfter = time.Duration(d.RetryAfter * float64(time.Second))
	}
	return out
}

// failure is what went wrong on this side of the API: errors.Is finds its code, too.
type failure struct{ err *queue.Error }

// Error is the domain error's.
func (f *failure) Error() string { return f.err.Error() }

// Is lets errors.Is find a CodeError.
func (f *failure) Is(target error) bool {
	code, ok := target.(CodeError)
	return ok && queue.Code(code) == f.err.APICode()
}

// Unwrap gives the error in the domain's terms.
func (f *failure) Unwrap() error { return f.err }

// canceled is the error of a call that the caller's context ended.
func canceled(ctx context.Context, op string) error {
	return &failure{&queue.Error{Op: op, Kind: queue.KindCanceled, Err: ctx.Err()}}
}

// transportError is what a call failed with on the way. parent is the caller's context: the end of a
// try's own time is not the caller's doing.
func transportError(parent context.Context, op string, err error) error {
	out := &queue.Error{Op: op, Kind: queue.KindOutcomeUnknown, Message: "the server gave no answer", Err: err}
	var dial *net.OpError
	switch {
	case parent.Err() != nil:
		out.Kind, out.Message, out.Err = queue.KindCanceled, "", parent.Err()
	case errors.As(err, &dial) && dial.Op == "dial":
		out.Kind, out.Message = queue.KindUnavailable, "the server cannot be reached"
	}
	return &failure{out}
}

// malformed is an answer that does not have the form which the API says.
func malformed(op string, err error) error {
	return &failure{&queue.Error{Op: op, Kind: queue.KindCorrupt, Message: "the server's answer is malformed", Err: err}}
}

func retryAfterOf(err error) time.Duration {
	var api *APIError
	if errors.As(err, &api) {
		return api.RetryAfter
	}
	return 0
}

// retryable reports whether the call that gave err may be made again; repeatable says that doing it
// twice is as good as once.
func retryable(err error, repeatable bool) bool {
	var api *APIError
	if errors.As(err, &api) {
		switch api.Code {
		case queue.CodeOutcomeUnknown, queue.CodeCanceled, queue.CodeInternal:
			// CodeInternal carries Retryable only where no Spillway server gave the answer.
			return api.Retryable && repeatable
		case queue.CodeTooManyInFlight:
			return false // only the caller's own acks can help
		}
		return api.Retryable
	}
	switch queue.KindOf(err) {
	case queue.KindUnavailable:
		return true
	case queue.KindOutcomeUnknown:
		return repeatable
	default:
		return false
	}
}

// ambiguous reports whether the call that gave err may have taken effect.
func ambiguous(err error) bool {
	switch queue.KindOf(err) {
	case queue.KindOutcomeUnknown, queue.KindCanceled:
		return true
	default:
		return false
	}
}
