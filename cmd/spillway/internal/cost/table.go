package cost

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/s3blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Beside counts the requests that the drivers make beside an op's own. DynamoDB's package comment lists
// its: a read before a Trim and, in a transaction, after an Append, and a fold of a cursor's litter.
type Beside struct {
	Reads      int64 `json:"reads"`
	ReadUnits  int64 `json:"read_units"`
	Writes     int64 `json:"writes"`
	WriteUnits int64 `json:"write_units"`
	// Puts are what the S3 driver makes of one put that goes in parts, beyond the one.
	Puts int64 `json:"puts"`
}

// table is the memory store with sizes as DynamoDB has them. Several share what they know of litter.
type table struct {
	meta.Store
	litter *litter

	mu     sync.Mutex // guards what follows
	beside Beside
}

// litter is what cursors' items hold of acks that were not folded yet. dynamometa folds once the entries
// pass a multiple of foldEvery; an ack of a whole claim leaves two, the claim and what of it is done.
type litter struct {
	mu      sync.Mutex // guards entries
	entries map[meta.Key]int
}

const (
	foldEvery = 16
	// entryBytes is about what one of the two entries takes in the item: a claim 75 bytes, a done range 25.
	entryBytes = 50
	readUnit   = 4 << 10
	writeUnit  = 1 << 10
)

func (l *litter) of(key meta.Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[key]
}

// add notes an ack of a whole claim, and reports whether it makes the driver fold.
func (l *litter) add(key meta.Key) (fold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.entries[key]
	if fold = was/foldEvery != (was+2)/foldEvery; fold {
		was = 0
	}
	l.entries[key] = was + 2
	return fold
}

func units(size, unit int) int64 { return int64(max(1, (size+unit-1)/unit)) }

// resize gives an item the size that it has in DynamoDB.
func (t *table) resize(item *meta.Item) error {
	if item.Record == nil {
		return nil
	}
	size, err := dynamometa.SizeOf(item)
	if err != nil {
		return err
	}
	item.Size = size
	if _, ok := item.Record.(*meta.Cursor); ok {
		item.Size += t.litter.of(item.Record.Key()) * entryBytes
	}
	return nil
}

// Get implements meta.Store.
func (t *table) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	item, err := t.Store.Get(ctx, key)
	if err != nil {
		return item, err
	}
	err = t.resize(&item)
	return item, err
}

// Query implements meta.Store.
func (t *table) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	page, err := t.Store.Query(ctx, q)
	if err != nil {
		return page, err
	}
	for i := range page.Items {
		if err := t.resize(&page.Items[i]); err != nil {
			return page, err
		}
	}
	return page, nil
}

// Apply implements meta.Store.
func (t *table) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if _, ok := op.(meta.Trim); ok {
		t.reads(ctx, op.Target())
	}
	before, err := t.size(ctx, op.Target())
	if err != nil {
		return meta.Result{}, err
	}
	res, err := t.Store.Apply(ctx, op)
	if err != nil {
		return res, err
	}
	if s, ok := op.(meta.Settle); ok && endsClaim(s, &res) && t.litter.add(op.Target()) {
		t.folded(before)
	}
	return res, t.weigh(&res.Item, before)
}

// size is a record's size in the table; 0 if it is not there.
func (t *table) size(ctx context.Context, key meta.Key) (int, error) {
	item, err := t.Get(ctx, key)
	if queue.Is(err, queue.KindNotFound) {
		return 0, nil
	}
	return item.Size, err
}

// weigh gives a written item its size. What was deleted has the size that it had, which a meter that never
// read it would not know; other writes find what they change in the meter's memory.
func (t *table) weigh(item *meta.Item, before int) error {
	if item.Record == nil {
		item.Size = before
		return nil
	}
	return t.resize(item)
}

// endsClaim reports whether a settle left nothing of its claim.
func endsClaim(s meta.Settle, res *meta.Result) bool {
	c, ok := res.Item.Record.(*meta.Cursor)
	if !ok {
		return false
	}
	_, held := c.Claims[s.Claim]
	return !held && len(s.Done) > 0
}

// Transact implements meta.Store.
func (t *table) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	for _, op := range ops {
		switch op.(type) {
		case meta.Trim, meta.Touch, meta.Take, meta.Settle:
			t.reads(ctx, op.Target())
		}
	}
	before := make([]int, len(ops))
	for i, op := range ops {
		var err error
		if before[i], err = t.size(ctx, op.Target()); err != nil {
			return nil, err
		}
	}
	results, err := t.Store.Transact(ctx, ops)
	if err != nil {
		return results, err
	}
	for i, op := range ops {
		if err := t.weigh(&results[i].Item, before[i]); err != nil {
			return nil, err
		}
		switch op.(type) {
		case meta.Append, meta.Seal, meta.Void:
			t.reads(ctx, op.Target())
		}
	}
	return results, nil
}

func (t *table) reads(ctx context.Context, key meta.Key) {
	size, err := t.size(ctx, key)
	if err != nil {
		return // the op itself will say so
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beside.Reads++
	t.beside.ReadUnits += units(size, readUnit)
}

func (t *table) folded(size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beside.Writes++
	t.beside.WriteUnits += units(size, writeUnit)
}

func (t *table) besides() Beside {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beside
}

// bucket is the memory store, counting the requests of puts that S3 takes in parts: one that begins them,
// one for each part, one that ends them.
type bucket struct {
	blob.Store
	extra atomic.Int64
}

// Put implements blob.Store.
func (b *bucket) Put(ctx context.Context, key string, r io.Reader, terms blob.Terms) (blob.Info, error) {
	if terms.Size > s3blob.DefaultPartBytes {
		parts := (terms.Size + s3blob.DefaultPartBytes - 1) / s3blob.DefaultPartBytes
		b.extra.Add(parts + 1)
	}
	return b.Store.Put(ctx, key, r, terms)
}
