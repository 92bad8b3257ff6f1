package topics_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// unwatching fails puts of watches.
type unwatching struct {
	meta.Store
	fails bool
}

func (u *unwatching) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if p, ok := op.(meta.Put); ok && u.fails && p.Record.Kind() == meta.KindWatch {
		return meta.Result{}, &queue.Error{Op: "test", Kind: queue.KindUnavailable}
	}
	return u.Store.Apply(ctx, op)
}

// TestWatches: an alert of load leaves a watch that tells of pressure as it is; one of pressure replaces any;
// new bounds are not put without a watch.
func TestWatches(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	store := &unwatching{Store: memmeta.New(t)}
	woken := 0
	process := func() *topics.Service {
		return topics.New(topics.Deps{Meta: store, IDs: queue.NewIDs(nil), Clock: func() time.Time { return now }, Wake: func() { woken++ }})
	}
	a := process()
	if _, _, err := a.Create(t.Context(), "t", topics.Config{}); err != nil {
		t.Fatal(err)
	}
	m, err := a.Open(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	watch := func() *meta.Watch {
		w, _, err := meta.Fetch[*meta.Watch](t.Context(), store, meta.Key{PK: meta.WatchPK, SK: string(m.ID())})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	a.Alert(t.Context(), m, false)
	if w := watch(); w.Pressed != 0 || woken != 1 {
		t.Errorf("after an alert of load: %+v, woken %d times", w, woken)
	}
	now = now.Add(time.Second)
	process().Alert(t.Context(), m, true)
	first := queue.MillisOf(now)
	if w := watch(); w.Pressed != first || woken != 2 {
		t.Errorf("after an alert of pressure: %+v, woken %d times", w, woken)
	}
	now = now.Add(time.Second)
	process().Alert(t.Context(), m, false)
	if w := watch(); w.Pressed != first {
		t.Errorf("an alert of load took the pressure away: %+v", w)
	}
	least := 3
	store.fails = true
	if _, err := a.Update(t.Context(), "t", topics.Patch{MinSegments: &least}); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("bounds without a watch: %v", err)
	}
	if m, err = a.Reload(t.Context(), "t"); err != nil || m.Topic.Config.MinSegments != 1 {
		t.Errorf("the bounds were put: %+v, %v", m.Topic.Config, err)
	}
	store.fails = false
	now = now.Add(time.Second)
	if _, err := a.Update(t.Context(), "t", topics.Patch{MinSegments: &least}); err != nil || watch().Pressed != queue.MillisOf(now) {
		t.Errorf("%v, %+v", err, watch())
	}
}
