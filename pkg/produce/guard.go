package produce

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// guarded is the state of a call that is safe to repeat.
//
// A producer's sequence is judged by the heads themselves, so on a normal topic it costs no store
// call. An Idempotency-Key has a record (meta.Attempt): it is put before the call does anything, and
// holds the answer after. A try that finds the record of an unfinished one waits for its deadline;
// past it, it takes over under the same nonce and looks for what the first one committed.
type guarded struct {
	producer string
	sequence uint64
	// attempt is the call's record: always there under an Idempotency-Key; for a producer only
	// once a call writes to the delayed index. version is 0 if the record is not stored yet.
	attempt *meta.Attempt
	version meta.Version
	// switching is what a producer's call needs on a topic that became delayed, or normal, lately.
	switching
}

func validateGuard(g Guard) error {
	if g.ProducerID != "" {
		if err := queue.ValidateToken("producer.id", g.ProducerID, queue.MaxProducerIDBytes); err != nil {
			return err
		}
		if g.Sequence == 0 || g.Sequence > uint64(queue.MaxOffset) {
			return queue.Invalid("producer.sequence", uint64(queue.MaxOffset), "must be from 1 to %d", uint64(queue.MaxOffset))
		}
	}
	if g.IdempotencyKey != "" {
		if g.ProducerID != "" {
			return queue.Invalid("Idempotency-Key", nil, "cannot be used together with a producer's sequence")
		}
		return queue.ValidateToken("Idempotency-Key", g.IdempotencyKey, queue.MaxIdempotencyKeyBytes)
	}
	return nil
}

func token(kind, s string) string {
	sum := sha256.Sum256([]byte(s))
	return kind + hex.EncodeToString(sum[:])
}

// begin sets the guard up; done means that the answer is known already.
func (c *call) begin(ctx context.Context, g Guard) (answer Answer, done bool, err error) {
	switch {
	case g.ProducerID != "":
		sum := sha256.Sum256([]byte(g.ProducerID + "\x00" + string(binarySequence(g.Sequence))))
		copy(c.nonce[:], sum[:])
		c.guard = &guarded{producer: g.ProducerID, sequence: g.Sequence}
		if !c.topic.Topic.EverDelayed() {
			return Answer{}, false, nil
		}
		return Answer{}, false, c.beginProducer(ctx)
	case g.IdempotencyKey != "":
		return c.beginKey(ctx, g)
	}
	return Answer{}, false, nil
}

func binarySequence(n uint64) []byte {
	return []byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// beginKey takes the record of an Idempotency-Key, or answers from it.
func (c *call) beginKey(ctx context.Context, g Guard) (Answer, bool, error) {
	fresh := &meta.Attempt{
		Topic: c.topic.ID(), Token: token("k-", g.IdempotencyKey), Hash: g.BodyHash,
		Nonce: c.nonce, Created: c.created, Deadline: c.created.Add(queue.CommitTimeout),
		Expires: c.created.Add(queue.IdempotencyWindow), Times: c.times,
	}
	c.guard = &guarded{attempt: fresh}
	put := meta.Put{Record: fresh, If: meta.Absent(), Version: meta.NewVersion(c.IDs)}
	_, err := c.Meta.Apply(ctx, put)
	refused, isRefused := meta.AsRefused(err)
	switch {
	case err == nil:
		c.guard.version = put.Version
		return Answer{}, false, nil
	case isRefused && refused.Current != nil && refused.Current.Version == put.Version:
		// The store's client sent our own put twice.
		c.guard.version = put.Version
		return Answer{}, false, nil
	case isRefused && refused.Current != nil:
		return c.secondTry(ctx, refused.Current, fresh)
	case queue.Is(err, queue.KindOutcomeUnknown):
		item, gerr := c.Meta.Get(ctx, fresh.Key())
		if gerr == nil && item.Version == put.Version {
			c.guard.version = put.Version
			return Answer{}, false, nil
		}
		return Answer{}, false, err
	}
	return Answer{}, false, err
}

// secondTry judges a key that was used before.
func (c *call) secondTry(ctx context.Context, item *meta.Item, fresh *meta.Attempt) (Answer, bool, error) {
	last, ok := item.Record.(*meta.Attempt)
	if !ok {
		return Answer{}, false, &queue.Error{Op: "produce", Subject: c.topic.Name, Kind: queue.KindCorrupt}
	}
	next := *fresh
	if last.Expires > c.created {
		switch {
		case last.Hash != fresh.Hash:
			return Answer{}, false, &queue.Error{
				Op: "produce", Subject: c.topic.Name, Kind: queue.KindInvalid, Code: queue.CodeIdempotencyMismatch,
				Field: "Idempotency-Key", Message: "the key was used with another body",
			}
		case last.Answer != nil:
			answer, err := decodeAnswer(last.Answer)
			return answer, err == nil, err
		case last.Deadline > c.created && last.Deadline.Sub(c.created) <= queue.CommitTimeout+queue.ClockSlack:
			return Answer{}, false, inProgress(c.topic.Name, min(last.Deadline.Sub(c.created), time.Second))
		}
		// Over, or from before the clock was set back, which tells nothing of whether it is: taking over is safe in
		// any case, and waiting would take as long as the clock was ahead.
		next = *last
		next.Deadline = fresh.Deadline
		c.again = true
	}
	put := meta.Put{Record: &next, If: meta.At(item.Version), Version: meta.NewVersion(c.IDs)}
	if _, err := c.Meta.Apply(ctx, put); err != nil {
		r, isRefused := meta.AsRefused(err)
		switch {
		case isRefused && r.Current != nil && r.Current.Version == put.Version:
			// The store's client sent our own put twice.
		case isRefused:
			return Answer{}, false, inProgress(c.topic.Name, time.Second)
		default:
			return Answer{}, false, err
		}
	}
	c.guard = &guarded{attempt: &next, version: put.Version}
	c.nonce, c.created, c.times = next.Nonce, next.Created, next.Times
	return Answer{}, false, nil
}

func inProgress(topic string, wait time.Duration) error {
	return &queue.Error{
		Op: "produce", Subject: topic, Kind: queue.KindConflict, Code: queue.CodeIdempotencyInProgress,
		RetryAfter: wait, Message: "a call with this Idempotency-Key is under way",
	}
}

// delayedDone reports whether an earlier try put the call's entries; their ids are then noted.
func (g *guarded) delayedDone(c *call, parts []part) bool {
	if g.attempt == nil || len(g.attempt.Delayed) == 0 {
		return false
	}
	stored, err := decodeAnswer(g.attempt.Delayed)
	if err != nil {
		// The note of a call with more entries (putMany): these are other messages.
		c.refuse(parts, usedBefore(c.topic.Name))
		return true
	}
	for _, run := range stored.Runs {
		for i := range run.Count {
			if pos := run.First + i; pos < len(c.results) && run.Delayed != nil {
				id := *run.Delayed
				id.Index += uint32(i) // #nosec G115 -- bounded by MaxBatchRecords
				c.results[pos].delayed, c.results[pos].visible = &id, run.Visible
			}
		}
	}
	for _, p := range parts {
		for _, rec := range p.records() {
			if c.results[rec.pos].delayed == nil {
				c.results[rec.pos].err = usedBefore(c.topic.Name)
			}
		}
	}
	return true
}

// putEntries puts all entries and, in the same transaction, the note that they are put.
func (g *guarded) putEntries(ctx context.Context, c *call, entries []meta.Op) error {
	delayed := Answer{}
	for _, run := range c.answer().Runs {
		if run.Delayed != nil {
			delayed.Runs = append(delayed.Runs, run)
		}
	}
	data, err := encodeAnswer(delayed)
	if err != nil {
		return err
	}
	return g.putNoted(ctx, c, data, entries)
}

// putNoted puts entries and, in the same transaction, a note of them in the attempt record; and voids
// what a try of the call that found a normal topic may still append.
func (g *guarded) putNoted(ctx context.Context, c *call, note []byte, entries []meta.Op) error {
	next := *g.attempt
	next.Delayed = note
	if next.Expires == 0 || g.producer != "" {
		next.Expires = c.created.Add(queue.ProducerWindow)
	}
	for range maxRoutes {
		voids, err := c.voids()
		if err == nil && 1+len(entries)+len(voids) > meta.MaxTransactOps {
			err = tooWide(c.topic.Name)
		}
		if err != nil {
			return err
		}
		err = g.write(ctx, c, &next, slices.Concat(entries, voids))
		r, refused := meta.AsRefused(err)
		switch {
		case err == nil:
			g.rivals = nil
			return nil
		case !refused:
			return err
		case r.Index <= len(entries):
			return underWay(c.topic.Name, r)
		}
		if err := c.notVoided(ctx, r); err != nil {
			return err
		}
	}
	return &queue.Error{Op: "produce", Subject: c.topic.Name, Kind: queue.KindThrottled, Message: "the topic's segments change faster than the call can follow"}
}

// write puts the attempt record, on condition of the version that was read, and other ops with it.
func (g *guarded) write(ctx context.Context, c *call, next *meta.Attempt, with []meta.Op) error {
	put := meta.Put{Record: next, If: meta.Absent(), Version: meta.NewVersion(c.IDs)}
	if g.version != 0 {
		put.If = meta.At(g.version)
	}
	var err error
	if len(with) == 0 {
		_, err = c.Meta.Apply(ctx, put)
	} else {
		_, err = c.Meta.Transact(ctx, append([]meta.Op{put}, with...))
	}
	if queue.Is(err, queue.KindOutcomeUnknown) {
		if item, gerr := c.Meta.Get(ctx, next.Key()); gerr == nil && item.Version == put.Version {
			err = nil
		}
	}
	if r, ok := meta.AsRefused(err); ok && r.Index == 0 && r.Current != nil && r.Current.Version == put.Version {
		err = nil // the store's client sent our own twice
	}
	if err != nil {
		return err
	}
	g.attempt, g.version = next, put.Version
	return nil
}

func underWay(topic string, cause error) error {
	return &queue.Error{
		Op: "produce", Subject: topic, Kind: queue.KindConflict, Code: queue.CodeConflict, Err: cause,
		Message: "another call of the same producer or Idempotency-Key is under way",
	}
}

// finish keeps the answer of a call under an Idempotency-Key. An answer that a retry could better is
// not kept: the record is left to the next try.
func (c *call) finish(ctx context.Context, answer Answer) {
	g := c.guard
	if g == nil || g.producer != "" {
		return
	}
	for _, run := range answer.Runs {
		if queue.Retryable(run.Err) {
			c.abandon(ctx)
			return
		}
	}
	data, err := encodeAnswer(answer)
	if err != nil {
		return
	}
	next := *g.attempt
	next.Answer = data
	// If this write fails the messages are in and the caller is told so; a retry finds them by the
	// nonce once the deadline has passed.
	_, _ = c.Meta.Apply(ctx, meta.Put{Record: &next, If: meta.At(g.version), Version: meta.NewVersion(c.IDs)})
}

// abandon lets the next try of an Idempotency-Key begin at once. What this one may have sent is over:
// every store call has returned.
func (c *call) abandon(ctx context.Context) {
	g := c.guard
	if g == nil || g.producer != "" || g.version == 0 {
		return
	}
	next := *g.attempt
	next.Deadline = 0
	_, _ = c.Meta.Apply(context.WithoutCancel(ctx), meta.Put{Record: &next, If: meta.At(g.version), Version: meta.NewVersion(c.IDs)})
}

// storedRun is a Run as an attempt record keeps it.
type storedRun struct {
	First    int              `json:"first"`
	Count    int              `json:"count"`
	Segment  queue.SegmentID  `json:"segment,omitempty"`
	Offset   queue.Offset     `json:"offset,omitempty"`
	Delayed  *queue.DelayedID `json:"delayed,omitempty"`
	Created  queue.Millis     `json:"created,omitempty"`
	Visible  queue.Millis     `json:"visible,omitempty"`
	Expires  queue.Millis     `json:"expires,omitempty"`
	Warnings []Warning        `json:"warnings,omitempty"`
	Err      *storedError     `json:"error,omitempty"`
}

type storedError struct {
	Kind    queue.Kind `json:"kind"`
	Code    queue.Code `json:"code"`
	Message string     `json:"message"`
	Field   string     `json:"field,omitempty"`
	Limit   any        `json:"limit,omitempty"`
}

func encodeAnswer(a Answer) ([]byte, error) {
	out := make([]storedRun, len(a.Runs))
	for i, r := range a.Runs {
		out[i] = storedRun{
			First: r.First, Count: r.Count, Segment: r.ID.Segment, Offset: r.ID.Offset, Delayed: r.Delayed,
			Created: r.Created, Visible: r.Visible, Expires: r.Expires, Warnings: r.Warnings,
		}
		var e *queue.Error
		if asError(r.Err, &e) {
			out[i].Err = &storedError{e.Kind, e.APICode(), e.Error(), e.Field, e.Limit}
		}
	}
	return json.Marshal(out)
}

func decodeAnswer(data []byte) (Answer, error) {
	var in []storedRun
	if err := json.Unmarshal(data, &in); err != nil {
		return Answer{}, &queue.Error{Op: "decode answer", Kind: queue.KindCorrupt, Err: err}
	}
	a := Answer{Runs: make([]Run, len(in))}
	for i, r := range in {
		a.Runs[i] = Run{
			First: r.First, Count: r.Count, ID: queue.MessageID{Segment: r.Segment, Offset: r.Offset}, Delayed: r.Delayed,
			Created: r.Created, Visible: r.Visible, Expires: r.Expires, Warnings: r.Warnings,
		}
		if r.Err != nil {
			a.Runs[i].Err = &queue.Error{Op: "produce", Kind: r.Err.Kind, Code: r.Err.Code, Message: r.Err.Message, Field: r.Err.Field, Limit: r.Err.Limit}
		}
	}
	return a, nil
}
