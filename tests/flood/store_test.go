package flood_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// spread is a lognormal distribution of latencies.
type spread struct{ p50, p99 time.Duration }

func (s spread) draw(rng *rand.Rand) time.Duration {
	const z99 = 2.3263 // the standard normal's 99th percentile
	sigma := math.Log(float64(s.p99)/float64(s.p50)) / z99
	return time.Duration(float64(s.p50) * math.Exp(sigma*rng.NormFloat64()))
}

// What AWS says of DynamoDB is "single-digit milliseconds" within the service; a client in the same region
// sees up to twice that in the tail, and about twice that again for a transaction.
var (
	readTime     = spread{3 * time.Millisecond, 10 * time.Millisecond}
	manyTime     = spread{6 * time.Millisecond, 20 * time.Millisecond}
	writeTime    = spread{5 * time.Millisecond, 15 * time.Millisecond}
	transactTime = spread{12 * time.Millisecond, 35 * time.Millisecond}
)

const (
	writeUnit = 1 << 10
	readUnit  = 4 << 10
	// transactUnits is how much dearer a write is in a transaction.
	transactUnits = 2
	// readsPerWrite is how many read units a partition has for each write unit.
	readsPerWrite = 3
)

// strict is a store with DynamoDB's limits for one partition key, and its latencies.
type strict struct {
	*memmeta.Store
	// limit is the write units that a partition key has each second.
	limit float64

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand
	writes map[string]*bucket
	reads  map[string]*bucket
	sizes  map[meta.Key]int
	held   map[string][]uint64
	calls  int
	// throttles counts refusals, units the write units used.
	throttles int
	units     float64
}

// bucket is what a partition key has left of a second's units; below zero if a call used more than there was.
type bucket struct {
	left float64
	at   time.Time
}

func newStrict(r memmeta.Reporter, limit float64, seed uint64) *strict {
	return &strict{
		Store: memmeta.New(r), limit: limit, rng: rand.New(rand.NewPCG(seed, 1)), // #nosec G404 -- repeatable
		writes: make(map[string]*bucket), reads: make(map[string]*bucket), sizes: make(map[meta.Key]int),
		held: make(map[string][]uint64),
	}
}

// wait lets the time of a call pass.
func (s *strict) wait(all ...spread) {
	s.mu.Lock()
	d := time.Duration(0)
	for _, one := range all {
		d += one.draw(s.rng)
	}
	s.calls++
	s.mu.Unlock()
	time.Sleep(d)
}

// take finds the bucket of a partition key, filled up to now.
func take(all map[string]*bucket, pk string, rate float64) *bucket {
	now := time.Now()
	b := all[pk]
	if b == nil {
		b = &bucket{rate, now}
		all[pk] = b
	}
	b.left = min(rate, b.left+rate*now.Sub(b.at).Seconds())
	b.at = now
	return b
}

// admit refuses a call on partition keys of which one has nothing left.
func (s *strict) admit(all map[string]*bucket, rate float64, pks ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pk := range pks {
		if take(all, pk, rate).left <= 0 {
			s.throttles++
			return &queue.Error{Op: "simulated store", Subject: pk, Kind: queue.KindThrottled}
		}
	}
	return nil
}

func unitsOf(size, unit int) float64 { return max(1, math.Ceil(float64(size)/float64(unit))) }

// pay charges a write by the larger of what was there and what is there now.
func (s *strict) pay(key meta.Key, after int, factor float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.sizes[key]
	if after > 0 {
		s.sizes[key] = after
	}
	n := factor * unitsOf(max(before, after), writeUnit)
	s.units += n
	take(s.writes, key.PK, s.limit).left -= n
}

func (s *strict) payRead(pk string, n float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	take(s.reads, pk, readsPerWrite*s.limit).left -= n
}

// Get implements meta.Store.
func (s *strict) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	s.wait(readTime)
	if err := s.admit(s.reads, readsPerWrite*s.limit, key.PK); err != nil {
		return meta.Item{}, err
	}
	item, err := s.Store.Get(ctx, key)
	s.payRead(key.PK, unitsOf(item.Size, readUnit))
	return item, err
}

// GetAll implements meta.Store.
func (s *strict) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	s.wait(manyTime)
	items, err := s.Store.GetAll(ctx, keys)
	for i := range items {
		s.payRead(keys[i].PK, unitsOf(items[i].Size, readUnit))
	}
	return items, err
}

// Query implements meta.Store.
func (s *strict) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	s.wait(manyTime)
	if err := s.admit(s.reads, readsPerWrite*s.limit, q.PK); err != nil {
		return meta.Page{}, err
	}
	page, err := s.Store.Query(ctx, q)
	size := 0
	for i := range page.Items {
		size += page.Items[i].Size
	}
	s.payRead(q.PK, unitsOf(size, readUnit))
	return page, err
}

// Apply implements meta.Store.
func (s *strict) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	key := op.Target()
	a, ok := op.(meta.Append)
	if ok && a.Payload != nil {
		s.wait(writeTime, writeTime)
		s.drop(a.Payload)
		a.Payload = nil
		op = a
	} else {
		s.wait(writeTime)
	}
	if p, ok := op.(meta.Put); ok {
		if payload, ok := p.Record.(*meta.Payload); ok {
			s.drop(payload)
			return meta.Result{}, nil
		}
	}
	if err := s.admit(s.writes, s.limit, key.PK); err != nil {
		return meta.Result{}, err
	}
	res, err := s.Store.Apply(ctx, op)
	s.pay(key, res.Item.Size, 1)
	return res, err
}

// Transact implements meta.Store.
func (s *strict) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	s.wait(transactTime)
	pks := make([]string, len(ops))
	for i, op := range ops {
		pks[i] = op.Target().PK
	}
	if err := s.admit(s.writes, s.limit, pks...); err != nil {
		return nil, err
	}
	results, err := s.Store.Transact(ctx, ops)
	for i, op := range ops {
		size := 0
		if err == nil {
			size = results[i].Item.Size
		}
		s.pay(op.Target(), size, transactUnits)
	}
	return results, err
}

// drop notes what messages a payload holds, and charges its put.
func (s *strict) drop(p *meta.Payload) {
	var held []uint64
	r, err := batch.Open(p.Data)
	if err != nil {
		panic(fmt.Sprintf("a batch of our own: %v", err))
	}
	var rec batch.Record
	for r.Next(&rec) {
		held = append(held, binary.BigEndian.Uint64(rec.Body))
		if rec.Body[len(rec.Body)-1] == alike {
			break // the others follow
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[p.ID] = held
	s.units += unitsOf(len(p.Data), writeUnit)
}
