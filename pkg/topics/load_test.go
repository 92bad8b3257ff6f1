package topics

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// far is a store whose every read takes a second.
type far struct{ meta.Store }

func (s far) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	time.Sleep(time.Second)
	return s.Store.Get(ctx, key)
}

func (s far) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	time.Sleep(time.Second)
	return s.Store.Query(ctx, q)
}

// TestLoadAgain holds that a topic which was read before is read again in the time of one read, and that what its name
// means is read, too: another process may have deleted it and made another.
func TestLoadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memmeta.New(t)
		here := New(Deps{Meta: far{store}, IDs: queue.NewIDs(nil), Clock: time.Now})
		there := New(Deps{Meta: store, IDs: queue.NewIDs(nil), Clock: time.Now})
		open := func(want time.Duration) (*Map, error) {
			t.Helper()
			began := time.Now()
			m, err := here.Open(t.Context(), "a")
			if took := time.Since(began); took != want {
				t.Errorf("took %v, want %v", took, want)
			}
			return m, err
		}
		if _, _, err := there.Create(t.Context(), "a", Config{}); err != nil {
			t.Fatal(err)
		}
		first, err := open(2 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(defaultCacheTTL)
		again, err := open(time.Second)
		if err != nil || again == first || again.ID() != first.ID() {
			t.Errorf("again: %v", err)
		}
		if err := there.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(defaultCacheTTL)
		_, err = open(time.Second)
		wantCode(t, err, queue.CodeTopicNotFound)
		if _, _, err := there.Create(t.Context(), "a", Config{}); err != nil {
			t.Fatal(err)
		}
		other, err := open(2 * time.Second)
		if err != nil || other.ID() == first.ID() {
			t.Errorf("the topic that was made anew: %v", err)
		}
	})
}

// TestKnownTopicsAreBounded holds that names are forgotten, and that nothing is lost with them.
func TestKnownTopicsAreBounded(t *testing.T) {
	r := newRig(t)
	r.cache.limit = 2
	for _, name := range []string{"a", "b", "c"} {
		r.create(t, name, Config{})
		if _, err := r.Open(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.cache.ids) != 1 || r.cache.lastID("c") == "" {
		t.Errorf("%d names are known, want the last alone", len(r.cache.ids))
	}
	if _, err := r.Open(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}
