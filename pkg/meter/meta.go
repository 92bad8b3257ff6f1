package meter

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	readUnitBytes  = 4 << 10
	writeUnitBytes = 1 << 10
	// transactFactor is how much dearer a write is within a transaction.
	transactFactor = 2
)

// metaStore implements meta.Store.
type metaStore struct {
	m     *Meter
	inner meta.Store
}

// Meta wraps store so that m counts its calls. Errors and results are the store's own.
func (m *Meter) Meta(store meta.Store) meta.Store { return &metaStore{m, store} }

// Get implements meta.Store.
func (s *metaStore) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	item, err := s.inner.Get(ctx, key)
	name := "get"
	if err == nil && item.Record != nil {
		name = "get " + item.Record.Kind().String()
		s.m.sizes.see(hashKey(key), item.Size)
	}
	s.read(name, item.Size, err)
	return item, err
}

// GetAll implements meta.Store: one call, charged as its records one by one.
func (s *metaStore) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	items, err := s.inner.GetAll(ctx, keys)
	name, size := "get all", 0
	for i := range items {
		item := &items[i]
		if item.Record == nil {
			continue
		}
		size += item.Size
		s.m.sizes.see(hashKey(keys[i]), item.Size)
		name = "get all " + item.Record.Kind().String()
	}
	row := s.m.row(name)
	row.calls.Add(1)
	row.count(size, err)
	if charged(err) {
		for i := range items {
			row.readUnits.Add(units(items[i].Size, readUnitBytes))
		}
	}
	return items, err
}

// Query implements meta.Store.
func (s *metaStore) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	page, err := s.inner.Query(ctx, q)
	name, size := "query", 0
	for i := range page.Items {
		item := &page.Items[i]
		size += item.Size
		if item.Record == nil {
			continue
		}
		s.m.sizes.see(hashKey(item.Record.Key()), item.Size)
		if i == 0 {
			name = "query " + item.Record.Kind().String()
		}
	}
	s.read(name, size, err)
	return page, err
}

func (s *metaStore) read(name string, size int, err error) {
	row := s.m.row(name)
	row.calls.Add(1)
	row.count(size, err)
	if charged(err) {
		row.readUnits.Add(units(size, readUnitBytes))
	}
}

// Apply implements meta.Store.
func (s *metaStore) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	res, err := s.inner.Apply(ctx, op)
	if queue.Is(err, queue.KindInvalid) {
		s.invalid("invalid", err)
		return res, err
	}
	s.payload(op, 1, err)
	row := s.m.row(op.Name())
	row.calls.Add(1)
	refused, _ := refusal(err)
	s.write(row, op, outcome{res: res, err: err, refused: refused, factor: 1})
	return res, err
}

// Transact implements meta.Store.
func (s *metaStore) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	results, err := s.inner.Transact(ctx, ops)
	if queue.Is(err, queue.KindInvalid) {
		s.invalid("transact", err)
		return results, err
	}
	row := s.m.row("transact")
	row.calls.Add(1)
	row.count(0, err)
	refused, isRefused := refusal(err)
	if isRefused {
		row.refusals.Add(1)
	}
	for i, op := range ops {
		s.payload(op, transactFactor, err)
		out := outcome{err: err, factor: transactFactor}
		if i < len(results) {
			out.res = results[i]
		}
		if isRefused && refused.Index == i {
			out.refused = refused
		}
		s.write(s.m.row(op.Name()), op, out)
	}
	return results, err
}

// invalid counts a call whose ops make no sense: they may not even have a name or a target.
func (s *metaStore) invalid(name string, err error) {
	row := s.m.row(name)
	row.calls.Add(1)
	row.count(0, err)
}

// outcome is how one op ended.
type outcome struct {
	res meta.Result
	err error
	// refused is set if this op is the one that was refused.
	refused *meta.Refused
	factor  int64
}

func (s *metaStore) write(row *counters, op meta.Op, out outcome) {
	key := hashKey(op.Target())
	before, after := s.m.sizes.last(key), out.res.Item.Size
	if out.refused != nil {
		row.refusals.Add(1)
		before = 0
		if out.refused.Current != nil {
			before = out.refused.Current.Size
		}
		s.m.sizes.see(key, before)
	}
	if out.err == nil {
		s.m.sizes.see(key, after)
	}
	row.count(after, out.err)
	if charged(out.err) {
		row.writeUnits.Add(out.factor * units(max(before, after), writeUnitBytes))
	}
}

// payload counts the put that an Append carries, which a store makes as a write of its own whether
// the append is then refused or not.
func (s *metaStore) payload(op meta.Op, factor int64, err error) {
	a, ok := op.(meta.Append)
	if !ok || a.Payload == nil {
		return
	}
	key := a.Payload.Key()
	size := len(a.Payload.Data) + len(key.PK) + len(key.SK)
	row := s.m.row("put payload")
	if _, refused := refusal(err); refused {
		err = nil
	}
	row.count(size, err)
	if charged(err) {
		row.writeUnits.Add(factor * units(size, writeUnitBytes))
	}
}

func refusal(err error) (*meta.Refused, bool) {
	if err == nil {
		return nil, false
	}
	var r *meta.Refused
	ok := errors.As(err, &r)
	return r, ok
}

// units is size in units of unit bytes, rounded up, and never less than one.
func units(size, unit int) int64 {
	return int64(max(1, (size+unit-1)/unit))
}
