package sim

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// scaleMutations are faults of changes of segments.
func scaleMutations() []Mutation { return slices.Concat(changeMutations(), mapMutations()) }

// changeMutations are faults of the transaction that makes a change.
func changeMutations() []Mutation {
	return []Mutation{
		inChange("change asks for no version of the topic", func(p meta.Put) meta.Op {
			if p.Record.Kind() == meta.KindTopic {
				p.If = meta.Any()
			}
			return p
		}),
		inChange("change asks for no version at all", func(p meta.Put) meta.Op {
			p.If = meta.Any()
			return p
		}),
		inChange("children's ranges end one slot early", func(p meta.Put) meta.Op {
			switch r := p.Record.(type) {
			case *meta.Segment:
				if less := *r; r.Sealed == 0 {
					less.Range.Hi--
					p.Record = &less
				}
			case *meta.Head:
				less := *r
				less.Range.Hi--
				p.Record = &less
			}
			return p
		}),
		without[meta.Seal, meta.Put]("parents' heads stay open"),
		inChange("parents know no successors", func(p meta.Put) meta.Op {
			if seg, ok := p.Record.(*meta.Segment); ok && seg.Sealed != 0 {
				less := *seg
				less.Successors = nil
				p.Record = &less
			}
			return p
		}),
		inChange("children begin in their parents' epoch", func(p meta.Put) meta.Op {
			switch r := p.Record.(type) {
			case *meta.Topic:
				less := *r
				less.Epoch--
				p.Record = &less
			case *meta.Segment:
				if less := *r; r.Sealed == 0 {
					less.Epoch--
					p.Record = &less
				}
			case *meta.Head:
				less := *r
				less.Epoch--
				p.Record = &less
			}
			return p
		}),
		inChange("leader's changes ask for no lease", func(p meta.Put) meta.Op {
			if p.Record.Kind() == meta.KindLease {
				return nil
			}
			return p
		}),
		inChange("no event tells of a change", func(p meta.Put) meta.Op {
			if p.Record.Kind() == meta.KindEvent {
				return nil
			}
			return p
		}),
	}
}

// mapMutations are faults of what is known of a topic's segments.
func mapMutations() []Mutation {
	return []Mutation{
		misread("retry does not look in predecessors", func(r meta.Record) meta.Record {
			if seg, ok := r.(*meta.Segment); ok {
				less := *seg
				less.Predecessors = nil
				return &less
			}
			return r
		}),
		misread("merges go below the minimum", func(r meta.Record) meta.Record {
			if topic, ok := r.(*meta.Topic); ok {
				less := *topic
				less.Config.MinSegments = 1
				return &less
			}
			return r
		}),
		misread("splits go above the maximum", func(r meta.Record) meta.Record {
			if topic, ok := r.(*meta.Topic); ok {
				more := *topic
				more.Config.MaxSegments = queue.MaxSegments
				return &more
			}
			return r
		}),
		{Name: "map never shows the last change", Records: func(s meta.Store, _ *rand.Rand) meta.Store {
			return &oldMap{s, make(map[string]meta.Page), make(map[string]meta.Page)}
		}},
	}
}

// inChange makes other puts of those of a change of segments.
func inChange(name string, other func(p meta.Put) meta.Op) Mutation {
	return Mutation{Name: name, Records: func(s meta.Store, _ *rand.Rand) meta.Store {
		return &mutant{Store: s, ops: func(ops []meta.Op) []meta.Op {
			if !reshapes(ops) {
				return ops
			}
			out := ops[:0]
			for _, op := range ops {
				if p, ok := op.(meta.Put); ok {
					op = other(p)
				}
				if op != nil {
					out = append(out, op)
				}
			}
			return out
		}}
	}}
}

func reshapes(ops []meta.Op) bool {
	return len(ops) > 1 && slices.ContainsFunc(ops, func(op meta.Op) bool { _, ok := op.(meta.Seal); return ok })
}

// misreading shows other records in queries than the store holds. What a change writes back of them is put
// right, so that the fault is in the reading alone.
type misreading struct {
	mutant
	show func(meta.Record) meta.Record
}

// misread makes a mutation of what queries of a topic's partition show.
func misread(name string, show func(meta.Record) meta.Record) Mutation {
	return Mutation{Name: name, Records: func(s meta.Store, _ *rand.Rand) meta.Store {
		m := &misreading{show: show}
		m.Store = s
		m.ops = func(ops []meta.Op) []meta.Op {
			if !reshapes(ops) {
				return ops
			}
			for i, op := range ops {
				if p, ok := op.(meta.Put); ok {
					p.Record = m.righted(p.Record)
					ops[i] = p
				}
			}
			return ops
		}
		return m
	}}
}

func (m *misreading) righted(r meta.Record) meta.Record {
	switch r := r.(type) {
	case *meta.Segment:
		if have, ok := m.find(r.Key()).(*meta.Segment); ok {
			right := *r
			right.Predecessors = have.Predecessors
			return &right
		}
	case *meta.Topic:
		if have, ok := m.find(r.Key()).(*meta.Topic); ok {
			right := *r
			right.Config = have.Config
			return &right
		}
	}
	return r
}

// Query implements meta.Store.
func (m *misreading) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	page, err := m.Store.Query(ctx, q)
	page.Items = slices.Clone(page.Items)
	for i := range page.Items {
		page.Items[i].Record = m.show(page.Items[i].Record)
	}
	return page, err
}

// oldMap answers queries of a topic's partition with what they were before its segments last changed.
type oldMap struct {
	meta.Store
	old, now map[string]meta.Page
}

// Query implements meta.Store.
func (m *oldMap) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	page, err := m.Store.Query(ctx, q)
	epoch, ok := epochIn(page)
	if err != nil || q.From != "" || !ok {
		return page, err
	}
	last, known := m.now[q.PK]
	if before, _ := epochIn(last); !known || before != epoch {
		m.now[q.PK] = page
		if known {
			m.old[q.PK] = last
		}
	}
	if old, ok := m.old[q.PK]; ok {
		return old, nil
	}
	return page, nil
}

// epochIn is the topic's epoch in a page of its partition.
func epochIn(p meta.Page) (queue.Epoch, bool) {
	for _, item := range p.Items {
		if topic, ok := item.Record.(*meta.Topic); ok {
			return topic.Epoch, true
		}
	}
	return 0, false
}
