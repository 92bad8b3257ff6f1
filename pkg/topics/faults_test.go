package topics

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// everyFault are the standard faults, and requests that arrive late or twice.
func everyFault() []fault.Fault {
	return append(fault.Standard(), fault.Throttle, fault.Late, fault.Repeat)
}

// next is the next process, on the bare store.
func (r *rig) next() *Service {
	return New(Deps{Meta: r.store, IDs: queue.NewIDs(nil), Clock: r.clock})
}

func (r *rig) broken(plan *fault.Plan) *Service {
	return New(Deps{Meta: fault.Meta(r.store, plan), IDs: queue.NewIDs(nil), Clock: r.clock})
}

// segments counts those of the topic that name points to, and fails on one without its head.
func segments(t *testing.T, store *memmeta.Store, s *Service, name string) int {
	t.Helper()
	m, err := s.Reload(t.Context(), name)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if !m.tiles() {
		t.Error("the segments do not tile the ring")
	}
	for _, seg := range m.Segments {
		if _, err := store.Get(t.Context(), meta.HeadKey(seg.ID)); err != nil {
			t.Errorf("head of %s: %v", seg.ID, err)
		}
	}
	return len(m.Open)
}

func TestCreateAtEachFault(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		cfg := Config{MinSegments: 120}
		_, _, err := r.broken(plan).Create(t.Context(), "a", cfg)
		plan.Release() // what was late arrives
		if err == nil && segments(t, r.store, r.next(), "a") != 120 {
			t.Error("created, but not whole")
		}
		if notes, qerr := r.store.Query(t.Context(), meta.Range{PK: meta.WorkPK(0), Limit: 1}); qerr != nil || err == nil && len(notes.Items) > 0 {
			t.Errorf("created, and to be removed: %v, %v", notes.Items, qerr)
		}
		// Whatever is there is whole, and the same creation goes on from it.
		if _, _, err := r.next().Create(t.Context(), "a", cfg); err != nil {
			t.Fatalf("again: %v", err)
		}
		if n := segments(t, r.store, r.next(), "a"); n != 120 {
			t.Errorf("%d segments", n)
		}
	}, everyFault()...)
}

func TestDeleteAtEachFault(t *testing.T) {
	for _, finish := range []string{"delete", "create"} {
		t.Run(finish, func(t *testing.T) {
			fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
				r := newRig(t)
				st := r.create(t, "a", Config{MinSegments: 2})
				err := r.broken(plan).Delete(t.Context(), "a")
				plan.Release()
				if err != nil {
					if finish == "delete" {
						if err := r.next().Delete(t.Context(), "a"); err != nil && queue.CodeOf(err) != queue.CodeTopicNotFound {
							t.Fatalf("again: %v", err)
						}
					}
				}
				if finish == "create" {
					fresh, created, err := r.next().Create(t.Context(), "a", Config{MinSegments: 3})
					if !created {
						// The delete had not begun: the old topic stands.
						wantCode(t, err, queue.CodeTopicExists)
						return
					}
					if fresh.ID == st.ID {
						t.Error("the old id came back")
					}
				}
				for _, seg := range st.Segments {
					h, _, err := meta.Fetch[*meta.Head](t.Context(), r.store, meta.HeadKey(seg.ID))
					if err != nil || !h.Sealed {
						t.Errorf("a head of the deleted topic is open: %v", err)
					}
				}
			}, everyFault()...)
		})
	}
}

func TestUpdateAtEachFault(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		r.create(t, "a", Config{})
		_, err := r.broken(plan).Update(t.Context(), "a", Patch{Attributes: map[string]*string{"x": ptr("1")}})
		plan.Release()
		m, rerr := r.next().Open(t.Context(), "a")
		if rerr != nil {
			t.Fatal(rerr)
		}
		if err == nil && m.Topic.Config.Attributes["x"] != "1" {
			t.Error("acknowledged, but not there")
		}
	}, everyFault()...)
}

func TestSubscriptionAtEachFault(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		r.create(t, "a", Config{})
		s := r.broken(plan)
		sub, _, err := s.CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{})
		if err == nil {
			var moved *meta.Subscription
			if moved, err = s.Seek(t.Context(), "a", "s", Start{Kind: StartLatest}); err == nil {
				if moved.ID == sub.ID {
					t.Error("the id stayed")
				}
				err = s.DeleteSubscription(t.Context(), "a", "s")
			}
		}
		plan.Release()
		_, have := r.next().Subscription(t.Context(), "a", "s")
		if err == nil {
			wantCode(t, have, queue.CodeSubscriptionNotFound)
		}
		if _, _, err := r.next().CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{}); err != nil {
			t.Errorf("create again: %v", err)
		}
	}, everyFault()...)
}
