package delay

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// freezing lets two hours pass after each look at the index: a process that stands still in the middle of a run.
type freezing struct {
	meta.Store
	r     *rig
	drops []*meta.Drop
}

func (f *freezing) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	page, err := f.Store.Query(ctx, q)
	f.r.pass(2 * time.Hour)
	return page, err
}

func (f *freezing) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	for _, op := range ops {
		if put, ok := op.(meta.Put); ok {
			if drop, ok := put.Record.(*meta.Drop); ok {
				f.drops = append(f.drops, drop)
			}
		}
	}
	return f.Store.Transact(ctx, ops)
}

// TestGraceBeginsWhenItIsDropped: what expired while it waited is kept for the whole grace period after the promotion
// that dropped it, however long ago that began.
func TestGraceBeginsWhenItIsDropped(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	r.put(t, group{visible: r.in(60), expires: r.in(30), name: "expired"})
	r.pass(time.Minute)
	store := &freezing{Store: r.store, r: r}
	m := r.open(t)
	if _, _, err := r.on(store, r.blobs).Promote(t.Context(), m, r.millis()); err != nil {
		t.Fatal(err)
	}
	if len(store.drops) != 1 || store.drops[0].Due.Sub(r.millis()) < queue.GracePeriod {
		t.Errorf("dropped %d; kept for %v more", len(store.drops), store.drops[0].Due.Sub(r.millis()))
	}
}
