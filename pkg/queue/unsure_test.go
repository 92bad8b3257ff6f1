package queue_test

import (
	"errors"
	"testing"

	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestUnsure(t *testing.T) {
	plain := errors.New("plain")
	of := func(k queue.Kind) error { return &queue.Error{Op: "settle", Subject: "s", Kind: k} }
	for _, c := range []struct {
		err     error
		unknown bool
		want    queue.Kind
	}{
		{of(queue.KindThrottled), true, queue.KindOutcomeUnknown},
		{of(queue.KindUnavailable), true, queue.KindOutcomeUnknown},
		{of(queue.KindCanceled), true, queue.KindOutcomeUnknown},
		{of(queue.KindFull), true, queue.KindOutcomeUnknown},
		{of(queue.KindThrottled), false, queue.KindThrottled},
		{of(queue.KindConflict), true, queue.KindConflict},
		{of(queue.KindOutcomeUnknown), true, queue.KindOutcomeUnknown},
	} {
		got := queue.Unsure(c.err, c.unknown)
		if queue.KindOf(got) != c.want || !errors.Is(got, c.err) {
			t.Errorf("%v, %v: %v", c.err, c.unknown, got)
		}
	}
	if got := queue.Unsure(plain, true); !errors.Is(got, plain) {
		t.Errorf("not ours: %v", got)
	}
	if queue.Unsure(nil, true) != nil {
		t.Error("no error became one")
	}
}
