package topics

import (
	"context"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// loses loses the answer to the next transaction, and calls then before whoever asked goes on.
type loses struct {
	meta.Store
	then func()
	// refuse has every later one refused.
	refuse bool
	lost   bool
}

func (s *loses) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if s.lost && s.refuse {
		return nil, &queue.Error{Op: "test", Kind: queue.KindThrottled}
	}
	res, err := s.Store.Transact(ctx, ops)
	if s.lost || s.then == nil {
		return res, err
	}
	s.lost = true
	s.then()
	return nil, &queue.Error{Op: "test", Kind: queue.KindOutcomeUnknown}
}

// TestDeleteMeetsAnother: a deletion whose answer was lost does not delete what was made anew since.
func TestDeleteMeetsAnother(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	if _, _, err := r.CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{}); err != nil {
		t.Fatal(err)
	}
	store := &loses{Store: r.store}
	store.then = func() {
		r.pass(1)
		r.pass(queue.ClockSlack)
		if _, created, err := r.CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{}); err != nil || !created {
			t.Errorf("made anew: %v, %v", created, err)
		}
	}
	here := New(Deps{Meta: store, IDs: queue.NewIDs(nil), Clock: r.clock})
	if err := here.DeleteSubscription(t.Context(), "a", "s"); err != nil {
		t.Error(err)
	}
	if _, err := r.Subscription(t.Context(), "a", "s"); err != nil {
		t.Errorf("what was made anew: %v", err)
	}
}

// TestUnsureChanges: a change of which one try may have taken effect, and the next was refused, is not told as one
// that did nothing.
func TestUnsureChanges(t *testing.T) {
	for name, call := range map[string]func(*Service, context.Context) error{
		"create": func(s *Service, ctx context.Context) error {
			_, _, err := s.Create(ctx, "new", Config{})
			return err
		},
		"seek": func(s *Service, ctx context.Context) error {
			_, err := s.Seek(ctx, "a", "s", Start{Kind: StartLatest})
			return err
		},
		"delete": func(s *Service, ctx context.Context) error { return s.DeleteSubscription(ctx, "a", "s") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create(t, "a", Config{})
			if _, _, err := r.CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{}); err != nil {
				t.Fatal(err)
			}
			// The first try does not take effect, which nobody knows; the second is refused.
			store := &loses{Store: never{r.store}, then: func() {}, refuse: true}
			err := call(New(Deps{Meta: store, IDs: queue.NewIDs(nil), Clock: r.clock}), t.Context())
			if !queue.Is(err, queue.KindOutcomeUnknown) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// never carries out no transaction.
type never struct{ meta.Store }

func (never) Transact(context.Context, []meta.Op) ([]meta.Result, error) { return nil, nil }
