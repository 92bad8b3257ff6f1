package dynamometa_test

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestSizeOf: the size that is worked out for a record is the one that the store tells of its item.
func TestSizeOf(t *testing.T) {
	c := client(endpoint(t), nil)
	s := dynamometa.New(c, newTable(t, c), dynamometa.Options{})
	same := func(what string, key meta.Key) {
		t.Helper()
		item, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := dynamometa.SizeOf(&item); err != nil || got != item.Size {
			t.Errorf("%s: %d bytes, %v, want %d", what, got, err, item.Size)
		}
	}
	do := func(op meta.Op) {
		t.Helper()
		if _, err := s.Apply(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	do(meta.Put{Record: &meta.Head{Segment: segID, Range: queue.Ring()}, Version: 1})
	same("empty head", meta.HeadKey(segID))
	var refs []meta.Ref
	for i := range 12 {
		refs = append(refs, refOf(uint64(i), 5))
		do(meta.Append{Segment: segID, Refs: refs[i:], At: 1000, Producer: &meta.Sequence{ID: "producer", Number: uint64(i + 1)}})
		same("head", meta.HeadKey(segID))
	}
	do(meta.Put{Record: &meta.RefPage{Segment: segID, First: 70, Refs: refs}, Version: 2})
	same("page", meta.PageKey(segID, 70))
	do(meta.Put{Record: &meta.Progress{Name: "walk", After: "here"}, Version: 3})
	same("progress", meta.ProgressKey("walk"))
	do(meta.Take{
		Subscription: subID, Segment: segID, To: 20, Add: []meta.Claim{claimOf(1, 0, 10), claimOf(2, 10, 20)},
		Create: &meta.Cursor{Subscription: subID, Segment: segID},
	})
	same("cursor", meta.CursorKey(subID, segID))
}

// TestWholeAcks counts what acks of whole claims cost: one request each, and a fold for every seven. The
// cost model (cmd/spillway/internal/cost) goes by it.
func TestWholeAcks(t *testing.T) {
	r := newRig(t, 1)
	const acks = 35
	r.wire.arm("", false)
	do := func(op meta.Op) {
		t.Helper()
		if _, err := r.store.Apply(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	for i := range queue.Offset(acks) {
		do(meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{byte(i + 1)}, Done: []meta.OffsetRange{{Lo: i * 10, Hi: i*10 + 10}}})
		do(meta.Take{Subscription: subID, Segment: segID, From: i*10 + 10, To: i*10 + 20, Add: []meta.Claim{claimOf(byte(i+2), i*10+10, i*10+20)}})
	}
	if got, want := len(r.wire.seen), 2*acks+acks/7; got != want {
		t.Errorf("%d requests for %d acks and claims, want %d: %v", got, acks, want, r.wire.seen)
	}
}
