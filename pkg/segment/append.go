package segment

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Commit is what Append appends: refs that share their fate.
type Commit struct {
	Segment *meta.Segment
	Refs    []meta.Ref
	// At is the commit time, Deadline when the commit is void at the latest.
	At, Deadline queue.Millis
	// Producer makes the commit idempotent; nil for none.
	Producer *meta.Sequence
	// Payload goes before the head update, in the same write where the driver can; nil for none.
	Payload *meta.Payload
	// Buckets is as in meta.Append.
	Buckets [queue.LoadBuckets]uint32
	// Again says that an earlier call may have appended the same refs (same ID and First): they
	// are looked for before anything is written.
	Again bool
}

// Committed is where a commit's messages are.
type Committed struct {
	// Offset is the first message's; the others follow.
	Offset queue.Offset
	// Count is the number of messages: the first commit's, if Repeated.
	Count int
	// Repeated: the refs were there already, by an earlier call.
	Repeated bool
	// At is the commit time that the messages have: the first commit's, if Repeated.
	At queue.Millis
	// Head is the head as the append left it; nil if Repeated or if the answer was lost.
	Head *meta.Head
	// Pressed says that the store refused tries of the commit for being asked too much; it is set of one that
	// failed, too.
	Pressed bool
}

const (
	// maxTries bounds the store calls that one commit makes: each has a reason of its own (tail
	// full, unknown outcome, ...), and more of them mean that the segment is too busy.
	maxTries = 12
	// maxWalk bounds the pages read when an append is looked for.
	maxWalk = 256
)

// Append commits refs to an open segment, at most once:
//
//   - The head refuses a ref that its tail holds, so the store client's own blind retry is harmless.
//   - A lost answer is resolved by reading: refs that are found were appended. If they are not
//     found, the retry carries SeenFrom, the next offset at the time of the look: it is refused if
//     anything after that look may have left the tail, else the tail check covers it.
//   - The retry leaves a mark in the head, among the producers, that makes the earlier request void
//     however late it arrives. (Without one, a request that travelled while the retry's ref came and
//     left the tail would be appended again.) A producer's own sequence does the same.
//
// Errors: Sealed, Fenced and NotFound tell that the segment map is old (nothing was appended);
// Conflict with CodeSequenceOutOfOrder that the producer's sequence is older than the last;
// Throttled and Unavailable that nothing was appended; OutcomeUnknown that the refs may or may not be
// there: the same commit with Again set finds out.
func (l *Log) Append(ctx context.Context, c Commit) (Committed, error) {
	t := &try{log: l, commit: c, op: meta.Append{
		Segment: c.Segment.ID, Epoch: c.Segment.Epoch, Refs: c.Refs, At: c.At, Deadline: c.Deadline,
		Producer: c.Producer, Payload: c.Payload, Buckets: c.Buckets,
	}}
	if c.Again {
		if done, found, err := t.look(ctx); err != nil || found {
			return done, err
		}
	} else {
		t.floor = l.TailFirst(c.Segment.ID)
	}
	var err error
	for n := range maxTries {
		var done Committed
		var again bool
		if done, again, err = t.once(ctx); !again {
			done.Pressed = t.pressed
			return done, t.told(err)
		}
		t.pressed = t.pressed || queue.Is(err, queue.KindThrottled)
		if _, refused := meta.AsRefused(err); !refused {
			// The store would not; a refusal, in contrast, has been dealt with.
			if serr := l.pause(ctx, n); serr != nil {
				break
			}
		}
	}
	failed := Committed{Pressed: t.pressed}
	if t.unknown {
		return failed, l.fail(c, queue.KindOutcomeUnknown, "the store did not say whether it appended", err)
	}
	if _, refused := meta.AsRefused(err); !refused && err != nil {
		return failed, err // the store knows better than we why it would not
	}
	return failed, l.fail(c, queue.KindThrottled, "too much contention on the segment", err)
}

type try struct {
	log    *Log
	commit Commit
	op     meta.Append
	// unknown: a request of ours may still take effect.
	unknown bool
	// pressed: the store refused a try for being asked too much.
	pressed bool
	// floor is an offset that had left the tail before our first request: what is below it is not ours,
	// whatever the clocks say.
	floor queue.Offset
}

// once makes one attempt. again asks for another; then err says why.
func (t *try) once(ctx context.Context) (done Committed, again bool, err error) {
	res, err := t.log.meta.Apply(ctx, t.op)
	if err == nil {
		head, _ := res.Item.Record.(*meta.Head)
		t.log.cache.noteTail(head)
		if t.rollIsOurs(head, res.Item.Size) {
			t.log.rollLater(ctx, head)
		}
		return Committed{Offset: res.Offset, Count: t.count(), At: t.op.At, Head: head}, false, nil
	}
	if refused, ok := meta.AsRefused(err); ok {
		return t.refused(ctx, refused)
	}
	switch queue.KindOf(err) {
	case queue.KindOutcomeUnknown:
		t.unknown = true
		done, found, lerr := t.look(ctx)
		if lerr != nil {
			return Committed{}, false, t.log.fail(t.commit, queue.KindOutcomeUnknown, "reading after a lost answer", lerr)
		}
		return done, !found, err
	case queue.KindUnavailable, queue.KindThrottled:
		return Committed{}, true, err
	case queue.KindTooLarge:
		return t.makeRoom(ctx, err)
	default:
		return Committed{}, false, err
	}
}

// told is what the caller is told of err: where a request of ours may still take effect, or has, a store
// that would not answer a later one does not mean that nothing was appended.
func (t *try) told(err error) error {
	if err == nil || !t.unknown {
		return err
	}
	switch queue.KindOf(err) {
	case queue.KindUnavailable, queue.KindThrottled, queue.KindCanceled, queue.KindTooLarge:
		return t.log.fail(t.commit, queue.KindOutcomeUnknown, "the store did not say whether it appended", err)
	default:
		return err
	}
}

// rollIsOurs reports whether this commit made the tail long enough to roll: the roll falls to its writer
// and to no other, unless that fails and the tail becomes as long again. A head that large refs have made
// heavy is rolled by whoever sees it.
func (t *try) rollIsOurs(head *meta.Head, size int) bool {
	n := len(head.Tail)
	return n/queue.RollRefs > (n-len(t.op.Refs))/queue.RollRefs || size >= queue.RollBytes
}

// rollFull rolls a tail that has no room, again and again if the store will not: until then each append is
// refused at the price of one that succeeds, so that many writers who went on appending would use up what
// the store allows on a head, and leave nothing for the roll that would help them all.
func (t *try) rollFull(ctx context.Context, head *meta.Head) error {
	var err error
	for n := range maxTries {
		if n > 0 {
			if serr := t.log.pause(ctx, n-1); serr != nil {
				return err
			}
			// Reading is cheap, and a roll that comes second is not.
			now, rerr := t.log.Head(ctx, head.Segment)
			if rerr == nil && (now.TailFirst != head.TailFirst || now.Sealed) {
				return nil
			}
		}
		if err = t.log.Roll(ctx, head); err == nil || !queue.Retryable(err) {
			return err
		}
		t.pressed = t.pressed || queue.Is(err, queue.KindThrottled)
	}
	return err
}

// makeRoom rolls a head whose record has no room for the refs: they may carry keys and headers.
func (t *try) makeRoom(ctx context.Context, cause error) (Committed, bool, error) {
	head, err := t.log.Head(ctx, t.op.Segment)
	if err != nil {
		return Committed{}, false, err
	}
	if len(head.Tail) == 0 {
		return Committed{}, false, cause
	}
	if err := t.log.Roll(ctx, head); err != nil && !queue.Retryable(err) {
		return Committed{}, false, err
	}
	return Committed{}, true, &meta.Refused{Op: t.op.Name(), Key: t.op.Target(), Reason: meta.ReasonTailFull}
}

func (t *try) refused(ctx context.Context, r *meta.Refused) (done Committed, again bool, err error) {
	head := headIn(r)
	switch r.Reason {
	case meta.ReasonTailFull:
		if err := t.rollFull(ctx, head); err != nil {
			return Committed{}, queue.Retryable(err), err
		}
		return Committed{}, true, r
	case meta.ReasonDuplicate:
		// The refs of a commit are appended together, so the first one's place is the commit's.
		off, ref, found := head.Find(t.op.Refs[0].ID, t.op.Refs[0].First)
		if !found {
			return Committed{}, false, t.log.fail(t.commit, queue.KindCorrupt, "the tail holds a part of the commit", r)
		}
		return Committed{Offset: off, Count: t.count(), Repeated: !t.unknown, At: ref.Created}, false, nil
	case meta.ReasonSequence:
		return t.repeated(head, r)
	case meta.ReasonLate, meta.ReasonUnseen:
		// Late: whatever we sent before is void or has been applied; look, and set a new deadline
		// by the head's own clock, as ours may lag behind it.
		done, found, err := t.look(ctx)
		if err != nil || found {
			return done, false, err
		}
		// But not for ever: what was put for a commit that did not come is collected. How much time has
		// passed is for the clock to say that the commit's own time is from: a head that is ahead of it may have
		// been written before that clock was set back, and no commit would come through until it has caught up.
		void := t.commit.At.Add(queue.MaxCommitDelay)
		if r.Reason == meta.ReasonLate && head.LastAppend > void && t.log.clock.Millis() > void {
			kind := queue.KindUnavailable
			if t.unknown {
				kind = queue.KindOutcomeUnknown
			}
			return Committed{}, false, t.log.fail(t.commit, kind, "the commit comes too late and is void", r)
		}
		t.op.Deadline = max(t.op.Deadline, head.LastAppend.Add(queue.CommitTimeout))
		return Committed{}, true, r
	case meta.ReasonProducers:
		if err := t.log.ForgetIdle(ctx, head); err != nil {
			return Committed{}, false, err
		}
		return Committed{}, true, r
	case meta.ReasonSealed, meta.ReasonEpoch:
		// An earlier request of ours may have been in time. Who is told of the seal appends elsewhere.
		if off, ref, found := head.Find(t.op.Refs[0].ID, t.op.Refs[0].First); found {
			return Committed{Offset: off, Count: t.count(), Repeated: !t.unknown, At: ref.Created}, false, nil
		}
		if !t.unknown {
			return Committed{}, false, r
		}
		done, found, err := t.look(ctx)
		switch {
		case err != nil:
			return Committed{}, false, t.log.fail(t.commit, queue.KindOutcomeUnknown, "reading after a lost answer", err)
		case found:
			return done, false, nil
		}
		return Committed{}, false, r
	default:
		return Committed{}, false, r
	}
}

// repeated answers a sequence that is not new: with the first commit's offsets if it is the last one.
func (t *try) repeated(head *meta.Head, r *meta.Refused) (Committed, bool, error) {
	last, _ := head.Producers.Get(t.op.Producer.ID)
	if last.Sequence != t.op.Producer.Number {
		return Committed{}, false, &queue.Error{
			Op: "append", Subject: string(t.op.Segment), Kind: queue.KindConflict, Code: queue.CodeSequenceOutOfOrder,
			Field: "producer.sequence", Limit: last.Sequence, Err: r,
			Message: "the producer's sequence is older than its last one",
		}
	}
	return Committed{Offset: last.First, Count: int(last.Count), Repeated: !t.unknown, At: last.At}, false, nil
}

// ForgetIdle makes room among the producers that a head remembers: those that have been idle for their
// window, or, if there are none, for the least window. Throttled if there are none of these either.
func (l *Log) ForgetIdle(ctx context.Context, head *meta.Head) error {
	now := l.clock.Millis()
	oldest := now
	for i := range head.Producers {
		oldest = min(oldest, head.Producers[i].At)
	}
	horizon := now.Add(-queue.ProducerWindow)
	if oldest >= horizon {
		horizon = now.Add(-queue.MinProducerWindow)
	}
	if oldest >= horizon {
		return &queue.Error{
			Op: "append", Subject: string(head.Segment), Kind: queue.KindThrottled, Field: "producer.id", Limit: queue.MaxHeadProducers,
			Message: "a segment remembers no more producers within their window",
		}
	}
	_, err := l.meta.Apply(ctx, meta.Trim{Segment: head.Segment, First: head.TailFirst, Forget: horizon, Seen: head})
	if err != nil && !meta.IsRefused(err, meta.ReasonTrim) && !queue.Retryable(err) {
		return err
	}
	return nil
}

// look finds out whether the commit's refs have been appended, and notes up to where it has looked.
func (t *try) look(ctx context.Context) (Committed, bool, error) {
	head, err := t.log.Head(ctx, t.op.Segment)
	if err != nil {
		return Committed{}, false, err
	}
	want := &t.op.Refs[0]
	if off, ref, found := head.Find(want.ID, want.First); found {
		return Committed{Offset: off, Count: t.count(), Repeated: !t.unknown, At: ref.Created}, true, nil
	}
	seen := head.Next
	t.op.SeenFrom = &seen
	if t.op.Producer == nil {
		t.op.Producer = &meta.Sequence{ID: meta.Mark(want), Number: 1}
	}
	// What was appended before the commit's own time is older than it, clocks allowing.
	since := want.Created.Add(-queue.CommitTimeout)
	edge := head.TailFirst
	for range maxWalk {
		if edge <= t.floor {
			return Committed{}, false, nil
		}
		page, _, err := t.log.page(ctx, t.op.Segment, edge-1)
		if err != nil {
			return Committed{}, false, err
		}
		off := page.First
		for i := range page.Refs {
			if r := &page.Refs[i]; r.ID == want.ID && r.First == want.First {
				return Committed{Offset: off, Count: t.count(), Repeated: !t.unknown, At: r.Created}, true, nil
			}
			off += queue.Offset(page.Refs[i].Count)
		}
		if page.Rolled < since {
			return Committed{}, false, nil
		}
		edge = page.First
	}
	return Committed{}, false, t.log.fail(t.commit, queue.KindOutcomeUnknown, "the segment moved on too far to tell", nil)
}

func (t *try) count() int { return int(meta.CountOf(t.op.Refs)) } // #nosec G115 -- bounded by MaxBatchRecords

func (l *Log) fail(c Commit, kind queue.Kind, message string, cause error) error {
	return &queue.Error{Op: "append", Subject: string(c.Segment.ID), Kind: kind, Message: message, Err: cause}
}

func headIn(r *meta.Refused) *meta.Head {
	if r.Current == nil {
		return &meta.Head{}
	}
	h, ok := r.Current.Record.(*meta.Head)
	if !ok {
		return &meta.Head{}
	}
	return h
}

// pause waits before try n+1 after a store's refusal to work.
func (l *Log) pause(ctx context.Context, n int) error {
	return queue.Backoff{First: 5 * time.Millisecond, Last: 200 * time.Millisecond}.Wait(ctx, n, l.ids.Jitter)
}
