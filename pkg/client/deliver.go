package client

import (
	"context"
	"errors"
	"sync"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxUploads is how many large bodies of one call are uploaded at once.
const maxUploads = 4

// deliver sends group and gives every message of it its outcome.
func (l *lane) deliver(ctx context.Context) {
	if ctx.Err() != nil { // Close gave up: these were never sent
		l.resolveAll(l.group, canceled(ctx, opProduce))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.p.options.DeliveryTimeout)
	defer cancel()
	if l.large(l.group[0]) {
		l.deliverLarge(ctx)
		return
	}
	l.encoder.Reset()
	defer l.encoder.Reset() // lets go of the callers' bytes
	slot := l.p.client.jitter.slot(l.slots)
	for _, f := range l.group {
		if len(f.record.Key) == 0 {
			f.record.Slot = slot
		}
		if err := l.encoder.Add(&f.record); err != nil {
			l.resolve(f, Result{Err: err})
			continue
		}
		l.added = append(l.added, f)
	}
	if len(l.added) == 0 {
		return
	}
	data, err := l.encoder.Finish(l.buffer[:0], l.p.client.ids.Nonce())
	l.buffer = nil
	if err != nil {
		l.resolveAll(l.added, err)
		return
	}
	results, err := l.sendBatch(ctx, data)
	if err != nil {
		l.resolveAll(l.added, err)
		return
	}
	for pos, n := range l.encoder.Order() {
		l.resolve(l.added[n], results[pos])
	}
}

func (l *lane) resolveAll(futures []*Future, err error) {
	for _, f := range futures {
		l.resolve(f, Result{Err: err})
	}
}

// sendBatch sends an encoded batch, and gives the results of its records.
func (l *lane) sendBatch(ctx context.Context, data []byte) ([]Result, error) {
	if int64(len(data)) > l.p.client.maxBody {
		return l.sendFile(ctx, data)
	}
	var results []Result
	tries := 0
	err := l.guarded(ctx, func(ctx context.Context, guard Guard) error {
		tries++
		call := produceCall(l.p.topic, data, guard)
		var answer wire.RunsAnswer
		call.out, call.attempts = &answer, 1
		if err := l.p.client.onProduce(ctx, l.p.topic, call); err != nil {
			return err
		}
		got := make([]Result, len(l.added))
		if err := expand(call.op, answer.Runs, got); err != nil {
			return err
		}
		results = got
		return firstRetryable(got)
	})
	if err == nil && tries == 1 {
		// The server has read all of it. After a failed try the transport may be reading it still.
		l.buffer = data
	}
	return settled(results, err)
}

// sendFile uploads a batch that is too large for a call, and submits it by reference.
func (l *lane) sendFile(ctx context.Context, data []byte) ([]Result, error) {
	object, err := l.uploadBody(ctx, data)
	if err != nil {
		return nil, err
	}
	all, err := l.reference(ctx, []Reference{{Object: object, Batch: true}})
	if all == nil {
		return nil, err
	}
	results := all[0].Results
	if len(results) == 1 && results[0].Err != nil {
		return nil, results[0].Err
	}
	if len(results) != len(l.added) {
		return nil, malformed(opProduce, errCount(len(results), len(l.added)))
	}
	return results, nil
}

// deliverLarge uploads each message's body, some at once, and submits all by one call.
func (l *lane) deliverLarge(ctx context.Context) {
	references := make([]Reference, len(l.group))
	failures := make([]error, len(l.group))
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxUploads)
	for i, f := range l.group {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			references[i].Message = messageOf(f)
			references[i].Object, failures[i] = l.uploadBody(ctx, f.record.Body)
		})
	}
	wg.Wait()
	submitted := references[:0]
	for i, f := range l.group {
		if failures[i] != nil {
			l.resolve(f, Result{Err: failures[i]})
			continue
		}
		l.added, submitted = append(l.added, f), append(submitted, references[i])
	}
	if len(submitted) == 0 {
		return
	}
	all, err := l.reference(ctx, submitted)
	if all == nil {
		l.resolveAll(l.added, err)
		return
	}
	for i, f := range l.added {
		l.resolve(f, all[i].Results[0])
	}
}

// messageOf gives the message back that a record was made of, without its body.
func messageOf(f *Future) Message {
	r := &f.record
	m := Message{Key: r.Key, Headers: r.Headers.Map(), TTL: r.TTL, DedupID: string(r.DedupID)}
	if r.HasDelay {
		delay := r.Delay
		m.Delay = &delay
	}
	return m
}

func (l *lane) uploadBody(ctx context.Context, body []byte) (o Object, err error) {
	_, err = l.persist(ctx, func(ctx context.Context) error {
		o, err = l.p.client.UploadBytes(ctx, l.p.topic, body)
		return err
	})
	return o, err
}

// reference submits objects. Without results the error is of all of them.
func (l *lane) reference(ctx context.Context, references []Reference) (all []ReferenceResult, err error) {
	err = l.guarded(ctx, func(ctx context.Context, guard Guard) error {
		call, answer := referenceCall(l.p.topic, references, guard)
		call.attempts = 1
		if err := l.p.client.onProduce(ctx, l.p.topic, call); err != nil {
			return err
		}
		got, err := referenceResults(call.op, answer, references)
		if err != nil {
			return err
		}
		all = got
		for i := range all {
			if err := firstRetryable(all[i].Results); err != nil {
				return err
			}
		}
		return nil
	})
	if all == nil {
		return nil, err
	}
	for i := range all {
		all[i].Results, _ = settled(all[i].Results, err) // none of them is nil
	}
	return all, nil
}

// guarded makes a call under the lane's next sequence until it has an outcome or ctx ends. The same
// call comes with the same bytes each time.
//
// The lane's first call goes under an Idempotency-Key instead. A head remembers a bounded number of
// producers, for minutes; a program that sends one batch and ends should not take a place there. Once
// a lane goes on, sequences are cheaper.
func (l *lane) guarded(ctx context.Context, try func(context.Context, Guard) error) error {
	l.sequence++
	guard := Guard{ProducerID: l.id, Sequence: l.sequence}
	if l.sequence == 1 {
		guard = Guard{IdempotencyKey: l.id}
	}
	unsure, err := l.persist(ctx, func(ctx context.Context) error { return try(ctx, guard) })
	if queue.CodeOf(err) == queue.CodeSequenceOutOfOrder {
		// The server knows a later sequence of this id. What follows must not fail for the same
		// reason.
		l.id, l.sequence = l.p.client.ids.ID(), 0
	}
	var partial *partialError
	if err == nil || !unsure || errors.As(err, &partial) {
		return err
	}
	// The last try may have failed for certain; one before it may have stored the messages.
	return &failure{&queue.Error{
		Op: opProduce, Subject: l.p.topic, Kind: queue.KindOutcomeUnknown, Err: err,
		Message: "given up; the messages may be stored all the same",
	}}
}

// persist tries until there is an outcome or ctx ends.
func (l *lane) persist(ctx context.Context, try func(context.Context) error) (unsure bool, err error) {
	for failed := 1; ; failed++ {
		err = try(ctx)
		if err == nil {
			return false, nil
		}
		unsure = unsure || ambiguous(err)
		if !retryable(err, true) || !sleep(ctx, l.p.client.pause(failed, err)) {
			return unsure, err
		}
	}
}

// partialError is the error of some of a call's messages; the others have their ids.
type partialError struct{ error }

func (e *partialError) Unwrap() error { return e.error }

// firstRetryable gives the first error that trying the same call again may better.
func firstRetryable(results []Result) error {
	for i := range results {
		if err := results[i].Err; err != nil && retryable(err, true) {
			return &partialError{err}
		}
	}
	return nil
}

// settled gives the results of a call that ended with err. A partial error is in the results already.
// Where the last try gave none, messages that an earlier one gave ids are stored all the same.
func settled(results []Result, err error) ([]Result, error) {
	var partial *partialError
	switch {
	case err == nil || errors.As(err, &partial):
		return results, nil
	case results == nil:
		return nil, err
	}
	for i := range results {
		if results[i].Err != nil {
			results[i].Err = err
		}
	}
	return results, nil
}
