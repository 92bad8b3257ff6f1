package load_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/digest"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/input"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/load"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// late gives results only when it is closed, as a server that is slow would.
type late struct {
	messages []client.Message
	done     []func(client.Result)
	refuse   string
	full     error
}

func (s *late) Send(_ context.Context, m client.Message, done func(client.Result)) error {
	if s.full != nil && len(s.messages) == 1 {
		return s.full
	}
	s.messages = append(s.messages, m)
	s.done = append(s.done, done)
	return nil
}

func (s *late) Close(context.Context) error {
	for i, done := range s.done {
		var r client.Result
		if string(s.messages[i].Body) == s.refuse {
			r.Err = errors.New("refused")
		}
		done(r)
	}
	return nil
}

func lines(t *testing.T, text string) input.Reader {
	t.Helper()
	r, err := input.New(strings.NewReader(text), input.Options{MaxRecordBytes: 400_000})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBodiesOutliveTheReader: the reader uses its memory again while messages are still on their way.
func TestBodiesOutliveTheReader(t *testing.T) {
	var text strings.Builder
	var want digest.Sum
	for i := range 5000 {
		body := fmt.Sprintf("%d %s", i, strings.Repeat("x", i%700))
		if i%1000 == 7 {
			body += strings.Repeat("y", 300_000) // past a slab's share
		}
		want.Add([]byte(body))
		text.WriteString(body + "\n")
	}
	var counts load.Counts
	sum, err := load.Run(t.Context(), lines(t, text.String()), &late{}, load.Options{Checksum: true}, &counts)
	if err != nil || sum != want || counts.Sent.Load() != 5000 || counts.Bytes.Load() != want.Bytes {
		t.Errorf("%v, %d sent, checksum %v, want %v", err, counts.Sent.Load(), sum.String(), want.String())
	}
}

func TestFailures(t *testing.T) {
	long := strings.Repeat("x", 500_000)
	for _, c := range []struct {
		name, text           string
		sender               late
		failFast             bool
		err                  error
		read, sent, failures uint64
	}{
		{name: "a message that is refused is counted", text: "a\nb\nc\n", sender: late{refuse: "b"}, read: 3, sent: 2, failures: 1},
		{name: "a record that is bad is skipped", text: "a\n" + long + "\nc\n", read: 3, sent: 2, failures: 1},
		{name: "the first one can end it", text: "a\n" + long + "\nc\n", failFast: true, err: load.ErrFailFast, read: 2, sent: 1, failures: 1},
		{name: "a sender that takes no more ends it", text: "a\nb\nc\n", sender: late{full: client.ErrClosed}, err: client.ErrClosed, read: 2, sent: 1, failures: 1},
		{name: "nothing", text: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var counts load.Counts
			reported := uint64(0)
			_, err := load.Run(t.Context(), lines(t, c.text), &c.sender,
				load.Options{FailFast: c.failFast, Report: func(int, error) { reported++ }}, &counts)
			if !errors.Is(err, c.err) || err != nil && c.err == nil {
				t.Errorf("error %v, want %v", err, c.err)
			}
			got := [4]uint64{counts.Read.Load(), counts.Sent.Load(), counts.Failed.Load(), reported}
			if want := [4]uint64{c.read, c.sent, c.failures, c.failures}; got != want {
				t.Errorf("read, sent, failed, reported %v, want %v", got, want)
			}
		})
	}
}

// gone refuses all as a server that went away does, and notes that it was told not to wait.
type gone struct {
	late
	aborted bool
}

func (s *gone) Send(ctx context.Context, m client.Message, done func(client.Result)) error {
	done(client.Result{Err: &queue.Error{Op: "produce", Kind: queue.KindUnavailable}})
	return s.late.Send(ctx, m, func(client.Result) {})
}

func (s *gone) Close(ctx context.Context) error {
	s.aborted = ctx.Err() != nil
	return nil
}

func TestAServerThatIsGoneEndsIt(t *testing.T) {
	var counts load.Counts
	s := &gone{}
	_, err := load.Run(t.Context(), lines(t, "a\nb\nc\n"), s, load.Options{}, &counts)
	if !queue.Is(err, queue.KindUnavailable) || counts.Read.Load() != 1 || !s.aborted {
		t.Errorf("%v after %d records, aborted %v", err, counts.Read.Load(), s.aborted)
	}
}

func TestTheEndOfTheContextEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	cancel(cause)
	var counts load.Counts
	if _, err := load.Run(ctx, lines(t, "a\n"), &late{}, load.Options{}, &counts); !errors.Is(err, cause) {
		t.Errorf("%v, want the cause", err)
	}
}
