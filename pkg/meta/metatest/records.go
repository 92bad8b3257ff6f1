package metatest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// everyKind is one well-filled record of each kind.
func everyKind() []meta.Record {
	head := newHead(ref(1, 2), ref(2, 3))
	head.Producers = head.Producers.With("p/ü", meta.ProducerState{Sequence: 1 << 60, First: 1, Count: 2, At: 1999})
	head.Load.Commits, head.Load.Buckets[7] = 5, 5
	full := meta.Ref{
		Kind: meta.RefPayload, Inline: true, ID: meta.RefID{1, 2}, Object: "uploads/x", Pos: 7, Len: 8, First: 9, Count: 1,
		Prefix: 10, CRC: 11, HasCRC: true, Created: 12_000, Visible: 13_000, DefaultTTL: 14, MinExpires: 15_000, MaxExpires: 16_000,
		Bytes: 17, Slot: 65535, Key: []byte("key"), Headers: []byte{0, 1}, Total: 18, Hold: meta.RefID{19},
	}
	home := queue.DelayedID{Visible: 4000, Entry: "ent0000000000000", Index: 3}
	return []meta.Record{
		&meta.Name{Name: "shop.orders", Topic: topID, Created: 1},
		&meta.Topic{ID: topID, State: meta.TopicOpen, Epoch: 4, Config: meta.TopicConfig{
			DefaultDelay: time.Second, MinSegments: 1, Attributes: map[string]string{"a": "<b>"},
		}},
		&meta.Segment{Topic: topID, ID: segID, Range: queue.Ring(), Predecessors: []queue.SegmentID{"x"}},
		head,
		&meta.RefPage{Segment: segID, First: 77, Refs: []meta.Ref{full}},
		&meta.Payload{ID: "0001", Data: []byte{0, 255, 0}},
		&meta.Subscription{Topic: topID, Name: "s", ID: subID, Cut: map[queue.SegmentID]queue.Offset{segID: 3}},
		&meta.Cursor{
			Subscription: subID, Segment: segID, Floor: 3, Next: 9,
			Claims:  map[queue.ClaimID]meta.Claim{claimID(1): claim(1, 3, 5, 9000)},
			Done:    []meta.OffsetRange{span(5, 7)},
			Retries: []meta.Retry{{OffsetRange: span(7, 9), Attempts: 2, NotBefore: 8000, Alone: true, Reason: "why"}},
		},
		&meta.Delayed{
			Topic: topID, Shard: 2, Visible: 5000, ID: "ent0000000000001", Ref: full,
			Slots: []queue.Slot{3, 3, 65535}, Gone: []uint32{1}, Home: &home,
		},
		&meta.Forward{Topic: topID, Home: home, Visible: 5000, Entry: "ent0000000000001"},
		&meta.Attempt{Topic: topID, Token: "k-abc", Hash: "00", Nonce: [16]byte{9}, Answer: []byte("{}"), Expires: 1 << 45},
		&meta.Lease{Name: "compact/x", Owner: "o", Epoch: 3, TTL: time.Minute, Free: true, Value: 5},
		&meta.Work{Due: 5000, Segment: segID},
		&meta.Drop{Due: 5002, ID: "y", Again: true, Runs: []meta.Run{{Object: "b", Inline: true}}},
		&meta.Drop{Due: 5001, ID: "x", Intent: true, Runs: []meta.Run{full.Owned(), {Object: "b", Pos: 1, First: 2, Count: 3, Total: 4}}},
		&meta.Hold{Object: "0001", Inline: true, ID: "0a", Total: 2, Created: 6},
		&meta.Freed{Run: full.Owned()},
		&meta.Condemned{Object: "uploads/x", Expires: 1 << 45},
		&meta.Progress{Name: "uploads", After: "uploads/x", Again: 7},
	}
}

// testRecords holds that each kind comes back from get and query as it was put.
func testRecords(t *testing.T, h Harness) {
	s := open(t, h)
	for i, r := range everyKind() {
		want := &meta.Item{Record: r, Version: meta.Version(i + 1)}
		res := s.must(meta.Put{Record: r, If: meta.Absent(), Version: want.Version})
		want.Size = res.Item.Size // each store counts in its own way; reads agree with the answer
		s.sameItem(r.Kind().String()+" as answered", &res.Item, want)
		s.sameItem(r.Kind().String()+" by get", s.find(r.Key()), want)
		page, err := s.Query(t.Context(), meta.Range{PK: r.Key().PK, From: r.Key().SK, To: meta.After(r.Key().SK), Limit: 10})
		if err != nil || len(page.Items) != 1 || page.More {
			t.Errorf("query %s: %+v, %v", r.Kind(), page, err)
			continue
		}
		s.sameItem(r.Kind().String()+" by query", &page.Items[0], want)
	}
}

// testInput holds that what no store could make sense of is refused as invalid.
func testInput(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead()))
	s.must(meta.Put{Record: &meta.Cursor{Subscription: subID, Segment: segID, Next: 5}, Version: 1})
	long := strings.Repeat("x", 4096)
	twice := take(1, 5, 10)
	twice.Done = []meta.OffsetRange{span(9, 10)}
	loses := take(1, 5, 10)
	loses.To = 11
	noPayloadID := appendOf(ref(1, 1))
	noPayloadID.Payload = &meta.Payload{Data: []byte("x")}
	nameless := appendOf(ref(1, 1))
	nameless.Producer = &meta.Sequence{}
	badID := appendOf(ref(1, 1))
	badID.Payload = &meta.Payload{ID: "a\x00b"}
	backwards := settle(1)
	backwards.Done = []meta.OffsetRange{span(3, 2)}
	wordy := settle(1)
	wordy.Release = []meta.Retry{{OffsetRange: span(1, 2), Reason: long}}
	for name, op := range map[string]meta.Op{
		"put of nothing":          meta.Put{Version: 1},
		"put without version":     meta.Put{Record: &meta.Topic{ID: topID}},
		"key with an empty part":  meta.Put{Record: &meta.Name{}, Version: 1},
		"key with a NUL":          meta.Put{Record: &meta.Name{Name: "a\x00b"}, Version: 1},
		"key that is too long":    meta.Put{Record: &meta.Name{Name: long}, Version: 1},
		"delete without key":      meta.Delete{},
		"append of nothing":       appendOf(),
		"append of an empty ref":  appendOf(ref(1, 0)),
		"append of too many":      appendOf(refs(1, queue.MaxCommitRefs+1)...),
		"append of one ref twice": appendOf(ref(1, 1), ref(1, 1)),
		"payload without id":      noPayloadID,
		"payload id with a NUL":   badID,
		"producer without id":     nameless,
		"trim of a negative":      meta.Trim{Segment: segID, Count: -1},
		"take backwards":          meta.Take{Subscription: subID, Segment: segID, From: 6, To: 5},
		"take that doubles":       twice,
		"take that loses":         loses,
		"settle backwards":        backwards,
		"reason too long":         wordy,
	} {
		if _, err := s.Apply(t.Context(), op); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%s ended with %v", name, err)
		}
		if _, err := s.Transact(t.Context(), []meta.Op{op}); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%s in a transaction ended with %v", name, err)
		}
	}
	for name, key := range map[string]meta.Key{"empty": {}, "no sk": {PK: "a"}, "NUL": {PK: "a", SK: "b\x00"}} {
		if _, err := s.Get(t.Context(), key); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("get of a key that is %s ended with %v", name, err)
		}
	}
	for name, q := range map[string]meta.Range{
		"no partition": {Limit: 1}, "no limit": {PK: "a"}, "limit too high": {PK: "a", Limit: meta.MaxQueryLimit + 1},
		"NUL": {PK: "a", From: "\x00", Limit: 1},
	} {
		if _, err := s.Query(t.Context(), q); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("query with %s ended with %v", name, err)
		}
	}
}

func testTooLarge(t *testing.T, h Harness) {
	s := open(t, h)
	tooLarge := func(err error) {
		t.Helper()
		if !queue.Is(err, queue.KindTooLarge) {
			t.Errorf("ended with %v", err)
		}
	}
	s.must(meta.Put{Record: &meta.Topic{ID: topID, Epoch: 1}, Version: 1})
	s.must(putHead(newHead()))
	big := &meta.Topic{ID: topID, Config: meta.TopicConfig{PartitionKey: strings.Repeat("x", meta.MaxRecordBytes)}}
	_, err := s.Apply(t.Context(), meta.Put{Record: big, Version: 2})
	tooLarge(err)
	a := appendOf(ref(1, 1))
	a.Payload = &meta.Payload{ID: "0001", Data: make([]byte, meta.MaxRecordBytes)}
	_, err = s.Apply(t.Context(), a)
	tooLarge(err)
	b := appendOf(ref(2, 1))
	b.Refs[0].Headers = make([]byte, meta.MaxRecordBytes)
	b.Payload = &meta.Payload{ID: "0002", Data: []byte("x")}
	_, err = s.Apply(t.Context(), b)
	tooLarge(err)
	_, err = s.Transact(t.Context(), []meta.Op{meta.Put{Record: &meta.Name{Name: "n"}, Version: 1}, b})
	tooLarge(err)
	if h := s.head(segID); h.Next != 0 || s.find(a.Payload.Key()) != nil || s.find(b.Payload.Key()) != nil || s.find(meta.NameKey("n")) != nil {
		t.Errorf("an op that was too large left something behind; the head is %+v", h)
	}
	if topic := s.find(meta.TopicKey(topID)).Record.(*meta.Topic); topic.Epoch != 1 {
		t.Errorf("topic is %+v", topic)
	}
	// Just within the limit is well.
	s.must(meta.Put{Record: &meta.Payload{ID: "0003", Data: make([]byte, meta.MaxRecordBytes-64)}, Version: 1})
}

// testSnapshots holds that what was handed out never changes, whatever is written later.
func testSnapshots(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead()))
	first := take(1, 0, 10)
	first.Create = &meta.Cursor{Subscription: subID, Segment: segID}
	s.must(first)
	var items []meta.Item
	var frames [][]byte
	keep := func(item meta.Item) {
		items = append(items, item)
		frames = append(frames, encoded(t, &item))
	}
	for i := range queue.Offset(10) {
		a := appendOf(ref(uint64(i), 1))
		a.Producer = &meta.Sequence{ID: "p", Number: uint64(i) + 1}
		keep(s.must(a).Item)
		keep(*s.find(meta.HeadKey(segID)))
		st := settle(1)
		st.Extend, st.Until = []meta.OffsetRange{span(5, 10)}, queue.Millis(9000+i)
		st.Done = []meta.OffsetRange{span(i/2*2, i/2*2+1)}
		res := s.must(st)
		keep(res.Item)
		keep(meta.Item{Record: res.Before})
		keep(*s.find(meta.CursorKey(subID, segID)))
	}
	s.must(meta.Trim{Segment: segID, Count: 5, Forget: 9999})
	for i := range items {
		if !slices.Equal(frames[i], encoded(t, &items[i])) {
			t.Errorf("snapshot %d has changed: %+v", i, items[i].Record)
		}
	}
}

func testCanceled(t *testing.T, h Harness) {
	s := open(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := s.Get(ctx, meta.TopicKey(topID))
	_, queryErr := s.Query(ctx, meta.Range{PK: "a", Limit: 1})
	put := meta.Put{Record: &meta.Topic{ID: topID}, Version: 1}
	_, applyErr := s.Apply(ctx, put)
	_, transactErr := s.Transact(ctx, []meta.Op{put})
	for name, err := range map[string]error{"get": getErr, "query": queryErr, "apply": applyErr, "transact": transactErr} {
		if !queue.Is(err, queue.KindCanceled) {
			t.Errorf("%s ended with %v", name, err)
		}
	}
	if s.find(meta.TopicKey(topID)) != nil {
		t.Error("a canceled put has written")
	}
}

func testReopen(t *testing.T, h Harness) {
	if h.Reopen == nil {
		return // nothing to hold: the driver says that it is not durable
	}
	s := open(t, h)
	var want []*meta.Item
	for i, r := range everyKind() {
		res := s.must(meta.Put{Record: r, If: meta.Absent(), Version: meta.Version(i + 1)})
		want = append(want, &res.Item)
	}
	s.Store = h.Reopen(t, s.Store)
	for _, item := range want {
		s.sameItem(item.Record.Kind().String()+" after reopening", s.find(item.Record.Key()), item)
	}
	s.must(appendOf(ref(100, 1)))
	head := *s.find(meta.HeadKey(segID))
	s.Store = h.Reopen(t, s.Store)
	s.sameItem("head after reopening", s.find(meta.HeadKey(segID)), &head)
}
