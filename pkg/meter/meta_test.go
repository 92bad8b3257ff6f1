package meter_test

import (
	"context"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// canned is a meta.Store that answers as it is told, so that sizes are exact.
type canned struct {
	item    meta.Item
	page    meta.Page
	results []meta.Result
	err     error
}

func (c *canned) Get(context.Context, meta.Key) (meta.Item, error)     { return c.item, c.err }
func (c *canned) Query(context.Context, meta.Range) (meta.Page, error) { return c.page, c.err }

func (c *canned) GetAll(context.Context, []meta.Key) ([]meta.Item, error) {
	return []meta.Item{c.item}, c.err
}

func (c *canned) Apply(context.Context, meta.Op) (meta.Result, error) {
	if len(c.results) == 0 {
		return meta.Result{}, c.err
	}
	return c.results[0], c.err
}

func (c *canned) Transact(context.Context, []meta.Op) ([]meta.Result, error) {
	return c.results, c.err
}

const segment = "0123456789abcdef"

func headItem(size int) meta.Item {
	return meta.Item{Record: &meta.Head{Segment: segment}, Size: size}
}

func headResult(size int) meta.Result { return meta.Result{Item: headItem(size)} }

func storeError(kind queue.Kind) error { return &queue.Error{Op: "test", Kind: kind} }

func refused(op meta.Op, index, size int) error {
	item := headItem(size)
	return &meta.Refused{Op: op.Name(), Key: op.Target(), Index: index, Reason: meta.ReasonSealed, Current: &item}
}

func get(s meta.Store) { _, _ = s.Get(context.Background(), meta.HeadKey(segment)) }

func query(s meta.Store) {
	_, _ = s.Query(context.Background(), meta.Range{PK: meta.HeadPK(segment), Limit: 10})
}

func apply(op meta.Op) func(meta.Store) {
	return func(s meta.Store) { _, _ = s.Apply(context.Background(), op) }
}

func transact(ops ...meta.Op) func(meta.Store) {
	return func(s meta.Store) { _, _ = s.Transact(context.Background(), ops) }
}

func TestRecordUnits(t *testing.T) {
	app := meta.Append{Segment: segment}
	carrying := meta.Append{Segment: segment, Payload: &meta.Payload{ID: "x", Data: make([]byte, 2000)}}
	seal := meta.Seal{Segment: segment}
	del := meta.Delete{Key: meta.HeadKey(segment), Kind: meta.KindHead}
	put := meta.Put{Record: &meta.RefPage{Segment: segment}}
	cases := []struct {
		name string
		// before is the size of the head as a read shows it beforehand; 0 for no read.
		before int
		store  canned
		call   func(meta.Store)
		want   []meter.Row
	}{
		{
			"a small read is one unit", 0,
			canned{item: headItem(1)},
			get,
			[]meter.Row{{Op: "get head", Calls: 1, Ops: 1, Bytes: 1, ReadUnits: 1}},
		},
		{
			"4 KB are one unit", 0,
			canned{item: headItem(4096)},
			get,
			[]meter.Row{{Op: "get head", Calls: 1, Ops: 1, Bytes: 4096, ReadUnits: 1}},
		},
		{
			"a byte more is two", 0,
			canned{item: headItem(4097)},
			get,
			[]meter.Row{{Op: "get head", Calls: 1, Ops: 1, Bytes: 4097, ReadUnits: 2}},
		},
		{
			"nothing found is charged", 0,
			canned{err: storeError(queue.KindNotFound)},
			get,
			[]meter.Row{{Op: "get", Calls: 1, Ops: 1, Errors: 1, ReadUnits: 1}},
		},
		{
			"a throttled read is free", 0,
			canned{err: storeError(queue.KindThrottled)},
			get,
			[]meter.Row{{Op: "get", Calls: 1, Ops: 1, Errors: 1}},
		},
		{
			"a query rounds up the sum", 0,
			canned{page: meta.Page{Items: []meta.Item{headItem(3000), headItem(3000)}}},
			query,
			[]meter.Row{{Op: "query head", Calls: 1, Ops: 1, Bytes: 6000, ReadUnits: 2}},
		},
		{
			"an empty query is one unit", 0,
			canned{},
			query,
			[]meter.Row{{Op: "query", Calls: 1, Ops: 1, ReadUnits: 1}},
		},
		{
			"1 KB written is one unit", 0,
			canned{results: []meta.Result{headResult(1024)}},
			apply(app),
			[]meter.Row{{Op: "append", Calls: 1, Ops: 1, Bytes: 1024, WriteUnits: 1}},
		},
		{
			"a byte more is two units", 0,
			canned{results: []meta.Result{headResult(1025)}},
			apply(app),
			[]meter.Row{{Op: "append", Calls: 1, Ops: 1, Bytes: 1025, WriteUnits: 2}},
		},
		{
			"a shrinking record is charged as it was", 5000,
			canned{results: []meta.Result{headResult(100)}},
			apply(meta.Trim{Segment: segment}),
			[]meter.Row{{Op: "trim", Calls: 1, Ops: 1, Bytes: 100, WriteUnits: 5}},
		},
		{
			"a delete is charged as what it removes", 2048,
			canned{results: []meta.Result{{}}},
			apply(del),
			[]meter.Row{{Op: "delete head", Calls: 1, Ops: 1, WriteUnits: 2}},
		},
		{
			"a delete of nothing known is one unit", 0,
			canned{results: []meta.Result{{}}},
			apply(del),
			[]meter.Row{{Op: "delete head", Calls: 1, Ops: 1, WriteUnits: 1}},
		},
		{
			"a refusal is charged as what it found", 0,
			canned{err: refused(seal, 0, 3000)},
			apply(seal),
			[]meter.Row{{Op: "seal", Calls: 1, Ops: 1, Errors: 1, Refusals: 1, WriteUnits: 3}},
		},
		{
			"what was found outweighs what was remembered", 9000,
			canned{err: refused(seal, 0, 3000)},
			apply(seal),
			[]meter.Row{{Op: "seal", Calls: 1, Ops: 1, Errors: 1, Refusals: 1, WriteUnits: 3}},
		},
		{
			"a write that was not made is free", 0,
			canned{err: storeError(queue.KindUnavailable)},
			apply(seal),
			[]meter.Row{{Op: "seal", Calls: 1, Ops: 1, Errors: 1}},
		},
		{
			"a lost answer is charged", 2000,
			canned{err: storeError(queue.KindOutcomeUnknown)},
			apply(seal),
			[]meter.Row{{Op: "seal", Calls: 1, Ops: 1, Errors: 1, WriteUnits: 2}},
		},
		{
			"a payload is a put of its own", 0,
			canned{results: []meta.Result{headResult(500)}},
			apply(carrying),
			[]meter.Row{
				{Op: "append", Calls: 1, Ops: 1, Bytes: 500, WriteUnits: 1},
				{Op: "put payload", Ops: 1, Bytes: 2005, WriteUnits: 2},
			},
		},
		{
			"a payload is put even if the append is refused", 0,
			canned{err: refused(carrying, 0, 500)},
			apply(carrying),
			[]meter.Row{
				{Op: "append", Calls: 1, Ops: 1, Errors: 1, Refusals: 1, WriteUnits: 1},
				{Op: "put payload", Ops: 1, Bytes: 2005, WriteUnits: 2},
			},
		},
		{
			"a transaction costs double", 0,
			canned{results: []meta.Result{headResult(1500), headResult(100)}},
			transact(put, carrying),
			[]meter.Row{
				{Op: "append", Ops: 1, Bytes: 100, WriteUnits: 2},
				{Op: "put page", Ops: 1, Bytes: 1500, WriteUnits: 4},
				{Op: "put payload", Ops: 1, Bytes: 2005, WriteUnits: 4},
				{Op: "transact", Calls: 1, Ops: 1},
			},
		},
		{
			"a refused transaction is charged for all", 0,
			canned{err: refused(seal, 1, 1500)},
			transact(put, seal),
			[]meter.Row{
				{Op: "put page", Ops: 1, Errors: 1, WriteUnits: 2},
				{Op: "seal", Ops: 1, Errors: 1, Refusals: 1, WriteUnits: 4},
				{Op: "transact", Calls: 1, Ops: 1, Errors: 1, Refusals: 1},
			},
		},
		{
			"an op without a name", 0,
			canned{err: storeError(queue.KindInvalid)},
			apply(meta.Put{}),
			[]meter.Row{{Op: "invalid", Calls: 1, Ops: 1, Errors: 1}},
		},
		{
			"a transaction with an op without a name", 0,
			canned{err: storeError(queue.KindInvalid)},
			transact(seal, meta.Put{}),
			[]meter.Row{{Op: "transact", Calls: 1, Ops: 1, Errors: 1}},
		},
		{
			"a throttled transaction is free", 0,
			canned{err: storeError(queue.KindThrottled)},
			transact(put, seal),
			[]meter.Row{
				{Op: "put page", Ops: 1, Errors: 1},
				{Op: "seal", Ops: 1, Errors: 1},
				{Op: "transact", Calls: 1, Ops: 1, Errors: 1},
			},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := meter.New()
			if c.before > 0 {
				get(m.Meta(&canned{item: headItem(c.before)}))
			}
			start := m.Snapshot()
			c.call(m.Meta(&c.store))
			wantRows(t, m.Snapshot().Sub(start), c.want)
		})
	}
}

func wantRows(t *testing.T, got meter.Snapshot, want []meter.Row) {
	t.Helper()
	if len(got.Rows) != len(want) {
		t.Fatalf("rows:\n%s\nwant:\n%s", got, meter.Snapshot{Rows: want})
	}
	for i := range want {
		if got.Rows[i] != want[i] {
			t.Errorf("rows:\n%s\nwant:\n%s", got, meter.Snapshot{Rows: want})
			return
		}
	}
}

func BenchmarkCount(b *testing.B) {
	cases := []struct {
		name string
		call func(meta.Store)
	}{
		{"get", get},
		{"append", apply(meta.Append{Segment: segment})},
		{"put", apply(meta.Put{Record: &meta.Topic{ID: segment}})},
	}
	for _, c := range cases {
		bare := &canned{item: headItem(800), results: []meta.Result{headResult(800)}}
		b.Run(c.name+"/bare", func(b *testing.B) {
			for b.Loop() {
				c.call(bare)
			}
		})
		b.Run(c.name+"/metered", func(b *testing.B) {
			s := meter.New().Meta(bare)
			for b.Loop() {
				c.call(s)
			}
		})
	}
}
