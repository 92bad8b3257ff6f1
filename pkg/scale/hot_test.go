package scale_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// eventless loses the event of a finding while fails is set.
type eventless struct {
	meta.Store
	fails bool
}

func (e *eventless) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	for _, op := range ops {
		if p, ok := op.(meta.Put); ok && e.fails && len(ops) == 2 && p.Record.Kind() == meta.KindEvent {
			return nil, &queue.Error{Op: "test", Kind: queue.KindUnavailable}
		}
	}
	return e.Store.Transact(ctx, ops)
}

// TestHotSlotIsToldOnce: a key that is more than a segment should carry ends alone in a segment of one slot,
// and of that one event tells: also if the first time it could not be put.
func TestHotSlotIsToldOnce(t *testing.T) {
	store := &eventless{fails: true}
	r := newRig(t, func(s meta.Store) meta.Store {
		store.Store = s
		return store
	})
	r.create("t", topics.Config{TargetMessages: 100})
	hot, failed := 0, 0
	for range 40 {
		for range 100 {
			r.send("t", produce.Guard{}, keysOf("one key", 120)...)
			r.now = r.now.Add(200 * time.Millisecond)
		}
		rep, err := r.scale.Run(t.Context())
		if err != nil {
			failed++
			store.fails = failed < 2
			continue
		}
		hot += rep.Hot
	}
	slot := queue.SlotOf([]byte("one key"))
	if got := r.load("t").Route(slot).Range.Len(); got != 1 {
		t.Errorf("the key's segment has %d slots", got)
	}
	events, _, err := r.scale.Events(t.Context(), "t", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range events {
		if e.Action == meta.ActionHot {
			told++
		}
	}
	if failed != 2 || hot != 1 || told != 1 {
		t.Errorf("%d failures; found hot %d times, told of %d times", failed, hot, told)
	}
	r.tiles("t")
	// It is counted as hot as long as it is, and no longer.
	if rep := r.runLeader(); rep.HotSegments != 1 {
		t.Errorf("%d hot segments, want 1", rep.HotSegments)
	}
	r.now = r.now.Add(time.Hour)
	r.runLeader()
	r.now = r.now.Add(time.Minute)
	if rep := r.runLeader(); rep.HotSegments != 0 {
		t.Errorf("after an hour without load %d segments are hot", rep.HotSegments)
	}
}

func keysOf(key string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = key
	}
	return out
}
