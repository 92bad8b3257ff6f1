package lag

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// markName is the mark's, among the records that say how far something has come.
	markName = "appended"
	// markEvery is how often one process writes the mark at most.
	markEvery = time.Minute
	// markReach is how long after a mark something it stands for may still be appended, by any clock.
	markReach = markEvery + queue.CommitTimeout + queue.ClockSlack
)

// Watch gives a store that marks, before it appends messages and once a minute at most, that there is
// something to look for. It costs a writer one small write a minute, and nothing while it writes no
// messages. A mark that fails is left to the next append: it only makes the look later.
func Watch(s meta.Store, ids *queue.IDs, clock queue.Clock) meta.Store {
	return &watched{Store: s, ids: ids, clock: clock}
}

type watched struct {
	meta.Store
	ids   *queue.IDs
	clock queue.Clock
	// next is when the mark is to be written again.
	next atomic.Int64
}

// Apply implements meta.Store.
func (w *watched) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if _, ok := op.(meta.Append); ok {
		w.mark(ctx)
	}
	return w.Store.Apply(ctx, op)
}

// Transact implements meta.Store.
func (w *watched) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	for _, op := range ops {
		if _, ok := op.(meta.Append); ok {
			w.mark(ctx)
			break
		}
	}
	return w.Store.Transact(ctx, ops)
}

// mark writes the mark if it is time to. Of several that find so one does.
func (w *watched) mark(ctx context.Context) {
	now := w.clock.Millis()
	next := w.next.Load()
	if int64(now) < next || !w.next.CompareAndSwap(next, int64(now.Add(markEvery))) {
		return
	}
	record := &meta.Progress{Name: markName, Again: now}
	if _, err := w.Store.Apply(ctx, meta.Put{Record: record, Version: meta.NewVersion(w.ids)}); err != nil {
		w.next.CompareAndSwap(int64(now.Add(markEvery)), next)
	}
}

// lastMark is when a mark was last written; 0 for never.
func lastMark(ctx context.Context, s meta.Store) (queue.Millis, error) {
	p, _, err := meta.Fetch[*meta.Progress](ctx, s, meta.ProgressKey(markName))
	if queue.Is(err, queue.KindNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return p.Again, nil
}
