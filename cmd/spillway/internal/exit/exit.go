// Package exit turns the error of a command into an exit code and one line for a person: what went
// wrong, which field and limit it is about, and what to do.
package exit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Code is what the process ends with.
type Code int

// The exit codes; docs/cli.md and `spillway help exit-codes` list them.
const (
	OK          Code = 0
	Failure     Code = 1
	Usage       Code = 2
	NotFound    Code = 3
	Conflict    Code = 4
	Unavailable Code = 5
	Partial     Code = 6
	Interrupted Code = 130
)

// Help is the table of codes as `spillway help exit-codes` prints it.
const Help = `Exit codes:
    0  all went well
    1  failure: something that has no code of its own, such as a refused token or a corrupt file
    2  usage: a command, flag, name or value breaks a rule; nothing was done
    3  not found: no such topic, subscription, message or file
    4  conflict: exists with another config, is sealed, was taken by somebody else
    5  unavailable: no server, no answer in time, throttled; trying again may help
    6  partial: the command went through, but some messages failed
  130  interrupted by a signal
`

// UsageError is a mistake in how the command was called.
type UsageError struct {
	Err error
	// Command is the command's full name, for the pointer to its help.
	Command string
}

// Error is the cause's text.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// PartialError says that some messages failed, and the rest did not.
type PartialError struct {
	Failed, Total uint64
	// What is a verb in the past: "produced".
	What string
	// First is the first failure; nil if it was printed already.
	First error
}

// Error counts.
func (e *PartialError) Error() string {
	s := fmt.Sprintf("%d of %d messages were not %s", e.Failed, e.Total, e.What)
	if e.First != nil {
		s += "; the first: " + Line(e.First, "")
	}
	return s
}

// ErrInterrupted is the cause of a context that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// SilentError ends with a code and prints nothing: what there is to say was said.
type SilentError struct{ Code Code }

// Error is for logs only.
func (e *SilentError) Error() string { return fmt.Sprintf("exit code %d", int(e.Code)) }

// CodeOf finds the exit code of an error.
func CodeOf(err error) Code {
	var usage *UsageError
	var partial *PartialError
	var silent *SilentError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &silent):
		return silent.Code
	case errors.Is(err, ErrInterrupted):
		return Interrupted
	case errors.As(err, &usage):
		return Usage
	case errors.As(err, &partial):
		return Partial
	}
	var e *queue.Error
	if errors.As(err, &e) {
		return codeOfKind(e)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return NotFound
	case errors.Is(err, context.DeadlineExceeded), unreachable(err):
		return Unavailable
	}
	return Failure
}

func codeOfKind(e *queue.Error) Code {
	switch e.Kind {
	case queue.KindNotFound:
		return NotFound
	case queue.KindExists, queue.KindConflict, queue.KindSealed, queue.KindFenced:
		return Conflict
	case queue.KindInvalid, queue.KindTooLarge:
		return Usage
	case queue.KindThrottled, queue.KindUnavailable, queue.KindOutcomeUnknown, queue.KindCanceled, queue.KindFull:
		return Unavailable
	case queue.KindInternal, queue.KindCorrupt, queue.KindDenied:
	}
	if unreachable(e.Err) || errors.Is(e.Err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Failure
}

// unreachable reports whether nothing answers at the address.
func unreachable(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

// Line says what err means, on one line without the program's name. Endpoint is the server's address.
func Line(err error, endpoint string) string {
	var partial *PartialError
	var usage *UsageError
	switch {
	case errors.As(err, &partial):
		return oneLine(err.Error())
	case errors.As(err, &usage):
		line := oneLine(usage.Error())
		if usage.Command != "" {
			line += " (see: " + usage.Command + " --help)"
		}
		return line
	case credentialsLine(err) != "":
		return credentialsLine(err)
	case unreachable(err) && strings.HasPrefix(endpoint, "https://"):
		return fmt.Sprintf("no server at %s : see that the name is right, and the network", endpoint)
	case unreachable(err) && endpoint != "":
		return fmt.Sprintf("no server at %s : start one with: spillway serve", endpoint)
	case errors.Is(err, context.DeadlineExceeded):
		where := ""
		if endpoint != "" {
			where = " from " + endpoint
		}
		return "no answer" + where + " in time; --timeout gives it longer"
	}
	var e *queue.Error
	if !errors.As(err, &e) {
		return oneLine(err.Error())
	}
	line := oneLine(err.Error())
	var api *client.APIError
	if errors.As(err, &api) {
		line = answerLine(api)
	}
	if e.Field != "" && !strings.Contains(line, e.Field) {
		line += " (field " + e.Field + ")"
	}
	if e.Limit != nil && !strings.Contains(line, fmt.Sprint(e.Limit)) {
		line += fmt.Sprintf(" (limit %v)", e.Limit)
	}
	switch hint := hintOf(e.APICode()); {
	case api != nil && api.Advice != "":
		line += "; " + api.Advice
	case hint != "":
		line += "; " + hint
	case api != nil && api.Retryable && api.Code != queue.CodeTooManyInFlight:
		line += "; try again"
	}
	return line
}

// answerLine is an error of the server. Its request id is told only where the server's log says more
// than the answer does.
func answerLine(e *client.APIError) string {
	line := fmt.Sprintf("%s: %s (%s)", e.Op, oneLine(e.Message), e.Code)
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		line += ", request " + e.RequestID
	}
	return line
}

// hintOf says what to do about an error, where that is not plain from the error itself.
func hintOf(c queue.Code) string {
	switch c {
	case queue.CodeTopicNotFound:
		return "create it with: spillway topic create NAME, or see what there is: spillway topic list"
	case queue.CodeSubscriptionNotFound:
		return "create it with: spillway subscription create TOPIC NAME"
	case queue.CodeTopicExists:
		return "see its config with: spillway topic show NAME, and change it with: spillway topic update NAME"
	case queue.CodeSubscriptionExists:
		return "see its config with: spillway subscription show TOPIC NAME"
	case queue.CodeSegmentSealed, queue.CodeSegmentNotFound:
		return "see what there is: spillway segments TOPIC"
	case queue.CodeSegmentBounds:
		return "change the bounds with: spillway topic update TOPIC --min-segments N --max-segments N"
	case queue.CodeUnauthorized:
		return "give the server's token with --token-file FILE or in SPILLWAY_TOKEN"
	case queue.CodeForbidden:
		return "an API Gateway with IAM authorization is called with --auth iam"
	default:
		return ""
	}
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}
