package boltmeta

import (
	"bytes"
	"context"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxPageBytes ends a page of a query early.
const maxPageBytes = 4 << 20

// Get implements meta.Store.
func (s *Store) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	const op = "get record"
	if err := meta.CheckKey(key); err != nil {
		return meta.Item{}, err
	}
	if err := meta.Canceled(ctx, op); err != nil {
		return meta.Item{}, err
	}
	hot := cacheable(key)
	var generation uint64
	if hot && !s.queue.closed.Load() {
		item, g, ok := s.cache.get(key)
		if ok {
			return item, nil
		}
		generation = g
	}
	var item meta.Item
	err := s.view(ctx, op, func(b buckets) error {
		data := b.get(key)
		if data == nil {
			return meta.NotFound(key)
		}
		var err error
		item, err = meta.Decode(key, data)
		return err
	})
	if err == nil && hot {
		s.cache.fill(key, item, generation)
	}
	return item, err
}

// GetAll implements meta.Store.
func (s *Store) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	const op = "get records"
	if err := meta.CheckKeys(keys); err != nil {
		return nil, err
	}
	if err := meta.Canceled(ctx, op); err != nil {
		return nil, err
	}
	out := make([]meta.Item, len(keys))
	err := s.view(ctx, op, func(b buckets) error {
		for i, key := range keys {
			data := b.get(key)
			if data == nil {
				continue
			}
			var err error
			if out[i], err = meta.Decode(key, data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Query implements meta.Store. A page ends early once it holds 4 MB.
func (s *Store) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	const op = "query records"
	if err := meta.CheckRange(q); err != nil {
		return meta.Page{}, err
	}
	if err := meta.Canceled(ctx, op); err != nil {
		return meta.Page{}, err
	}
	var page meta.Page
	err := s.view(ctx, op, func(b buckets) error {
		var err error
		page, err = query(b, q)
		return err
	})
	return page, err
}

func query(b buckets, q meta.Range) (meta.Page, error) {
	if shard, ok := strings.CutPrefix(q.PK, payloadPrefix); ok {
		return queryPayloads(b, shard, q)
	}
	lo := appendKey(nil, q.PK, q.From)
	hi := append([]byte(q.PK), 1) // above every key of the partition: NUL follows its name in each
	if q.To != "" {
		hi = appendKey(nil, q.PK, q.To)
	}
	c := b.records.Cursor()
	k, v := c.Seek(lo)
	next := c.Next
	if q.Reverse {
		next = c.Prev
		if k, v = c.Seek(hi); k == nil {
			k, v = c.Last()
		}
		for k != nil && bytes.Compare(k, hi) >= 0 {
			k, v = c.Prev()
		}
	}
	var page meta.Page
	size := 0
	for ; k != nil && bytes.Compare(lo, k) <= 0 && bytes.Compare(k, hi) < 0; k, v = next() {
		if len(page.Items) == q.Limit || size > maxPageBytes {
			page.More = true
			break
		}
		key, ok := keyOf(q.PK, k)
		if !ok {
			return meta.Page{}, &queue.Error{Op: "query records", Subject: q.PK, Kind: queue.KindCorrupt, Message: "a key is damaged"}
		}
		item, err := meta.Decode(key, v)
		if err != nil {
			return meta.Page{}, err
		}
		page.Items = append(page.Items, item)
		size += item.Size
	}
	page.Items = slices.Clip(page.Items)
	return page, nil
}

// view runs fn on the buckets of a read transaction that sees only what is published.
func (s *Store) view(ctx context.Context, op string, fn func(buckets) error) error {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	if s.db == nil {
		return &queue.Error{Op: op, Subject: s.path, Kind: queue.KindOf(s.down), Err: s.down}
	}
	_, err := guarded(op, func() error {
		tx, err := s.db.Begin(false)
		if err != nil {
			return err
		}
		defer func(tx *bolt.Tx) { _ = tx.Rollback() }(tx)
		if err := s.durable.wait(ctx, op, tx.ID()); err != nil {
			return err
		}
		b, err := bucketsOf(tx)
		if err != nil {
			return err
		}
		return fn(b)
	})
	return translate(op, s.path, err)
}
