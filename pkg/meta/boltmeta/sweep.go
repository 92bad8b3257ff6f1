package boltmeta

import (
	"bytes"
	"encoding/binary"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// sweep removes expired records in commits of their own, between batches.
func (s *Store) sweep() {
	now := s.opts.Clock.Millis()
	for {
		n, err := s.sweepSome(now)
		s.stats.swept.Add(uint64(n)) // #nosec G115 -- a count
		if err != nil || n < sweepBatch {
			return
		}
	}
}

// sweepBatch bounds the records removed in one commit.
const sweepBatch = 500

func (s *Store) sweepSome(now queue.Millis) (n int, err error) {
	b := &batch{store: s, overlay: overlay{slots: make(map[meta.Key]*slot)}}
	if _, _, err = b.judgeAll(nil); err != nil {
		return 0, err
	}
	_, err = guarded("sweep", func() error { return b.findExpired(now) })
	switch n = len(b.overlay.slots); {
	case err != nil:
		return 0, s.failed(b.tx, nil, err)
	case n == 0:
		return 0, s.abandon(b.tx)
	}
	if err := s.commitBatch(b); err != nil {
		return 0, err
	}
	return n, nil
}

// findExpired puts the removal of up to sweepBatch expired records into the overlay.
func (b *batch) findExpired(now queue.Millis) error {
	const stamp = 8
	c := b.buckets.expiry.Cursor()
	for k, _ := c.First(); k != nil && len(b.overlay.slots) < sweepBatch; k, _ = c.Next() {
		if len(k) < stamp {
			return &queue.Error{Op: "sweep", Kind: queue.KindCorrupt, Message: "the expiry index is damaged"}
		}
		at := queue.Millis(binary.BigEndian.Uint64(k)) // #nosec G115 -- written by expiryKey
		if at > now {
			return nil
		}
		pk, sk, _ := bytes.Cut(k[stamp:], []byte{0})
		key := meta.Key{PK: string(pk), SK: string(sk)}
		_, base, err := b.find(key)
		if err != nil {
			return err
		}
		b.overlay.slots[key] = &slot{base: base}
	}
	return nil
}
