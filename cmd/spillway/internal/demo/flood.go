package demo

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	fileMessages = 500
	// bodyBytes is the least length of a body, spread how much longer it may be.
	bodyBytes, spread = 512, 1024
	// objectEvery is how many files there are to one body that goes as an object of its own.
	objectEvery, objectBytes = 10, 128 << 10
	// trickleMessages come every trickleEvery, with a delay of up to maxDelay.
	trickleMessages = 5
	trickleEvery    = 100 * time.Millisecond
	maxDelay        = 2 * time.Second
)

// flood produces until Messages or Duration is reached.
func (d *demo) flood(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	timer := time.AfterFunc(d.options.Duration, func() { close(over) })
	defer timer.Stop()
	var producers, trickle sync.WaitGroup
	for i := range d.options.Producers {
		producers.Go(func() {
			if err := d.produceFiles(ctx, newSource(i), over); err != nil {
				cancel(fmt.Errorf("producer %d: %w", i, err))
			}
		})
	}
	ended := make(chan struct{})
	trickle.Go(func() {
		if err := d.trickle(ctx, newSource(d.options.Producers), ended); err != nil {
			cancel(fmt.Errorf("delayed messages: %w", err))
		}
	})
	producers.Wait()
	close(ended)
	trickle.Wait()
	return context.Cause(ctx)
}

// source makes one producer's bodies: its number, a sequence, and noise that a fixed seed gives.
type source struct {
	producer int
	sequence int
	random   *rand.Rand
}

func newSource(producer int) *source {
	return &source{producer: producer, random: rand.New(rand.NewPCG(uint64(producer), 1))} // #nosec G404 G115 -- noise
}

const headForm = "%04d %010d "

func (s *source) body(length int) (body []byte, sequence int) {
	sequence = s.sequence
	s.sequence++
	body = make([]byte, 0, length+8)
	body = fmt.Appendf(body, headForm, s.producer, sequence)
	for len(body) < length {
		n := s.random.Uint64()
		for range 8 {
			body = append(body, "abcdefghijklmnopqrstuvwxyz234567"[n&31])
			n >>= 8
		}
	}
	return body[:length], sequence
}

// parse reads what body has written at the front.
func parse(body []byte) (producer, sequence int, err error) {
	_, err = fmt.Sscanf(string(body[:min(len(body), 16)]), headForm, &producer, &sequence)
	return producer, sequence, err
}

// produceFiles packs messages into batch files, uploads them and submits references: the server never
// sees a body on its way in.
func (d *demo) produceFiles(ctx context.Context, src *source, over <-chan struct{}) error {
	enc := batch.NewEncoder(batch.Options{})
	guard := client.Guard{ProducerID: fmt.Sprintf("demo-%d", src.producer)}
	for files := 1; ; files++ {
		if ended(ctx, over) {
			return nil
		}
		n := min(fileMessages, d.left.Add(-fileMessages)+fileMessages)
		if n <= 0 {
			return nil
		}
		guard.Sequence++
		if err := d.produceFile(ctx, src, enc, guard, int(n)); err != nil {
			return ignoreEnd(ctx, err)
		}
		if files%objectEvery == 0 && d.left.Add(-1) >= 0 {
			guard.Sequence++
			if err := d.produceObject(ctx, src, guard); err != nil {
				return ignoreEnd(ctx, err)
			}
		}
	}
}

func ended(ctx context.Context, over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return ctx.Err() != nil
	}
}

// ignoreEnd: a call that the end of ctx cut off is not a failure of its own.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // what ended ctx is told instead
	}
	return err
}

func (d *demo) produceFile(ctx context.Context, src *source, enc *batch.Encoder, guard client.Guard, n int) error {
	enc.Reset()
	entries := make([]entry, n)
	for i := range entries {
		body, sequence := src.body(bodyBytes + src.random.IntN(spread))
		entries[i] = entry{src.producer, sequence, body}
		key := fmt.Appendf(nil, "customer-%d", src.random.IntN(10_000))
		if err := enc.Add(&batch.Record{Slot: queue.SlotOf(key), Key: key, Body: body}); err != nil {
			return err
		}
	}
	var nonce [batch.NonceSize]byte
	_, _ = crand.Read(nonce[:]) // it never fails
	file, err := enc.Finish(nil, nonce)
	if err != nil {
		return err
	}
	object, err := d.client.UploadBytes(ctx, floodTopic, file)
	if err != nil {
		return err
	}
	answer, err := d.client.Reference(ctx, floodTopic, []client.Reference{{Object: object, Batch: true}}, guard)
	if err != nil {
		return err
	}
	d.files.Add(1)
	results := answer[0].Results
	if len(results) != n {
		return results[0].Err
	}
	for pos, i := range enc.Order() {
		if err := results[pos].Err; err != nil {
			return err
		}
		d.stored(entries[i])
	}
	return nil
}

// produceObject uploads one large body and submits it as a message.
func (d *demo) produceObject(ctx context.Context, src *source, guard client.Guard) error {
	body, sequence := src.body(objectBytes)
	object, err := d.client.UploadBytes(ctx, floodTopic, body)
	if err != nil {
		return err
	}
	answer, err := d.client.Reference(ctx, floodTopic, []client.Reference{{Object: object}}, guard)
	if err != nil {
		return err
	}
	if err := answer[0].Results[0].Err; err != nil {
		return err
	}
	d.objects.Add(1)
	d.stored(entry{src.producer, sequence, body})
	return nil
}

// trickle sends delayed messages until ended is closed.
func (d *demo) trickle(ctx context.Context, src *source, ended <-chan struct{}) error {
	ticker := time.NewTicker(trickleEvery)
	defer ticker.Stop()
	guard := client.Guard{ProducerID: "demo-later"}
	for {
		messages := make([]client.Message, trickleMessages)
		entries := make([]entry, trickleMessages)
		for i := range messages {
			delay := time.Duration(src.random.Int64N(int64(maxDelay))).Round(time.Millisecond)
			body, sequence := src.body(bodyBytes)
			messages[i] = client.Message{Body: body, Delay: &delay}
			entries[i] = entry{src.producer, sequence, body}
			d.ledger.dueAt(entries[i], time.Now().Add(delay))
		}
		guard.Sequence++
		results, err := d.client.Produce(ctx, trickleTopic, messages, guard)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		for i, r := range results {
			if r.Err != nil {
				return r.Err
			}
			d.later.Add(1)
			d.stored(entries[i])
		}
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// stored notes a message that the server has called durable.
func (d *demo) stored(e entry) {
	d.ledger.produced(e)
	d.produced.Add(1)
	d.producedBytes.Add(uint64(len(e.body)))
}

// handle is the workers' handler. Every so many messages it fails at the first delivery.
func (d *demo) handle(_ context.Context, m *client.Received, r io.Reader) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	producer, sequence, err := parse(body)
	if err != nil {
		return errors.New("a body that no producer has written")
	}
	if m.Attempt == 1 && sequence%failEvery == failEvery/2 {
		d.retried.Add(1)
		return errOnPurpose
	}
	e := entry{producer, sequence, body}
	if d.ledger.isEarly(e, time.Now()) {
		d.early.Add(1)
	}
	d.ledger.handled(m.Receipt, e)
	return nil
}

// settled notes a message whose acknowledgement the server has confirmed.
func (d *demo) settled(m *client.Received) {
	d.ledger.consumed(m.Receipt)
	d.consumed.Add(1)
}
