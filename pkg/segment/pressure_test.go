package segment_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// busyStore refuses so many transactions, and appends if it is told to, for being asked too much.
type busyStore struct {
	meta.Store
	transacts, appends int
	asked, refused     int
}

func throttled() error { return &queue.Error{Op: "test", Kind: queue.KindThrottled} }

func (b *busyStore) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if b.transacts > 0 {
		b.transacts--
		return nil, throttled()
	}
	return b.Store.Transact(ctx, ops)
}

func (b *busyStore) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	b.asked++
	if b.appends > 0 {
		b.appends--
		return meta.Result{}, throttled()
	}
	res, err := b.Store.Apply(ctx, op)
	if _, ok := meta.AsRefused(err); ok {
		b.refused++
	}
	return res, err
}

// TestFullTailUnderPressure: a writer that finds the tail full, at a store that refuses to roll it, asks for
// the roll again, and not for its append, which costs as much as one that succeeds.
func TestFullTailUnderPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		busy := &busyStore{Store: w.meta, transacts: 1 << 30}
		log := w.log(busy, w.blob)
		for n := range queue.MaxTailRefs {
			if _, err := log.Append(t.Context(), w.commit(byte(n), 1)); err != nil {
				t.Fatal(err)
			}
		}
		busy.asked, busy.transacts = 0, 8
		done, err := log.Append(t.Context(), w.commit(200, 1))
		if err != nil || done.Offset != queue.MaxTailRefs || !done.Pressed {
			t.Errorf("%+v, %v", done, err)
		}
		if busy.asked != 2 || busy.refused != 1 {
			t.Errorf("the append was asked for %d times, of which %d were refused; want 2 and 1", busy.asked, busy.refused)
		}
		if got := w.layout(); len(got) != queue.MaxTailRefs+1 {
			t.Errorf("%d refs", len(got))
		}
	})
}

// TestFailedRollIsMadeUpFor: where a roll fails the next one comes when the tail is as long again, not when it
// has no room.
func TestFailedRollIsMadeUpFor(t *testing.T) {
	w := newWorld(t)
	busy := &busyStore{Store: w.meta, transacts: 1}
	log := w.log(busy, w.blob)
	for n := range 2 * queue.RollRefs {
		if _, err := log.Append(t.Context(), w.commit(byte(n), 1)); err != nil {
			t.Fatal(err)
		}
	}
	head, err := w.clean.Head(t.Context(), segID)
	if err != nil || len(head.Tail) != 0 {
		t.Errorf("a tail of %d refs, %v", len(head.Tail), err)
	}
}

// TestPressedThoughFailed: a commit that the store refused to the end tells so, or nobody would hear of it.
func TestPressedThoughFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.log(&busyStore{Store: w.meta, appends: 1 << 30}, w.blob)
		done, err := log.Append(t.Context(), w.commit(1, 1))
		if !queue.Is(err, queue.KindThrottled) || !done.Pressed {
			t.Errorf("%+v, %v", done, err)
		}
	})
}
