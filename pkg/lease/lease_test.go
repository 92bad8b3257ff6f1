package lease_test

import (
	"context"
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

// slowStore takes long to carry out what it is asked for, or loses it for a while.
type slowStore struct {
	meta.Store
	// get is how long the next read is on its way.
	get time.Duration
	// lose is how many writes have no answer; they arrive before the next one.
	lose int
	lost []meta.Op
}

func (s *slowStore) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	time.Sleep(s.get)
	s.get = 0
	return s.Store.Get(ctx, key)
}

func (s *slowStore) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	for _, late := range s.lost {
		_, _ = s.Store.Apply(ctx, late) // whatever becomes of it
	}
	s.lost = nil
	if s.lose > 0 {
		s.lose--
		s.lost = append(s.lost, op)
		return meta.Result{}, &queue.Error{Kind: queue.KindOutcomeUnknown}
	}
	return s.Store.Apply(ctx, op)
}

// TestSlowRead: time that a read was on its way is not time for which the lease was seen. The other begins to read
// long before the holder renews the lease, finds it just after, and asks again a TTL after it began.
func TestSlowRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memmeta.New(t)
		held, err := keeper(store).Acquire(t.Context(), "x", ttl)
		if err != nil {
			t.Fatal(err)
		}
		slow := &slowStore{Store: store, get: ttl - time.Second}
		other := keeper(slow)
		var reading sync.WaitGroup
		reading.Go(func() {
			if _, err := other.Acquire(t.Context(), "x", ttl); !queue.Is(err, queue.KindConflict) {
				t.Errorf("taken at first sight: %v", err)
			}
		})
		time.Sleep(ttl - 2*time.Second)
		if err := held.Commit(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		reading.Wait()
		time.Sleep(2 * time.Second)
		if _, err := other.Acquire(t.Context(), "x", ttl); !queue.Is(err, queue.KindConflict) || !held.Valid() {
			t.Errorf("taken from a holder who renewed it 3 s ago and trusts in it (%v): %v", held.Valid(), err)
		}
	})
}

// TestLateWrites: a keeper knows a lease as its own that a write of before took, when that one came at last; and
// says that it does not know where none of its writes was answered.
func TestLateWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: memmeta.New(t), lose: 1}
		held, err := keeper(store).Acquire(t.Context(), "x", ttl)
		if err != nil || held.Epoch() != 1 {
			t.Fatalf("%+v, %v", held, err)
		}
		if err := held.Commit(t.Context(), 7); err != nil {
			t.Errorf("a commit under it: %v", err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.lose = 1000
		if _, err := keeper(deaf{store}).Acquire(t.Context(), "x", ttl); !queue.Is(err, queue.KindOutcomeUnknown) {
			t.Errorf("none of its writes was answered, and it says: %v", err)
		}
	})
}

// deaf loses all writes for good.
type deaf struct{ *slowStore }

func (d deaf) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	d.lost = nil
	return d.slowStore.Apply(ctx, op)
}

// silent gives its answers to transactions one after another, and carries none out.
type silent struct {
	meta.Store
	answers []queue.Kind
}

func (s *silent) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if len(s.answers) == 0 {
		return s.Store.Transact(ctx, ops)
	}
	kind := s.answers[0]
	s.answers = s.answers[1:]
	return nil, &queue.Error{Kind: kind}
}

// TestUnsureCommit: a commit one try of which had no answer may take effect yet, whatever the next try was
// answered; it is not said to have changed nothing, and the lease is not used any more.
func TestUnsureCommit(t *testing.T) {
	store := &silent{Store: memmeta.New(t)}
	held, err := keeper(store).Acquire(t.Context(), "x", ttl)
	if err != nil {
		t.Fatal(err)
	}
	store.answers = []queue.Kind{queue.KindUnavailable}
	if err := held.Commit(t.Context(), 1); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("nothing was changed, and it says: %v", err)
	}
	store.answers = []queue.Kind{queue.KindOutcomeUnknown, queue.KindUnavailable}
	if err := held.Commit(t.Context(), 2); !queue.Is(err, queue.KindOutcomeUnknown) || held.Valid() {
		t.Errorf("trusts in the lease %v, and says: %v", held.Valid(), err)
	}
}
