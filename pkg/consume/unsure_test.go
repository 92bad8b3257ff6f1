package consume_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// loses carries out the first of the ops that it is about, loses the answer, and then will not any more.
type loses struct {
	meta.Store
	on atomic.Bool
	n  atomic.Int64
}

func (s *loses) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if _, settles := op.(meta.Settle); !settles || !s.on.Load() {
		return s.Store.Apply(ctx, op)
	}
	if s.n.Add(1) == 1 {
		_, _ = s.Store.Apply(ctx, op)
		return meta.Result{}, &queue.Error{Op: "test", Kind: queue.KindOutcomeUnknown}
	}
	return meta.Result{}, &queue.Error{Op: "test", Kind: queue.KindThrottled}
}

// TestUnsureSettles: a settle of which one try may have taken effect, and the last was refused for want of room, is not
// told as one that did nothing.
func TestUnsureSettles(t *testing.T) {
	for name, settle := range map[string]func(*env, []queue.Receipt) ([]error, error){
		"ack": func(e *env, r []queue.Receipt) ([]error, error) { return e.svc.Ack(e.t.Context(), "a", "sub", r) },
		"release": func(e *env, r []queue.Receipt) ([]error, error) {
			return e.svc.Release(e.t.Context(), "a", "sub", r, consume.Release{})
		},
		"extend": func(e *env, r []queue.Receipt) ([]error, error) {
			return e.svc.Extend(e.t.Context(), "a", "sub", r, queue.MinVisibilityTimeout)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &loses{}
				e := newEnv(t, options{bubble: true, change: func(d *consume.Deps) {
					store.Store = d.Meta
					d.Meta = store
				}})
				m := e.topic("a", 1, nil)
				e.add(m.Open[0], false, numbered(1)...)
				got := e.claim("a", 1)
				store.on.Store(true)
				errs, err := settle(e, receipts(got))
				if err != nil || !queue.Is(errs[0], queue.KindOutcomeUnknown) || store.n.Load() < 2 {
					t.Errorf("%v, %v after %d tries", errs, err, store.n.Load())
				}
				store.on.Store(false)
				if errs, err = e.svc.Ack(t.Context(), "a", "sub", receipts(got)); name == "ack" && (err != nil || errs[0] != nil) {
					t.Errorf("again: %v, %v", errs, err)
				}
			})
		})
	}
}
