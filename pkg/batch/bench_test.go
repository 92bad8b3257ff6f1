package batch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const benchRecords, benchBody = 100, 1000

// benchMessages are 100 messages of about 1 KB, half noise, half text, with a key each.
func benchMessages() []batch.Record {
	random := rand.New(rand.NewPCG(1, 2))
	records := make([]batch.Record, benchRecords)
	for i := range records {
		body := compressible(benchBody)
		for j := range body[:benchBody/2] {
			body[j] = byte(random.Uint32())
		}
		key := []byte{'k', byte(i), byte(i >> 8)}
		records[i] = batch.Record{Slot: queue.SlotOf(key), Key: key, Body: body}
	}
	return records
}

func codecs() []batch.Codec { return []batch.Codec{batch.CodecNone, batch.CodecZstd} }

// encodeOnce is one turn of a warm encoder.
func encodeOnce(tb testing.TB, e *batch.Encoder, dst []byte, records []batch.Record) []byte {
	e.Reset()
	for i := range records {
		if err := e.Add(&records[i]); err != nil {
			tb.Fatal(err)
		}
	}
	dst, err := e.Finish(dst[:0], nonce)
	if err != nil {
		tb.Fatal(err)
	}
	return dst
}

func decodeOnce(tb testing.TB, r *batch.Reader, rec *batch.Record, data []byte) {
	if err := r.Reset(data); err != nil {
		tb.Fatal(err)
	}
	for r.Next(rec) {
		continue
	}
	if r.Err() != nil {
		tb.Fatal(r.Err())
	}
}

func BenchmarkEncode(b *testing.B) {
	records := benchMessages()
	for _, codec := range codecs() {
		b.Run(codec.String(), func(b *testing.B) {
			e := batch.NewEncoder(batch.Options{Codec: codec})
			dst := encodeOnce(b, e, nil, records)
			b.SetBytes(benchRecords * benchBody)
			b.ReportAllocs()
			for b.Loop() {
				dst = encodeOnce(b, e, dst, records)
			}
			b.ReportMetric(float64(len(dst))/benchRecords, "stored-B/msg")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, codec := range codecs() {
		b.Run(codec.String(), func(b *testing.B) {
			data := encodeOnce(b, batch.NewEncoder(batch.Options{Codec: codec}), nil, benchMessages())
			var r batch.Reader
			var rec batch.Record
			decodeOnce(b, &r, &rec, data)
			b.SetBytes(benchRecords * benchBody)
			b.ReportAllocs()
			for b.Loop() {
				decodeOnce(b, &r, &rec, data)
			}
		})
	}
}

// BenchmarkOpenIndex is what a server does to an uploaded batch: no body is touched.
func BenchmarkOpenIndex(b *testing.B) {
	data := encodeOnce(b, batch.NewEncoder(batch.Options{}), nil, benchMessages())
	var x batch.Index
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Reset(data); err != nil {
			b.Fatal(err)
		}
	}
}
