// Package memmeta is the metadata store in memory: for tests, the simulator and servers that need not
// outlive their process.
//
// Vocabulary: a partition is the sorted records of one partition key; a violation is a use of the
// store that breaks the contract's rules for its callers.
//
// Invariants: records are kept in stored form beside their decoded form, and what is handed out was
// decoded from the stored form, so that whatever the codec loses is lost in tests too; results follow
// from the calls alone (no clocks, no randomness, no map order). The store reports a violation and
// fails the op when an immutable record (a payload; a page, unless by compare-and-swap, as the
// compactor does) would be replaced by other content, and when a holder of a snapshot has changed it.
//
// Non-goals: durability, speed beyond what tests need.
package memmeta

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxPageBytes ends a page of a query early, as DynamoDB does at 1 MB, so that callers meet short
// pages in tests.
const maxPageBytes = 1 << 20

// Reporter hears of violations; *testing.T is one.
type Reporter interface {
	Errorf(format string, args ...any)
}

// Store implements meta.Store.
type Store struct {
	reporter Reporter

	mu         sync.RWMutex // guards what is below
	partitions map[string]*partition
}

type partition struct {
	sks   []string // sorted
	items map[string]*entry
}

type entry struct {
	item  *meta.Item
	frame []byte
}

var _ meta.Store = (*Store)(nil)

// New makes an empty store. reporter may be nil: violations then only fail their op.
func New(reporter Reporter) *Store {
	return &Store{reporter: reporter, partitions: make(map[string]*partition)}
}

// Get implements meta.Store.
func (s *Store) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	if err := first(meta.CheckKey(key), meta.Canceled(ctx, "get record")); err != nil {
		return meta.Item{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.find(key); e != nil {
		return *e.item, nil
	}
	return meta.Item{}, meta.NotFound(key)
}

// GetAll implements meta.Store.
func (s *Store) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	if err := first(meta.CheckKeys(keys), meta.Canceled(ctx, "get records")); err != nil {
		return nil, err
	}
	out := make([]meta.Item, len(keys))
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, key := range keys {
		if e := s.find(key); e != nil {
			out[i] = *e.item
		}
	}
	return out, nil
}

// Query implements meta.Store. A page ends early once it holds 1 MB.
func (s *Store) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	if err := first(meta.CheckRange(q), meta.Canceled(ctx, "query records")); err != nil {
		return meta.Page{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.partitions[q.PK]
	if p == nil {
		return meta.Page{}, nil
	}
	lo, _ := slices.BinarySearch(p.sks, q.From)
	hi := len(p.sks)
	if q.To != "" {
		hi, _ = slices.BinarySearch(p.sks, q.To)
	}
	var page meta.Page
	size := 0
	for ; lo < hi; lo++ {
		if len(page.Items) == q.Limit || size > maxPageBytes {
			page.More = true
			break
		}
		sk := p.sks[lo]
		if q.Reverse {
			hi--
			lo--
			sk = p.sks[hi]
		}
		item := p.items[sk].item
		page.Items = append(page.Items, *item)
		size += item.Size
	}
	return page, nil
}

// Apply implements meta.Store.
func (s *Store) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if err := meta.CheckOp(op); err != nil {
		return meta.Result{}, err
	}
	if err := meta.Canceled(ctx, op.Name()); err != nil {
		return meta.Result{}, err
	}
	results, err := s.change([]meta.Op{op})
	if err != nil {
		return meta.Result{}, err
	}
	return results[0], nil
}

// Transact implements meta.Store.
func (s *Store) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if err := first(meta.CheckTransact(ops), meta.Canceled(ctx, "transact")); err != nil {
		return nil, err
	}
	return s.change(ops)
}

// write is one record as it will be; frame nil removes it.
type write struct {
	key   meta.Key
	frame []byte
}

func (s *Store) change(ops []meta.Op) ([]meta.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var writes []write
	results := make([]meta.Result, len(ops))
	for i, op := range ops {
		res, ws, err := s.judge(op)
		if err != nil {
			return nil, meta.Indexed(err, i)
		}
		results[i] = res
		writes = append(writes, ws...)
	}
	decoded := make([]*entry, len(writes))
	for i, w := range writes {
		if w.frame == nil {
			continue
		}
		item, err := meta.Decode(w.key, w.frame)
		if err != nil {
			return nil, err
		}
		decoded[i] = &entry{&item, w.frame}
	}
	for i, w := range writes {
		s.set(w.key, decoded[i])
	}
	for i, op := range ops {
		if e := s.find(op.Target()); e != nil {
			results[i].Item = *e.item
		}
	}
	return results, nil
}

// judge works out what op writes; it changes nothing.
func (s *Store) judge(op meta.Op) (meta.Result, []write, error) {
	key := op.Target()
	old := s.find(key)
	var cur *meta.Item
	if old != nil {
		cur = old.item
		if frame, err := meta.Encode(nil, cur); err != nil || !bytes.Equal(frame, old.frame) {
			return meta.Result{}, nil, s.violation(key, "a holder of the record has changed it")
		}
	}
	effect, err := meta.Carry(op, cur, nil)
	if err != nil {
		return meta.Result{}, nil, err
	}
	var writes []write
	if a, ok := op.(meta.Append); ok && a.Payload != nil {
		w, err := s.putPayload(a.Payload)
		if err != nil {
			return meta.Result{}, nil, err
		}
		writes = append(writes, w...)
	}
	if !effect.Changed {
		return effect.Result, writes, nil
	}
	if put, ok := op.(meta.Put); ok && old != nil {
		if err := s.checkImmutable(put, old); err != nil {
			return meta.Result{}, nil, err
		}
	}
	return effect.Result, append(writes, write{key, effect.Frame}), nil
}

func (s *Store) putPayload(p *meta.Payload) ([]write, error) {
	frame, err := meta.Encode(nil, &meta.Item{Record: p})
	if err != nil {
		return nil, err
	}
	if old := s.find(p.Key()); old != nil {
		if have, ok := old.item.Record.(*meta.Payload); !ok || !bytes.Equal(have.Data, p.Data) {
			return nil, s.violation(p.Key(), "a payload's id was used again for other bytes")
		}
		return nil, nil
	}
	return []write{{p.Key(), frame}}, nil
}

func (s *Store) checkImmutable(put meta.Put, old *entry) error {
	kind := put.Record.Kind()
	swap := put.If != meta.Any() && put.If != meta.Present()
	if kind != meta.KindPayload && (kind != meta.KindPage || swap) {
		return nil
	}
	same, err := meta.Encode(nil, &meta.Item{Record: put.Record, Version: old.item.Version})
	if err != nil {
		return err
	}
	if !bytes.Equal(same, old.frame) {
		return s.violation(put.Target(), "an immutable record was replaced by other content")
	}
	return nil
}

func (s *Store) violation(key meta.Key, what string) error {
	if s.reporter != nil {
		s.reporter.Errorf("memmeta: %s: %s", key, what)
	}
	return &queue.Error{Op: "change record", Subject: key.String(), Kind: queue.KindInternal, Message: what}
}

// Sweep removes every record that has expired at now and says how many there were. The store never
// does so by itself, so that tests stay deterministic.
func (s *Store) Sweep(now queue.Millis) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var expired []meta.Key
	for _, p := range s.partitions {
		for _, e := range p.items {
			r, ok := e.item.Record.(meta.Expiring)
			if ok && r.ExpiresAt() != 0 && r.ExpiresAt() <= now {
				expired = append(expired, r.Key())
			}
		}
	}
	for _, k := range expired {
		s.set(k, nil)
	}
	return len(expired)
}

// Len is the number of records of all kinds.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, p := range s.partitions {
		n += len(p.sks)
	}
	return n
}

func (s *Store) find(key meta.Key) *entry {
	if p := s.partitions[key.PK]; p != nil {
		return p.items[key.SK]
	}
	return nil
}

// set puts e under key, or removes what is there if e is nil.
func (s *Store) set(key meta.Key, e *entry) {
	p := s.partitions[key.PK]
	if p == nil {
		if e == nil {
			return
		}
		p = &partition{items: make(map[string]*entry)}
		s.partitions[key.PK] = p
	}
	i, found := slices.BinarySearch(p.sks, key.SK)
	switch {
	case e != nil && !found:
		p.sks = slices.Insert(p.sks, i, key.SK)
		p.items[key.SK] = e
	case e != nil:
		p.items[key.SK] = e
	case found:
		p.sks = slices.Delete(p.sks, i, i+1)
		delete(p.items, key.SK)
		if len(p.sks) == 0 {
			delete(s.partitions, key.PK)
		}
	}
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
