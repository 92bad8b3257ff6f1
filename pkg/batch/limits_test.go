package batch_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestAddRefuses(t *testing.T) {
	unsorted := batch.Headers("\x01b\x00\x01a\x00")
	cases := []struct {
		name   string
		record batch.Record
		field  string
		kind   queue.Kind
	}{
		{"long key", batch.Record{Key: make([]byte, queue.MaxKeyBytes+1)}, "key", queue.KindInvalid},
		{"delay without HasDelay", batch.Record{Delay: 1}, "delay", queue.KindInvalid},
		{"negative delay", batch.Record{Delay: -1, HasDelay: true}, "delay", queue.KindInvalid},
		{"long delay", batch.Record{Delay: queue.MaxMaxDelay + 1, HasDelay: true}, "delay", queue.KindInvalid},
		{"negative ttl", batch.Record{TTL: -1}, "ttl", queue.KindInvalid},
		{"long ttl", batch.Record{TTL: queue.MaxTTL + 1}, "ttl", queue.KindInvalid},
		{"negative created delta", batch.Record{CreatedDelta: -1}, "created_delta", queue.KindInvalid},
		{"long created delta", batch.Record{CreatedDelta: batch.MaxCreatedDelta + 1}, "created_delta", queue.KindInvalid},
		{"long dedup id", batch.Record{DedupID: bytes.Repeat([]byte("x"), queue.MaxDedupIDBytes+1)}, "dedup_id", queue.KindInvalid},
		{"control in dedup id", batch.Record{DedupID: []byte("a\nb")}, "dedup_id", queue.KindInvalid},
		{"unsorted headers", batch.Record{Headers: unsorted}, "headers", queue.KindInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := batch.NewEncoder(batch.Options{})
			err := e.Add(&c.record)
			wantField(t, err, c.kind, c.field)
			if e.Len() != 0 || e.BodyBytes() != 0 {
				t.Error("the refused record was added")
			}
		})
	}
}

func wantField(t *testing.T, err error, kind queue.Kind, field string) {
	t.Helper()
	var e *queue.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Field != field || e.Op != "encode batch" || e.Message == "" {
		t.Errorf("error %#v, want %v on %q", err, kind, field)
	}
}

func TestAddTakesTheLimits(t *testing.T) {
	full := map[string]string{}
	for i := range queue.MaxHeaders {
		full["name-"+strconv.Itoa(i)] = "v"
	}
	headers, err := batch.MakeHeaders(full)
	if err != nil {
		t.Fatal(err)
	}
	record := batch.Record{
		Slot: queue.Slots - 1, Key: make([]byte, queue.MaxKeyBytes), Headers: headers,
		Delay: queue.MaxMaxDelay, HasDelay: true, TTL: queue.MaxTTL, CreatedDelta: batch.MaxCreatedDelta,
		DedupID: bytes.Repeat([]byte("x"), queue.MaxDedupIDBytes),
	}
	r, err := batch.Open(encode(t, batch.Options{}, []batch.Record{record}))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, readAll(t, r), []batch.Record{record})
}

func TestDurationsRoundUp(t *testing.T) {
	in := batch.Record{Delay: 1, HasDelay: true, TTL: time.Millisecond + 1, CreatedDelta: 5 * time.Millisecond}
	want := batch.Record{Delay: time.Millisecond, HasDelay: true, TTL: 2 * time.Millisecond, CreatedDelta: 5 * time.Millisecond}
	r, err := batch.Open(encode(t, batch.Options{}, []batch.Record{in}))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, readAll(t, r), []batch.Record{want})
}

func TestDelayZeroDiffersFromNone(t *testing.T) {
	want := []batch.Record{{HasDelay: true}, {}}
	r, err := batch.Open(encode(t, batch.Options{}, want))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, readAll(t, r), want)
}

func TestEncoderLimitsOfTheBatch(t *testing.T) {
	t.Run("records", func(t *testing.T) {
		e := batch.NewEncoder(batch.Options{})
		for i := range queue.MaxBatchRecords {
			if err := e.Add(&batch.Record{Slot: queue.Slot(i)}); err != nil {
				t.Fatal(err)
			}
		}
		wantField(t, e.Add(&batch.Record{}), queue.KindTooLarge, "messages")
		data, err := e.Finish(nil, nonce)
		if err != nil || batch.Verify(data) != nil {
			t.Fatalf("full batch: %v, %v", err, batch.Verify(data))
		}
	})
	t.Run("index", func(t *testing.T) {
		headers, err := batch.MakeHeaders(map[string]string{"h": strings.Repeat("x", queue.MaxHeadersBytes-1)})
		if err != nil {
			t.Fatal(err)
		}
		e := batch.NewEncoder(batch.Options{Codec: batch.CodecZstd})
		for err == nil {
			err = e.Add(&batch.Record{Headers: headers})
		}
		wantField(t, err, queue.KindTooLarge, "messages")
		data, err := e.Finish(nil, nonce)
		if err != nil || batch.Verify(data) != nil {
			t.Fatalf("full batch: %v, %v", err, batch.Verify(data))
		}
	})
	t.Run("empty", func(t *testing.T) {
		out, err := batch.NewEncoder(batch.Options{}).Finish([]byte("x"), nonce)
		wantField(t, err, queue.KindInvalid, "messages")
		if string(out) != "x" {
			t.Errorf("dst is %q", out)
		}
	})
	t.Run("codec", func(t *testing.T) {
		wantField(t, batch.NewEncoder(batch.Options{Codec: 7}).Add(&batch.Record{}), queue.KindInvalid, "codec")
	})
}

func TestEncoderReset(t *testing.T) {
	e := batch.NewEncoder(batch.Options{Codec: batch.CodecZstd})
	var dst []byte
	for i := range 5 {
		e.Reset()
		want := make([]batch.Record, 5-i)
		for j := range want {
			want[j] = batch.Record{Slot: queue.Slot(9 - j), Body: compressible(i * j * 50)}
			if err := e.Add(&want[j]); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if dst, err = e.Finish(dst[:0], nonce); err != nil {
			t.Fatal(err)
		}
		again, err := e.Finish(nil, nonce)
		if err != nil || !bytes.Equal(again, dst) {
			t.Fatalf("a second Finish differs, %v", err)
		}
		r, err := batch.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		mustEqual(t, readAll(t, r), sorted(want))
	}
}

func TestNonceMakesEqualContentDiffer(t *testing.T) {
	e := batch.NewEncoder(batch.Options{})
	if err := e.Add(&batch.Record{Body: []byte("same")}); err != nil {
		t.Fatal(err)
	}
	a, err1 := e.Finish(nil, nonce)
	b, err2 := e.Finish(nil, [batch.NonceSize]byte{})
	ha, err3 := batch.ParseHeader(a)
	hb, err4 := batch.ParseHeader(b)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(a, b) || ha.CRC == hb.CRC {
		t.Error("two nonces, one encoding")
	}
}

// TestBlocks pins how records are cut into blocks and when a block is stored as it is.
func TestBlocks(t *testing.T) {
	noise := make([]byte, batch.MaxBlockBytes+1)
	rand.NewChaCha8([32]byte{1}).Read(noise) //nolint:errcheck // never fails
	zeros := make([]byte, batch.MaxBlockBytes+1)
	cases := []struct {
		name   string
		bodies [][]byte
		blocks int
		stored int64 // -1: smaller than raw
	}{
		{"no bodies", [][]byte{nil, nil}, 0, 0},
		{"fit one block", [][]byte{zeros[:600], zeros[:400]}, 1, -1},
		{"one byte over", [][]byte{zeros[:600], zeros[:401]}, 2, -1},
		{"large record alone", [][]byte{zeros[:10], zeros[:5000], zeros[:10]}, 3, -1},
		{"empty bodies cost no block", [][]byte{nil, zeros[:1000], nil, zeros[:1000], nil}, 2, -1},
		{"noise is stored as it is", [][]byte{noise[:500]}, 1, 500},
		{"largest compressed block", [][]byte{zeros[:batch.MaxBlockBytes]}, 1, -1},
		{"past it stored as it is", [][]byte{zeros}, 1, batch.MaxBlockBytes + 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var records []batch.Record
			for _, b := range c.bodies {
				records = append(records, batch.Record{Body: b})
			}
			data := encode(t, batch.Options{Codec: batch.CodecZstd, BlockBytes: 1000}, records)
			h, err := batch.ParseHeader(data)
			if err != nil {
				t.Fatal(err)
			}
			if h.Blocks != c.blocks || c.stored >= 0 && h.StoredBodies != c.stored ||
				c.stored < 0 && h.StoredBodies >= h.RawBodies {
				t.Errorf("%d blocks, %d of %d bytes", h.Blocks, h.StoredBodies, h.RawBodies)
			}
			r, err := batch.Open(data)
			if err != nil {
				t.Fatal(err)
			}
			mustEqual(t, readAll(t, r), records)
		})
	}
}
