package histories

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// producer makes one call after another, each again until it has an answer if it has a guard.
type producer struct {
	id    string
	calls uint64
}

const tries = 6

func (p *producer) call(ctx context.Context, u *user) {
	p.calls++
	op := history.Produce{Span: history.Span{Client: u.number}, Topic: Topic}
	var messages []client.Message
	for i := range 1 + u.rng.IntN(4) {
		body := fmt.Sprintf("%s.%d.%d", p.id, p.calls, i)
		if u.rng.IntN(40) == 0 {
			body += "-" + strings.Repeat("x", 9000) // too large for a record beside the head
		}
		messages = append(messages, client.Message{Key: []byte{'a' + byte(u.rng.IntN(16))}, Body: []byte(body)})
		op.Messages = append(op.Messages, history.Sent{Body: body[:min(len(body), 40)]})
	}
	var guard client.Guard
	switch u.rng.IntN(3) {
	case 0:
		guard = client.Guard{ProducerID: p.id, Sequence: p.calls}
	case 1:
		guard = client.Guard{IdempotencyKey: fmt.Sprintf("%s-%d", p.id, p.calls)}
	}
	pending := u.rec.Produce(op)
	fates := make([]history.Sent, len(messages))
	copy(fates, op.Messages)
	for try := range tries {
		results, err := u.client().Produce(ctx, Topic, messages, guard)
		again := judgeTry(u, fates, results, err, try)
		if !again || guard == (client.Guard{}) || ctx.Err() != nil {
			break
		}
		time.Sleep(u.o.Pace << try)
	}
	pending.End(func(op *history.Produce) { copy(op.Messages, fates) })
	for i := range fates {
		u.count("produce", fates[i].Answer)
	}
}

// judgeTry takes the answers of one try down. A message that a try before may have put somewhere is not refused
// by what a later one says.
func judgeTry(u *user, fates []history.Sent, results []client.Result, err error, try int) (again bool) {
	for i := range fates {
		f := &fates[i]
		of := err
		if of == nil {
			of = results[i].Err
		}
		switch a := answer(of); {
		case a == history.OK && f.Answer == history.OK && f.At != results[i].ID:
			u.fault("%s was at %s and then at %s", f.Body, f.At, results[i].ID)
		case a == history.OK:
			f.Answer, f.At = history.OK, results[i].ID
		case f.Answer == history.OK:
		case a == history.Unknown || try > 0 && f.Answer == history.Unknown:
			f.Answer = history.Unknown
		default:
			f.Answer = history.Void
		}
		if of != nil {
			u.strange("produce", of)
			again = true
		}
	}
	return again
}

// consumer claims, and acks, releases, extends or forgets what it gets.
type consumer struct {
	sub string
	// all: ack everything.
	all bool
	// got is how many messages the last call brought.
	got int
}

func (c *consumer) call(ctx context.Context, u *user) { _ = c.claim(ctx, u) }

// claim makes one claim call and settles what it brings. Its error is the claim's.
func (c *consumer) claim(ctx context.Context, u *user) error {
	hold := u.o.Visibility
	o := client.ClaimOptions{MaxMessages: 1 + u.rng.IntN(12), VisibilityTimeout: hold, Wait: time.Duration(u.rng.IntN(2)) * u.o.Pace}
	if c.all {
		o.MaxMessages = 200
	}
	pending := u.rec.Claim(history.Claim{Span: history.Span{Client: u.number}, Topic: Topic, Subscription: c.sub, Hold: hold})
	got, err := u.client().Claim(ctx, Topic, c.sub, o)
	u.strange("claim", err)
	c.got = len(got)
	a := answer(err)
	if err != nil {
		a = history.Unknown // it may have taken some before it failed
	}
	u.count("claim", a)
	pending.End(func(op *history.Claim) {
		op.Answer = a
		for _, m := range got {
			op.Got = append(op.Got, history.Delivery{
				ID: m.ID, Body: bodyOf(m), Claim: m.Receipt.Claim, Attempt: m.Attempt, Ends: m.ClaimExpires.Sub(u.began.Round(0)),
			})
		}
	})
	if c.sub == Subscription {
		u.mu.Lock()
		for _, m := range got {
			u.delivered[bodyOf(m)] = true
		}
		u.mu.Unlock()
	}
	c.settle(ctx, u, got)
	return err
}

func bodyOf(m *client.Received) string { return string(m.Body[:min(len(m.Body), 40)]) }

func (c *consumer) settle(ctx context.Context, u *user, got []*client.Received) {
	var by [history.Extend + 1][]client.Receipt
	for _, m := range got {
		switch n := u.rng.IntN(20); {
		case c.all || n < 12:
			by[history.Ack] = append(by[history.Ack], m.Receipt)
		case n < 15:
			by[history.Release] = append(by[history.Release], m.Receipt)
		case n < 17:
			by[history.Extend] = append(by[history.Extend], m.Receipt)
		case n < 19:
			// Acked late, perhaps too late.
			c.late(ctx, u, m.Receipt)
		}
	}
	for kind, receipts := range by {
		if len(receipts) > 0 {
			c.settleAs(ctx, u, history.SettleKind(kind), receipts)
		}
	}
}

// late acks after a while, on the side.
func (c *consumer) late(ctx context.Context, u *user, r client.Receipt) {
	other := u.Clients.user(u.number)
	wait := time.Duration(u.rng.Int64N(int64(2 * u.o.Visibility)))
	u.all.Go(func() {
		defer other.close()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		c.settleAs(ctx, other, history.Ack, []client.Receipt{r})
	})
}

func (c *consumer) settleAs(ctx context.Context, u *user, kind history.SettleKind, receipts []client.Receipt) {
	op := history.Settle{Span: history.Span{Client: u.number}, Topic: Topic, Subscription: c.sub, Kind: kind}
	switch kind {
	case history.Release:
		op.For = time.Duration(u.rng.IntN(2)) * u.o.Visibility / 2
		op.Uncounted = u.rng.IntN(3) == 0
	case history.Extend:
		op.For = u.o.Visibility
	case history.Ack:
	}
	for _, r := range receipts {
		op.Receipts = append(op.Receipts, history.Settled{ID: queue.MessageID{Segment: r.Segment, Offset: r.Lo}, Claim: r.Claim})
	}
	pending := u.rec.Settle(op)
	var errs []error
	var err error
	what := [...]string{"ack", "release", "extend"}[kind]
	switch kind {
	case history.Ack:
		errs, err = u.client().Ack(ctx, Topic, c.sub, receipts)
	case history.Release:
		errs, err = u.client().Release(ctx, Topic, c.sub, receipts, client.ReleaseOptions{Delay: op.For, HasDelay: true, Uncounted: op.Uncounted})
	case history.Extend:
		errs, err = u.client().Extend(ctx, Topic, c.sub, receipts, op.For)
	}
	pending.End(func(op *history.Settle) {
		for i := range op.Receipts {
			of := err
			if of == nil {
				of = errs[i]
			}
			u.strange(what, of)
			op.Receipts[i].Answer = answer(of, queue.CodeClaimLost)
			u.count(what, op.Receipts[i].Answer)
		}
	})
}

// reader follows segments to their ends.
type reader struct {
	next map[queue.SegmentID]queue.Offset
}

const page = 50

func (r *reader) call(ctx context.Context, u *user) {
	if r.next == nil || u.rng.IntN(40) == 0 {
		r.next = make(map[queue.SegmentID]queue.Offset) // all of it once more
	}
	list, err := r.segments(ctx, u)
	if err != nil {
		return // while faults last, what fails shows nothing
	}
	for _, id := range list {
		_, _ = r.read(ctx, u, id)
	}
}

// segments lists the topic's segments: all of them, or an error.
func (r *reader) segments(ctx context.Context, u *user) ([]queue.SegmentID, error) {
	var out []queue.SegmentID
	for seg, err := range u.client().Segments(ctx, Topic) {
		if err != nil {
			u.strange("segments", err)
			return nil, err
		}
		out = append(out, seg.ID)
	}
	return out, nil
}

// read reads on in a segment; more says that its end was not seen.
func (r *reader) read(ctx context.Context, u *user, id queue.SegmentID) (more bool, _ error) {
	from := r.next[id]
	began := u.rec.Now()
	got, err := u.client().ReadRecords(ctx, Topic, client.RecordsOptions{Segment: id, Offset: from, Limit: page})
	u.strange("read", err)
	u.count("read", answer(err))
	if err != nil {
		return true, err
	}
	op := history.Read{
		Span: history.Span{Client: u.number}, Topic: Topic, Segment: id, From: from, Next: got.NextOffset,
		AtEnd: len(got.Messages) < page, Sealed: got.EndOfSegment,
	}
	for _, m := range got.Messages {
		op.Seen = append(op.Seen, history.Seen{Offset: m.ID.Offset, Body: bodyOf(m)})
	}
	if got.NextOffset < from {
		u.fault("a read of %s from %d goes back to %d", id, from, got.NextOffset)
	}
	u.rec.Read(began, op)
	r.next[id] = got.NextOffset
	return !op.AtEnd && !op.Sealed, nil
}

// toEnd reads all segments from the beginning to the end. What fails is tried again, as a process may just have begun; what
// fails for good is an error that tells how far it came: a history without its end would be easier to satisfy.
func (r *reader) toEnd(ctx context.Context, u *user) error {
	r.next = make(map[queue.SegmentID]queue.Offset)
	var list []queue.SegmentID
	err := u.insist(ctx, func() (err error) {
		list, err = r.segments(ctx, u)
		return err
	})
	if err != nil {
		return fmt.Errorf("list the segments: %w", err)
	}
	for n, id := range list {
		for more := true; more; {
			err := u.insist(ctx, func() (err error) {
				more, err = r.read(ctx, u, id)
				return err
			})
			if err != nil {
				return fmt.Errorf("read segment %s, %d of %d, from offset %d (what was read: %v): %w", id, n+1, len(list), r.next[id], r.next, err)
			}
		}
	}
	return nil
}
