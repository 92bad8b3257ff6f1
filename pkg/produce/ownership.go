package produce

import (
	"context"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxHoldsPerWrite is how many uploads one transaction takes: each is a check and a hold.
const maxHoldsPerWrite = meta.MaxTransactOps / 2

// own says in each unit's ref how many records have owners together, so that whoever drops the last one
// knows (docs/decisions/0007): of the call's object all that are not refused, of an upload those of this
// submission, under a hold of its own.
func (c *call) own(now, later []part) {
	counts := make(map[*unit]uint32)
	var object uint32
	for _, p := range slices.Concat(now, later) {
		counts[p.unit] += uint32(p.count) // #nosec G115 -- bounded by MaxBatchRecords
		if p.unit.own {
			object += uint32(p.count) // #nosec G115 -- bounded by MaxBatchRecords
		}
	}
	if c.guard != nil && c.guard.producer == "" {
		// Tries under one Idempotency-Key share the object, and may differ in what they refuse: all
		// that any of them may own counts.
		object = 0
		for _, u := range c.units {
			if u.own {
				object += uint32(len(u.records)) // #nosec G115 -- bounded by MaxBatchRecords
			}
		}
	}
	for _, u := range c.units {
		if u.own {
			u.ref.Total = object
			continue
		}
		u.ref.Total, u.ref.Hold = counts[u], u.ref.ID
	}
}

// putHolds takes hold of the uploads that the call submits, before anything refers to them. An upload
// that was condemned meanwhile, as nobody had submitted it for long, is refused like one that is gone.
// A guarded call's second try puts the same holds again.
func (c *call) putHolds(ctx context.Context, now, later []part) error {
	var held []*unit
	for _, p := range slices.Concat(now, later) {
		if !p.unit.own && !slices.Contains(held, p.unit) {
			held = append(held, p.unit)
		}
	}
	for some := range slices.Chunk(held, maxHoldsPerWrite) {
		var ops []meta.Op
		checked := make(map[string]bool)
		for _, u := range some {
			ops = append(ops, meta.Put{
				Record:  &meta.Hold{Object: u.ref.Object, ID: u.ref.Hold.String(), Total: u.ref.Total, Created: c.created},
				Version: meta.NewVersion(c.IDs),
			})
			if !checked[u.ref.Object] {
				checked[u.ref.Object] = true
				ops = append(ops, meta.Check{Key: meta.CondemnedKey(u.ref.Object, false), If: meta.Absent(), Kind: meta.KindCondemned})
			}
		}
		_, err := c.Meta.Transact(ctx, ops)
		if queue.Is(err, queue.KindOutcomeUnknown) {
			_, err = c.Meta.Transact(ctx, ops) // the same holds
		}
		if meta.IsRefused(err, meta.ReasonExists) {
			return &queue.Error{
				Op: "submit reference", Kind: queue.KindNotFound, Code: queue.CodeObjectNotFound, Field: "object", Err: err,
				Message: "an upload was not submitted in time and has been removed: put it again",
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
