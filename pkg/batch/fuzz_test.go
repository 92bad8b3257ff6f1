package batch_test

import (
	"bytes"
	"testing"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// seeds gives the decoders' targets valid batches to mutate. The targets try each input as it is and
// with checksums made to fit, or mutations would never get past the checksums.
func seeds(f *testing.F) [][]byte {
	var out [][]byte
	for _, data := range smallBatches(f) {
		out = append(out, data)
	}
	many := make([]batch.Record, 70) // more than two strides of index marks
	for i := range many {
		many[i] = batch.Record{Slot: queue.Slot(i * 900), Body: compressible(i)}
	}
	return append(out,
		encode(f, batch.Options{}, []batch.Record{{}}),
		encode(f, batch.Options{Codec: batch.CodecZstd, BlockBytes: 200}, many),
		encode(f, batch.Options{}, many),
	)
}

func FuzzOpen(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, seal(data)} {
			r, err := batch.Open(data)
			if err != nil {
				wantCorrupt(t, err)
				continue
			}
			var records []batch.Record
			var rec batch.Record
			for r.Next(&rec) {
				records = append(records, clone(rec))
			}
			if r.Err() != nil {
				wantCorrupt(t, r.Err())
				continue
			}
			h := r.Index().Header()
			if len(records) != h.Records {
				t.Fatalf("%d records of %d", len(records), h.Records)
			}
			e := batch.NewEncoder(batch.Options{Codec: h.Codec})
			for i := range records {
				if err := e.Add(&records[i]); err != nil {
					t.Fatalf("a decoded record is refused: %v", err)
				}
			}
			again, err := e.Finish(nil, h.Nonce)
			if err != nil {
				t.Fatalf("Finish: %v", err)
			}
			if h.Codec == batch.CodecNone && !bytes.Equal(again, data) {
				t.Fatalf("two encodings of one content:\n%q\n%q", data, again)
			}
			if err := batch.Verify(again); err != nil {
				t.Fatalf("Verify: %v", err)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data, uint16(7), uint16(50_000))
	}
	f.Fuzz(func(t *testing.T, data []byte, lo, hi uint16) {
		for _, data := range [][]byte{data, seal(data)} {
			x, err := batch.OpenIndex(data)
			if err != nil {
				wantCorrupt(t, err)
				continue
			}
			h := x.Header()
			r := queue.SlotRange{Lo: uint32(lo), Hi: uint32(hi)}
			first, count := x.Run(r)
			var pos int64
			for i, e := range x.Entries() {
				if in := i >= first && i < first+count; in != r.Contains(e.Slot) {
					t.Fatalf("Run(%v) = [%d,+%d), record %d has slot %d", r, first, count, i, e.Slot)
				}
				one, ok := x.Entry(i)
				if !ok || !same(one.Record, e.Record) || one.BodyPos != pos || e.BodyPos != pos {
					t.Fatalf("entry %d: %+v, %+v at %d", i, e, one, pos)
				}
				at, length := x.Span(i, 1)
				if at < int64(h.PrefixLen()) || at+length > h.Len() || (length > 0) != (e.BodyLen > 0) {
					t.Fatalf("Span(%d,1) = [%d,+%d) of %d", i, at, length, h.Len())
				}
				pos += e.BodyLen
			}
			if pos != h.RawBodies {
				t.Fatalf("bodies of %d bytes, header says %d", pos, h.RawBodies)
			}
			if at, length := x.Span(0, x.Count()); at != int64(h.PrefixLen()) || length != h.StoredBodies {
				t.Fatalf("Span of all = [%d,+%d)", at, length)
			}
		}
	})
}

func FuzzHeaders(f *testing.F) {
	for _, r := range goldenRecords(f) {
		f.Add([]byte(r.Headers), "trace")
	}
	f.Add([]byte("\x01a\x01b\x01a\x00"), "a")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		h := batch.Headers(data)
		m := h.Map()
		h.Get(name)
		if v, ok := h.Merge(map[string]string{name: "x"}).Get(name); !ok || v != "x" {
			t.Fatalf("merged header is %q, %v", v, ok)
		}
		if h.Validate() != nil {
			return
		}
		again, err := batch.MakeHeaders(m)
		if err != nil || !bytes.Equal(again, h) {
			t.Fatalf("two encodings of one map: %q, %q, %v", h, again, err)
		}
	})
}

func FuzzSlice(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data, 1, 2)
	}
	f.Fuzz(func(t *testing.T, data []byte, first, count int) {
		for _, data := range [][]byte{data, seal(data)} {
			out, err := batch.Slice(nil, data, first, count, nonce)
			if err != nil {
				if !queue.Is(err, queue.KindInvalid) {
					wantCorrupt(t, err)
				}
				continue
			}
			part, err := batch.Open(out)
			if err != nil {
				t.Fatalf("a slice does not open: %v", err)
			}
			whole, err := batch.Open(data)
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			if err := whole.Seek(first, count); err != nil {
				t.Fatalf("Seek: %v", err)
			}
			var a, b batch.Record
			for whole.Next(&a) {
				if !part.Next(&b) || !same(a, b) {
					t.Fatalf("slice has %+v, %v, want %+v", b, part.Err(), a)
				}
			}
			if whole.Err() == nil && (part.Next(&b) || part.Err() != nil) {
				t.Fatalf("slice goes on: %v", part.Err())
			}
			if whole.Err() != nil && part.Next(&b) {
				t.Fatalf("slicing covered damage up: %v", whole.Err())
			}
		}
	})
}

func wantCorrupt(t *testing.T, err error) {
	t.Helper()
	if !queue.Is(err, queue.KindCorrupt) {
		t.Fatalf("error of another kind: %v", err)
	}
}
