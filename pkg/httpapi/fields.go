package httpapi

import (
	"errors"
	"strings"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// renameField gives an error about a use case's field the name that this call has for it.
func renameField(err error, from, to string) error {
	var e *queue.Error
	if !errors.As(err, &e) || e.Field != from {
		return err
	}
	renamed := *e
	renamed.Field = to
	if rest, ok := strings.CutPrefix(e.Message, from+": "); ok {
		renamed.Message = to + ": " + rest
	}
	return &renamed
}

// withinEntry takes "messages[3]." off the field of an error that stands in an entry's result: the place says
// it already. The number is not held against the place: results of references count messages, of which a
// batch file before may have many.
func withinEntry(err error, list string) error {
	var e *queue.Error
	if !errors.As(err, &e) {
		return err
	}
	rest, ok := strings.CutPrefix(e.Field, list+"[")
	if !ok {
		return err
	}
	_, field, ok := strings.Cut(rest, "].")
	if !ok {
		return err
	}
	return renameField(err, e.Field, field)
}
