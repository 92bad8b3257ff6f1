package produce_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// manyDelays is a call with more visible times than one transaction takes entries.
func manyDelays(guard produce.Guard) produce.Request {
	req := produce.Request{Topic: "t", Guard: guard}
	for i := range 250 {
		req.Messages = append(req.Messages, produce.Message{
			Body: []byte(fmt.Sprint(i)), HasDelay: true, Delay: time.Duration(i+1) * time.Second,
		})
	}
	return req
}

var manyConfig = topics.Config{DefaultDelay: time.Minute, MaxDelay: time.Hour} //nolint:gochecknoglobals // a constant

// TestManyDelaysAtEachFault breaks every store call of such a call, in every way; the next process makes
// it again, a while later. Each message waits exactly once, under the id and the time that were told.
func TestManyDelaysAtEachFault(t *testing.T) {
	for name, guard := range map[string]produce.Guard{
		"producer":        {ProducerID: "p", Sequence: 3},
		"idempotency key": {IdempotencyKey: "k", BodyHash: "h"},
	} {
		t.Run(name, func(t *testing.T) {
			fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
				w := newWorld(t)
				w.topic("t", manyConfig)
				req := manyDelays(guard)
				a1, err1 := w.process(fault.Meta(w.meta, plan), fault.Blob(w.blob, plan)).Produce(t.Context(), req)
				// Past the deadline of the first try, whose messages are not visible yet.
				w.now = w.now.Add(queue.CommitTimeout + time.Millisecond)
				second := w.process(w.meta, w.blob)
				a2, err := second.Produce(t.Context(), req)
				if err != nil {
					t.Fatalf("made again: %v (first: %v)", err, err1)
				}
				if got := times(a2); err1 == nil && !slices.Equal(got, times(a1)) {
					t.Errorf("answered %v, then %v", times(a1), got)
				}
				waiting := make(map[string]bool)
				for _, d := range w.entries("t") {
					for i := range d.Slots {
						id := queue.DelayedID{Visible: d.Visible, Entry: d.ID, Index: uint32(i)}.String()
						if waiting[id] {
							t.Errorf("%s is there twice", id)
						}
						waiting[id] = true
					}
				}
				for i, answer := range ids(a2) {
					id := strings.TrimPrefix(answer, "delayed ")
					if !waiting[id] {
						t.Errorf("message %d, %s, does not wait", i, id)
					}
				}
				if len(waiting) != len(req.Messages) {
					t.Errorf("%d messages wait, want %d", len(waiting), len(req.Messages))
				}
			})
		})
	}
}

// TestManyDelaysOfOthers: under a sequence that was used, other messages are refused, be they as many
// or few enough for one transaction.
func TestManyDelaysOfOthers(t *testing.T) {
	w := newWorld(t)
	w.topic("t", manyConfig)
	many := manyDelays(produce.Guard{ProducerID: "p", Sequence: 1})
	few := many
	few.Messages = slices.Clone(many.Messages[:5])
	others := many
	others.Messages = slices.Clone(many.Messages)
	others.Messages[7].Delay = time.Minute * 50
	refused := func(req produce.Request) bool {
		return strings.HasPrefix(ids(w.produce(req))[0], "error "+string(queue.CodeSequenceOutOfOrder))
	}
	w.produce(many)
	if !refused(few) || !refused(others) || len(w.entries("t")) != 250 {
		t.Error("other messages are taken under a sequence of many")
	}
	many.Guard.Sequence, few.Guard.Sequence = 2, 2
	w.produce(few)
	if !refused(many) || len(w.entries("t")) != 255 {
		t.Error("many messages are taken under a sequence of others")
	}
}
