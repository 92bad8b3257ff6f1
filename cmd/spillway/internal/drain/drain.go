// Package drain claims messages of a subscription, hands each to a handler, and settles it: the loop
// of `spillway consume`.
//
// The SDK's Consumer runs for ever and claims ahead; this loop can also stop at an exact number of
// messages or at the end of what there is, which a command line needs.
//
// Invariants: no more messages are claimed than may still be handled; a message is acknowledged only
// after its handler returned nil; what was claimed and not handled when the loop ends is released
// without counting the delivery; while a claim is worked on it is extended, so that a slow handler
// does not lose it.
package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/digest"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Handler works on one message, whose body it reads at most once; its context ends when the claim is lost, not when the loop is told to
// stop. An error releases the message with the error as reason; one that is a *StopError ends the
// loop besides.
type Handler func(ctx context.Context, m *client.Received, body io.Reader) error

// StopError is a handler's error that no other message will fare better with, such as a closed pipe.
type StopError struct{ Err error }

// Error is the cause's text.
func (e *StopError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *StopError) Unwrap() error { return e.Err }

// Options say what to claim and when to stop.
type Options struct {
	Topic, Subscription string
	// Workers claim side by side; at least 1.
	Workers int
	// Batch is the most messages of one claim, and Max of the whole loop; 0 for no limit.
	Batch int
	Max   uint64
	// Wait is how long a claim waits for a first message. Without Follow a worker stops at the
	// first claim that gives none.
	Wait   time.Duration
	Follow bool
	// Visibility is how long a claim holds; 0 takes the subscription's.
	Visibility time.Duration
	// Ordered: the subscription keeps each key's messages in order, so what follows a message that
	// failed goes back.
	Ordered bool
	// NoAck leaves the messages claimed.
	NoAck bool
	// RetryDelay is how long a failed message stays hidden, if HasRetryDelay.
	RetryDelay    time.Duration
	HasRetryDelay bool
	// Checksum adds up the bodies of the messages that were settled well.
	Checksum bool
	// Flush, if set, runs after the messages of a claim were handled and before they are
	// acknowledged.
	Flush func() error
	// Done, if set, hears of each message that was settled well; from any goroutine.
	Done func(*client.Received)
	// Report, if set, hears of each failure that does not end the loop; without an id it is the
	// server's.
	Report func(id string, err error)
}

// Stats is what the loop did.
type Stats struct {
	// Done were handled and acknowledged (or only handled, with NoAck); Failed were not.
	Done, Failed, Bytes uint64
	Sum                 digest.Sum
	// Took is the time to the last message that was settled, without the wait for more.
	Took time.Duration
}

type loop struct {
	client  *client.Client
	options Options
	handle  Handler
	// left is how many messages may still be claimed.
	left                atomic.Int64
	done, failed, bytes atomic.Uint64
	sum                 digest.Shared
	began               time.Time
	took                atomic.Int64 // nanoseconds
	// connected once a claim was answered, away while none is: an outage is reported once.
	connected, away atomic.Bool

	mu  sync.Mutex // guards err
	err error
}

// Run works until ctx ends, Max is reached or, without Follow, nothing is left. With Follow a server
// that goes away is waited for. The error is what
// ended it early: the server's, a handler's StopError's cause, or nil after ctx ended.
func Run(ctx context.Context, c *client.Client, o Options, handle Handler) (Stats, error) {
	l := &loop{client: c, options: o, handle: handle, began: time.Now()}
	if l.options.Max == 0 {
		l.options.Max = 1 << 62
	}
	l.left.Store(int64(min(l.options.Max, 1<<62))) // #nosec G115 -- bounded
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range max(o.Workers, 1) {
		wg.Go(func() {
			if err := l.work(ctx); err != nil {
				l.ended(err)
				cancel()
			}
		})
	}
	wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Done: l.done.Load(), Failed: l.failed.Load(), Bytes: l.bytes.Load(), Sum: l.sum.Sum(),
		Took: time.Duration(l.took.Load()),
	}, l.err
}

// ended keeps the first error.
func (l *loop) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// work claims until there is a reason to stop.
func (l *loop) work(ctx context.Context) error {
	for ctx.Err() == nil {
		n := l.take(int64(max(l.options.Batch, 1)))
		if n == 0 {
			return nil
		}
		messages, err := l.client.Claim(ctx, l.options.Topic, l.options.Subscription, client.ClaimOptions{
			MaxMessages: int(n), Wait: l.options.Wait, VisibilityTimeout: l.options.Visibility,
		})
		l.left.Add(n - int64(len(messages)))
		if len(messages) > 0 {
			if err := l.settleClaim(ctx, messages); err != nil {
				return err
			}
			l.took.Store(int64(time.Since(l.began)))
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is what the claim failed of
		case err != nil && l.options.Follow && l.connected.Load() && queue.Retryable(err):
			if l.away.CompareAndSwap(false, true) {
				l.report("", err)
			}
			pause(ctx, reconnectPause)
			continue
		case err != nil:
			return err
		case len(messages) == 0 && !l.options.Follow:
			return nil
		}
		l.connected.Store(true)
		l.away.Store(false)
	}
	return nil
}

// reconnectPause is between claims while a server that was there does not answer.
const reconnectPause = time.Second

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// take reserves up to n of the messages that may still be claimed.
func (l *loop) take(n int64) int64 {
	for {
		left := l.left.Load()
		got := min(left, n, queue.MaxClaimMessages)
		if got <= 0 {
			return 0
		}
		if l.left.CompareAndSwap(left, left-got) {
			return got
		}
	}
}

// settleClaim works on the messages of one claim and settles each. Settling outlives ctx: what was
// handled is to be acknowledged whatever ends the loop.
func (l *loop) settleClaim(ctx context.Context, messages []*client.Received) error {
	settling := context.WithoutCancel(ctx)
	h := newHold(l, messages)
	working, release := h.start(settling)
	defer release()
	var good []handled
	var unhandled []client.Receipt
	var stop error
	failed := make(map[string]bool) // keys
	for i, m := range messages {
		if l.options.Ordered && len(m.Key) > 0 && failed[string(m.Key)] {
			unhandled = append(unhandled, m.Receipt)
			continue
		}
		if ctx.Err() != nil || stop != nil {
			unhandled = append(unhandled, receiptsOf(messages[i:])...)
			break
		}
		done, err := l.handleOne(working, m)
		var s *StopError
		switch {
		case err == nil:
			good = append(good, done)
		case errors.As(err, &s):
			stop = s.Err
			unhandled = append(unhandled, m.Receipt)
		default:
			failed[string(m.Key)] = true
			h.settled(m.Receipt)
			l.fail(settling, m.Receipt, m.ID.String(), err)
		}
	}
	if l.options.Flush != nil && stop == nil {
		stop = l.options.Flush()
	}
	if stop != nil {
		// What was handled may not have reached anyone: it comes again rather than not at all.
		for _, g := range good {
			unhandled = append(unhandled, g.receipt)
		}
		good = nil
	}
	return errors.Join(stop, l.ack(settling, good), l.giveBack(settling, unhandled))
}

func receiptsOf(messages []*client.Received) []client.Receipt {
	out := make([]client.Receipt, len(messages))
	for i, m := range messages {
		out[i] = m.Receipt
	}
	return out
}

// handled is a message that its handler took.
type handled struct {
	message *client.Received
	receipt client.Receipt
	sum     digest.Sum
	bytes   uint64
}

func (l *loop) handleOne(ctx context.Context, m *client.Received) (handled, error) {
	out := handled{message: m, receipt: m.Receipt}
	if err := context.Cause(ctx); err != nil {
		return out, err
	}
	if m.Err != nil {
		return out, m.Err
	}
	body, err := l.open(ctx, m)
	if err != nil {
		return out, fmt.Errorf("fetch the body: %w", err)
	}
	defer body.Close() //nolint:errcheck // it was only read
	var read io.Reader = body
	var sum *digest.Body
	if l.options.Checksum {
		sum = digest.NewBody()
		read = io.TeeReader(body, sum)
	}
	counted := &counter{r: read}
	if err := l.handle(ctx, m, counted); err != nil {
		return out, err
	}
	// A handler need not read to the end; the checksum is of the whole.
	if _, err := io.Copy(io.Discard, counted); err != nil {
		return out, fmt.Errorf("fetch the body: %w", err)
	}
	out.bytes = counted.n
	if sum != nil {
		out.sum = sum.Sum()
	}
	return out, nil
}

// wholeBytes is the size up to which a body is fetched before it is handled, so that one which cannot
// be fetched leaves no half of it behind; larger ones are streamed.
const wholeBytes = queue.MaxInlineMessageBytes

func (l *loop) open(ctx context.Context, m *client.Received) (io.ReadCloser, error) {
	if m.Size > wholeBytes {
		return m.Open(ctx)
	}
	body, err := m.Bytes(ctx)
	return io.NopCloser(bytes.NewReader(body)), err
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n uint64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += uint64(n) // #nosec G115 -- not negative
	return n, err
}

// ack acknowledges what was handled; runs of neighbours go as one receipt.
func (l *loop) ack(ctx context.Context, good []handled) error {
	if len(good) == 0 {
		return nil
	}
	if l.options.NoAck {
		for i := range good {
			l.count(&good[i])
		}
		return nil
	}
	receipts := make([]client.Receipt, len(good))
	for i := range good {
		receipts[i] = good[i].receipt
	}
	runs := Merge(receipts)
	results, err := l.client.Ack(ctx, l.options.Topic, l.options.Subscription, runs)
	if err != nil {
		l.failed.Add(uint64(len(good)))
		return err
	}
	at := 0
	for i, r := range runs {
		for range r.Hi - r.Lo {
			if results[i] == nil {
				l.count(&good[at])
			} else {
				l.failed.Add(1)
				id := client.MessageID{Segment: good[at].receipt.Segment, Offset: good[at].receipt.Lo}
				l.report(id.String(), results[i])
			}
			at++
		}
	}
	return nil
}

func (l *loop) count(h *handled) {
	l.done.Add(1)
	l.bytes.Add(h.bytes)
	if l.options.Checksum {
		l.sum.Merge(h.sum)
	}
	if l.options.Done != nil {
		l.options.Done(h.message)
	}
}

// giveBack releases messages as if they had not been delivered.
func (l *loop) giveBack(ctx context.Context, receipts []client.Receipt) error {
	if len(receipts) == 0 || l.options.NoAck {
		return nil
	}
	_, err := l.client.Release(ctx, l.options.Topic, l.options.Subscription, Merge(receipts),
		client.ReleaseOptions{HasDelay: true, Uncounted: true, Reason: "the consumer stopped"})
	return err
}

// fail gives a message back with the reason. If even that fails it comes back when its claim expires.
func (l *loop) fail(ctx context.Context, r client.Receipt, id string, cause error) {
	l.failed.Add(uint64(r.Hi - r.Lo))
	l.report(id, cause)
	if l.options.NoAck {
		return
	}
	results, err := l.client.Release(ctx, l.options.Topic, l.options.Subscription, []client.Receipt{r}, client.ReleaseOptions{
		Delay: l.options.RetryDelay, HasDelay: l.options.HasRetryDelay, Reason: cause.Error(),
	})
	if err == nil {
		err = results[0]
	}
	if err != nil {
		l.report(id, err)
	}
}

func (l *loop) report(id string, err error) {
	if l.options.Report != nil {
		l.options.Report(id, err)
	}
}

// Merge puts receipts of one claim's neighbouring messages together, which makes a call short. The
// order stays.
func Merge(receipts []client.Receipt) []client.Receipt {
	var out []client.Receipt
	for _, r := range receipts {
		if n := len(out) - 1; n >= 0 && out[n].Segment == r.Segment && out[n].Claim == r.Claim && out[n].Hi == r.Lo {
			out[n].Hi = r.Hi
			continue
		}
		out = append(out, r)
	}
	return out
}
