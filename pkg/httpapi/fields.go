package httpapi

import (
	"errors"
	"strconv"
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

// withinEntry takes "messages[3]." off the field of an error that stands in result 3: the place says
// it already.
func withinEntry(err error, list string, i int) error {
	var e *queue.Error
	if !errors.As(err, &e) {
		return err
	}
	field, ok := strings.CutPrefix(e.Field, list+"["+strconv.Itoa(i)+"].")
	if !ok {
		return err
	}
	return renameField(err, e.Field, field)
}
