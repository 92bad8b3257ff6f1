package metatest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// testRefusals holds each op's conditions and the order in which they are looked at: where a case
// breaks several, the first in the documented order is named.
func testRefusals(t *testing.T, h Harness) {
	sealed := newHead(ref(1, 2))
	sealed.Sealed = true
	rolled := newHead(ref(1, 2))
	rolled.TailFirst, rolled.Next, rolled.LastAppend = 10, 12, 5000
	known := newHead(refs(1, queue.MaxTailRefs)...)
	known.Producers = known.Producers.With("p", meta.ProducerState{Sequence: 7, Count: 1})
	crowded := newHead(refs(1, queue.MaxTailRefs)...)
	for i := range queue.MaxHeadProducers {
		crowded.Producers = crowded.Producers.With(strings.Repeat("x", i%100+1)+string(rune('a'+i/100)), meta.ProducerState{})
	}
	cursor := &meta.Cursor{
		Subscription: subID, Segment: segID, Next: 20,
		Claims:  map[queue.ClaimID]meta.Claim{claimID(1): claim(1, 0, 10, 9000)},
		Retries: []meta.Retry{{OffsetRange: span(10, 20), Attempts: 1, NotBefore: 100}},
	}
	topic := &meta.Topic{ID: topID}
	from := queue.Offset(9)
	other := appendOf(ref(9, 1))
	other.Epoch = 4
	late := appendOf(ref(1, 2))
	late.Deadline, late.SeenFrom = 4999, &from
	unseen := appendOf(ref(1, 2))
	unseen.SeenFrom = &from
	old := appendOf(ref(999, 1))
	old.Producer = &meta.Sequence{ID: "p", Number: 7}
	duplicate := appendOf(ref(1, 1))
	duplicate.Producer = old.Producer
	stranger := appendOf(ref(999, 1))
	stranger.Producer = &meta.Sequence{ID: "stranger", Number: 1}
	first := ref(999, 1)
	overtaken := newHead(ref(1, 2))
	overtaken.Producers = overtaken.Producers.With(meta.Mark(&first), meta.ProducerState{Sequence: 1, Count: 1})
	again := appendOf(first)
	again.Producer = &meta.Sequence{ID: meta.Mark(&first), Number: 1}
	create := take(2, 0, 1)
	create.Create = &meta.Cursor{Subscription: subID, Segment: segID}
	changed := take(2, 20, 30)
	changed.Drop = []meta.Claim{claim(1, 0, 10, 9001)}
	changed.Add = append(changed.Add, claim(3, 0, 10, 9000))
	retried := take(2, 20, 30)
	retried.DropRetries = []meta.Retry{{OffsetRange: span(10, 20), Attempts: 2, NotBefore: 100}}
	retried.Add = []meta.Claim{claim(2, 10, 30, 9000)}
	moved := changed
	moved.From, moved.To = 19, 29
	moved.Add = []meta.Claim{claim(2, 19, 29, 9000), claim(3, 0, 10, 9000)}
	half := settle(1)
	half.All, half.Done = true, []meta.OffsetRange{span(5, 11)}
	for _, tc := range []struct {
		name   string
		stored meta.Record
		op     meta.Op
		reason meta.Reason
	}{
		{"append: no head", nil, appendOf(ref(1, 1)), meta.ReasonAbsent},
		{"append: sealed before epoch", sealed, other, meta.ReasonSealed},
		{"append: epoch", newHead(), other, meta.ReasonEpoch},
		{"append: late before unseen", rolled, late, meta.ReasonLate},
		{"append: late if a later try has left its mark", overtaken, appendOf(first), meta.ReasonLate},
		{"append: the later try itself", overtaken, again, meta.ReasonSequence},
		{"append: unseen before duplicate", rolled, unseen, meta.ReasonUnseen},
		{"append: duplicate before sequence", known, duplicate, meta.ReasonDuplicate},
		{"append: sequence before tail full", known, old, meta.ReasonSequence},
		{"append: producers before tail full", crowded, stranger, meta.ReasonProducers},
		{"append: tail full", newHead(refs(1, queue.MaxTailRefs)...), appendOf(ref(999, 1)), meta.ReasonTailFull},
		{"append: tail full by the last of several", newHead(refs(1, queue.MaxTailRefs-1)...), appendOf(refs(900, 2)...), meta.ReasonTailFull},
		{"trim: no head", nil, meta.Trim{Segment: segID}, meta.ReasonAbsent},
		{"trim: other first", rolled, meta.Trim{Segment: segID, First: 9, Count: 1}, meta.ReasonTrim},
		{"trim: too many", rolled, meta.Trim{Segment: segID, First: 10, Count: 2}, meta.ReasonTrim},
		{"seal: no head", nil, meta.Seal{Segment: segID}, meta.ReasonAbsent},
		{"seal: epoch", newHead(), meta.Seal{Segment: segID, Epoch: 2}, meta.ReasonEpoch},
		{"take: no cursor", nil, take(1, 0, 1), meta.ReasonAbsent},
		{"take: create twice", cursor, create, meta.ReasonExists},
		{"take: next", cursor, take(2, 19, 30), meta.ReasonNext},
		{"take: next before claim", cursor, moved, meta.ReasonNext},
		{"take: claim changed", cursor, changed, meta.ReasonClaim},
		{"take: retry changed", cursor, retried, meta.ReasonRetry},
		{"settle: no cursor", nil, settle(1), meta.ReasonAbsent},
		{"settle: no claim", cursor, settle(9), meta.ReasonClaim},
		{"settle: not all", cursor, half, meta.ReasonClaim},
		{"put: exists", topic, meta.Put{Record: topic, If: meta.Absent(), Version: 2}, meta.ReasonExists},
		{"put: absent, present asked", nil, meta.Put{Record: topic, If: meta.Present(), Version: 2}, meta.ReasonAbsent},
		{"put: absent, version asked", nil, meta.Put{Record: topic, If: meta.At(1), Version: 2}, meta.ReasonAbsent},
		{"put: version", topic, meta.Put{Record: topic, If: meta.At(2), Version: 2}, meta.ReasonVersion},
		{"delete: absent", nil, meta.Delete{Key: topic.Key(), If: meta.Present()}, meta.ReasonAbsent},
		{"delete: version", topic, meta.Delete{Key: topic.Key(), If: meta.At(2)}, meta.ReasonVersion},
		{"delete: exists", topic, meta.Delete{Key: topic.Key(), If: meta.Absent()}, meta.ReasonExists},
		{"check: absent", nil, meta.Check{Key: topic.Key(), If: meta.Present()}, meta.ReasonAbsent},
		{"check: version", topic, meta.Check{Key: topic.Key(), If: meta.At(2)}, meta.ReasonVersion},
		{"check: exists", topic, meta.Check{Key: topic.Key(), If: meta.Absent()}, meta.ReasonExists},
		{"void: no head", nil, voidOf(1, "p"), meta.ReasonAbsent},
		{"void: sealed before epoch", sealed, meta.Void{Segment: segID, Epoch: 9, IDs: []string{"p"}, Number: 1}, meta.ReasonSealed},
		{"void: epoch", newHead(), meta.Void{Segment: segID, Epoch: 9, IDs: []string{"p"}, Number: 1}, meta.ReasonEpoch},
		{"void: the append is in", known, voidOf(7, "p"), meta.ReasonSequence},
		{"void: one of its names is in", known, voidOf(7, "o", "p"), meta.ReasonSequence},
		{"void: too many producers", crowded, voidOf(7, "p"), meta.ReasonProducers},
		{"touch: no head", nil, meta.Touch{Segment: segID, At: 1}, meta.ReasonAbsent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := open(t, h)
			if tc.stored != nil {
				s.must(meta.Put{Record: tc.stored, Version: 1})
			}
			s.refused(tc.op, tc.reason)
		})
	}
}

func testPut(t *testing.T, h Harness) {
	s := open(t, h)
	topic := func(e queue.Epoch) *meta.Topic { return &meta.Topic{ID: topID, Epoch: e} }
	res := s.must(meta.Put{Record: topic(1), If: meta.Absent(), Version: 11})
	if res.Item.Version != 11 || res.Item.Size <= 0 || res.Item.Record.(*meta.Topic).Epoch != 1 {
		t.Errorf("put answered %+v", res)
	}
	s.sameItem("get", s.find(meta.TopicKey(topID)), &res.Item)
	s.must(meta.Put{Record: topic(2), If: meta.At(11), Version: 12})
	s.refused(meta.Put{Record: topic(3), If: meta.At(11), Version: 13}, meta.ReasonVersion)
	s.must(meta.Put{Record: topic(4), If: meta.Present(), Version: 14})
	res = s.must(meta.Put{Record: topic(5), Version: 15})
	s.sameItem("get after all", s.find(meta.TopicKey(topID)), &res.Item)
	if v := s.find(meta.TopicKey(topID)).Version; v != 15 {
		t.Errorf("version %d", v)
	}
}

func testDelete(t *testing.T, h Harness) {
	s := open(t, h)
	key := meta.TopicKey(topID)
	s.must(meta.Delete{Key: key, Kind: meta.KindTopic}) // no error: Any
	for _, cond := range []meta.Condition{meta.Any(), meta.At(1), meta.Present()} {
		s.must(meta.Put{Record: &meta.Topic{ID: topID}, If: meta.Absent(), Version: 1})
		if res := s.must(meta.Delete{Key: key, If: cond, Kind: meta.KindTopic}); res.Item.Record != nil {
			t.Errorf("delete answered %+v", res)
		}
		if s.find(key) != nil {
			t.Fatal("the record is still there")
		}
	}
	// A head that was deleted must not live on in a cache.
	s.must(putHead(newHead()))
	s.must(appendOf(ref(1, 1)))
	s.must(meta.Delete{Key: meta.HeadKey(segID)})
	s.refused(appendOf(ref(2, 1)), meta.ReasonAbsent)
}

func testAppend(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead()))
	a := appendOf(ref(1, 3), ref(2, 4))
	a.Producer = &meta.Sequence{ID: "p", Number: 5}
	a.Buckets[2], a.Buckets[15] = 4, 3
	s.must(a)
	b := appendOf(ref(3, 10))
	b.At = 1500 // a clock behind: LastAppend must not go back
	seen := queue.Offset(7)
	b.SeenFrom, b.Deadline = &seen, 2000
	res := s.must(b)
	if res.Offset != 7 {
		t.Errorf("offset %d, want 7", res.Offset)
	}
	head := s.head(segID)
	s.sameItem("the answer", &res.Item, s.find(meta.HeadKey(segID)))
	if head.Next != 17 || head.TailFirst != 0 || len(head.Tail) != 3 || head.Bytes != 150 || head.LastAppend != 2000 {
		t.Errorf("head is %+v", head)
	}
	want := meta.Producer{ID: "p", ProducerState: meta.ProducerState{Sequence: 5, First: 0, Count: 7, At: 2000}}
	if len(head.Producers) != 1 || head.Producers[0] != want {
		t.Errorf("producer is %+v", head.Producers)
	}
	if head.Load.Commits != 2 || head.Load.Buckets[2] != 4 || head.Load.Buckets[15] != 3 {
		t.Errorf("load is %+v", head.Load)
	}
	if off, r, ok := head.Find(ref(2, 4).ID, 0); !ok || off != 3 || r.Count != 4 {
		t.Errorf("find gave %d, %v, %v", off, r, ok)
	}
	// The same batch's other run is another ref.
	run := ref(1, 3)
	run.First = 3
	if res := s.must(appendOf(run)); res.Offset != 17 {
		t.Errorf("offset %d, want 17", res.Offset)
	}
	if v := s.find(meta.HeadKey(segID)).Version; v != 1 {
		t.Errorf("an append changed the version to %d", v)
	}
}

func testAppendPayload(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead()))
	payload := &meta.Payload{ID: "0001", Data: bytes.Repeat([]byte("x"), 8<<10)}
	a := appendOf(ref(1, 1))
	a.Payload = payload
	s.must(a)
	got := s.find(payload.Key())
	if got == nil || !bytes.Equal(got.Record.(*meta.Payload).Data, payload.Data) {
		t.Fatalf("payload is %v", got)
	}
	a.Refs = refs(2, 1) // put if absent: the same payload again is no error
	s.must(a)
	s.sameItem("payload after the second append", s.find(payload.Key()), got)
	sealed := meta.Seal{Segment: segID, Epoch: 3}
	s.must(sealed)
	a.Refs = refs(3, 1)
	s.refused(a, meta.ReasonSealed)
	s.must(meta.Delete{Key: payload.Key(), Kind: meta.KindPayload})
	if s.find(payload.Key()) != nil {
		t.Error("the payload is still there")
	}
	s.must(meta.Put{Record: payload, If: meta.Absent(), Version: 1})
	s.sameItem("payload put by itself", s.find(payload.Key()), &meta.Item{Record: payload, Version: 1, Size: got.Size})
}

func testTrimAndSeal(t *testing.T, h Harness) {
	s := open(t, h)
	head := newHead(ref(1, 2), ref(2, 3), ref(3, 4))
	head.Producers = head.Producers.With("young", meta.ProducerState{At: 100}).With("old", meta.ProducerState{At: 99})
	s.must(putHead(head))
	s.must(meta.Trim{Segment: segID, First: 0, Count: 2})
	got := s.head(segID)
	if got.TailFirst != 5 || len(got.Tail) != 1 || len(got.Producers) != 2 || got.Next != 9 {
		t.Errorf("head is %+v", got)
	}
	for range 2 {
		s.must(meta.Seal{Segment: segID, Epoch: 3}) // sealing twice is no error
	}
	s.must(meta.Trim{Segment: segID, First: 5, Count: 1, Forget: 100})
	got = s.head(segID)
	if _, kept := got.Producers.Get("young"); !got.Sealed || got.TailFirst != 9 || len(got.Tail) != 0 || len(got.Producers) != 1 || !kept {
		t.Errorf("head is %+v", got)
	}
}

// testTrimAsSeen holds that what a caller has seen of the head decides nothing.
func testTrimAsSeen(t *testing.T, h Harness) {
	s := open(t, h)
	seen := newHead(ref(1, 2), ref(2, 3), ref(3, 4))
	seen.Producers = seen.Producers.With("back", meta.ProducerState{Sequence: 1, At: 99}).With("gone", meta.ProducerState{Sequence: 1, At: 99})
	s.must(putHead(seen))
	more := appendOf(ref(4, 1))
	more.At, more.Producer = 200, &meta.Sequence{ID: "back", Number: 2}
	s.must(more) // after it was seen
	trim := meta.Trim{Segment: segID, First: 0, Count: 2, Forget: 100, Seen: seen}
	s.must(trim)
	got := s.head(segID)
	back, kept := got.Producers.Get("back")
	if got.TailFirst != 5 || len(got.Tail) != 2 || len(got.Producers) != 1 || !kept || back.Sequence != 2 {
		t.Errorf("head is %+v", got)
	}
	// Again, and as one that was seen before the trim: the store says no, by itself and in a transaction.
	topic := &meta.Topic{ID: topID}
	for _, op := range []meta.Op{trim, meta.Trim{Segment: segID, First: 0, Count: 3, Seen: seen}} {
		if _, err := s.Apply(t.Context(), op); !meta.IsRefused(err, meta.ReasonTrim) {
			t.Errorf("%+v ended with %v", op, err)
		}
		if _, err := s.Transact(t.Context(), []meta.Op{meta.Put{Record: topic, Version: 1}, op}); !meta.IsRefused(err, meta.ReasonTrim) {
			t.Errorf("%+v in a transaction ended with %v", op, err)
		}
	}
	// A head that was seen elsewhere than the trim begins is of no use, and no harm.
	s.must(meta.Trim{Segment: segID, First: 5, Count: 1, Seen: seen})
	if _, err := s.Transact(t.Context(), []meta.Op{meta.Put{Record: topic, Version: 1}, meta.Trim{Segment: segID, First: 9, Count: 1, Seen: seen}}); err != nil {
		t.Error(err)
	}
	if got := s.head(segID); got.TailFirst != 10 || len(got.Tail) != 0 || got.Next != 10 {
		t.Errorf("head is %+v", got)
	}
	if _, err := s.Apply(t.Context(), meta.Trim{Segment: "absent0000000000", First: 0, Count: 2, Seen: seen}); !meta.IsRefused(err, meta.ReasonAbsent) {
		t.Errorf("a trim of no head ended with %v", err)
	}
}

// testCheckAndTouch holds that a check changes nothing and binds its transaction, and that a touch makes
// appends late.
func testCheckAndTouch(t *testing.T, h Harness) {
	s := open(t, h)
	topic := &meta.Topic{ID: topID}
	s.must(meta.Check{Key: topic.Key(), If: meta.Absent()})
	s.must(meta.Put{Record: topic, Version: 7})
	before := s.find(topic.Key())
	s.must(meta.Check{Key: topic.Key(), If: meta.At(7)})
	s.sameItem("checked", s.find(topic.Key()), before)
	name := &meta.Name{Name: "n"}
	put := meta.Put{Record: name, Version: 8}
	if _, err := s.Transact(t.Context(), []meta.Op{put, meta.Check{Key: topic.Key(), If: meta.At(6)}}); !meta.IsRefused(err, meta.ReasonVersion) {
		t.Errorf("a check that does not hold ended with %v", err)
	}
	if _, err := s.Get(t.Context(), name.Key()); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("what went with it: %v", err)
	}
	if _, err := s.Transact(t.Context(), []meta.Op{put, meta.Check{Key: topic.Key(), If: meta.At(7)}, meta.Check{Key: meta.TopicKey("absent0000000000"), If: meta.Absent()}}); err != nil {
		t.Errorf("checks that hold: %v", err)
	}
	s.sameItem("checked in a transaction", s.find(topic.Key()), before)

	s.must(putHead(newHead(ref(1, 2))))
	late := appendOf(ref(2, 1))
	late.At, late.Deadline = 2000, 3000
	s.must(meta.Touch{Segment: segID, At: 3001})
	s.must(meta.Touch{Segment: segID, At: 10})
	if got := s.head(segID); got.LastAppend != 3001 || got.Next != 2 {
		t.Errorf("head is %+v", got)
	}
	s.refused(late, meta.ReasonLate)
	s.must(meta.Seal{Segment: segID, Epoch: 3})
	s.must(meta.Touch{Segment: segID, At: 9000})
}

func testTakeAndSettle(t *testing.T, h Harness) {
	s := open(t, h)
	first := take(1, 5, 15)
	first.Create = &meta.Cursor{Subscription: subID, Segment: segID, Floor: 5, Next: 5}
	s.must(first)
	res := s.must(take(2, 15, 20))
	if before := res.Before.(*meta.Cursor); before.Next != 15 || len(before.Claims) != 1 {
		t.Errorf("before is %+v", before)
	}
	s.sameItem("the answer", &res.Item, s.find(meta.CursorKey(subID, segID)))

	st := settle(1)
	st.Done = []meta.OffsetRange{span(5, 7), span(9, 10), span(100, 200)}
	st.Release = []meta.Retry{{OffsetRange: span(10, 12), Attempts: 1, NotBefore: 700, Reason: "no"}}
	st.Extend, st.Until = []meta.OffsetRange{span(13, 99)}, 9900
	res = s.must(st)
	if before := res.Before.(*meta.Cursor); !before.Claims[claimID(1)].Same(claim(1, 5, 15, 9000)) {
		t.Errorf("before is %+v", before)
	}
	c := s.cursor()
	want := []meta.Part{{OffsetRange: span(7, 9), Expires: 9000}, {OffsetRange: span(12, 13), Expires: 9000}, {OffsetRange: span(13, 15), Expires: 9900}}
	if c.Floor != 7 || !slices.Equal(c.Done, []meta.OffsetRange{span(9, 10)}) || !slices.Equal(c.Claims[claimID(1)].Parts, want) {
		t.Errorf("cursor is %+v", c)
	}
	// A takeover: the expired claim and the retry become one claim, one message is dead-lettered.
	over := meta.Take{
		Subscription: subID, Segment: segID,
		Drop: []meta.Claim{c.Claims[claimID(1)]}, DropRetries: c.Retries,
		Done:       []meta.OffsetRange{span(7, 9)},
		Add:        []meta.Claim{{ID: claimID(3), Attempt: 2, Parts: []meta.Part{{OffsetRange: span(10, 13), Expires: 9999}}}},
		AddRetries: []meta.Retry{{OffsetRange: span(13, 15), Attempts: 1, NotBefore: 1, Alone: true}},
	}
	s.must(over)
	s.refused(over, meta.ReasonClaim) // a retried take finds its claims gone
	s.refused(settle(1), meta.ReasonClaim)
	c = s.cursor()
	if c.Floor != 10 || len(c.Done) != 0 || len(c.Claims) != 2 || len(c.Retries) != 1 || !c.Retries[0].Alone || c.InFlight() != 8 {
		t.Errorf("cursor is %+v", c)
	}
	all := settle(3)
	all.All, all.Done = true, []meta.OffsetRange{span(10, 12), span(12, 13)}
	s.must(all)
	if c = s.cursor(); c.Floor != 13 || len(c.Claims) != 1 {
		t.Errorf("cursor is %+v", c)
	}
}
