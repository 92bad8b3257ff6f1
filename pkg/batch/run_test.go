package batch_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// encodeDrawn encodes drawn records and gives them in the batch's order.
func encodeDrawn(t *rapid.T) ([]byte, []batch.Record) {
	o := genOptions().Draw(t, "options")
	records := rapid.SliceOfN(genRecord(), 1, 120).Draw(t, "records")
	e := batch.NewEncoder(o)
	for i := range records {
		if err := e.Add(&records[i]); err != nil {
			t.Fatalf("Add: %v", err)
		}
	}
	data, err := e.Finish(nil, nonce)
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	return data, sorted(records)
}

func drawRun(t *rapid.T, count int) (int, int) {
	first := rapid.IntRange(0, count).Draw(t, "first")
	return first, rapid.IntRange(0, count-first).Draw(t, "count")
}

func TestIndexProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, want := encodeDrawn(t)
		h, err := batch.ParseHeader(data)
		if err != nil || h.Len() != int64(len(data)) || h.Records != len(want) || h.Nonce != nonce {
			t.Fatalf("header %+v, %v", h, err)
		}
		// More bytes than the prefix are no harm: a server fetches a guess.
		x, err := batch.OpenIndex(data[:h.PrefixLen()+rapid.IntRange(0, int(h.StoredBodies)).Draw(t, "more")])
		if err != nil {
			t.Fatalf("OpenIndex: %v", err)
		}
		var pos int64
		seen := 0
		for i, e := range x.Entries() {
			w := want[i]
			if e.BodyPos != pos || e.BodyLen != int64(len(w.Body)) || e.Body != nil {
				t.Fatalf("entry %d: body [%d,+%d), want [%d,+%d)", i, e.BodyPos, e.BodyLen, pos, len(w.Body))
			}
			w.Body = nil
			if one, ok := x.Entry(i); !same(e.Record, w) || !ok || !same(one.Record, w) || one.BodyPos != pos {
				t.Fatalf("entry %d: %+v, %+v, want %+v", i, e, one, w)
			}
			pos += e.BodyLen
			seen++
		}
		if seen != len(want) || x.Count() != seen {
			t.Fatalf("%d entries, Count %d, want %d", seen, x.Count(), len(want))
		}
		lo := rapid.Uint32Range(0, queue.Slots).Draw(t, "lo")
		r := queue.SlotRange{Lo: lo, Hi: rapid.Uint32Range(lo, queue.Slots).Draw(t, "hi")}
		first, count := x.Run(r)
		for i, w := range want {
			if in := i >= first && i < first+count; in != r.Contains(w.Slot) {
				t.Fatalf("Run(%v) = [%d,+%d), but record %d has slot %d", r, first, count, i, w.Slot)
			}
		}
	})
}

func TestOpenRunProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, want := encodeDrawn(t)
		x, err := batch.OpenIndex(data)
		if err != nil {
			t.Fatalf("OpenIndex: %v", err)
		}
		first, count := drawRun(t, len(want))
		pos, length := x.Span(first, count)
		// Exactly the span, in memory of its own, so that nothing outside can be read by mistake.
		prefix := append([]byte(nil), data[:x.Header().PrefixLen()]...)
		bodies := append([]byte(nil), data[pos:pos+length]...)
		r, err := batch.OpenRun(prefix, bodies, pos, first, count)
		if err != nil {
			t.Fatalf("OpenRun: %v", err)
		}
		check := func(first, count int) {
			var rec batch.Record
			n := 0
			for ; r.Next(&rec); n++ {
				if !same(rec, want[first+n]) {
					t.Fatalf("record %d: %+v, want %+v", first+n, rec, want[first+n])
				}
			}
			if r.Err() != nil || n != count {
				t.Fatalf("%d records of %d, %v", n, count, r.Err())
			}
		}
		check(first, count)
		inFirst, inCount := drawRun(t, count)
		if err := r.Seek(first+inFirst, inCount); err != nil {
			t.Fatalf("Seek: %v", err)
		}
		check(first+inFirst, inCount)
		if length > 0 {
			if _, err := batch.OpenRun(prefix, bodies[1:], pos+1, first, count); !queue.Is(err, queue.KindCorrupt) {
				t.Fatalf("bodies short at the front: %v", err)
			}
			if _, err := batch.OpenRun(prefix, bodies[:length-1], pos, first, count); !queue.Is(err, queue.KindCorrupt) {
				t.Fatalf("bodies short at the end: %v", err)
			}
		}
	})
}

func TestSliceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, want := encodeDrawn(t)
		first := rapid.IntRange(0, len(want)-1).Draw(t, "first")
		count := rapid.IntRange(1, len(want)-first).Draw(t, "count")
		other := [batch.NonceSize]byte{9}
		out, err := batch.Slice([]byte("x"), data, first, count, other)
		if err != nil {
			t.Fatalf("Slice: %v", err)
		}
		out = out[1:]
		if err := batch.Verify(out); err != nil {
			t.Fatalf("Verify: %v", err)
		}
		r, err := batch.Open(out)
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		if r.Index().Header().Nonce != other {
			t.Fatalf("the nonce is not the one given")
		}
		var got []batch.Record
		var rec batch.Record
		for r.Next(&rec) {
			got = append(got, clone(rec))
		}
		mustEqual(t, got, want[first:first+count])
	})
}

func TestSliceOfAlignedBlocksCopies(t *testing.T) {
	records := make([]batch.Record, 9)
	for i := range records {
		records[i] = batch.Record{Slot: queue.Slot(i), Body: compressible(100)}
	}
	data := encode(t, batch.Options{Codec: batch.CodecZstd, BlockBytes: 300}, records)
	r, err := batch.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	pos, length := r.Index().Span(3, 3)
	out, err := batch.Slice(nil, data, 3, 3, nonce)
	if err != nil {
		t.Fatal(err)
	}
	h, err := batch.ParseHeader(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(out[h.PrefixLen():]), string(data[pos:pos+length]); h.Blocks != 1 || got != want {
		t.Errorf("%d blocks, %d bytes; want the one block of %d bytes as it was", h.Blocks, len(got), len(want))
	}
}

func TestSliceRefusesRuns(t *testing.T) {
	data := encode(t, batch.Options{}, []batch.Record{{Body: []byte("a")}, {Body: []byte("b")}})
	maxInt := int(^uint(0) >> 1)
	for _, run := range [][2]int{{0, 0}, {2, 0}, {-1, 1}, {0, 3}, {2, 1}, {1, -1}, {maxInt, 1}, {1, maxInt}, {maxInt, maxInt}} {
		out, err := batch.Slice([]byte("x"), data, run[0], run[1], nonce)
		if !queue.Is(err, queue.KindInvalid) || string(out) != "x" {
			t.Errorf("run %v: %q, %v", run, out, err)
		}
		if run[1] == 0 {
			continue // an empty run may be read
		}
		if _, err := batch.OpenRun(data, nil, 0, run[0], run[1]); !queue.Is(err, queue.KindCorrupt) {
			t.Errorf("OpenRun of run %v: %v", run, err)
		}
		r, err := batch.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seek(run[0], run[1]); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("Seek to run %v: %v", run, err)
		}
		if _, length := r.Index().Span(run[0], run[1]); length != 0 {
			t.Errorf("Span of run %v: %d bytes", run, length)
		}
		for range r.Index().EntriesOf(run[0], run[1]) {
			t.Errorf("EntriesOf run %v gives entries", run)
		}
	}
}

func TestReaderIsReusable(t *testing.T) {
	one := encode(t, batch.Options{Codec: batch.CodecZstd}, []batch.Record{{Body: compressible(500)}})
	two := encode(t, batch.Options{}, []batch.Record{{Slot: 3, Body: []byte("two")}, {Slot: 4}})
	var r batch.Reader
	if r.Next(new(batch.Record)) || !queue.Is(r.Seek(0, 1), queue.KindInvalid) {
		t.Error("a reader that was never opened reads")
	}
	for range 3 {
		for _, data := range [][]byte{one, two, one[:50]} {
			err := r.Reset(data)
			if len(data) == 50 {
				if !queue.Is(err, queue.KindCorrupt) || r.Err() == nil || r.Next(new(batch.Record)) {
					t.Fatalf("cut batch: %v, %v", err, r.Err())
				}
				if r.Index().Count() != 0 || r.Seek(0, 1) == nil {
					t.Fatal("a batch that did not open has records")
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := len(readAll(t, &r)); n != r.Index().Count() {
				t.Fatalf("%d records of %d", n, r.Index().Count())
			}
		}
	}
}

// compressible is n bytes that zstd makes smaller.
func compressible(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "spillway "[i%9]
	}
	return b
}
