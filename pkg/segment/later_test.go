package segment_test

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// TestRollLater holds that a commit which makes the tail long answers before the roll, that the roll is seen for as
// long as it is under way, and that there is one at a time.
func TestRollLater(t *testing.T) {
	w := newWorld(t)
	var waiting []func()
	log := segment.New(segment.Deps{
		Meta: w.meta, Blob: w.blob, IDs: w.ids, Clock: w.clock, Later: func(work func()) { waiting = append(waiting, work) },
	})
	appendTo := func(n int) {
		t.Helper()
		if done, err := log.Append(t.Context(), w.commit(byte(n), 1)); err != nil || done.Offset != queue.Offset(n) {
			t.Fatalf("commit %d: %+v, %v", n, done, err)
		}
	}
	tail := func() int {
		t.Helper()
		head, err := w.clean.Head(t.Context(), segID)
		if err != nil {
			t.Fatal(err)
		}
		return len(head.Tail)
	}
	for n := range queue.RollRefs - 1 {
		appendTo(n)
	}
	if log.AnyRolling() || log.Rolling(segID) != nil || len(waiting) != 0 {
		t.Fatal("a roll before its time")
	}
	appendTo(queue.RollRefs - 1)
	rolling := log.Rolling(segID)
	if rolling == nil || !log.AnyRolling() || len(waiting) != 1 || tail() != queue.RollRefs {
		t.Fatalf("%d rolls wait, the tail holds %d refs; want one, after the answer", len(waiting), tail())
	}
	for n := range queue.RollRefs { // the roll is slow: the next is not begun beside it
		appendTo(queue.RollRefs + n)
	}
	if len(waiting) != 1 {
		t.Errorf("%d rolls at once", len(waiting))
	}
	waiting[0]()
	if tail() != queue.RollRefs || log.Rolling(segID) != nil || log.AnyRolling() {
		t.Errorf("after it the tail holds %d refs", tail())
	}
	select {
	case <-rolling:
	default:
		t.Error("who waits for the roll is not told of its end")
	}
	// Whoever makes the tail long again rolls all of it.
	for n := range queue.RollRefs {
		appendTo(2*queue.RollRefs + n)
	}
	if len(waiting) != 2 {
		t.Fatalf("%d rolls in all, want 2", len(waiting))
	}
	waiting[1]()
	if tail() != 0 {
		t.Errorf("the tail holds %d refs", tail())
	}
	got := w.layout()
	for n := range 3 * queue.RollRefs {
		if got[queue.Offset(n)] != byte(n) {
			t.Fatalf("offset %d holds ref %d", n, got[queue.Offset(n)])
		}
	}
}
