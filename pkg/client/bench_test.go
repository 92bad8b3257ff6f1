package client

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// sink answers produce calls at once and keeps nothing: what is measured is the client.
type sink struct{ next atomic.Int64 }

func (s *sink) RoundTrip(r *http.Request) (*http.Response, error) {
	head := make([]byte, batch.HeaderSize)
	if _, err := io.ReadFull(r.Body, head); err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	h, err := batch.ParseHeader(head)
	if err != nil {
		return nil, err
	}
	first := s.next.Add(int64(h.Records)) - int64(h.Records)
	body := `{"runs":[{"first":0,"count":` + strconv.Itoa(h.Records) + `,"segment":"` + string(fakeSegment) +
		`","offset":` + strconv.FormatInt(first, 10) + `,"created_at":"2026-01-31T12:00:00.000Z"}]}`
	return &http.Response{
		StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// BenchmarkProducer is one message from Send to its outcome, bodies of 100 bytes, network excluded.
func BenchmarkProducer(b *testing.B) {
	for name, o := range map[string]ProducerOptions{
		"none": {}, "zstd": {Codec: batch.CodecZstd}, "none-large-batches": {MaxBatchMessages: 5000},
	} {
		for _, keyed := range []bool{false, true} {
			b.Run(name+"/keyed="+strconv.FormatBool(keyed), func(b *testing.B) {
				c, err := New("http://fake", Options{HTTPClient: &http.Client{Transport: new(sink)}})
				if err != nil {
					b.Fatal(err)
				}
				p, err := NewProducer(c, "orders", o)
				if err != nil {
					b.Fatal(err)
				}
				keys := make([][]byte, 1000)
				for i := range keys {
					if keyed {
						keys[i] = []byte("customer-" + strconv.Itoa(i))
					}
				}
				body := []byte(strings.Repeat("0123456789", 10))
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					if _, err := p.Send(b.Context(), Message{Key: keys[i%len(keys)], Body: body}); err != nil {
						b.Fatal(err)
					}
				}
				if err := p.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkConsumerDecode is one message of a claim's answer, from its frame to a Received.
func BenchmarkConsumerDecode(b *testing.B) {
	enc := batch.NewEncoder(batch.Options{})
	for range 1000 {
		if err := enc.Add(&batch.Record{Key: []byte("k"), Body: []byte(strings.Repeat("0123456789", 10))}); err != nil {
			b.Fatal(err)
		}
	}
	data, err := enc.Finish(nil, [batch.NonceSize]byte{})
	if err != nil {
		b.Fatal(err)
	}
	frame := &wire.Frame{Kind: wire.FrameBatch, Segment: fakeSegment, Count: 1000, Claimed: true, Payload: data}
	b.ReportAllocs()
	for b.Loop() {
		f := frames{limit: queue.MaxClaimMessages}
		f.add(frame)
		if len(f.messages) != 1000 {
			b.Fatal(len(f.messages))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/message")
}

// TestNoGoroutineLeft: a producer and a consumer over a real network leave no goroutine behind.
func TestNoGoroutineLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	s := newFake(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := s.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	c, err := New(srv.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProducer(c, "orders", ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := p.Send(t.Context(), Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	consumer, err := NewConsumer(c, "orders", "billing", ConsumerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var handled atomic.Int32
	if err := consumer.Run(ctx, func(context.Context, *Received) error {
		if handled.Add(1) == 100 {
			cancel()
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	cancel()
	c.Close()
	srv.Close()
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}
