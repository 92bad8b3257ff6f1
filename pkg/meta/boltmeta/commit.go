package boltmeta

import (
	"fmt"
	"runtime"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// maxBatch and maxBatchBytes bound what one commit carries, and so how long it takes.
	maxBatch      = 4096
	maxBatchBytes = 16 << 20
	// gatherRounds bounds how often the committer steps aside for callers that are about to queue.
	gatherRounds = 16
)

// batch is the work of one commit.
type batch struct {
	store   *Store
	tx      *bolt.Tx
	buckets buckets
	overlay overlay
	changes []staged // of the request being judged
	ops     int
	grew    bool // a request that grows was added
}

// clear makes the batch ready for its next transaction.
func (b *batch) clear() {
	b.store.arena.reset()
	b.overlay.reset()
	b.tx, b.ops, b.grew = nil, 0, false
}

// run is the committer.
func (s *Store) run() {
	defer close(s.stopped)
	var ticks <-chan time.Time
	if s.opts.SweepEvery > 0 {
		t := time.NewTicker(s.opts.SweepEvery)
		defer t.Stop()
		ticks = t.C
	}
	b := &batch{store: s, overlay: overlay{slots: make(map[meta.Key]*slot)}}
	var requests []*request
	for {
		select {
		case <-s.queue.wake:
		case <-ticks:
			s.sweep()
			s.forget()
			continue
		}
		s.gather()
		var ended bool
		requests, ended = s.queue.take(maxBatch, requests)
		for rest := requests; len(rest) > 0; {
			rest = rest[s.carryOut(b, rest):]
		}
		clear(requests)
		if ended {
			return
		}
	}
}

// gather lets those callers run that the last commit has answered, as long as each round brings
// requests: without it the first of them gets a commit of its own and the others wait for the next.
// It takes no time that a processor would otherwise sleep through.
func (s *Store) gather() {
	n := s.queue.len()
	for range gatherRounds {
		runtime.Gosched()
		now := s.queue.len()
		if now == n {
			return
		}
		n = now
	}
}

// carryOut commits as many of the requests as one batch holds, answers them and says how many.
func (s *Store) carryOut(b *batch, requests []*request) int {
	n, changed, err := b.judgeAll(requests)
	switch {
	case err != nil:
		n = len(requests) // none was judged
	case !changed:
		err = s.abandon(b.tx)
	default:
		grew := b.grew
		err = s.commitBatch(b)
		if grew && queue.Is(err, queue.KindFull) {
			err = s.withoutGrowth(b, requests[:n], err)
		}
	}
	for _, r := range requests[:n] {
		if err != nil {
			r.take()
			r.results, r.err = nil, err
		}
		if r.err != nil {
			s.stats.refused.Add(1)
		}
		close(r.done)
	}
	b.clear()
	return n
}

// withoutGrowth tries once more, after the disk had no room for a batch, without the requests that
// grow: a full disk must not keep what is there from being consumed. It returns what all requests are
// to be answered with; if that is nil, each has its answer.
func (s *Store) withoutGrowth(b *batch, requests []*request, full error) error {
	b.clear()
	rest := 0
	for _, r := range requests {
		if !r.grows() && r.state.Load() == taken {
			rest++
		}
	}
	if rest == 0 {
		return full
	}
	if _, err := b.begin(); err != nil {
		return err
	}
	for _, r := range requests {
		switch {
		case r.state.Load() != taken:
		case r.grows():
			r.results, r.err = nil, full
		default:
			r.err = nil
			b.judge(r)
		}
	}
	if len(b.overlay.slots) == 0 {
		return s.abandon(b.tx)
	}
	return s.commitBatch(b)
}

// judgeAll begins a transaction and judges requests until the batch is full. After an error there is no
// transaction, and no request was judged.
func (b *batch) judgeAll(requests []*request) (n int, changed bool, err error) {
	refuseGrowth, err := b.begin()
	if err != nil {
		return 0, false, err
	}
	for n < len(requests) && b.store.arena.size() < maxBatchBytes {
		switch r := requests[n]; {
		case !r.take():
		case refuseGrowth != nil && r.grows():
			r.err = refuseGrowth
		default:
			b.judge(r)
		}
		n++
	}
	return n, len(b.overlay.slots) > 0, nil
}

// begin begins a transaction, if commits may be tried.
func (b *batch) begin() (refuseGrowth, err error) {
	if refuseGrowth, err = b.store.writable(); err != nil {
		return nil, err
	}
	_, err = guarded("begin commit", func() error {
		var err error
		if b.tx, err = b.store.db.Begin(true); err != nil {
			return err
		}
		b.buckets, err = bucketsOf(b.tx)
		return err
	})
	if err != nil {
		return nil, b.store.failed(b.tx, nil, err)
	}
	return refuseGrowth, nil
}

// judge works out what a request does. It writes nothing, so that a refusal of its last op costs
// nothing; only a request that holds as a whole enters the overlay.
func (b *batch) judge(r *request) {
	b.changes = b.changes[:0]
	r.results = make([]meta.Result, len(r.ops))
	for i, op := range r.ops {
		var res meta.Result
		_, err := guarded(op.Name(), func() error {
			var err error
			res, err = b.judgeOp(op)
			return err
		})
		if err != nil {
			r.results, r.err = nil, meta.Indexed(err, i)
			return
		}
		r.results[i] = res
	}
	b.overlay.add(append([]staged(nil), b.changes...))
	b.ops += len(r.ops)
	b.grew = b.grew || r.grows()
}

func (b *batch) judgeOp(op meta.Op) (meta.Result, error) {
	key := op.Target()
	cur, base, err := b.find(key)
	if err != nil {
		return meta.Result{}, err
	}
	arena := &b.store.arena
	effect, err := carry(op, cur, arena.tail())
	if err != nil {
		return meta.Result{}, err
	}
	arena.keep(len(effect.Frame))
	if a, ok := op.(meta.Append); ok && a.Payload != nil {
		if err := b.judgePayload(a.Payload); err != nil {
			return meta.Result{}, err
		}
	}
	if effect.Changed {
		b.changes = append(b.changes, staged{key, slot{item: effect.Item, frame: effect.Frame, base: base}})
	}
	return effect.Result, nil
}

// carry is meta.Carry, with a panic of the op turned into an error: one caller's bug must not take
// the committer down.
func carry(op meta.Op, cur *meta.Item, buf []byte) (e meta.Effect, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &queue.Error{Op: op.Name(), Kind: queue.KindInternal, Message: fmt.Sprintf("the op panicked: %v", p)}
		}
	}()
	return meta.Carry(op, cur, buf)
}

// judgePayload puts the payload if its id is new, and else keeps the one there is.
func (b *batch) judgePayload(p *meta.Payload) error {
	key := p.Key()
	if sl := b.overlay.slots[key]; sl != nil && sl.item != nil || sl == nil && b.buckets.get(key) != nil {
		return nil
	}
	arena := &b.store.arena
	buf := arena.tail()
	item := &meta.Item{Record: p}
	frame, err := meta.Encode(buf, item)
	if err != nil {
		return err
	}
	n := len(frame) - len(buf)
	arena.keep(n)
	item.Size = n
	b.changes = append(b.changes, staged{key, slot{item: item, frame: frame[len(buf):]}})
	return nil
}

// find looks for a record as this batch sees it: in the overlay, the cache, the file. base is the
// record as the file has it, if it expires.
func (b *batch) find(key meta.Key) (cur, base *meta.Item, err error) {
	if sl := b.overlay.slots[key]; sl != nil {
		return sl.item, sl.base, nil
	}
	hot := cacheable(key)
	if hot {
		if item, _, ok := b.store.cache.get(key); ok {
			return &item, nil, nil
		}
	}
	data := b.buckets.get(key)
	if data == nil {
		return nil, nil, nil
	}
	item, err := meta.Decode(key, data)
	if err != nil {
		return nil, nil, err
	}
	if expiryOf(&item) != 0 {
		base = &item
	}
	return &item, base, nil
}

// commitBatch writes the overlay, commits and publishes. An error means that nothing of the batch
// happened, unless it is OutcomeUnknown.
func (s *Store) commitBatch(b *batch) error {
	tx, txid, began := b.tx, b.tx.ID(), time.Now()
	var wrote int
	panicked, err := guarded("commit", func() error {
		for key, sl := range b.overlay.slots {
			wrote += len(sl.frame)
			if err := b.buckets.write(key, sl); err != nil {
				return err
			}
		}
		return s.commit(tx)
	})
	if err != nil {
		s.stats.failed.Add(1)
		return s.failed(tx, &failure{txid: txid, panicked: panicked, took: time.Since(began), grew: b.grew}, err)
	}
	s.cache.publish(&b.overlay)
	s.durable.raise(txid)
	stats := tx.Stats()
	s.stats.commits.Add(1)
	s.stats.ops.Add(uint64(b.ops)) // #nosec G115 -- a count
	s.stats.fsyncs.Add(2)
	s.stats.recordBytes.Add(uint64(wrote))              // #nosec G115 -- a count
	s.stats.pageBytes.Add(uint64(stats.GetPageAlloc())) // #nosec G115 -- a count
	return nil
}

// write puts one record of the overlay into the transaction, and its expiry into the index.
func (b buckets) write(key meta.Key, sl *slot) error {
	if old, now := expiryOf(sl.base), expiryOf(sl.item); old != now {
		if old != 0 {
			if err := b.expiry.Delete(expiryKey(old, key)); err != nil {
				return err
			}
		}
		if now != 0 {
			if err := b.expiry.Put(expiryKey(now, key), nil); err != nil {
				return err
			}
		}
	}
	bucket, k := b.place(nil, key)
	if sl.item == nil {
		return bucket.Delete(k)
	}
	return bucket.Put(k, sl.frame)
}
