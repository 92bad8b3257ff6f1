package metatest

import (
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func voidOf(number uint64, ids ...string) meta.Void {
	return meta.Void{Segment: segID, Epoch: 3, IDs: ids, Number: number, At: 2500}
}

// testVoid holds that a void keeps a producer's appends out under all of its names and changes nothing
// else, that it lets the next sequence in, and that it binds its transaction.
func testVoid(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead(ref(1, 2))))
	full := newHead(refs(1, queue.MaxTailRefs)...)
	full.Segment = "full000000000000"
	s.must(putHead(full))
	before := s.head(segID)
	s.must(voidOf(4, "p", "p/1"))
	got := s.head(segID)
	for _, id := range []string{"p", "p/1"} {
		if p, known := got.Producers.Get(id); !known || !p.Voided() || p != (meta.ProducerState{Sequence: 4, First: 2, At: 2500}) {
			t.Errorf("of %s the head remembers %+v, %v", id, p, known)
		}
	}
	if len(got.Tail) != 1 || got.Next != before.Next || got.LastAppend != before.LastAppend || got.Load != before.Load {
		t.Errorf("head is %+v", got)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	add := func(n byte, id string, number uint64) meta.Append {
		a := appendOf(ref(uint64(n), 1))
		a.Producer = &meta.Sequence{ID: id, Number: number}
		return a
	}
	s.refused(add(2, "p", 4), meta.ReasonSequence)
	s.refused(add(2, "p/1", 4), meta.ReasonSequence)
	s.refused(voidOf(4, "p"), meta.ReasonSequence)
	s.must(add(3, "p", 5))

	put := meta.Put{Record: &meta.Name{Name: "n"}, If: meta.Absent(), Version: 8}
	if _, err := s.Transact(t.Context(), []meta.Op{put, voidOf(5, "q", "p")}); !meta.IsRefused(err, meta.ReasonSequence) {
		t.Errorf("a void that comes too late ended with %v", err)
	} else if r, _ := meta.AsRefused(err); r.Index != 1 {
		t.Errorf("op %d is said to be refused", r.Index)
	}
	if s.find(put.Record.Key()) != nil {
		t.Error("what went with a refused void is there")
	}
	elsewhere := voidOf(6, "p")
	elsewhere.Segment = full.Segment
	if _, err := s.Transact(t.Context(), []meta.Op{put, voidOf(6, "p", "p/1"), elsewhere}); err != nil {
		t.Errorf("voids of two heads, one with a full tail: %v", err)
	}
	s.refused(add(4, "p", 6), meta.ReasonSequence)

	for name, v := range map[string]meta.Void{
		"no name": voidOf(7), "one name twice": voidOf(7, "a", "a"), "a long name": voidOf(7, strings.Repeat("p", 200)),
		"too many names": voidOf(7, strings.Split("a b c d e f g h i j k l m n o p q", " ")...),
	} {
		if _, err := s.Apply(t.Context(), v); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	longest := voidOf(7)
	for n := range meta.MaxVoidIDs {
		longest.IDs = append(longest.IDs, strings.Repeat(string(rune('a'+n)), meta.MaxSequenceIDBytes))
	}
	s.must(longest)
}
