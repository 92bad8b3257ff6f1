package batch_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// nonce is a fixed one, so that tests are repeatable.
var nonce = [batch.NonceSize]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func encode(t testing.TB, o batch.Options, records []batch.Record) []byte {
	t.Helper()
	e := batch.NewEncoder(o)
	for i := range records {
		if err := e.Add(&records[i]); err != nil {
			t.Fatalf("Add(%d): %v", i, err)
		}
	}
	data, err := e.Finish(nil, nonce)
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	return data
}

// readAll drains r into copies, because a zstd body lives only until the next one.
func readAll(t testing.TB, r *batch.Reader) []batch.Record {
	t.Helper()
	var out []batch.Record
	var rec batch.Record
	for r.Next(&rec) {
		out = append(out, clone(rec))
	}
	if err := r.Err(); err != nil {
		t.Fatalf("read: %v", err)
	}
	return out
}

func clone(r batch.Record) batch.Record {
	r.Key, r.Headers = bytes.Clone(r.Key), bytes.Clone(r.Headers)
	r.Body, r.DedupID = bytes.Clone(r.Body), bytes.Clone(r.DedupID)
	return r
}

// same compares records; nil and empty slices are one.
func same(a, b batch.Record) bool {
	return a.Slot == b.Slot && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Headers, b.Headers) &&
		bytes.Equal(a.Body, b.Body) && a.Delay == b.Delay && a.HasDelay == b.HasDelay &&
		a.TTL == b.TTL && a.CreatedDelta == b.CreatedDelta && bytes.Equal(a.DedupID, b.DedupID)
}

type fataler interface{ Fatalf(string, ...any) }

func mustEqual(t fataler, got, want []batch.Record) {
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if !same(got[i], want[i]) {
			t.Fatalf("record %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

// sorted is the plain model of an encoder's order.
func sorted(records []batch.Record) []batch.Record {
	out := slices.Clone(records)
	slices.SortStableFunc(out, func(a, b batch.Record) int { return int(a.Slot) - int(b.Slot) })
	return out
}

func genRecord() *rapid.Generator[batch.Record] {
	return rapid.Custom(func(t *rapid.T) batch.Record {
		r := batch.Record{
			Slot: queue.Slot(rapid.SampledFrom([]uint16{0, 1, 2, 77, 78, 40_000, 65_535}).Draw(t, "slot")),
			Key:  rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "key"),
			Body: genBody(t),
			TTL:  time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 127, 128, queue.MaxTTL.Milliseconds()}).Draw(t, "ttl")) * time.Millisecond,
		}
		if rapid.Bool().Draw(t, "has delay") {
			r.HasDelay = true
			r.Delay = time.Duration(rapid.Int64Range(0, queue.MaxMaxDelay.Milliseconds()).Draw(t, "delay")) * time.Millisecond
		}
		if rapid.Bool().Draw(t, "has created") {
			r.CreatedDelta = time.Duration(rapid.Int64Range(0, batch.MaxCreatedDelta.Milliseconds()).Draw(t, "created")) * time.Millisecond
		}
		if rapid.Bool().Draw(t, "has dedup") {
			r.DedupID = []byte(rapid.StringMatching(`[a-zà-ü0-9-]{1,20}`).Draw(t, "dedup"))
		}
		if rapid.Bool().Draw(t, "has headers") {
			h, err := batch.MakeHeaders(rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}`), rapid.String(), 0, 5).Draw(t, "headers"))
			if err != nil {
				t.Fatalf("headers: %v", err)
			}
			r.Headers = h
		}
		return r
	})
}

func genBody(t *rapid.T) []byte {
	switch rapid.IntRange(0, 3).Draw(t, "body kind") {
	case 0:
		return nil
	case 1:
		return rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "body")
	case 2:
		return bytes.Repeat([]byte("abcdefgh"), rapid.IntRange(1, 100).Draw(t, "repeats"))
	}
	return []byte(fmt.Sprintf("order %d", rapid.Uint32().Draw(t, "order")))
}

func genOptions() *rapid.Generator[batch.Options] {
	return rapid.Custom(func(t *rapid.T) batch.Options {
		return batch.Options{
			Codec:      rapid.SampledFrom([]batch.Codec{batch.CodecNone, batch.CodecZstd}).Draw(t, "codec"),
			BlockBytes: rapid.SampledFrom([]int{0, 1, 100, 1000}).Draw(t, "block bytes"),
		}
	})
}

func TestRoundTripProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := genOptions().Draw(t, "options")
		records := rapid.SliceOfN(genRecord(), 1, 80).Draw(t, "records")
		e := batch.NewEncoder(o)
		for i := range records {
			if err := e.Add(&records[i]); err != nil {
				t.Fatalf("Add: %v", err)
			}
		}
		data, err := e.Finish([]byte("before"), nonce)
		if err != nil {
			t.Fatalf("Finish: %v", err)
		}
		if int64(len(data)-6) > e.SizeBound() || o.Codec == batch.CodecNone && int64(len(data)-6) != e.SizeBound() {
			t.Fatalf("%d bytes, bound %d", len(data)-6, e.SizeBound())
		}
		data = data[6:]
		want := sorted(records)
		for at, i := range e.Order() {
			if !same(want[at], records[i]) {
				t.Fatalf("Order()[%d] = %d", at, i)
			}
		}
		if err := batch.Verify(data); err != nil {
			t.Fatalf("Verify: %v", err)
		}
		r, err := batch.Open(data)
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		var got []batch.Record
		var rec batch.Record
		for r.Next(&rec) {
			got = append(got, clone(rec))
		}
		if r.Err() != nil {
			t.Fatalf("read: %v", r.Err())
		}
		mustEqual(t, got, want)
	})
}
