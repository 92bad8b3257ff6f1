package sim

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Mutation is a deliberate fault between the network and the truth: the checks must find it.
type Mutation struct {
	Name string
	// From is the seed to try first, where it is found late otherwise: it only saves time.
	From uint64
	// Records and Objects wrap the stores; nil for none. rng is the mutation's own.
	Records func(meta.Store, *rand.Rand) meta.Store
	Objects func(blob.Store, *rand.Rand) blob.Store
	// ClockAhead lets every instance's clock run ahead, past what the model tolerates.
	ClockAhead time.Duration
}

// mutant is a store that does something else than it was asked to.
type mutant struct {
	meta.Store
	// ops makes other ops of those of a call.
	ops func(ops []meta.Op) []meta.Op
	// answers, if set, may answer without the store.
	answers func(op meta.Op) (meta.Result, bool)
}

// Apply implements meta.Store.
func (m *mutant) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if m.answers != nil {
		if res, ok := m.answers(op); ok {
			return res, nil
		}
	}
	ops := m.ops([]meta.Op{op})
	if len(ops) == 0 {
		return meta.Result{Item: meta.Item{Record: m.find(op.Target())}, Before: m.find(op.Target())}, nil
	}
	return m.Store.Apply(ctx, ops[0])
}

// Transact implements meta.Store. An op that is left out answers with the record as it is.
func (m *mutant) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	kept := m.ops(slices.Clone(ops))
	out := make([]meta.Result, len(ops))
	if len(kept) > 0 {
		res, err := m.Store.Transact(ctx, kept)
		if err != nil {
			return nil, err
		}
		for i := range kept {
			for j := range ops {
				if ops[j].Target() == kept[i].Target() {
					out[j] = res[i]
				}
			}
		}
	}
	for i := range out {
		if out[i].Item.Record == nil {
			out[i].Item.Record = m.find(ops[i].Target())
		}
	}
	return out, nil
}

func (m *mutant) find(key meta.Key) meta.Record {
	item, err := m.Get(context.Background(), key)
	if err != nil {
		return nil
	}
	return item.Record
}

// each makes a mutation of ops that are of one type.
func each[T meta.Op](name string, change func(op T, rng *rand.Rand) meta.Op) Mutation {
	return Mutation{Name: name, Records: func(s meta.Store, rng *rand.Rand) meta.Store {
		return &mutant{Store: s, ops: func(ops []meta.Op) []meta.Op {
			out := ops[:0]
			for _, op := range ops {
				if t, ok := op.(T); ok {
					op = change(t, rng)
				}
				if op != nil {
					out = append(out, op)
				}
			}
			return out
		}}
	}}
}

// without leaves ops of one type out of transactions that also hold one of another.
func without[T, Beside meta.Op](name string) Mutation {
	return Mutation{Name: name, Records: func(s meta.Store, _ *rand.Rand) meta.Store {
		return &mutant{Store: s, ops: func(ops []meta.Op) []meta.Op {
			if !slices.ContainsFunc(ops, func(op meta.Op) bool { _, ok := op.(Beside); return ok }) {
				return ops
			}
			return slices.DeleteFunc(ops, func(op meta.Op) bool { _, ok := op.(T); return ok })
		}}
	}}
}

// lawless is an op whose effect is another one.
type lawless[T meta.Op] struct {
	op     T
	change func(op T, cur *meta.Item) (*meta.Item, meta.Result, error)
}

// Target implements meta.Op.
func (l lawless[T]) Target() meta.Key { return l.op.Target() }

// Name implements meta.Op.
func (l lawless[T]) Name() string { return l.op.Name() }

// Change implements meta.Op.
func (l lawless[T]) Change(cur *meta.Item) (*meta.Item, meta.Result, error) {
	return l.change(l.op, cur)
}

// onHead carries an append out on a head that was changed before.
func onHead(name string, pretend func(a *meta.Append, h *meta.Head)) Mutation {
	return each(name, func(a meta.Append, _ *rand.Rand) meta.Op {
		payload := a.Payload
		if payload != nil {
			return a // a wrapped op's payload would not be put
		}
		return lawless[meta.Append]{a, func(a meta.Append, cur *meta.Item) (*meta.Item, meta.Result, error) {
			if cur == nil {
				return a.Change(cur)
			}
			h, _ := cur.Record.(*meta.Head)
			other := *h
			pretend(&a, &other)
			next, res, err := a.Change(&meta.Item{Record: &other, Version: cur.Version})
			if err != nil {
				return nil, res, err
			}
			made, _ := next.Record.(*meta.Head)
			n := *made
			n.Tail, n.Sealed = slices.Concat(h.Tail, a.Refs), h.Sealed
			item := &meta.Item{Record: &n, Version: cur.Version}
			res.Item = *item
			return item, res, nil
		}}
	})
}

// onCursor carries an op out on a cursor that was changed before, as far as that makes a difference.
func onCursor[T meta.Op](name string, pretend func(op *T, c *meta.Cursor)) Mutation {
	return each(name, func(op T, _ *rand.Rand) meta.Op {
		return lawless[T]{op, func(op T, cur *meta.Item) (*meta.Item, meta.Result, error) {
			if cur == nil {
				return op.Change(cur)
			}
			c, _ := cur.Record.(*meta.Cursor)
			other := *c
			pretend(&op, &other)
			return op.Change(&meta.Item{Record: &other, Version: cur.Version})
		}}
	})
}

// blobMutant loses objects.
type blobMutant struct {
	blob.Store
	rng *rand.Rand
}

// Create implements blob.Store: some objects are never stored.
func (b *blobMutant) Create(ctx context.Context, prefix string, data []byte) (string, error) {
	if b.rng.IntN(3) == 0 {
		return prefix + strings.Repeat("0", 16), nil
	}
	return b.Store.Create(ctx, prefix, data)
}

// staleReads answers reads of heads with what they were before the last change.
type staleReads struct {
	meta.Store
	old map[meta.Key]meta.Item
	now map[meta.Key]meta.Item
}

// Get implements meta.Store.
func (s *staleReads) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	item, err := s.Store.Get(ctx, key)
	if err != nil || item.Record.Kind() != meta.KindHead {
		return item, err
	}
	if last, ok := s.now[key]; !ok || last.Record != item.Record {
		s.old[key], s.now[key] = last, item
	}
	if old := s.old[key]; old.Record != nil {
		return old, nil
	}
	return item, nil
}

// acksEarly answers some appends without carrying them out.
func acksEarly(s meta.Store, rng *rand.Rand) meta.Store {
	m := &mutant{Store: s, ops: func(ops []meta.Op) []meta.Op { return ops }}
	m.answers = func(op meta.Op) (meta.Result, bool) {
		a, ok := op.(meta.Append)
		h, _ := m.find(op.Target()).(*meta.Head)
		if !ok || h == nil || rng.IntN(20) > 0 {
			return meta.Result{}, false
		}
		next, res, err := a.Change(&meta.Item{Record: h})
		if err != nil {
			return meta.Result{}, false
		}
		res.Item = *next
		return res, true
	}
	return m
}

// tornTransactions carries out only the first op of some transactions.
func tornTransactions(s meta.Store, rng *rand.Rand) meta.Store {
	return &mutant{Store: s, ops: func(ops []meta.Op) []meta.Op {
		if len(ops) > 1 && rng.IntN(4) == 0 {
			return ops[:1]
		}
		return ops
	}}
}

// resending carries out again, later, what a store's client must not send again.
type resending struct {
	meta.Store
	rng  *rand.Rand
	sent []meta.Put
}

// Apply implements meta.Store.
func (r *resending) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	res, err := r.Store.Apply(ctx, op)
	if n := len(r.sent); n > 0 && r.rng.IntN(4) == 0 {
		_, _ = r.Store.Apply(ctx, r.sent[r.rng.IntN(n)])
	}
	if p, ok := op.(meta.Put); ok && err == nil && meta.Once(op) {
		r.sent = append(r.sent, p)
	}
	return res, err
}

func claimIDs(c *meta.Cursor) iter.Seq[queue.ClaimID] { return maps.Keys(c.Claims) }

func compareClaims(a, b queue.ClaimID) int { return bytes.Compare(a[:], b[:]) }
