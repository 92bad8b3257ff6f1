// Package metatest is the conformance suite of the metadata store: what every driver of pkg/meta must
// do, concurrency included.
//
// Vocabulary: a harness makes stores of one driver; reopening is ending the program that holds a store
// and starting it again, without losing what was acknowledged.
//
// Invariants: the suite uses nothing but the contract, so a driver that passes may stand in for any
// other. Each test takes a fresh store, or keys of its own.
//
// Non-goals: crashes in mid-write and lost answers, which are each driver's own tests.
package metatest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Harness makes the stores that the suite runs on.
type Harness struct {
	// New makes an empty store that ends with the test.
	New func(t *testing.T) meta.Store
	// Reopen ends a store that New made and opens it again; nil for stores that are not durable.
	Reopen func(t *testing.T, s meta.Store) meta.Store
}

// Run runs the whole suite, each test on a store of its own.
func Run(t *testing.T, h Harness) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"Refusals", testRefusals},
		{"Put", testPut},
		{"Delete", testDelete},
		{"Append", testAppend},
		{"AppendPayload", testAppendPayload},
		{"TrimAndSeal", testTrimAndSeal},
		{"TrimAsSeen", testTrimAsSeen},
		{"CheckAndTouch", testCheckAndTouch},
		{"Void", testVoid},
		{"TakeAndSettle", testTakeAndSettle},
		{"Records", testRecords},
		{"Input", testInput},
		{"TooLarge", testTooLarge},
		{"Transact", testTransact},
		{"TransactRefused", testTransactRefused},
		{"TransactInput", testTransactInput},
		{"GetAll", testGetAll},
		{"Query", testQuery},
		{"QueryPages", testQueryPages},
		{"QueryHelpers", testQueryHelpers},
		{"PayloadLists", testPayloadLists},
		{"Snapshots", testSnapshots},
		{"Canceled", testCanceled},
		{"Reopen", testReopen},
		{"RollRace", testRollRace},
		{"AppendRace", testAppendRace},
		{"ClaimRace", testClaimRace},
		{"SettleRace", testSettleRace},
		{"CounterRace", testCounterRace},
		{"ReadYourWrites", testReadYourWrites},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, h) })
	}
}

// store is a store with the checks that tests make over and over.
type store struct {
	meta.Store
	t *testing.T
}

func open(t *testing.T, h Harness) store { return store{h.New(t), t} }

// must applies op, which must succeed.
func (s store) must(op meta.Op) meta.Result {
	s.t.Helper()
	res, err := s.Apply(s.t.Context(), op)
	if err != nil {
		s.t.Fatalf("%s: %v", op.Name(), err)
	}
	return res
}

// refused applies op, which must be refused for reason and tell the record as it stands; that must be
// the same afterwards.
func (s store) refused(op meta.Op, reason meta.Reason) {
	s.t.Helper()
	before := s.find(op.Target())
	_, err := s.Apply(s.t.Context(), op)
	r, ok := meta.AsRefused(err)
	if !ok || r.Reason != reason {
		s.t.Fatalf("%s ended with %v, want a refusal: %s", op.Name(), err, reason)
	}
	if r.Op != op.Name() || r.Key != op.Target() || r.Index != 0 {
		s.t.Errorf("the refusal names op %q on %q at %d", r.Op, r.Key, r.Index)
	}
	s.sameItem("current of the refusal", r.Current, before)
	s.sameItem("record after the refusal", s.find(op.Target()), before)
}

// find reads a record; nil if there is none.
func (s store) find(key meta.Key) *meta.Item {
	s.t.Helper()
	item, err := s.Get(s.t.Context(), key)
	if queue.Is(err, queue.KindNotFound) {
		return nil
	}
	if err != nil {
		s.t.Fatalf("get %s: %v", key, err)
	}
	return &item
}

func (s store) head(seg queue.SegmentID) *meta.Head {
	s.t.Helper()
	h, _, err := meta.Fetch[*meta.Head](s.t.Context(), s.Store, meta.HeadKey(seg))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := h.Check(); err != nil {
		s.t.Error(err)
	}
	return h
}

func (s store) cursor() *meta.Cursor {
	s.t.Helper()
	c, _, err := meta.Fetch[*meta.Cursor](s.t.Context(), s.Store, meta.CursorKey(subID, segID))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		s.t.Error(err)
	}
	return c
}

func (s store) sameItem(what string, got, want *meta.Item) {
	s.t.Helper()
	if (got == nil) != (want == nil) {
		s.t.Errorf("%s: got %v, want %v", what, got, want)
		return
	}
	if got == nil {
		return
	}
	if !bytes.Equal(encoded(s.t, got), encoded(s.t, want)) {
		s.t.Errorf("%s: got %+v, want %+v", what, got.Record, want.Record)
	}
	if got.Size != want.Size || got.Size <= 0 {
		s.t.Errorf("%s: size %d, want %d", what, got.Size, want.Size)
	}
}

func encoded(t *testing.T, item *meta.Item) []byte {
	t.Helper()
	data, err := meta.Encode(nil, item)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const (
	segID = queue.SegmentID("seg0000000000000")
	subID = queue.SubscriptionID("sub0000000000000")
	topID = queue.TopicID("top0000000000000")
)

// ref makes the n-th ref of a test, of count messages.
func ref(n uint64, count uint32) meta.Ref {
	r := meta.Ref{
		Kind: meta.RefBatch, Object: fmt.Sprintf("batches/%d", n), Len: 100, Count: count,
		Created: queue.Millis(1000 + n), Bytes: 50,
	}
	binary.BigEndian.PutUint64(r.ID[:], n)
	return r
}

func refs(from, n uint64) []meta.Ref {
	var out []meta.Ref
	for i := range n {
		out = append(out, ref(from+i, 1))
	}
	return out
}

func newHead(refs ...meta.Ref) *meta.Head {
	return &meta.Head{Segment: segID, Epoch: 3, Range: queue.Ring(), Tail: refs, Next: queue.Offset(meta.CountOf(refs))}
}

func putHead(h *meta.Head) meta.Op { return meta.Put{Record: h, If: meta.Absent(), Version: 1} }

func appendOf(refs ...meta.Ref) meta.Append {
	return meta.Append{Segment: segID, Epoch: 3, Refs: refs, At: 2000}
}

func claimID(n byte) (id queue.ClaimID) { id[0] = n; return id }

func span(lo, hi queue.Offset) meta.OffsetRange { return meta.OffsetRange{Lo: lo, Hi: hi} }

// claim is one of attempt 1 on one part.
func claim(n byte, lo, hi queue.Offset, expires queue.Millis) meta.Claim {
	return meta.Claim{ID: claimID(n), Attempt: 1, Parts: []meta.Part{{OffsetRange: span(lo, hi), Expires: expires}}}
}

// take claims fresh messages.
func take(n byte, lo, hi queue.Offset) meta.Take {
	return meta.Take{Subscription: subID, Segment: segID, From: lo, To: hi, Add: []meta.Claim{claim(n, lo, hi, 9000)}}
}

func settle(n byte) meta.Settle {
	return meta.Settle{Subscription: subID, Segment: segID, Claim: claimID(n)}
}
