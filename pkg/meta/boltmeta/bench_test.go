package boltmeta

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func openBench(b *testing.B) *Store {
	b.Helper()
	s, err := Open(filepath.Join(b.TempDir(), "meta.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func benchRef(n uint64) meta.Ref {
	r := meta.Ref{
		Kind: meta.RefBatch, Object: fmt.Sprintf("batches/2026/07/31/12/%016x", n), Len: 9000, Count: 10,
		Prefix: 300, Created: 1_785_000_000_000 + queue.Millis(n), Bytes: 10_000,
	}
	binary.BigEndian.PutUint64(r.ID[:], n)
	return r
}

// BenchmarkAppend holds each head at about 32 refs: every 16th append to it is followed by a roll,
// page and trim in one transaction, which counts in the time but not in the ops.
func BenchmarkAppend(b *testing.B) {
	for _, payload := range []int{0, 1024} {
		for _, segments := range []int{1, 16} {
			for _, callers := range []int{1, 8, 64, 256} {
				b.Run(fmt.Sprintf("payload=%d/segments=%d/callers=%d", payload, segments, callers), func(b *testing.B) {
					benchAppend(b, payload, segments, callers)
				})
			}
		}
	}
}

func benchAppend(b *testing.B, payload, segments, callers int) {
	s := openBench(b)
	ids := make([]queue.SegmentID, segments)
	var n atomic.Uint64
	for i := range ids {
		ids[i] = queue.SegmentID(fmt.Sprintf("seg%013d", i))
		h := &meta.Head{Segment: ids[i], Range: queue.Ring()}
		for range 24 {
			h.Tail = append(h.Tail, benchRef(n.Add(1)))
			h.Next += 10
		}
		if _, err := s.Apply(b.Context(), meta.Put{Record: h, Version: 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	runCallers(b, callers, func() error {
		i := n.Add(1)
		op := meta.Append{Segment: ids[i%uint64(segments)], Refs: []meta.Ref{benchRef(i)}, At: queue.Millis(i)}
		if payload > 0 {
			id := fmt.Sprintf("%016x", i)
			op.Refs[0].Object, op.Refs[0].Inline = id, true
			op.Payload = &meta.Payload{ID: id, Data: make([]byte, payload)}
		}
		for {
			res, err := s.Apply(b.Context(), op)
			full := meta.IsRefused(err, meta.ReasonTailFull)
			if err != nil && !full {
				return err
			}
			var h *meta.Head
			if full {
				r, _ := meta.AsRefused(err)
				h = r.Current.Record.(*meta.Head)
			} else {
				h = res.Item.Record.(*meta.Head)
			}
			if full || len(h.Tail) == 40 {
				page := &meta.RefPage{Segment: h.Segment, First: h.TailFirst, Refs: h.Tail[:16]}
				_, err := s.Transact(b.Context(), []meta.Op{
					meta.Put{Record: page, If: meta.Absent(), Version: 1},
					meta.Trim{Segment: h.Segment, First: h.TailFirst, Count: 16},
				})
				if _, refused := meta.AsRefused(err); err != nil && !refused {
					return err
				}
			}
			if !full {
				return nil
			}
		}
	})
	report(b, s)
}

func runCallers(b *testing.B, callers int, fn func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error, callers)
	for range callers {
		go func() {
			for left.Add(-1) >= 0 {
				if err := fn(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

func report(b *testing.B, s *Store) {
	b.StopTimer()
	st := s.Stats()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(st.Ops)/float64(max(1, st.Commits)), "ops/commit")
}

// BenchmarkTakeSettle counts pairs of a take of 10 messages and the settle that acks them all. Each caller has
// a subscription of its own, which is how a loaded topic with several groups looks; claimers of one cursor contend
// on next and would measure their retries.
func BenchmarkTakeSettle(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := openBench(b)
			var n atomic.Uint64
			next := make(chan *meta.Cursor, callers)
			for i := range callers {
				c := &meta.Cursor{Subscription: queue.SubscriptionID(fmt.Sprintf("sub%d", i)), Segment: "seg0000000000000"}
				if _, err := s.Apply(b.Context(), meta.Put{Record: c, Version: 1}); err != nil {
					b.Fatal(err)
				}
				next <- c
			}
			b.ReportAllocs()
			b.ResetTimer()
			runCallers(b, callers, func() error {
				c := <-next
				defer func() { next <- c }()
				var id queue.ClaimID
				binary.BigEndian.PutUint64(id[:], n.Add(1))
				run := meta.OffsetRange{Lo: c.Next, Hi: c.Next + 10}
				res, err := s.Apply(b.Context(), meta.Take{
					Subscription: c.Subscription, Segment: c.Segment, From: run.Lo, To: run.Hi,
					Add: []meta.Claim{{ID: id, Attempt: 1, Parts: []meta.Part{{OffsetRange: run, Expires: 1}}}},
				})
				if err != nil {
					return err
				}
				c = res.Item.Record.(*meta.Cursor)
				_, err = s.Apply(b.Context(), meta.Settle{
					Subscription: c.Subscription, Segment: c.Segment, Claim: id, Done: []meta.OffsetRange{run},
				})
				return err
			})
			report(b, s)
		})
	}
}

// BenchmarkDelayedPut fills the delayed index, in transactions of 20 entries.
func BenchmarkDelayedPut(b *testing.B) {
	s := openBench(b)
	n := uint64(0)
	b.ResetTimer()
	for range b.N {
		var ops []meta.Op
		for range 20 {
			n++
			ops = append(ops, meta.Put{Record: &meta.Delayed{
				Topic: "top0000000000000", Visible: queue.Millis(1_785_000_000_000 + n*7919%1_000_000), ID: queue.EntryID(fmt.Sprintf("%016x", n)),
				Ref: benchRef(n), Slots: make([]queue.Slot, 10),
			}, If: meta.Absent(), Version: 1})
		}
		if _, err := s.Transact(b.Context(), ops); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(20*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}
