package wire

import (
	"errors"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// ErrorAnswer is the body of every answer that is not a success.
type ErrorAnswer struct {
	Error Error `json:"error"`
}

// Error says what went wrong, with a call or with one entry of it.
type Error struct {
	Code    queue.Code `json:"code"`
	Message string     `json:"message"`
	// Retryable: the same call may succeed if it is made again as it is.
	Retryable bool     `json:"retryable"`
	Details   *Details `json:"details,omitempty"`
}

// Details says which field broke which limit, and how long to wait.
type Details struct {
	Field string `json:"field,omitempty"`
	// Limit is a number or a string.
	Limit any `json:"limit,omitempty"`
	// RetryAfter is in seconds.
	RetryAfter float64 `json:"retry_after,omitempty"`
}

// ErrorOf renders an error. Of one that is not a *queue.Error, and of one that is the server's own
// fault, a caller learns the code alone.
func ErrorOf(err error) *Error {
	var e *queue.Error
	if !errors.As(err, &e) {
		return &Error{Code: queue.CodeInternal, Message: publicMessage(queue.CodeInternal)}
	}
	out := &Error{Code: e.APICode(), Retryable: e.APICode().Retryable(), Message: messageOf(e)}
	if out.Code.Status() == queue.CodeInternal.Status() {
		out.Message = publicMessage(out.Code)
		return out
	}
	if e.Field != "" || e.Limit != nil || e.RetryAfter > 0 {
		out.Details = &Details{Field: e.Field, Limit: e.Limit, RetryAfter: e.RetryAfter.Seconds()}
	}
	return out
}

// messageOf leaves out operation and cause: they speak of stores and keys that are no caller's
// business, and the log has them.
func messageOf(e *queue.Error) string {
	switch {
	case e.Message == "" && e.Subject == "":
		return publicMessage(e.APICode())
	case e.Message == "":
		return e.Subject + ": " + publicMessage(e.APICode())
	default:
		return e.Message
	}
}

func publicMessage(c queue.Code) string { return c.Info().Doc }

// Err is the error as the domain's type, for a client; op is what the client was doing.
func (e *Error) Err(op string) *queue.Error {
	out := &queue.Error{Op: op, Kind: KindOf(e.Code), Code: e.Code, Message: e.Message}
	if d := e.Details; d != nil {
		out.Field, out.Limit = d.Field, d.Limit
		out.RetryAfter = time.Duration(d.RetryAfter * float64(time.Second))
	}
	return out
}

// KindOf is the kind that goes with a code, for a client that was answered with it.
func KindOf(c queue.Code) queue.Kind {
	switch c {
	case queue.CodeInvalidArgument, queue.CodeUnsupportedMediaType, queue.CodeObjectInvalid,
		queue.CodeIdempotencyMismatch, queue.CodeMethodNotAllowed:
		return queue.KindInvalid
	case queue.CodeUnauthorized, queue.CodeForbidden:
		return queue.KindDenied
	case queue.CodeTopicExists, queue.CodeSubscriptionExists, queue.CodeExists:
		return queue.KindExists
	case queue.CodeTopicSealed:
		return queue.KindSealed
	case queue.CodeFenced:
		return queue.KindFenced
	case queue.CodeTooLarge:
		return queue.KindTooLarge
	case queue.CodeThrottled, queue.CodeTooManyInFlight:
		return queue.KindThrottled
	case queue.CodeUnavailable:
		return queue.KindUnavailable
	case queue.CodeOutcomeUnknown:
		return queue.KindOutcomeUnknown
	case queue.CodeStorageFull:
		return queue.KindFull
	case queue.CodeCorrupt:
		return queue.KindCorrupt
	case queue.CodeCanceled:
		return queue.KindCanceled
	}
	switch c.Status() {
	case 404:
		return queue.KindNotFound
	case 409:
		return queue.KindConflict
	}
	return queue.KindInternal
}
