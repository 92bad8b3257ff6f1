// Package load sends the records of an input as messages: the loop of `spillway produce`.
//
// Invariants: memory is bounded by the sender's, whatever the length of the input; every record ends
// as exactly one of sent or failed; Run returns when all have.
package load

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/digest"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/input"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Sender takes messages over. Send blocks while it has as many as it may hold, and calls done once
// with each message's result, from any goroutine; an error means that the message was not taken.
// Close returns when every message taken has its result.
type Sender interface {
	Send(ctx context.Context, m client.Message, done func(client.Result)) error
	Close(ctx context.Context) error
}

// Options say what every message gets, and when to stop.
type Options struct {
	Headers map[string]string
	Delay   *time.Duration
	TTL     time.Duration
	// FailFast stops at the first bad record or failed message.
	FailFast bool
	// Checksum adds up the bodies of the messages that were sent.
	Checksum bool
	// Report, if set, hears of each bad record and failed message; from any goroutine.
	Report func(line int, err error)
}

// Counts are what a run has come to, readable while it goes on.
type Counts struct {
	// Read counts records, bad ones included; Sent, Bytes (of their bodies) and Failed count
	// messages with a result.
	Read, Sent, Bytes, Failed atomic.Uint64
	// Keyless counts messages without a key, Ignored those whose delay the topic does not honour.
	Keyless, Ignored atomic.Uint64
}

// ErrFailFast ends a run that was told to stop at the first failure, which has been reported.
var ErrFailFast = errors.New("stopped at the first failure")

// slabBytes is how much memory is taken at once for bodies and keys, which the reader uses again.
const slabBytes = 1 << 20

// run is one run's state.
type run struct {
	options Options
	counts  *Counts
	sum     digest.Shared
	slab    []byte
	// stop ends the reading, abort also what is on its way.
	stop  context.CancelCauseFunc
	abort context.CancelFunc
	// gone is set by the first message that the server did not take in time: the failures after
	// it say nothing new.
	gone atomic.Bool
}

// Run sends every record that r gives. The error is that of the input, of FailFast, or of a message
// that the sender did not take; messages that failed by themselves are only counted.
func Run(ctx context.Context, r input.Reader, s Sender, o Options, counts *Counts) (digest.Sum, error) {
	// What was taken is sent whatever ends the reading, but for a server that takes nothing.
	sending, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	l := &run{options: o, counts: counts, stop: stop, abort: abort}
	err := errors.Join(l.loop(ctx, r, s), s.Close(sending))
	if err == nil {
		// The last messages may have been those that ended it.
		err = context.Cause(ctx)
	}
	return l.sum.Sum(), err
}

func (l *run) loop(ctx context.Context, r input.Reader, s Sender) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var rec input.Record
		err := r.Next(&rec)
		var bad *input.BadRecord
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &bad):
			l.counts.Read.Add(1)
			if l.failed(bad.Line, bad.Err); l.options.FailFast {
				return ErrFailFast
			}
			continue
		case err != nil:
			return err
		}
		l.counts.Read.Add(1)
		if len(rec.Key) == 0 {
			l.counts.Keyless.Add(1)
		}
		if err := l.send(ctx, s, &rec); err != nil {
			return err
		}
	}
}

func (l *run) send(ctx context.Context, s Sender, rec *input.Record) error {
	m := client.Message{
		Key: l.keep(rec.Key), Body: l.keep(rec.Body), Headers: l.options.Headers, Delay: l.options.Delay, TTL: l.options.TTL,
	}
	line := rec.Line
	err := s.Send(ctx, m, func(result client.Result) {
		if result.Err != nil {
			l.failed(line, result.Err)
			switch {
			case gaveUp(result.Err):
				l.gone.Store(true)
				l.stop(result.Err)
				l.abort()
			case l.options.FailFast:
				l.stop(ErrFailFast)
			}
			return
		}
		l.counts.Sent.Add(1)
		l.counts.Bytes.Add(uint64(len(m.Body)))
		if len(result.Warnings) > 0 {
			l.counts.Ignored.Add(1)
		}
		if l.options.Checksum {
			l.sum.Add(m.Body)
		}
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		// Not taken, and nobody's fault: it counts as not read.
		return context.Cause(ctx)
	}
	l.failed(line, err)
	return err
}

// gaveUp reports whether a message failed because the server did not take it for as long as the sender
// tries. The next ones would fail so, too, each after as long.
func gaveUp(err error) bool {
	switch queue.KindOf(err) {
	case queue.KindUnavailable, queue.KindOutcomeUnknown, queue.KindThrottled, queue.KindFull:
		return true
	default:
		return false
	}
}

func (l *run) failed(line int, err error) {
	l.counts.Failed.Add(1)
	if l.options.Report != nil && !l.gone.Load() {
		l.options.Report(line, err)
	}
}

// keep copies b into memory that stays.
func (l *run) keep(b []byte) []byte {
	if len(b) > slabBytes/4 {
		return append([]byte(nil), b...)
	}
	if cap(l.slab)-len(l.slab) < len(b) {
		l.slab = make([]byte, 0, slabBytes)
	}
	at := len(l.slab)
	l.slab = append(l.slab, b...)
	return l.slab[at:len(l.slab):len(l.slab)]
}
