package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// losing leaves out puts of records of one kind.
func losing(name string, kind meta.Kind) Mutation {
	return each(name, func(p meta.Put, _ *rand.Rand) meta.Op {
		if p.Record.Kind() == kind {
			return nil
		}
		return p
	})
}

// withoutLease takes the lease, and the versions of pages, out of what a compactor commits.
func withoutLease(s meta.Store, _ *rand.Rand) meta.Store {
	m := &mutant{Store: s}
	m.ops = func(ops []meta.Op) []meta.Op {
		page := func(op meta.Op) bool { _, ok := put[*meta.RefPage](op); return ok }
		held := func(op meta.Op) bool { _, ok := put[*meta.Lease](op); return ok }
		if !slices.ContainsFunc(ops, page) || !slices.ContainsFunc(ops, held) {
			return ops
		}
		out := slices.DeleteFunc(ops, held)
		for i, op := range out {
			switch op := op.(type) {
			case meta.Put:
				if item, err := s.Get(context.Background(), op.Target()); err == nil && page(op) {
					op.If = meta.At(item.Version)
					out[i] = op
				}
			case meta.Delete:
				op.If = meta.Any()
				out[i] = op
			}
		}
		return out
	}
	return m
}

// put is the record of one type that an op puts.
func put[T meta.Record](op meta.Op) (rec T, ok bool) {
	p, ok := op.(meta.Put)
	if !ok {
		return rec, false
	}
	rec, ok = p.Record.(T)
	return rec, ok
}

func collectMutations() []Mutation {
	return []Mutation{
		each("dropped bytes are collected without grace", func(p meta.Put, _ *rand.Rand) meta.Op {
			if d, ok := p.Record.(*meta.Drop); ok && !d.Intent {
				soon := *d
				soon.Due = soon.Due.Add(-queue.GracePeriod)
				p.Record = &soon
			}
			return p
		}),
		each("removals come without grace", func(p meta.Put, _ *rand.Rand) meta.Op {
			if r, ok := p.Record.(*meta.Removal); ok && r.Dead {
				soon := *r
				soon.Due = soon.Due.Add(time.Second - queue.GracePeriod)
				p.Record = &soon
			}
			return p
		}),
		{Name: "pages are replaced without lease or version", Records: withoutLease},
		each("drops are not noted", func(p meta.Put, _ *rand.Rand) meta.Op {
			if d, ok := p.Record.(*meta.Drop); ok && !d.Intent {
				return nil
			}
			return p
		}),
		losing("holds are not put", meta.KindHold),
		losing("freed runs are not noted", meta.KindFreed),
		losing("removals are not noted", meta.KindRemoval),
		each("objects are said to have one owner", func(a meta.Append, _ *rand.Rand) meta.Op {
			a.Refs = slices.Clone(a.Refs)
			for i := range a.Refs {
				a.Refs[i].Total = a.Refs[i].Count
			}
			return a
		}),
		each("merged pages lose a ref's offset", func(p meta.Put, _ *rand.Rand) meta.Op {
			page, ok := p.Record.(*meta.RefPage)
			if _, swap := p.If.Version(); ok && swap && len(page.Refs) > 1 {
				other := *page
				other.Refs = slices.Clone(page.Refs)
				slices.Reverse(other.Refs)
				p.Record = &other
			}
			return p
		}),
		each("holds are forgotten at the first run", func(p meta.Put, _ *rand.Rand) meta.Op {
			if h, ok := p.Record.(*meta.Hold); ok {
				less := *h
				less.Total = 1
				p.Record = &less
			}
			return p
		}),
	}
}
