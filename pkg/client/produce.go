package client

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Message is one message to produce. Key and Body must not change until the message has its result.
type Message struct {
	// Key is the partition key, at most queue.MaxKeyBytes; messages of one key keep their order.
	// Without it the topic's partition_key rule decides, and without that any segment will do.
	Key  []byte
	Body []byte
	// Headers are bounded by queue.MaxHeaders and queue.MaxHeadersBytes.
	Headers map[string]string
	// Delay is the message's own delay, 0 to the topic's max_delay; nil takes the topic's default.
	// It is honoured on delayed topics only: elsewhere the result has the warning delay_ignored.
	Delay *time.Duration
	// TTL is the message's life from its creation, to milliseconds, up to queue.MaxTTL; 0 takes the
	// topic's default.
	TTL     time.Duration
	DedupID string
}

// Result is what became of one message.
type Result struct {
	// ID names the message if it is in a segment; Delayed if it waits for its visible time. Both
	// are zero if Err is set.
	ID      MessageID
	Delayed DelayedID
	// Created is the commit time, Visible when the message becomes claimable; Expires is zero if it
	// never does.
	Created, Visible, Expires time.Time
	// Warnings are words such as "delay_ignored". They are shared and must not be changed.
	Warnings []string
	// Err says why the message was refused: an *APIError, or what a Producer gave up with.
	Err error
}

// Guard makes a produce call safe to repeat: a producer's id and sequence (from 1, growing with each
// call), or an Idempotency-Key, not both. A repetition must have the same messages.
type Guard struct {
	ProducerID     string
	Sequence       uint64
	IdempotencyKey string
}

func (g Guard) set() bool { return g.ProducerID != "" || g.IdempotencyKey != "" }

func (g Guard) producer() *wire.Producer {
	if g.ProducerID == "" {
		return nil
	}
	return &wire.Producer{ID: g.ProducerID, Sequence: &g.Sequence}
}

// Produce sends messages in one call and gives each its result, in order: one that is refused does
// not fail the others. An error is of the call as a whole. Without a guard a call whose answer is
// lost is not made again; the error is then of KindOutcomeUnknown. For a stream of messages a
// Producer is better.
func (c *Client) Produce(ctx context.Context, topic string, messages []Message, guard Guard) ([]Result, error) {
	enc := batch.NewEncoder(batch.Options{})
	results := make([]Result, len(messages))
	added := make([]int, 0, len(messages))
	nonce, slot := c.identity(topic, guard)
	for i := range messages {
		rec, err := recordOf(&messages[i], slot)
		if err == nil {
			err = enc.Add(&rec)
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		added = append(added, i)
	}
	if len(added) == 0 && len(messages) > 0 {
		return results, nil
	}
	if enc.SizeBound() > c.maxBody {
		return nil, queue.TooLarge("messages", c.maxBody, enc.SizeBound())
	}
	data, err := enc.Finish(nil, nonce)
	if err != nil {
		return nil, err
	}
	records, err := c.ProduceBatch(ctx, topic, data, guard)
	if err != nil {
		return nil, err
	}
	for pos, n := range enc.Order() {
		results[added[n]] = records[pos]
	}
	return results, nil
}

// identity gives a batch's nonce and the slot of its records without a key: random ones, or, under a
// guard, the same for the same call, because a repetition is known by its bytes.
func (c *Client) identity(topic string, guard Guard) (nonce [batch.NonceSize]byte, slot queue.Slot) {
	if !guard.set() {
		return c.ids.Nonce(), c.jitter.slot(queue.Ring())
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %q", topic, guard.ProducerID, guard.Sequence, guard.IdempotencyKey))
	copy(nonce[:], sum[:])
	return nonce, queue.Slot(binary.LittleEndian.Uint16(sum[batch.NonceSize:]))
}

// recordOf gives a message the form of the batch format; slot is for one without a key.
func recordOf(m *Message, slot queue.Slot) (batch.Record, error) {
	headers, err := batch.MakeHeaders(m.Headers)
	if err != nil {
		return batch.Record{}, err
	}
	rec := batch.Record{Slot: slot, Key: m.Key, Headers: headers, Body: m.Body, TTL: m.TTL}
	if len(m.Key) > 0 {
		rec.Slot = queue.SlotOf(m.Key)
	}
	if m.Delay != nil {
		rec.Delay, rec.HasDelay = *m.Delay, true
	}
	if m.DedupID != "" {
		rec.DedupID = []byte(m.DedupID)
	}
	return rec, nil
}

// ProduceBatch sends one encoded batch of pkg/batch, at most Options.MaxRequestBytes, as it is. Results
// are of its records, in the order in which the batch holds them (batch.Encoder's Order leads back).
// Otherwise it is as Produce.
func (c *Client) ProduceBatch(ctx context.Context, topic string, encoded []byte, guard Guard) ([]Result, error) {
	if int64(len(encoded)) > c.maxBody {
		return nil, queue.TooLarge("body", c.maxBody, int64(len(encoded)))
	}
	h, err := batch.ParseHeader(encoded)
	if err != nil {
		return nil, err
	}
	call := produceCall(topic, encoded, guard)
	var answer wire.RunsAnswer
	call.out = &answer
	if err := c.onProduce(ctx, topic, call); err != nil {
		return nil, err
	}
	out := make([]Result, h.Records)
	return out, expand(call.op, answer.Runs, out)
}

func produceCall(topic string, encoded []byte, guard Guard) *call {
	return &call{
		op: "produce", method: http.MethodPost, path: topicPath(topic, "messages"),
		body: encoded, mediaType: wire.MediaTypeBatch, guard: guard, repeatable: guard.set(),
	}
}

// onProduce makes a call that may be repeated only under a guard.
func (c *Client) onProduce(ctx context.Context, topic string, call *call) error {
	if err := queue.ValidateTopicName("topic", topic); err != nil {
		return err
	}
	_, err := c.do(ctx, call)
	return err
}

// expand gives each record its result. Runs must cover every record once.
func expand(op string, runs []wire.Run, out []Result) error {
	covered := 0
	for i := range runs {
		r := &runs[i]
		if r.First < 0 || r.Count < 1 || r.First > len(out) || r.Count > len(out)-r.First {
			return malformed(op, fmt.Errorf("it speaks of records [%d,+%d) of %d", r.First, r.Count, len(out)))
		}
		if err := expandRun(op, r, out[r.First:r.First+r.Count]); err != nil {
			return malformed(op, err)
		}
		covered += r.Count
	}
	if covered != len(out) {
		return malformed(op, errCount(covered, len(out)))
	}
	return nil
}

func expandRun(op string, r *wire.Run, out []Result) error {
	first := Result{
		Created: r.CreatedAt.Millis().Time(), Visible: r.VisibleAt.Millis().Time(),
		Expires: r.ExpiresAt.Millis().Time(), Warnings: r.Warnings, Err: apiError(op, r.Error),
	}
	switch {
	case first.Err != nil:
	case r.DelayedID != "":
		id, err := queue.ParseDelayedID(r.DelayedID)
		if err != nil {
			return err
		}
		first.Delayed = id
	case !queue.ValidID(string(r.Segment)):
		return errors.New("a run has neither a segment nor an error")
	default:
		first.ID = MessageID{Segment: r.Segment, Offset: r.Offset}
	}
	for i := range out {
		out[i] = first
		switch {
		case first.Err != nil:
		case r.DelayedID != "":
			out[i].Delayed.Index += uint32(i) // #nosec G115 -- bounded by MaxBatchRecords
		default:
			out[i].ID.Offset += queue.Offset(i) // #nosec G115 -- an index
		}
	}
	return nil
}

// resultOf gives the result of a message that went by reference.
func resultOf(op string, in *wire.ProduceResult) (Result, error) {
	r := Result{
		Created: in.CreatedAt.Millis().Time(), Visible: in.VisibleAt.Millis().Time(),
		Expires: in.ExpiresAt.Millis().Time(), Warnings: in.Warnings, Err: apiError(op, in.Error),
	}
	var err error
	switch {
	case r.Err != nil:
	case in.DelayedID != "":
		r.Delayed, err = queue.ParseDelayedID(in.DelayedID)
	default:
		r.ID, err = queue.ParseMessageID(in.ID)
	}
	if err != nil {
		return r, malformed(op, err)
	}
	return r, nil
}
