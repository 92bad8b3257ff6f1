package metatest

import (
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func name(i int) *meta.Name { return &meta.Name{Name: fmt.Sprintf("name%03d", i), Topic: topID} }

func testTransact(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead(ref(1, 2))))
	s.must(meta.Put{Record: name(1), Version: 1})
	first := take(1, 0, 2)
	first.Create = &meta.Cursor{Subscription: subID, Segment: segID}
	a := appendOf(ref(2, 3))
	a.Payload = &meta.Payload{ID: "0001", Data: []byte("x")}
	results, err := s.Transact(t.Context(), []meta.Op{
		a, first,
		meta.Put{Record: name(2), If: meta.Absent(), Version: 2},
		meta.Delete{Key: meta.NameKey("name001"), If: meta.At(1), Kind: meta.KindName},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 4 || results[0].Offset != 2 || results[3].Item.Record != nil {
		t.Errorf("results are %+v", results)
	}
	for i, key := range []meta.Key{meta.HeadKey(segID), meta.CursorKey(subID, segID), meta.NameKey("name002")} {
		s.sameItem("result", &results[i].Item, s.find(key))
	}
	if s.find(meta.NameKey("name001")) != nil || s.find(a.Payload.Key()) == nil {
		t.Error("not every op took effect")
	}
	var most []meta.Op
	for i := range meta.MaxTransactOps {
		most = append(most, meta.Put{Record: name(100 + i), If: meta.Absent(), Version: 1})
	}
	if _, err := s.Transact(t.Context(), most); err != nil {
		t.Errorf("the largest transaction ended with %v", err)
	}
}

// testTransactRefused breaks each place of a transaction in turn: nothing of it may take effect, and
// the first op that does not hold is named.
func testTransactRefused(t *testing.T, h Harness) {
	for at := range 4 {
		t.Run(fmt.Sprintf("op %d", at), func(t *testing.T) {
			s := open(t, h)
			s.must(putHead(newHead(ref(1, 2))))
			s.must(meta.Put{Record: name(1), Version: 1})
			first := take(1, 0, 2)
			first.Create = &meta.Cursor{Subscription: subID, Segment: segID}
			good := appendOf(ref(2, 3))
			good.Payload = &meta.Payload{ID: "0001", Data: []byte("x")}
			ops := []meta.Op{
				good, first,
				meta.Put{Record: name(2), If: meta.Absent(), Version: 2},
				meta.Delete{Key: meta.NameKey("name001"), If: meta.At(1), Kind: meta.KindName},
			}
			stale := good
			stale.Epoch = 99
			broken := []meta.Op{stale, take(1, 0, 2), meta.Put{Record: name(2), If: meta.At(5), Version: 2}, meta.Delete{Key: meta.NameKey("name001"), If: meta.At(9)}}
			reasons := []meta.Reason{meta.ReasonEpoch, meta.ReasonAbsent, meta.ReasonAbsent, meta.ReasonVersion}
			for i := at; i < len(ops); i += 2 {
				ops[i] = broken[i] // a later one too: the first is named
			}
			before := s.find(ops[at].Target())
			_, err := s.Transact(t.Context(), ops)
			r, ok := meta.AsRefused(err)
			if !ok || r.Index != at || r.Reason != reasons[at] || r.Key != ops[at].Target() {
				t.Fatalf("ended with %v (%+v)", err, r)
			}
			s.sameItem("current of the refusal", r.Current, before)
			if s.head(segID).Next != 2 || s.find(meta.CursorKey(subID, segID)) != nil || s.find(meta.NameKey("name002")) != nil ||
				s.find(meta.NameKey("name001")) == nil || s.find(good.Payload.Key()) != nil {
				t.Error("a refused transaction has changed something")
			}
		})
	}
}

func testTransactInput(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead()))
	a := appendOf(ref(1, 1))
	a.Payload = &meta.Payload{ID: "0001", Data: []byte("x")}
	many := []meta.Op{}
	for i := range meta.MaxTransactOps + 1 {
		many = append(many, meta.Put{Record: name(i), Version: 1})
	}
	withPayload := append([]meta.Op{a}, many[:meta.MaxTransactOps-1]...)
	for name, ops := range map[string][]meta.Op{
		"no ops":                    nil,
		"too many":                  many,
		"too many with the payload": withPayload,
		"one record twice":          {many[0], many[0]},
		"put and delete of one":     {many[0], meta.Delete{Key: many[0].Target()}},
		"the payload twice":         {a, meta.Put{Record: a.Payload, Version: 1}},
	} {
		if _, err := s.Transact(t.Context(), ops); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%s ended with %v", name, err)
		}
	}
	if s.head(segID).Next != 0 || s.find(many[0].Target()) != nil {
		t.Error("an invalid transaction has changed something")
	}
}
