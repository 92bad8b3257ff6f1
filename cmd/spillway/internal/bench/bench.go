// Package bench measures a server: how fast messages go in durably, how fast they come out, how long
// each takes, and what the machine's disk could do at best.
//
// Vocabulary: a call is one produce call with a batch of messages; produce latency is from a call's
// start to its acknowledgement; end-to-end latency is from the start of a message's produce call to
// the moment a consumer has it.
//
// Invariants: every message that was acknowledged is consumed and acknowledged before the run ends,
// or the report says how many were not; the load is closed-loop, so a slow server slows its producers.
package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/drain"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/latency"
	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// stampBytes at the front of a body hold the time when its call began.
const stampBytes = 8

// drainTime is how long consumers may take to catch up once producers have ended.
const drainTime = 30 * time.Second

// Options are a workload.
type Options struct {
	// Size is of a body, in bytes, at least stampBytes. Batch is messages of a call.
	Size, Batch int
	// Producers and Consumers work side by side; without Consumers nothing is consumed.
	Producers, Consumers int
	// Segments of the topic.
	Segments int
	// Messages ends the load by count, Duration by time.
	Messages int64
	Duration time.Duration
	// ByReference uploads batch files.
	ByReference bool
	// ClaimSize is the most messages of a claim.
	ClaimSize int
}

// Report is what was measured.
type Report struct {
	Size        int  `json:"size_bytes"`
	Batch       int  `json:"batch_messages"`
	Producers   int  `json:"producers"`
	Consumers   int  `json:"consumers"`
	Segments    int  `json:"segments"`
	ByReference bool `json:"by_reference"`

	Produced       uint64  `json:"produced"`
	ProduceSeconds float64 `json:"produce_seconds"`
	ProduceRate    float64 `json:"produced_per_second"`
	ProduceBytes   float64 `json:"produced_bytes_per_second"`
	CallRate       float64 `json:"produce_calls_per_second"`

	Consumed       uint64  `json:"consumed"`
	ConsumeSeconds float64 `json:"consume_seconds"`
	ConsumeRate    float64 `json:"consumed_per_second"`
	// Missing were acknowledged and not consumed in time.
	Missing uint64 `json:"missing"`
	// TogetherRate is of messages that went in and out, over the whole time.
	TogetherRate float64 `json:"together_per_second"`

	ProduceLatency  latency.Summary `json:"produce_latency"`
	EndToEndLatency latency.Summary `json:"end_to_end_latency"`
}

type bench struct {
	client  *client.Client
	topic   string
	options Options
	began   time.Time

	left               atomic.Int64
	calls              atomic.Uint64
	produced, consumed atomic.Uint64
	// lastConsumed is when the newest message was consumed, in nanoseconds since began.
	lastConsumed atomic.Int64
	produce, end latency.Histogram
}

// Run makes a topic of its own, measures, and deletes it. The error is of a call that failed for good,
// or ctx's.
func Run(ctx context.Context, c *client.Client, o Options) (Report, error) {
	b := &bench{client: c, options: o, topic: "bench." + queue.NewIDs(nil).ID(), began: time.Now()}
	b.left.Store(o.Messages)
	config := client.TopicConfig{
		Scaling:         &client.Scaling{MinSegments: &o.Segments},
		MaxMessageBytes: client.Of(int64(max(o.Size, queue.DefaultMaxMessageBytes))),
	}
	if _, err := c.CreateTopic(ctx, b.topic, config); err != nil {
		return Report{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = c.DeleteTopic(ctx, b.topic)
	}()
	consuming, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	consumers, err := b.startConsumers(ctx, consuming, stop)
	if err != nil {
		return Report{}, err
	}
	b.began = time.Now()
	err = b.produceAll(consuming)
	produceTime := time.Since(b.began)
	if err == nil && o.Consumers > 0 {
		b.awaitConsumers(consuming)
	}
	stop(nil)
	consumers.Wait()
	if cause := context.Cause(consuming); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return b.report(produceTime), err
}

const subscription = "bench"

func (b *bench) startConsumers(ctx, consuming context.Context, stop context.CancelCauseFunc) (*sync.WaitGroup, error) {
	var wg sync.WaitGroup
	if b.options.Consumers == 0 {
		return &wg, nil
	}
	config := client.SubscriptionConfig{Start: &client.Position{Word: client.Earliest}}
	if _, err := b.client.CreateSubscription(ctx, b.topic, subscription, config); err != nil {
		return &wg, err
	}
	for range b.options.Consumers {
		wg.Go(func() {
			if err := b.consume(consuming); err != nil && consuming.Err() == nil {
				stop(fmt.Errorf("consume: %w", err))
			}
		})
	}
	return &wg, nil
}

// consume claims and acknowledges without the care of package drain, to measure the server.
func (b *bench) consume(ctx context.Context) error {
	o := client.ClaimOptions{MaxMessages: b.options.ClaimSize, MaxBytes: queue.MaxClaimBytes, Wait: time.Second}
	receipts := make([]client.Receipt, 0, b.options.ClaimSize)
	for ctx.Err() == nil {
		messages, err := b.client.Claim(ctx, b.topic, subscription, o)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			continue
		}
		now := time.Since(b.began)
		receipts = receipts[:0]
		for _, m := range messages {
			if m.Err != nil {
				return m.Err
			}
			body, err := m.Bytes(ctx)
			if err != nil {
				return err
			}
			if len(body) >= stampBytes {
				b.end.Add(now - time.Duration(binary.LittleEndian.Uint64(body))) // #nosec G115 -- our own stamp
			}
			receipts = append(receipts, m.Receipt)
		}
		results, err := b.client.Ack(ctx, b.topic, subscription, drain.Merge(receipts))
		if err != nil {
			return err
		}
		for _, err := range results {
			if err != nil {
				return err
			}
		}
		b.consumed.Add(uint64(len(messages)))
		b.lastConsumed.Store(int64(time.Since(b.began)))
	}
	return nil
}

func (b *bench) produceAll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	timer := time.AfterFunc(b.options.Duration, func() { close(over) })
	defer timer.Stop()
	var wg sync.WaitGroup
	for i := range b.options.Producers {
		wg.Go(func() {
			if err := newProducer(b, i).run(ctx, over); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("produce: %w", err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// producer makes calls one after another.
type producer struct {
	bench   *bench
	random  *rand.Rand
	encoder *batch.Encoder
	bodies  [][]byte
	buf     []byte
	guard   client.Guard
	nonce   [batch.NonceSize]byte
}

func newProducer(b *bench, i int) *producer {
	p := &producer{
		bench: b, random: rand.New(rand.NewPCG(uint64(i), 7)), // #nosec G404 G115 -- noise
		encoder: batch.NewEncoder(batch.Options{}), guard: client.Guard{ProducerID: fmt.Sprintf("bench-%d", i)},
	}
	for range b.options.Batch {
		body := make([]byte, b.options.Size)
		for at := range body {
			body[at] = byte(p.random.Uint32())
		}
		p.bodies = append(p.bodies, body)
	}
	return p
}

func (p *producer) run(ctx context.Context, over <-chan struct{}) error {
	b := p.bench
	for {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return nil
		default:
		}
		n := min(int64(b.options.Batch), b.left.Add(-int64(b.options.Batch))+int64(b.options.Batch))
		if n <= 0 {
			return nil
		}
		started := time.Now()
		file, err := p.encode(int(n), started.Sub(b.began))
		if err != nil {
			return err
		}
		if err := p.send(ctx, file); err != nil {
			return err
		}
		b.produce.Add(time.Since(started))
		b.calls.Add(1)
		b.produced.Add(uint64(n)) // #nosec G115 -- above 0
	}
}

// encode spreads a call's messages over the ring: a part of it for each producer would favour topics
// of many segments, and a random slot for each message would punish them.
func (p *producer) encode(n int, stamp time.Duration) ([]byte, error) {
	p.encoder.Reset()
	slot := queue.Slot(p.random.Uint32N(queue.Slots)) // #nosec G115 -- below Slots
	for _, body := range p.bodies[:n] {
		if len(body) >= stampBytes {
			binary.LittleEndian.PutUint64(body, uint64(stamp)) // #nosec G115 -- not negative
		}
		if err := p.encoder.Add(&batch.Record{Slot: slot, Body: body}); err != nil {
			return nil, err
		}
	}
	binary.LittleEndian.PutUint64(p.nonce[:], p.random.Uint64())
	binary.LittleEndian.PutUint64(p.nonce[8:], p.random.Uint64())
	file, err := p.encoder.Finish(p.buf[:0], p.nonce)
	p.buf = file
	return file, err
}

func (p *producer) send(ctx context.Context, file []byte) error {
	b := p.bench
	p.guard.Sequence++
	var results []client.Result
	var err error
	if b.options.ByReference {
		object, err := b.client.UploadBytes(ctx, b.topic, file)
		if err != nil {
			return err
		}
		answer, err := b.client.Reference(ctx, b.topic, []client.Reference{{Object: object, Batch: true}}, p.guard)
		if err != nil {
			return err
		}
		results = answer[0].Results
	} else if results, err = b.client.ProduceBatch(ctx, b.topic, file, p.guard); err != nil {
		return err
	}
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
	}
	return nil
}

// awaitConsumers waits until what was produced is consumed.
func (b *bench) awaitConsumers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for b.consumed.Load() < b.produced.Load() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (b *bench) report(produceTime time.Duration) Report {
	o := b.options
	r := Report{
		Size: o.Size, Batch: o.Batch, Producers: o.Producers, Consumers: o.Consumers, Segments: o.Segments,
		ByReference: o.ByReference, Produced: b.produced.Load(), ProduceSeconds: produceTime.Seconds(),
		Consumed: b.consumed.Load(), ConsumeSeconds: time.Duration(b.lastConsumed.Load()).Seconds(),
		ProduceLatency: b.produce.Summary(), EndToEndLatency: b.end.Summary(),
	}
	r.ProduceRate = perSecond(float64(r.Produced), r.ProduceSeconds)
	r.ProduceBytes = r.ProduceRate * float64(o.Size)
	r.CallRate = perSecond(float64(b.calls.Load()), r.ProduceSeconds)
	r.ConsumeRate = perSecond(float64(r.Consumed), r.ConsumeSeconds)
	if o.Consumers > 0 && r.Produced > r.Consumed {
		r.Missing = r.Produced - r.Consumed
	}
	r.TogetherRate = perSecond(float64(r.Consumed), max(r.ConsumeSeconds, r.ProduceSeconds))
	return r
}

func perSecond(n, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return n / seconds
}
