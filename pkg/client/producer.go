package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	opProduce = "produce"

	defaultBatchMessages   = 500
	defaultBatchBytes      = 1 << 20
	defaultLinger          = 5 * time.Millisecond
	defaultReferenceAbove  = 1 << 20
	defaultLanes           = 4
	maxLanes               = 64
	defaultInFlight        = 64 << 20
	defaultDeliveryTimeout = 2 * time.Minute
	// maxDeliveryTimeout is less than queue.MinProducerWindow: beyond it the server may have forgotten
	// the sequence that a retry comes with.
	maxDeliveryTimeout = queue.MinProducerWindow - time.Minute

	// messageOverhead is what a message costs in memory besides its bytes.
	messageOverhead = 512
	// maxFailures bounds the errors that a Flush lists one by one.
	maxFailures = 16
)

// ProducerOptions are the optional arguments of NewProducer. Zero fields take the defaults.
type ProducerOptions struct {
	// MaxBatchMessages ends a batch, 1 to queue.MaxBatchRecords; 500 unless set.
	MaxBatchMessages int
	// MaxBatchBytes ends a batch, in bytes before compression, up to 1 GiB; 1 MiB unless set. An
	// encoded batch of more than Options.MaxRequestBytes is uploaded and submitted by reference.
	MaxBatchBytes int64
	// Linger is how long a message waits for others to share its batch; 5 ms unless set, negative
	// for not at all. A batch does not wait while its lane is free and it is full.
	Linger time.Duration
	// Codec is how bodies are stored: batch.CodecNone or batch.CodecZstd.
	Codec batch.Codec
	// ReferenceAbove is the size in bytes above which a body is uploaded by itself and submitted by
	// reference, up to queue.MaxInlineMessageBytes; 1 MiB unless set, which is the usual
	// max_message_bytes of a topic.
	ReferenceAbove int64
	// Lanes is the number of calls under way at once, 1 to 64; 4 unless set. Each lane is a producer
	// of its own to the server.
	Lanes int
	// MaxInFlightBytes bounds what is accepted and has no outcome; Send waits where it would be
	// more. 64 MiB unless set. A larger single message is taken when it is alone.
	MaxInFlightBytes int64
	// DeliveryTimeout is how long a batch is tried before its messages fail, up to 10 minutes; 2
	// minutes unless set.
	DeliveryTimeout time.Duration
}

func (o ProducerOptions) withDefaults() (ProducerOptions, error) {
	o.MaxBatchMessages = orDefault(o.MaxBatchMessages, defaultBatchMessages)
	o.MaxBatchBytes = orDefault(o.MaxBatchBytes, defaultBatchBytes)
	o.ReferenceAbove = orDefault(o.ReferenceAbove, defaultReferenceAbove)
	o.Lanes = orDefault(o.Lanes, defaultLanes)
	o.MaxInFlightBytes = orDefault(o.MaxInFlightBytes, defaultInFlight)
	o.DeliveryTimeout = orDefault(o.DeliveryTimeout, defaultDeliveryTimeout)
	o.Linger = max(orDefault(o.Linger, defaultLinger), 0)
	for _, r := range []struct {
		field       string
		got, lo, hi int64
	}{
		{"max_batch_messages", int64(o.MaxBatchMessages), 1, queue.MaxBatchRecords},
		{"max_batch_bytes", o.MaxBatchBytes, 1, batch.MaxBodyBytes},
		{"reference_above", o.ReferenceAbove, 1, queue.MaxInlineMessageBytes},
		{"lanes", int64(o.Lanes), 1, maxLanes},
		{"max_in_flight_bytes", o.MaxInFlightBytes, 1, 1 << 50},
		{"delivery_timeout", int64(o.DeliveryTimeout), 1, int64(maxDeliveryTimeout)},
		{"codec", int64(o.Codec), int64(batch.CodecNone), int64(batch.CodecZstd)},
	} {
		if err := queue.Whole(r.field, r.got, r.lo, r.hi); err != nil {
			return o, err
		}
	}
	return o, nil
}

// Producer batches messages of one topic and sends them over its lanes. Safe for concurrent use.
type Producer struct {
	client  *Client
	topic   string
	options ProducerOptions
	budget  *budget
	lanes   []*lane
	// sticky is the lane that messages without a key go to.
	sticky atomic.Uint32

	closing   chan struct{}
	closeOnce sync.Once
	abort     context.CancelFunc // ends the lanes' calls
	wg        sync.WaitGroup     // the lanes

	mu       sync.Mutex // guards what follows
	failures []error    // of messages, since the last Flush; at most maxFailures
	failed   int        // how many there were
}

// NewProducer makes a producer and starts its lanes, which end with Close. It makes no call. The
// error is of KindInvalid and names the topic or the option.
func NewProducer(c *Client, topic string, o ProducerOptions) (*Producer, error) {
	if err := queue.ValidateTopicName("topic", topic); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Producer{
		client: c, topic: topic, options: o, budget: newBudget(o.MaxInFlightBytes),
		closing: make(chan struct{}), abort: cancel,
	}
	for _, slots := range queue.Tile(o.Lanes) {
		p.lanes = append(p.lanes, newLane(p, slots))
	}
	for _, l := range p.lanes {
		p.wg.Go(func() { l.run(ctx) })
	}
	return p, nil
}

// Send accepts a message: from then on it is sent whatever becomes of ctx, which only bounds the wait
// for room (MaxInFlightBytes). The message's Key and Body must not change until the Future is done.
// The error is ErrClosed after Close, of KindCanceled if ctx ended, or of KindInvalid for headers that
// break a limit; other faults of a message are its Future's.
func (p *Producer) Send(ctx context.Context, m Message) (*Future, error) {
	record, err := recordOf(&m, 0)
	if err != nil {
		return nil, err
	}
	size := int64(len(m.Body) + len(m.Key) + len(record.Headers) + messageOverhead)
	cost, err := p.budget.acquire(ctx, size, p.closing)
	if err != nil {
		return nil, err
	}
	f := &Future{record: record, cost: cost}
	if !p.laneOf(&record).add(f) {
		p.budget.release(cost)
		return nil, ErrClosed
	}
	return f, nil
}

// SendSync is Send and Wait. If ctx ends while it waits, the message is still on its way.
func (p *Producer) SendSync(ctx context.Context, m Message) (Result, error) {
	f, err := p.Send(ctx, m)
	if err != nil {
		return Result{}, err
	}
	return f.Wait(ctx)
}

// laneOf chooses the lane. A lane has a part of the ring, as a segment has: the batches of a lane
// touch few segments. Messages without a key stay with one lane until its batch is under way, so that
// batches fill, and then go to one that is free.
func (p *Producer) laneOf(r *batch.Record) *lane {
	if len(r.Key) > 0 {
		return p.lanes[int(r.Slot)*len(p.lanes)/queue.Slots]
	}
	at := p.sticky.Load()
	l := p.lanes[at]
	if !l.busy.Load() && !l.full() {
		return l
	}
	best := l
	for i := 1; i < len(p.lanes); i++ {
		other := p.lanes[(int(at)+i)%len(p.lanes)]
		if !other.busy.Load() && !other.full() {
			best = other
			break
		}
		if best.full() && other.queued.Load() < best.queued.Load() {
			best = other
		}
	}
	if best != l {
		p.sticky.CompareAndSwap(at, best.index)
	}
	return best
}

// Flush sends what was accepted without waiting for more, and comes back when every message that was
// accepted before the call has its outcome. It gives the errors of the messages that failed since the
// last Flush, joined, the first 16 of them one by one; or a KindCanceled error, along with them, if ctx
// ended first, in which case messages are still on their way.
func (p *Producer) Flush(ctx context.Context) error {
	targets := make([]uint64, len(p.lanes))
	for i, l := range p.lanes {
		targets[i] = l.flush()
	}
	for i, l := range p.lanes {
		if !l.wait(ctx, targets[i]) {
			return errors.Join(canceled(ctx, "flush"), p.takeFailures())
		}
	}
	return p.takeFailures()
}

// Close flushes, refuses further messages, and ends the lanes. If ctx ends first, calls under way are
// cut off and their messages fail, with KindOutcomeUnknown where they may be stored all the same. In
// any case every message has its outcome when Close comes back. Further Closes do nothing more.
func (p *Producer) Close(ctx context.Context) error {
	p.closeOnce.Do(func() {
		close(p.closing)
		for _, l := range p.lanes {
			l.close()
		}
	})
	done := make(chan struct{})
	go func() { p.wg.Wait(); close(done) }()
	var cut error
	select {
	case <-done:
	case <-ctx.Done():
		p.abort()
		<-done
		cut = canceled(ctx, "close")
	}
	p.abort()
	if failures := p.takeFailures(); failures != nil {
		return errors.Join(cut, failures)
	}
	// All messages made it although the time was up.
	return nil
}

// fail notes the error of a message for the next Flush.
func (p *Producer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed++
	if len(p.failures) < maxFailures {
		p.failures = append(p.failures, err)
	}
}

func (p *Producer) takeFailures() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, more := p.failures, p.failed-len(p.failures)
	p.failures, p.failed = nil, 0
	if more > 0 {
		list = append(list, fmt.Errorf("and %d more messages failed", more))
	}
	return errors.Join(list...)
}
