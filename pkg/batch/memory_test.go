//go:build !race

// What is measured here means nothing under the race detector: it allocates, too, and sync.Pool, which the
// zstd library uses, drops items at random under it.

package batch_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestNoAllocations(t *testing.T) {
	records := benchMessages()
	for _, codec := range codecs() {
		e := batch.NewEncoder(batch.Options{Codec: codec})
		dst := encodeOnce(t, e, nil, records)
		if n := testing.AllocsPerRun(20, func() { dst = encodeOnce(t, e, dst, records) }); n != 0 {
			t.Errorf("%v: encoding allocates %v times", codec, n)
		}
		var r batch.Reader
		var rec batch.Record
		if n := testing.AllocsPerRun(20, func() { decodeOnce(t, &r, &rec, dst) }); n != 0 {
			t.Errorf("%v: decoding allocates %v times", codec, n)
		}
		x := r.Index()
		total := int64(0)
		if n := testing.AllocsPerRun(20, func() {
			for _, e := range x.Entries() {
				total += e.BodyLen
			}
			first, count := x.Run(queue.SlotRange{Lo: 1000, Hi: 50_000})
			x.Span(first, count)
		}); n != 0 {
			t.Errorf("%v: going over the index allocates %v times", codec, n)
		}
	}
}

// TestHostileLengthsCostNoMemory: what is claimed and not backed by bytes is not set aside.
func TestHostileLengthsCostNoMemory(t *testing.T) {
	// A frame header that claims 2^40 bytes of content: single segment, 8 bytes of content size.
	frame := cat([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, binary.LittleEndian.AppendUint64(nil, 1<<40), make([]byte, 40))
	cases := map[string][]byte{
		"records, index and bodies": raw(0, queue.MaxBatchRecords, 0, 1<<32, 1<<32, make([]byte, 10*queue.MaxBatchRecords), nil, nil)[:200],
		"blocks":                    raw(1, queue.MaxBatchRecords, queue.MaxBatchRecords, 1<<32, 1<<32, make([]byte, 10*queue.MaxBatchRecords), nil, nil),
		"frame": raw(1, 1, 1, uint64(len(frame)), 1000, entry(0, 0, make([]byte, 1000), 0, 0),
			blockRow(uint32(len(frame)), 1000), frame),
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := batch.Verify(data)
			runtime.ReadMemStats(&after)
			if !queue.Is(err, queue.KindCorrupt) {
				t.Fatalf("error %v", err)
			}
			// The bound leaves room for a zstd decoder.
			if n := after.TotalAlloc - before.TotalAlloc; n > 256<<10 {
				t.Errorf("%d bytes of input cost %d bytes of memory", len(data), n)
			}
		})
	}
}
