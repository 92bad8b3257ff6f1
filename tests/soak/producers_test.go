//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// expected are the answers that faults may bring about: each says that nothing was changed, or that it is not known.
var expected = []queue.Code{
	queue.CodeStorageFull, queue.CodeUnavailable, queue.CodeOutcomeUnknown, queue.CodeIdempotencyInProgress, queue.CodeThrottled, queue.CodeConflict,
}

// passing reports whether err is one that a fault may bring about.
func passing(err error) bool {
	var api *client.APIError
	if !errors.As(err, &api) {
		var own *queue.Error
		return !errors.As(err, &own) || own.Kind == queue.KindUnavailable || own.Kind == queue.KindOutcomeUnknown || own.Kind == queue.KindCanceled
	}
	return slices.Contains(expected, api.Code)
}

// unchanged reports whether err says that nothing was changed.
func unchanged(err error) bool {
	var api *client.APIError
	return errors.As(err, &api) && api.Code != queue.CodeOutcomeUnknown && api.Code != queue.CodeCanceled && api.Code != queue.CodeInternal
}

// producer sends the messages of its keys, numbered by key.
type producer struct {
	name   string
	client *client.Client
	rng    *rand.Rand
	pace   time.Duration
	next   map[string]int
	keys   int // 0: no partition key
	delay  time.Duration
	calls  uint64
	count  *counters

	ledger *ledger // of the topic that it sends to now
}

// batch makes the next messages.
func (p *producer) batch(most int, loose bool) ([]name, []client.Message) {
	var names []name
	var out []client.Message
	for range 1 + p.rng.IntN(most) {
		key := "-" + p.name
		if p.keys > 0 {
			key = fmt.Sprintf("%s.%d", p.name, p.rng.IntN(p.keys))
		}
		of := name{key, p.next[key]}
		p.next[key]++
		p.ledger.send(of, loose)
		m := client.Message{Body: bodyOf(of, size(p.rng), p.rng), Headers: map[string]string{"from": p.name}}
		if p.keys > 0 {
			m.Key = []byte(key)
		}
		if p.delay > 0 {
			d := time.Duration(p.rng.Int64N(int64(p.delay)))
			m.Delay = &d
		}
		names, out = append(names, of), append(out, m)
	}
	return names, out
}

// send is one way to send messages: it gives their results in their order.
type send func(ctx context.Context, messages []client.Message, guard client.Guard) ([]client.Result, error)

// guarded makes one guarded call after another, each until it has worked.
func (p *producer) guarded(ctx context.Context, stop <-chan struct{}, how func() send, guard func(n uint64) client.Guard) error {
	for !closed(stop) {
		p.calls++
		names, messages := p.batch(12, false)
		tried, send := time.Now(), how()
		for {
			results, err := send(ctx, messages, guard(p.calls))
			if err == nil {
				err = firstOf(results)
			}
			if err == nil {
				for i := range results {
					p.ledger.answer(names[i], &results[i], tried)
				}
				break
			}
			p.count.refuse(err)
			if !passing(err) {
				return fmt.Errorf("%s: call %d: %w", p.name, p.calls, err)
			}
			if pause(ctx, retryPause) != nil {
				return fmt.Errorf("%s: call %d, first tried %v ago: %w", p.name, p.calls, time.Since(tried).Round(time.Second), err)
			}
		}
		_ = pause(ctx, p.pace)
	}
	return nil
}

const retryPause = 50 * time.Millisecond

// firstOf is the first error of results.
func firstOf(results []client.Result) error {
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
	}
	return nil
}

// loose makes calls without a guard, which are not made again.
func (p *producer) loose(ctx context.Context, stop <-chan struct{}) error {
	for !closed(stop) {
		names, messages := p.batch(3, true)
		tried := time.Now()
		results, err := p.client.Produce(ctx, p.ledger.topic, messages, client.Guard{})
		if err == nil {
			for i := range results {
				if results[i].Err == nil {
					p.ledger.answer(names[i], &results[i], tried)
				}
			}
			err = firstOf(results)
		}
		p.count.refuse(err)
		if err != nil && !passing(err) {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		_ = pause(ctx, p.pace)
	}
	return nil
}

// stream sends through the SDK's Producer.
func (p *producer) stream(ctx context.Context, stop <-chan struct{}) error {
	producer, err := client.NewProducer(p.client, p.ledger.topic, client.ProducerOptions{
		MaxBatchMessages: 20, Lanes: 2, ReferenceAbove: 32 << 10, DeliveryTimeout: 3 * time.Minute,
	})
	if err != nil {
		return err
	}
	for !closed(stop) {
		names, messages := p.batch(30, false)
		tried := time.Now()
		var futures []*client.Future
		for i := range messages {
			f, err := producer.Send(ctx, messages[i])
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			futures = append(futures, f)
		}
		if err := producer.Flush(ctx); err != nil {
			return fmt.Errorf("%s: flush, first tried %v ago: %w", p.name, time.Since(tried).Round(time.Second), err)
		}
		for i, f := range futures {
			r, _ := f.Result()
			if r.Err != nil {
				return fmt.Errorf("%s: %s: %w", p.name, names[i], r.Err)
			}
			p.ledger.answer(names[i], &r, tried)
		}
		_ = pause(ctx, 3*p.pace)
	}
	return producer.Close(ctx)
}

// direct is the ordinary produce call.
func (p *producer) direct() send {
	return func(ctx context.Context, messages []client.Message, guard client.Guard) ([]client.Result, error) {
		return p.client.Produce(ctx, p.ledger.topic, messages, guard)
	}
}

// encoded sends one encoded batch, as it is or by reference.
func (p *producer) encoded() send {
	byReference := p.rng.IntN(2) == 0
	var data []byte
	var order []int
	var object client.Object
	return func(ctx context.Context, messages []client.Message, guard client.Guard) ([]client.Result, error) {
		var err error
		if data == nil {
			if data, order, err = p.encode(messages); err != nil {
				return nil, err
			}
		}
		var results []client.Result
		if byReference {
			if object.Name == "" {
				if object, err = p.upload(ctx, data); err != nil {
					return nil, err
				}
			}
			var answer []client.ReferenceResult
			if answer, err = p.client.Reference(ctx, p.ledger.topic, []client.Reference{{Object: object, Batch: true}}, guard); err == nil {
				results = answer[0].Results
			}
		} else {
			results, err = p.client.ProduceBatch(ctx, p.ledger.topic, data, guard)
		}
		if err == nil {
			err = firstOf(results) // of a batch that is refused as a whole there is one
		}
		if err != nil {
			return nil, err
		}
		out := make([]client.Result, len(results))
		for i := range results {
			out[order[i]] = results[i]
		}
		return out, nil
	}
}

func (p *producer) encode(messages []client.Message) (data []byte, order []int, err error) {
	e := batch.NewEncoder(batch.Options{Codec: []batch.Codec{batch.CodecNone, batch.CodecZstd}[p.rng.IntN(2)]})
	for i := range messages {
		m := &messages[i]
		headers, err := batch.MakeHeaders(m.Headers)
		if err != nil {
			return nil, nil, err
		}
		if err := e.Add(&batch.Record{Slot: queue.SlotOf(m.Key), Key: m.Key, Headers: headers, Body: m.Body}); err != nil {
			return nil, nil, err
		}
	}
	var nonce [batch.NonceSize]byte
	for i := range nonce {
		nonce[i] = byte(p.rng.Uint32())
	}
	data, err = e.Finish(nil, nonce)
	return data, slices.Clone(e.Order()), err
}

// references uploads each body and submits them together.
func (p *producer) references() send {
	var refs []client.Reference
	return func(ctx context.Context, messages []client.Message, guard client.Guard) ([]client.Result, error) {
		for i := len(refs); i < len(messages); i++ {
			object, err := p.upload(ctx, messages[i].Body)
			if err != nil {
				return nil, err
			}
			m := messages[i]
			m.Body = nil
			refs = append(refs, client.Reference{Object: object, Message: m})
		}
		answer, err := p.client.Reference(ctx, p.ledger.topic, refs, guard)
		if err != nil {
			return nil, err
		}
		var out []client.Result
		for i := range answer {
			out = append(out, answer[i].Results...)
		}
		return out, nil
	}
}

// upload puts one object. A URL that a jump of the clock made too old is one more reason to ask for another.
func (p *producer) upload(ctx context.Context, data []byte) (client.Object, error) {
	for {
		object, err := p.client.UploadBytes(ctx, p.ledger.topic, data)
		if err == nil || !passing(err) && !errors.Is(err, client.ErrForbidden) {
			return object, err
		}
		p.count.refuse(err)
		if pause(ctx, retryPause) != nil {
			return object, err
		}
	}
}

func closed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
