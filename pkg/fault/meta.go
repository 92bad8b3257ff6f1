package fault

import (
	"context"
	"strings"

	"github.com/spillway-mq/spillway/pkg/meta"
)

// metaStore implements meta.Store.
type metaStore struct {
	inner meta.Store
	plan  *Plan
}

// Meta wraps store so that plan decides over its calls. Ops that make no sense, and so may have no
// name, are left to the store to refuse; they are no steps.
func Meta(store meta.Store, plan *Plan) meta.Store { return &metaStore{store, plan} }

// Get implements meta.Store.
func (s *metaStore) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	c := &Call{Op: "get", Key: key.String()}
	return run(ctx, s.plan, c, work[meta.Item]{
		do: func(ctx context.Context) (meta.Item, error) { return s.inner.Get(ctx, key) },
	})
}

// GetAll implements meta.Store.
func (s *metaStore) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	if meta.CheckKeys(keys) != nil {
		return s.inner.GetAll(ctx, keys)
	}
	c := &Call{Op: "get all", Key: keys[0].String()}
	return run(ctx, s.plan, c, work[[]meta.Item]{
		do: func(ctx context.Context) ([]meta.Item, error) { return s.inner.GetAll(ctx, keys) },
	})
}

// Query implements meta.Store.
func (s *metaStore) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	c := &Call{Op: "query", Key: q.PK + " [" + q.From + "," + q.To + ")"}
	do := func(ctx context.Context) (meta.Page, error) { return s.inner.Query(ctx, q) }
	return run(ctx, s.plan, c, work[meta.Page]{
		do: do,
		half: func(ctx context.Context, _ *Call) (meta.Page, error) {
			page, err := do(ctx)
			if n := half(len(page.Items)); n < len(page.Items) {
				page.Items, page.More = page.Items[:n:n], true
			}
			return page, err
		},
	})
}

// Apply implements meta.Store.
func (s *metaStore) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if meta.CheckOp(op) != nil {
		return s.inner.Apply(ctx, op)
	}
	c := &Call{Op: op.Name(), Key: op.Target().String(), Write: true}
	return run(ctx, s.plan, c, work[meta.Result]{
		do: func(ctx context.Context) (meta.Result, error) { return s.inner.Apply(ctx, op) },
	})
}

// Transact implements meta.Store.
func (s *metaStore) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if meta.CheckTransact(ops) != nil {
		return s.inner.Transact(ctx, ops)
	}
	c := &Call{Op: "transact", Write: true}
	names, keys := make([]string, len(ops)), make([]string, len(ops))
	for i, op := range ops {
		names[i], keys[i] = op.Name(), op.Target().String()
		c.parts = append(c.parts, part{names[i], keys[i]}, part{"transact", keys[i]})
	}
	c.Op += " (" + strings.Join(names, ", ") + ")"
	c.Key = strings.Join(keys, ", ")
	return run(ctx, s.plan, c, work[[]meta.Result]{
		do: func(ctx context.Context) ([]meta.Result, error) { return s.inner.Transact(ctx, ops) },
	})
}

// half is half of n, rounded up: a page cut down to nothing would leave its reader no place to go on
// from.
func half(n int) int { return (n + 1) / 2 }
