package meta

import (
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Head is the one small record of a segment that a commit changes.
type Head struct {
	Segment queue.SegmentID
	Sealed  bool
	Epoch   queue.Epoch
	Range   queue.SlotRange
	// Start is the first offset that is readable; what is below was truncated.
	Start queue.Offset
	// Next is the offset that the next message gets.
	Next queue.Offset
	// Bytes is the length of all bodies ever appended.
	Bytes uint64
	// TailFirst is the offset of the first message of Tail[0]; Next if the tail is empty. Offsets
	// of the tail's refs follow from their counts, so that an append need not know its offset.
	TailFirst queue.Offset
	Tail      []Ref
	// LastAppend is the latest commit time of all appends, by the clocks of those who made them. A store
	// may round it up by less than a second: nothing was appended later, and DynamoDB cannot keep a
	// maximum without making commits of the same moment conflict.
	LastAppend queue.Millis
	Producers  Producers
	Load       Load
}

// Load counts, beside Next and Bytes, what a segment took since it was made. The leader turns differences
// into rates.
type Load struct {
	Commits uint64
	// Buckets is the histogram of messages over the segment's slot range.
	Buckets [queue.LoadBuckets]uint64
}

// HeadKey is where a segment's head stands.
func HeadKey(segment queue.SegmentID) Key { return Key{HeadPK(segment), "head"} }

// Key implements Record.
func (h *Head) Key() Key { return HeadKey(h.Segment) }

// Kind implements Record.
func (h *Head) Kind() Kind { return KindHead }

// Find looks an append up in the tail: the ref of that id and first record.
func (h *Head) Find(id RefID, first uint32) (queue.Offset, *Ref, bool) {
	off := h.TailFirst
	for i := range h.Tail {
		if r := &h.Tail[i]; r.ID == id && r.First == first {
			return off, r, true
		}
		off += queue.Offset(h.Tail[i].Count)
	}
	return 0, nil, false
}

// Append adds refs to a segment's head: the commit. One atomic, conditional write; no read before
// it; two appends to one head never conflict with each other. It is refused, in this order, if the
// head is absent, sealed or of another epoch; moved past Deadline (late); the tail no longer reaches
// back to SeenFrom (unseen); holds one of Refs already (duplicate); the producer's sequence is not
// new; too many producers are remembered; or the tail has no room.
//
// The result's Item is the head after the append, Offset the base offset of Refs[0].
type Append struct {
	Segment queue.SegmentID
	Epoch   queue.Epoch
	// Refs are 1 to queue.MaxCommitRefs refs, appended in order.
	Refs []Ref
	// At is the commit time; Deadline, if not 0, voids an append that arrives after one later
	// than it.
	At       queue.Millis
	Deadline queue.Millis
	// Producer makes the append idempotent; nil if the caller is none. Without one the append is also
	// refused (late) if the head has the Mark of Refs[0].
	Producer *Sequence
	// SeenFrom, if set, is an offset from which on the caller has not yet looked for its refs:
	// the append is refused unless the tail still holds everything from there. It makes a retry
	// after an unknown outcome safe: what is before SeenFrom the caller has read, and what is
	// after it the check against the tail covers.
	SeenFrom *queue.Offset
	// Buckets is how many of the messages fall in each load bucket of the head's range.
	Buckets [queue.LoadBuckets]uint32
	// Payload, if any, is put (durably, if absent) before the head changes, at the latest in
	// the same write.
	Payload *Payload
}

// Sequence is an idempotent producer's id and sequence.
type Sequence struct {
	ID     string
	Number uint64
}

// MaxSequenceIDBytes bounds the id of a Sequence: a producer's, and what names its share of a call.
const MaxSequenceIDBytes = queue.MaxProducerIDBytes + 16

// Target implements Op.
func (a Append) Target() Key { return HeadKey(a.Segment) }

// Name implements Op.
func (a Append) Name() string { return "append" }

// Change implements Op.
func (a Append) Change(cur *Item) (*Item, Result, error) {
	h, err := headOf(a, cur)
	if err != nil {
		return nil, Result{}, err
	}
	if reason := a.check(h); reason != 0 {
		return nil, Result{}, refuse(a, cur, reason)
	}
	n := *h
	base := h.Next
	count := CountOf(a.Refs)
	n.Next += queue.Offset(count)
	n.Tail = slices.Concat(h.Tail, a.Refs) // of exact size: heads are copied at each append
	n.LastAppend = max(h.LastAppend, a.At)
	for i := range a.Refs {
		n.Bytes += uint64(a.Refs[i].Bytes) // #nosec G115 -- lengths are not negative
	}
	n.Load.Commits++
	for i, c := range a.Buckets {
		n.Load.Buckets[i] += uint64(c)
	}
	if a.Producer != nil {
		n.Producers = h.Producers.With(a.Producer.ID, ProducerState{
			Sequence: a.Producer.Number, First: base, Count: uint32(count), At: a.At, // #nosec G115 -- bounded by MaxBatchRecords
		})
	}
	next := &Item{Record: &n, Version: cur.Version}
	return next, Result{Item: *next, Offset: base}, nil
}

// Mark is the name under which a head remembers, among its producers, that the append which begins with r
// was tried again after a lost answer: a try that carries it as its Producer makes every earlier one void,
// however late that arrives and whatever has left the tail since.
func Mark(r *Ref) string {
	return "~" + hex.EncodeToString(r.ID[:]) + "/" + strconv.FormatUint(uint64(r.First), 10)
}

// overtaken reports whether a is a first try of which a later one has taken effect.
func (a Append) overtaken(h *Head) bool {
	if a.Producer != nil || len(h.Producers) == 0 {
		return false
	}
	_, marked := h.Producers.Get(Mark(&a.Refs[0]))
	return marked
}

func (a Append) check(h *Head) Reason {
	switch {
	case h.Sealed:
		return ReasonSealed
	case h.Epoch != a.Epoch:
		return ReasonEpoch
	case a.Deadline != 0 && h.LastAppend > a.Deadline, a.overtaken(h):
		return ReasonLate
	case a.SeenFrom != nil && h.TailFirst > *a.SeenFrom:
		return ReasonUnseen
	}
	for i := range a.Refs {
		if containsRef(h.Tail, &a.Refs[i]) {
			return ReasonDuplicate
		}
	}
	if p := a.Producer; p != nil {
		last, known := h.Producers.Get(p.ID)
		if known && p.Number <= last.Sequence {
			return ReasonSequence
		}
		if !known && len(h.Producers) >= queue.MaxHeadProducers {
			return ReasonProducers
		}
	}
	if len(h.Tail)+len(a.Refs) > queue.MaxTailRefs {
		return ReasonTailFull
	}
	return 0
}

// validate refuses what is wrong whatever the head holds.
func (a Append) validate() error {
	if n := len(a.Refs); n == 0 || n > queue.MaxCommitRefs {
		return queue.Invalid("refs", queue.MaxCommitRefs, "has %d, not 1 to %d", n, queue.MaxCommitRefs)
	}
	for i := range a.Refs {
		if n := a.Refs[i].Count; n == 0 || n > queue.MaxBatchRecords {
			return queue.Invalid("refs", queue.MaxBatchRecords, "a ref stands for %d messages, not 1 to %d", n, queue.MaxBatchRecords)
		}
		for j := range i {
			if a.Refs[i].Same(&a.Refs[j]) {
				return queue.Invalid("refs", nil, "holds one ref twice")
			}
		}
	}
	if a.Producer != nil {
		if err := queue.ValidateToken("producer", a.Producer.ID, MaxSequenceIDBytes); err != nil {
			return err
		}
	}
	switch {
	case a.Payload == nil:
		return nil
	case a.Payload.ID == "":
		return queue.Invalid("payload", nil, "has no id")
	}
	return CheckKey(a.Payload.Key())
}

func headOf(op Op, cur *Item) (*Head, error) {
	if cur == nil {
		return nil, refuse(op, nil, ReasonAbsent)
	}
	h, ok := cur.Record.(*Head)
	if !ok {
		return nil, corruptKind(op)
	}
	return h, nil
}

func corruptKind(op Op) error {
	return &queue.Error{Op: op.Name(), Subject: op.Target().String(), Kind: queue.KindCorrupt, Message: "a record of another kind stands there"}
}

// Trim removes the first Count refs of a head's tail, and forgets producers idle since before
// Forget. It is refused (trim) unless the tail starts at First and holds Count refs. To roll, it goes
// in one transaction with the Put of the page that holds those refs, on condition that the page is
// absent: so a page is only ever written while the head still holds its refs, and a writer that
// stalled before its put cannot bring back a page that the compactor has replaced since
// (docs/decisions/0002). A sealed head may be trimmed.
//
// Seen is the head as the caller has seen it, which may be old; nil if it has not. A driver that has to know the
// head to state the trim may take it in place of a read: what a trim asks of the head is asked of the stored one.
type Trim struct {
	Segment queue.SegmentID
	First   queue.Offset
	Count   int
	Forget  queue.Millis
	Seen    *Head
}

// Target implements Op.
func (t Trim) Target() Key { return HeadKey(t.Segment) }

// Name implements Op.
func (t Trim) Name() string { return "trim" }

// Change implements Op.
func (t Trim) Change(cur *Item) (*Item, Result, error) {
	h, err := headOf(t, cur)
	if err != nil {
		return nil, Result{}, err
	}
	if h.TailFirst != t.First || len(h.Tail) < t.Count {
		return nil, Result{}, refuse(t, cur, ReasonTrim)
	}
	n := *h
	n.TailFirst += queue.Offset(CountOf(h.Tail[:t.Count]))
	n.Tail = slices.Clone(h.Tail[t.Count:])
	if t.Forget > 0 {
		n.Producers = h.Producers.Without(func(p *Producer) bool { return p.At < t.Forget })
	}
	next := &Item{Record: &n, Version: cur.Version}
	return next, Result{Item: *next}, nil
}

// Seal ends a segment: it takes no more appends. Refused if the head is absent or of another epoch;
// sealing twice is no error.
type Seal struct {
	Segment queue.SegmentID
	Epoch   queue.Epoch
}

// Target implements Op.
func (s Seal) Target() Key { return HeadKey(s.Segment) }

// Name implements Op.
func (s Seal) Name() string { return "seal" }

// Change implements Op.
func (s Seal) Change(cur *Item) (*Item, Result, error) {
	h, err := headOf(s, cur)
	if err != nil {
		return nil, Result{}, err
	}
	if h.Epoch != s.Epoch {
		return nil, Result{}, refuse(s, cur, ReasonEpoch)
	}
	n := *h
	n.Sealed = true
	next := &Item{Record: &n, Version: cur.Version}
	return next, Result{Item: *next}, nil
}

// Touch moves a head's LastAppend on to At, so that every append with an earlier deadline that is still
// on its way is void. Refused if the head is absent. It changes nothing of a sealed head, which takes no
// appends, and of one that is past At already.
type Touch struct {
	Segment queue.SegmentID
	At      queue.Millis
}

// Target implements Op.
func (t Touch) Target() Key { return HeadKey(t.Segment) }

// Name implements Op.
func (t Touch) Name() string { return "touch" }

// Change implements Op.
func (t Touch) Change(cur *Item) (*Item, Result, error) {
	h, err := headOf(t, cur)
	if err != nil {
		return nil, Result{}, err
	}
	if h.Sealed || h.LastAppend >= t.At {
		return cur, Result{Item: *cur}, nil
	}
	n := *h
	n.LastAppend = t.At
	next := &Item{Record: &n, Version: cur.Version}
	return next, Result{Item: *next}, nil
}
