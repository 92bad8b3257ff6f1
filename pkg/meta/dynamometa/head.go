package dynamometa

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The attributes of a head, next to pk, sk, v and k.
const (
	headEpoch     = "e"
	headSealed    = "s" // present if sealed
	headLo        = "lo"
	headHi        = "hi"
	headStart     = "st"
	headNext      = "n"
	headBytes     = "y"
	headTailFirst = "tf"
	headTail      = "t"  // list of refs, each as meta.AppendRef writes it
	headLast      = "la" // LastAppend, rounded up to lastAppendGrain
	headProducers = "p"  // map: id to sequence, count and time (producerAttr)
	headFirsts    = "pf" // map: id to the first offset of the last sequence
	headCommits   = "lc"
	headBucket    = "b" // b0 to b15
)

// lastAppendGrain, in ms, is what LastAppend is rounded up to. A maximum cannot be written without
// reading: two commits that arrive in another order than their clocks say would conflict. Rounded, all
// commits of one second write the same value, and only one that is from an earlier second than the
// head's must leave it alone (headPlan). Up, because the head's LastAppend promises that nothing was
// appended later.
const lastAppendGrain = 1000

func roundUp(t queue.Millis) queue.Millis {
	if t <= 0 {
		return t // of tests; there was no commit before 1970
	}
	return (t + lastAppendGrain - 1) / lastAppendGrain * lastAppendGrain
}

func encodeHead(raw attrs, h *meta.Head) {
	raw[attrLayout] = text(layoutHead)
	raw[headEpoch] = number(h.Epoch)
	if h.Sealed {
		raw[headSealed] = number(1)
	}
	raw[headLo] = number(h.Range.Lo)
	raw[headHi] = number(h.Range.Hi)
	raw[headStart] = number(h.Start)
	raw[headNext] = number(h.Next)
	raw[headTailFirst] = number(h.TailFirst)
	raw[headLast] = number(h.LastAppend)
	raw[headTail] = refList(h.Tail)
	producers, firsts := make(attrs, len(h.Producers)), make(attrs, len(h.Producers))
	for _, p := range h.Producers {
		producers[p.ID] = producerAttr(p.ProducerState)
		firsts[p.ID] = number(p.First)
	}
	raw[headProducers], raw[headFirsts] = mapOf(producers), mapOf(firsts)
	setCounter(raw, headBytes, h.Bytes)
	setCounter(raw, headCommits, h.Load.Commits)
	for i, n := range h.Load.Buckets {
		setCounter(raw, bucketName(i), n)
	}
}

// setCounter leaves a zero out: ADD makes the attribute.
func setCounter(raw attrs, name string, n uint64) {
	if n != 0 {
		raw[name] = number(n)
	}
}

func bucketName(i int) string { return headBucket + strconv.Itoa(i) }

func refList(refs []meta.Ref) types.AttributeValue {
	list := make([]types.AttributeValue, len(refs))
	for i := range refs {
		list[i] = binaryOf(meta.AppendRef(nil, &refs[i]))
	}
	return &types.AttributeValueMemberL{Value: list}
}

// producerAttr holds what is known before the append of a producer's last sequence. It begins with the
// sequence, big-endian, so that DynamoDB's order of binary values (byte by byte, a prefix first)
// compares sequences: "stored < the next sequence's eight bytes" holds just if the stored is smaller.
// The first offset stands apart, as it is copied from the head's next offset by the append itself.
func producerAttr(p meta.ProducerState) types.AttributeValue {
	b := sequenceBytes(p.Sequence)
	b = binary.AppendUvarint(b, uint64(p.Count))
	return binaryOf(binary.AppendVarint(b, int64(p.At)))
}

func sequenceBytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func decodeProducer(v types.AttributeValue) (p meta.ProducerState, ok bool) {
	b, ok := v.(*types.AttributeValueMemberB)
	if !ok || len(b.Value) < 8 {
		return p, false
	}
	count, n := binary.Uvarint(b.Value[8:])
	if n <= 0 {
		return p, false
	}
	at, m := binary.Varint(b.Value[8+n:])
	if m <= 0 || 8+n+m != len(b.Value) || count > math.MaxUint32 {
		return p, false
	}
	return meta.ProducerState{Sequence: binary.BigEndian.Uint64(b.Value), Count: uint32(count), At: queue.Millis(at)}, true
}

func decodeHead(key meta.Key, f *fields) *meta.Head {
	h := &meta.Head{
		Segment: queue.SegmentID(strings.TrimPrefix(key.PK, meta.HeadPK(""))),
		Epoch:   queue.Epoch(f.uint(headEpoch)), Sealed: f.m[headSealed] != nil,
		Range: queue.SlotRange{Lo: f.uint32(headLo), Hi: f.uint32(headHi)},
		Start: f.offset(headStart), Next: f.offset(headNext), TailFirst: f.offset(headTailFirst),
		Bytes: f.optUint(headBytes), LastAppend: f.millis(headLast),
	}
	h.Load.Commits = f.optUint(headCommits)
	for i := range h.Load.Buckets {
		h.Load.Buckets[i] = f.optUint(bucketName(i))
	}
	if tail := f.list(headTail); len(tail) > 0 {
		h.Tail = make([]meta.Ref, len(tail))
		for i, v := range tail {
			b, ok := v.(*types.AttributeValueMemberB)
			if !ok {
				f.fail(headTail)
				return h
			}
			ref, err := meta.DecodeRef(b.Value)
			if err != nil && f.err == nil {
				f.err = fmt.Errorf("ref %d: %w", i, err)
			}
			h.Tail[i] = ref
		}
	}
	h.Producers = f.producers()
	return h
}

func (f *fields) producers() meta.Producers {
	states := f.object(headProducers)
	firsts := fields{m: f.object(headFirsts)}
	if len(states) == 0 {
		return nil
	}
	out := make(meta.Producers, 0, len(states))
	for _, id := range slices.Sorted(maps.Keys(states)) {
		p, ok := decodeProducer(states[id])
		if !ok {
			f.fail(headProducers)
		}
		p.First = firsts.offset(id)
		out = append(out, meta.Producer{ID: id, ProducerState: p})
	}
	if firsts.err != nil {
		f.fail(headFirsts)
	}
	return out
}

// headPlan is the update that carries out op on a head. last is the head as it was found by an earlier
// try; a Trim needs it, the others start without.
func headPlan(op meta.Op, last *meta.Head) *expr {
	e := &expr{}
	switch op := op.(type) {
	case meta.Append:
		planAppend(e, op, last)
	case meta.Seal:
		e.exists()
		e.where(e.path(headEpoch), " = ", e.val(number(op.Epoch)))
		e.setTo(e.path(headSealed), number(1))
	case meta.Trim:
		planTrim(e, op, last)
	case meta.Void:
		planVoid(e, op)
	case meta.Touch:
		// Not rounded: it is a bound, and no one's commit time.
		e.exists()
		e.where("attribute_not_exists(", e.path(headSealed), ")")
		e.where(e.path(headLast), " < ", e.val(number(op.At)))
		e.setTo(e.path(headLast), number(op.At))
	}
	return e
}

func planAppend(e *expr, a meta.Append, last *meta.Head) {
	e.exists()
	e.where("attribute_not_exists(", e.path(headSealed), ")")
	e.where(e.path(headEpoch), " = ", e.val(number(a.Epoch)))
	if a.Deadline != 0 {
		e.where(e.path(headLast), " <= ", e.val(number(a.Deadline)))
	}
	if a.SeenFrom != nil {
		e.where(e.path(headTailFirst), " <= ", e.val(number(*a.SeenFrom)))
	}
	tail, refs := e.path(headTail), refList(a.Refs)
	for _, ref := range refs.(*types.AttributeValueMemberL).Value {
		e.where("NOT contains(", tail, ", ", e.val(ref), ")")
	}
	e.where("size(", tail, ") <= ", e.val(number(queue.MaxTailRefs-len(a.Refs))))
	e.set = append(e.set, tail+" = list_append("+tail+", "+e.val(refs)+")")

	// The head's LastAppend only grows, so one that was seen to be later stays later.
	if at := roundUp(a.At); last == nil || last.LastAppend <= at {
		v := e.val(number(at))
		e.where(e.path(headLast), " <= ", v)
		e.set = append(e.set, e.path(headLast)+" = "+v)
	}
	count := meta.CountOf(a.Refs)
	if a.Producer == nil {
		e.where("attribute_not_exists(", e.path(headProducers, meta.Mark(&a.Refs[0])), ")")
	}
	if p := a.Producer; p != nil {
		planSequence(e, p.ID, meta.ProducerState{Sequence: p.Number, Count: uint32(count), At: a.At}, 1)
	}
	var bytes uint64
	for i := range a.Refs {
		bytes += uint64(a.Refs[i].Bytes)
	}
	e.addTo(headNext, count)
	e.addTo(headBytes, bytes)
	e.addTo(headCommits, 1)
	for i, n := range a.Buckets {
		e.addTo(bucketName(i), uint64(n))
	}
}

// planSequence states that a producer's sequence is new, and remembers it; room is for how many producers
// there must be room if it was not remembered.
func planSequence(e *expr, id string, p meta.ProducerState, room int) {
	state, seq := e.path(headProducers, id), e.val(binaryOf(sequenceBytes(p.Sequence)))
	e.where("(", state, " < ", seq, " OR attribute_not_exists(", state, ") AND size(", e.path(headProducers), ") <= ",
		e.val(number(queue.MaxHeadProducers-room)), ")")
	e.setTo(state, producerAttr(p))
	// Operands are read before anything is written: this is next before an append. (Plus nothing, as
	// minidyn would let the two attributes share one number, which the ADD then changes.)
	e.set = append(e.set, e.path(headFirsts, id)+" = "+e.path(headNext)+" + "+e.val(number(0)))
}

func planVoid(e *expr, v meta.Void) {
	e.exists()
	e.where("attribute_not_exists(", e.path(headSealed), ")")
	e.where(e.path(headEpoch), " = ", e.val(number(v.Epoch)))
	for _, id := range v.IDs {
		planSequence(e, id, meta.ProducerState{Sequence: v.Number, At: v.At}, len(v.IDs))
	}
}

// maxForget bounds the idle producers that one trim forgets: an expression holds 4 KB. Whoever is
// remembered longer does no harm, and the next trim goes on.
const maxForget = 40

func planTrim(e *expr, t meta.Trim, h *meta.Head) {
	e.where(e.path(headTailFirst), " = ", e.val(number(t.First)))
	tail := e.path(headTail)
	e.where("size(", tail, ") >= ", e.val(number(t.Count)))
	for i := t.Count - 1; i >= 0; i-- { // from the end, as emulators let the rest move up at each
		e.drop(tail + "[" + strconv.Itoa(i) + "]")
	}
	// The refs behind First are known: what stands at an offset never changes.
	e.setTo(e.path(headTailFirst), number(t.First+queue.Offset(meta.CountOf(h.Tail[:t.Count]))))
	for _, p := range forgotten(h, t.Forget) {
		state := e.path(headProducers, p.ID)
		e.where(state, " = ", e.val(producerAttr(p.ProducerState)))
		e.drop(state)
		e.drop(e.path(headFirsts, p.ID))
	}
}

// forgotten lists the producers that a trim forgets, at most maxForget.
func forgotten(h *meta.Head, horizon queue.Millis) meta.Producers {
	idle := h.Producers.Without(func(p *meta.Producer) bool { return horizon <= 0 || p.At >= horizon })
	return idle[:min(len(idle), maxForget)]
}
