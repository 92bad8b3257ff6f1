package lease_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const ttl = time.Minute

func keeper(s meta.Store) *lease.Keeper { return lease.New(s, queue.NewIDs(nil), time.Now) }

func note(name string) meta.Op {
	return meta.Put{Record: &meta.Name{Name: name}, If: meta.Absent(), Version: 1}
}

// TestTakeOver: another takes the lease only after it has itself watched it for its TTL, and whatever
// the old holder then does changes nothing.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memmeta.New(t)
		old, err := keeper(store).Acquire(t.Context(), "x", ttl)
		if err != nil || old.Epoch() != 1 || !old.Valid() {
			t.Fatalf("%+v, %v", old, err)
		}
		time.Sleep(10 * ttl) // nobody has looked: no time has passed for others
		if old.Valid() {
			t.Error("the holder trusts a lease that has ended")
		}
		other := keeper(store)
		if _, err := other.Acquire(t.Context(), "x", ttl); !queue.Is(err, queue.KindConflict) {
			t.Fatalf("taken at first sight: %v", err)
		}
		time.Sleep(ttl - time.Second)
		if _, err := other.Acquire(t.Context(), "x", ttl); !queue.Is(err, queue.KindConflict) {
			t.Fatalf("taken before its end: %v", err)
		}
		// The holder works: its lease begins anew, for the observer, too.
		if err := old.Commit(t.Context(), 7, note("a")); err != nil || !old.Valid() {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := other.Acquire(t.Context(), "x", ttl); !queue.Is(err, queue.KindConflict) {
			t.Fatalf("taken after it was renewed: %v", err)
		}
		time.Sleep(ttl)
		held, err := other.Acquire(t.Context(), "x", ttl)
		if err != nil || held.Epoch() != 2 || held.Value() != 7 {
			t.Fatalf("%+v, %v", held, err)
		}
		if err := old.Commit(t.Context(), 8, note("b")); !queue.Is(err, queue.KindFenced) {
			t.Errorf("a write under a lost lease: %v", err)
		}
		if _, err := store.Get(t.Context(), meta.NameKey("b")); !queue.Is(err, queue.KindNotFound) {
			t.Errorf("it changed something: %v", err)
		}
		if err := old.Release(t.Context()); !queue.Is(err, queue.KindFenced) {
			t.Errorf("release of a lost lease: %v", err)
		}
		if err := held.Commit(t.Context(), 9, note("c")); err != nil {
			t.Errorf("the new holder: %v", err)
		}
	})
}

// TestRelease: a lease given up is taken at once, under a greater epoch.
func TestRelease(t *testing.T) {
	store := memmeta.New(t)
	a, b := keeper(store), keeper(store)
	for i := range 5 {
		k := a
		if i%2 == 1 {
			k = b
		}
		held, err := k.Acquire(t.Context(), "x", ttl)
		if err != nil || held.Epoch() != queue.Epoch(i+1) {
			t.Fatalf("%+v, %v", held, err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := held.Commit(t.Context(), 1, note("z")); !queue.Is(err, queue.KindFenced) {
			t.Errorf("a write after the release: %v", err)
		}
	}
}

// TestOneHolder: of many at once one gets it.
func TestOneHolder(t *testing.T) {
	store := memmeta.New(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 16 {
		wg.Go(func() {
			if _, err := keeper(store).Acquire(t.Context(), "x", ttl); err == nil {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d hold it", won)
	}
}

// TestRefusedOp: what another condition refuses is told with its place among the ops, and the lease
// goes on.
func TestRefusedOp(t *testing.T) {
	store := memmeta.New(t)
	held, err := keeper(store).Acquire(t.Context(), "x", ttl)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Commit(t.Context(), 0, note("a")); err != nil {
		t.Fatal(err)
	}
	err = held.Commit(t.Context(), 0, note("b"), note("a"))
	if r, ok := meta.AsRefused(err); !ok || r.Index != 1 || r.Reason != meta.ReasonExists {
		t.Fatalf("%v", err)
	}
	if err := held.Commit(t.Context(), 0, note("b")); err != nil {
		t.Fatal(err)
	}
}

// TestFaults breaks each step: at most one write takes effect, epochs grow, and a lease is never held
// by two who may write.
func TestFaults(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		now := time.Unix(1000, 0)
		clock := func() time.Time { return now }
		bare := memmeta.New(t)
		k := lease.New(fault.Meta(bare, plan), queue.NewIDs(nil), clock)
		held, err := k.Acquire(t.Context(), "x", ttl)
		made := false
		if err == nil {
			err = held.Commit(t.Context(), 5, note("a"))
			made = err == nil
			_ = held.Release(t.Context())
		}
		next := lease.New(bare, queue.NewIDs(nil), clock)
		second, err := next.Acquire(t.Context(), "x", ttl)
		if queue.Is(err, queue.KindConflict) {
			now = now.Add(ttl)
			second, err = next.Acquire(t.Context(), "x", ttl)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, gerr := bare.Get(t.Context(), meta.NameKey("a"))
		if made && (gerr != nil || second.Value() != 5) {
			t.Errorf("what was committed is gone: %v, value %d", gerr, second.Value())
		}
		if (gerr == nil) != (second.Value() == 5) {
			t.Errorf("a half of the transaction: %v, value %d", gerr, second.Value())
		}
		if held != nil {
			if second.Epoch() <= held.Epoch() {
				t.Errorf("epoch %d after %d", second.Epoch(), held.Epoch())
			}
			if err := held.Commit(t.Context(), 6, note("b")); err == nil {
				t.Error("two hold it")
			}
		}
	}, append(fault.Standard(), fault.Repeat)...)
}

// TestGiven: a lease is made only while what it is of is there, and taken again whatever has become of that.
func TestGiven(t *testing.T) {
	store := memmeta.New(t)
	head := &meta.Head{Segment: "s"}
	there := meta.Check{Key: head.Key(), If: meta.Present(), Kind: meta.KindHead}
	k := keeper(store)
	if _, err := k.Acquire(t.Context(), "x", ttl, there); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("the lease of what is gone: %v", err)
	}
	if _, err := store.Get(t.Context(), meta.LeaseKey("x")); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("it is there: %v", err)
	}
	if _, err := store.Apply(t.Context(), meta.Put{Record: head, Version: 1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		held, err := k.Acquire(t.Context(), "x", ttl, there)
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Apply(t.Context(), meta.Delete{Key: head.Key()}); err != nil {
			t.Fatal(err)
		}
	}
}
