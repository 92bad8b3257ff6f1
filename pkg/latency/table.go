package latency

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// DynamoDB's units, and its limit for a partition key.
const (
	writeUnit = 1 << 10
	readUnit  = 4 << 10
	// transactUnits is how much dearer a write is in a transaction.
	transactUnits = 2
	// readsPerWrite is how many read units a partition key has for each write unit.
	readsPerWrite = 3
	// fewOps is the most that count as a small transaction.
	fewOps = 5

	// PartitionUnits is the write units a second that DynamoDB gives one partition key.
	PartitionUnits = 1000
)

// Counts are what a table was asked for.
type Counts struct {
	// Requests of DynamoDB, of them Transactions, and refused Throttles and Conflicts; Units of writes used.
	Requests, Transactions, Throttles, Conflicts int
	Units                                        float64
}

// Table is a meta.Store with DynamoDB's times and limits. It makes the requests that the driver makes: a
// payload is put before its append, a Trim of a head that was not seen is read before, and what a transaction
// appended to after. A transaction holds its records while it is under way: writes that come to them meanwhile are
// refused, and tried again as the driver does.
type Table struct {
	meta.Store
	limit  float64
	curves *Curves
	own    *Source

	mu     sync.Mutex // guards what follows
	writes map[string]*budget
	reads  map[string]*budget
	sizes  map[meta.Key]int
	held   map[meta.Key]bool // by transactions
	counts Counts
}

var _ meta.Store = (*Table)(nil)

// budget is what a partition key has left of a second's units; below zero if a call used more than there was.
type budget struct {
	left float64
	at   time.Time
}

// NewTable gives a store times, and limit write units a second for each partition key. Calls without a source
// draw from own.
func NewTable(s meta.Store, f TableFigures, limit float64, own *Source) *Table {
	return &Table{
		Store: s, limit: limit, own: own,
		curves: NewCurves(&f, &BucketFigures{}),
		writes: make(map[string]*budget), reads: make(map[string]*budget), sizes: make(map[meta.Key]int),
		held: make(map[meta.Key]bool),
	}
}

// Counts tells what the table was asked for so far.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// wait lets the time of a request pass.
func (t *Table) wait(ctx context.Context, k Kind) {
	t.mu.Lock()
	t.counts.Requests++
	t.mu.Unlock()
	time.Sleep(sourceOf(ctx, t.own).draw(&t.curves[k]))
}

// refill finds the budget of a partition key, filled up to now.
func refill(all map[string]*budget, pk string, rate float64) *budget {
	now := time.Now()
	b := all[pk]
	if b == nil {
		b = &budget{rate, now}
		all[pk] = b
	}
	b.left = min(rate, b.left+rate*now.Sub(b.at).Seconds())
	b.at = now
	return b
}

// admit refuses a request on partition keys of which one has nothing left.
func (t *Table) admit(all map[string]*budget, rate float64, pks ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pk := range pks {
		if refill(all, pk, rate).left <= 0 {
			t.counts.Throttles++
			return &queue.Error{Op: "simulated table", Subject: pk, Kind: queue.KindThrottled}
		}
	}
	return nil
}

func unitsOf(size, unit int) float64 { return max(1, math.Ceil(float64(size)/float64(unit))) }

// pay charges a write by the larger of what was there and what is there now.
func (t *Table) pay(key meta.Key, after int, factor float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.sizes[key]
	if after > 0 {
		t.sizes[key] = after
	}
	n := factor * unitsOf(max(before, after), writeUnit)
	t.counts.Units += n
	refill(t.writes, key.PK, t.limit).left -= n
}

func (t *Table) payRead(pk string, n float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	refill(t.reads, pk, readsPerWrite*t.limit).left -= n
}

// Get implements meta.Store.
func (t *Table) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	t.wait(ctx, Read)
	if err := t.admit(t.reads, readsPerWrite*t.limit, key.PK); err != nil {
		return meta.Item{}, err
	}
	item, err := t.Store.Get(ctx, key)
	t.payRead(key.PK, unitsOf(item.Size, readUnit))
	return item, err
}

// GetAll implements meta.Store.
func (t *Table) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	t.wait(ctx, Many)
	items, err := t.Store.GetAll(ctx, keys)
	for i := range items {
		t.payRead(keys[i].PK, unitsOf(items[i].Size, readUnit))
	}
	return items, err
}

// Query implements meta.Store.
func (t *Table) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	t.wait(ctx, Many)
	if err := t.admit(t.reads, readsPerWrite*t.limit, q.PK); err != nil {
		return meta.Page{}, err
	}
	page, err := t.Store.Query(ctx, q)
	size := 0
	for i := range page.Items {
		size += page.Items[i].Size
	}
	t.payRead(q.PK, unitsOf(size, readUnit))
	return page, err
}

// Apply implements meta.Store.
func (t *Table) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	switch o := op.(type) {
	case meta.Put:
		if p, ok := o.Record.(*meta.Payload); ok {
			return t.putPayload(ctx, o, p)
		}
	case meta.Append:
		if o.Payload != nil {
			put := meta.Put{Record: o.Payload, If: meta.Absent(), Version: 1}
			if _, err := t.putPayload(ctx, put, o.Payload); err != nil && !meta.IsRefused(err, meta.ReasonExists) {
				return meta.Result{}, err
			}
			o.Payload = nil
			op = o
		}
	}
	key := op.Target()
	if requests := OfApply(op); len(requests) > 1 {
		t.wait(ctx, requests[0])
	}
	if err := t.unheld(ctx, key); err != nil {
		return meta.Result{}, err
	}
	if err := t.admit(t.writes, t.limit, key.PK); err != nil {
		return meta.Result{}, err
	}
	res, err := t.Store.Apply(ctx, op)
	t.pay(key, res.Item.Size, 1)
	return res, err
}

// The driver's tries of a write that meets transactions, and its pauses between them.
const (
	tries      = 10
	firstPause = 4 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// unheld makes the request of a write, again if it comes while a transaction holds the record.
func (t *Table) unheld(ctx context.Context, key meta.Key) error {
	pause := firstPause
	for range tries {
		t.wait(ctx, Write)
		if !t.conflicts(key) {
			return nil
		}
		time.Sleep(sourceOf(ctx, t.own).jitter(pause))
		pause = min(2*pause, lastPause)
	}
	return contended(key)
}

func contended(key meta.Key) error {
	return &queue.Error{Op: "simulated table", Subject: key.String(), Kind: queue.KindThrottled, Message: "too much contention on the record"}
}

func (t *Table) conflicts(keys ...meta.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		if t.held[key] {
			t.counts.Conflicts++
			return true
		}
	}
	return false
}

// hold makes the request of a transaction, again if it comes while another holds one of the records. They are
// held from then on.
func (t *Table) hold(ctx context.Context, keys []meta.Key, k Kind) error {
	pause := firstPause
	for range tries {
		t.mu.Lock()
		t.counts.Transactions++
		t.mu.Unlock()
		if !t.conflicts(keys...) {
			t.setHeld(keys, true)
			t.wait(ctx, k)
			return nil
		}
		t.wait(ctx, k)
		time.Sleep(sourceOf(ctx, t.own).jitter(pause))
		pause = min(2*pause, lastPause)
	}
	return contended(keys[0])
}

func (t *Table) setHeld(keys []meta.Key, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		if held {
			t.held[key] = true
		} else {
			delete(t.held, key)
		}
	}
}

// putPayload puts a record that has a partition key of its own: it meets no limit, and no budget is kept for it.
func (t *Table) putPayload(ctx context.Context, put meta.Put, p *meta.Payload) (meta.Result, error) {
	t.wait(ctx, Write)
	t.mu.Lock()
	t.counts.Units += unitsOf(len(p.Data), writeUnit)
	t.mu.Unlock()
	return t.Store.Apply(ctx, put)
}

// Transact implements meta.Store.
func (t *Table) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	pks, keys := make([]string, len(ops)), make([]meta.Key, len(ops))
	for i, op := range ops {
		keys[i] = op.Target()
		pks[i] = keys[i].PK
	}
	requests, at := OfTransact(ops)
	for _, k := range requests[:at] {
		t.wait(ctx, k)
	}
	if err := t.hold(ctx, keys, requests[at]); err != nil {
		return nil, err
	}
	if err := t.admit(t.writes, t.limit, pks...); err != nil {
		t.setHeld(keys, false)
		return nil, err
	}
	results, err := t.Store.Transact(ctx, ops)
	t.setHeld(keys, false)
	for i, op := range ops {
		size := 0
		if err == nil {
			size = results[i].Item.Size
		}
		t.pay(op.Target(), size, transactUnits)
	}
	if err == nil {
		for _, k := range requests[at+1:] {
			t.wait(ctx, k)
		}
	}
	return results, err
}
