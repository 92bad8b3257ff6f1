package produce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// TestWaitsForRoll holds that the call after one that made the tail long puts its bytes while the roll is under way,
// commits once it is over, at no store call more, and does not wait for one that does not end.
func TestWaitsForRoll(t *testing.T) {
	for _, tc := range []struct {
		name       string
		roll, want time.Duration
		tail       int
	}{
		{"a roll", 30 * time.Millisecond, 30 * time.Millisecond, 1},
		{"a slow roll", time.Minute, 250 * time.Millisecond, queue.RollRefs + 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.ids = queue.NewIDs(nil) // the world's own are of one goroutine
				w.later = func(work func()) {
					go func() {
						time.Sleep(tc.roll)
						work()
					}()
				}
				w.Service = w.process(w.meter.Meta(w.meta), w.meter.Blob(w.blob))
				w.topic("t", topics.Config{})
				call := func(n int) (took time.Duration) {
					began := time.Now()
					answer := w.produce(produce.Request{Topic: "t", Messages: messages(1, "x", 0)})
					if id := answer.Runs[0].ID; int(id.Offset) != n {
						t.Fatalf("message %d is at %d", n, id.Offset)
					}
					return time.Since(began)
				}
				for n := range queue.RollRefs {
					if took := call(n); took != 0 {
						t.Fatalf("call %d took %v", n, took)
					}
				}
				before := w.meter.Snapshot()
				if took := call(queue.RollRefs); took != tc.want {
					t.Errorf("it took %v, want %v", took, tc.want)
				}
				cost := w.meter.Snapshot().Sub(before)
				if puts := cost.Ops("put payload"); cost.Ops("append") != 1 || puts != 1 {
					t.Errorf("it cost\n%s", cost)
				}
				m, err := w.topics.Open(t.Context(), "t")
				if err != nil {
					t.Fatal(err)
				}
				head, err := w.log.Head(t.Context(), m.Open[0].ID)
				if err != nil {
					t.Fatal(err)
				}
				if len(head.Tail) != tc.tail {
					t.Errorf("the tail holds %d refs, want %d", len(head.Tail), tc.tail)
				}
				if got := w.bodies("t"); len(got) != queue.RollRefs+1 {
					t.Errorf("%d messages", len(got))
				}
				time.Sleep(2 * tc.roll)
			})
		})
	}
}
