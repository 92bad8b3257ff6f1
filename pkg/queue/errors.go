package queue

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what sort of failure an Error is. Whether a caller may try again follows from the kind.
type Kind uint8

// The kinds of failure. Drivers translate each store error into one of these, once.
const (
	// KindInternal is a fault of ours: a bug, or a failure nobody foresaw.
	KindInternal Kind = iota
	// KindNotFound: the subject does not exist.
	KindNotFound
	// KindExists: the subject exists already and may not be replaced.
	KindExists
	// KindConflict: the subject is not in the state that the call asked for.
	KindConflict
	// KindFenced: the caller's epoch is old; what it wrote had no effect.
	KindFenced
	// KindSealed: the segment or topic takes no more appends.
	KindSealed
	// KindInvalid: the caller's input breaks a rule; trying again cannot help.
	KindInvalid
	// KindTooLarge: the input is past a size limit.
	KindTooLarge
	// KindThrottled: too much at once; try again after a pause.
	KindThrottled
	// KindUnavailable: the store did not do it; nothing was changed. Try again.
	KindUnavailable
	// KindCorrupt: stored bytes fail their checksum or cannot be decoded.
	KindCorrupt
	// KindOutcomeUnknown: the write may or may not have taken effect. Read before deciding.
	KindOutcomeUnknown
	// KindDenied: the caller has not shown the right to do it.
	KindDenied
	// KindFull: the storage has no room; nothing was changed.
	KindFull
	// KindCanceled: the caller went away or its time ran out before an outcome.
	KindCanceled
)

var kindNames = [...]string{
	KindInternal: "internal", KindNotFound: "not found", KindExists: "exists", KindConflict: "conflict",
	KindFenced: "fenced", KindSealed: "sealed", KindInvalid: "invalid", KindTooLarge: "too large",
	KindThrottled: "throttled", KindUnavailable: "unavailable", KindCorrupt: "corrupt",
	KindOutcomeUnknown: "outcome unknown", KindDenied: "denied", KindFull: "storage full",
	KindCanceled: "canceled",
}

// String names the kind in words, for logs and error texts.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error is the one error type of Spillway. The zero Code means "the default code of the kind".
type Error struct {
	// Op is what was being done, as a short verb phrase: "commit head".
	Op string
	// Subject is what it was done to: a topic name, a segment id, an object key. Never a payload.
	Subject string
	Kind    Kind
	// Code is the word that the HTTP API answers with.
	Code Code
	// Message says to a person what is wrong and what to do; it may be empty.
	Message string
	// Field names the offending input field, as in "messages[3].ttl"; empty where none is.
	Field string
	// Limit is the bound that Field broke; nil where there is none.
	Limit any
	// RetryAfter is how long to wait before trying again; zero where the caller may choose.
	RetryAfter time.Duration
	// Err is the cause; nil where this error is the first.
	Err error
}

// Error renders "op subject: message: cause"; parts that are empty are left out.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Subject != "" {
		fmt.Fprintf(&b, " %q", e.Subject)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	switch {
	case e.Message != "":
		b.WriteString(e.Message)
	case e.Code != "":
		b.WriteString(string(e.Code))
	default:
		b.WriteString(e.Kind.String())
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// APICode is the code that a caller is answered with: Code, or the default of the kind.
func (e *Error) APICode() Code {
	if e.Code != "" {
		return e.Code
	}
	return defaultCode(e.Kind)
}

// KindOf finds the kind of the outermost *Error in err's chain; KindInternal if there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindInternal
}

// Is reports whether err's chain holds an *Error whose outermost kind is k.
func Is(err error, k Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == k
}

// CodeOf is the API code of err's outermost *Error; CodeInternal if there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.APICode()
	}
	return CodeInternal
}

// Retryable reports whether the same call may succeed if it is made again as it is.
func Retryable(err error) bool {
	return err != nil && CodeOf(err).Retryable()
}

// Unsure is how a call's last error is to be told where an earlier try of the call may have taken effect (unknown):
// an error that says that nothing was done becomes OutcomeUnknown. Others stay, as they tell of what there is.
func Unsure(err error, unknown bool) error {
	if !unknown {
		return err
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	switch e.Kind {
	case KindUnavailable, KindThrottled, KindCanceled, KindFull, KindTooLarge:
		return &Error{
			Op: e.Op, Subject: e.Subject, Kind: KindOutcomeUnknown, Err: err,
			Message: "an earlier try may have taken effect, and the last one failed",
		}
	default:
		return err
	}
}

// Invalid is a KindInvalid error about one input field. Limit may be nil.
func Invalid(field string, limit any, format string, args ...any) *Error {
	return &Error{
		Kind: KindInvalid, Code: CodeInvalidArgument, Field: field, Limit: limit,
		Message: field + ": " + fmt.Sprintf(format, args...),
	}
}

// TooLarge is a KindTooLarge error: field is past limit (in the unit that the field is given in).
func TooLarge(field string, limit int64, got int64) *Error {
	return &Error{
		Kind: KindTooLarge, Code: CodeTooLarge, Field: field, Limit: limit,
		Message: fmt.Sprintf("%s: %d is over the limit of %d", field, got, limit),
	}
}
