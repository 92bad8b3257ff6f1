package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func newTestProducer(t testing.TB, s *fakeServer, o ProducerOptions) *Producer {
	t.Helper()
	p, err := NewProducer(s.client(Options{Token: "secret"}), "orders", o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closeProducer(t testing.TB, p *Producer) {
	t.Helper()
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestProducerUnderFaults: whatever happens to calls and answers, each message is stored once, in the
// order of its key, under the id that its result says, before Flush returns.
func TestProducerUnderFaults(t *testing.T) {
	t.Parallel()
	every := func(n int, f fault) func(string, int) fault {
		return func(_ string, call int) fault {
			if call%n == 0 {
				return f
			}
			return fault{}
		}
	}
	for name, faults := range map[string]func(string, int) fault{
		"none":                  nil,
		"call lost":             every(2, fault{lostBefore: true}),
		"answer lost":           every(2, fault{lostAfter: true}),
		"answer cut":            every(2, fault{cut: 3}),
		"outcome unknown":       every(2, fault{status: 503, code: queue.CodeOutcomeUnknown}),
		"gateway error":         every(2, fault{status: 502, noBody: true}),
		"throttled":             every(2, fault{status: 429, code: queue.CodeThrottled, retryAfter: "2"}),
		"slow":                  every(1, fault{delay: 200 * time.Millisecond}),
		"slower than a try":     every(3, fault{delay: time.Minute}),
		"second half throttled": every(2, fault{refuseHalf: true}),
		"all of these": func(_ string, call int) fault {
			r := rand.New(rand.NewPCG(1, uint64(call)))
			return []fault{
				{},
				{lostBefore: true},
				{lostAfter: true},
				{cut: 9},
				{status: 503, code: queue.CodeUnavailable},
				{refuseHalf: true},
				{refuseHalf: true, lostAfter: true},
				{delay: 50 * time.Millisecond},
			}[r.IntN(8)]
		},
	} {
		for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecZstd} {
			t.Run(name+"/"+codec.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newFake(t)
					s.faults = faults
					p := newTestProducer(t, s, ProducerOptions{MaxBatchMessages: 40, Codec: codec, Lanes: 3})
					const total, keys = 900, 7
					futures := make([]*Future, total)
					for i := range futures {
						m := Message{Body: []byte(strconv.Itoa(i))}
						if i%(keys+1) != keys {
							m.Key = fmt.Appendf(nil, "key-%d", i%(keys+1))
						}
						var err error
						if futures[i], err = p.Send(t.Context(), m); err != nil {
							t.Fatal(err)
						}
					}
					if err := p.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					stored := s.bodies()
					if len(stored) != total {
						t.Fatalf("%d messages are stored after Flush, want %d", len(stored), total)
					}
					for i, f := range futures {
						r, ok := f.Result()
						if !ok || r.Err != nil {
							t.Fatalf("message %d after Flush: ready %v, %v", i, ok, r.Err)
						}
						if got := stored[r.ID.Offset]; got != strconv.Itoa(i) {
							t.Fatalf("message %d has the id of message %s", i, got)
						}
					}
					for key, bodies := range s.byKey() {
						if key != "" && !slices.IsSortedFunc(bodies, compareNumbers) {
							t.Errorf("messages of %s are out of order: %v", key, bodies)
						}
					}
					closeProducer(t, p)
				})
			})
		}
	}
}

func compareNumbers(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

func TestProducerLingers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		p := newTestProducer(t, s, ProducerOptions{Linger: 50 * time.Millisecond, MaxBatchMessages: 10})
		began := time.Now()
		f, err := p.Send(t.Context(), Message{Body: []byte("a")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Millisecond)
		if _, err := p.Send(t.Context(), Message{Body: []byte("b")}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Wait(t.Context()); err != nil || time.Since(began) != 50*time.Millisecond {
			t.Errorf("first message after %v (%v), want 50ms", time.Since(began), err)
		}
		if n := s.count("messages"); n != 1 {
			t.Errorf("%d calls for two messages within the linger, want 1", n)
		}
		began = time.Now()
		for range 10 { // a full batch does not wait
			if _, err := p.Send(t.Context(), Message{Key: []byte("k")}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := s.count("messages"); n != 2 || time.Since(began) != 0 {
			t.Errorf("%d calls after %v, want a full batch to go at once", n, time.Since(began))
		}
		if _, err := p.SendSync(t.Context(), Message{Body: []byte("c")}); err != nil {
			t.Error(err)
		}
		closeProducer(t, p)
	})
}

// TestProducerLaneHasOneCall: while a call is under way the lane's next waits, and takes along what
// came in the meantime.
func TestProducerLaneHasOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		s.faults = func(string, int) fault { return fault{delay: time.Second} }
		p := newTestProducer(t, s, ProducerOptions{Lanes: 1, Linger: -1})
		for range 50 {
			if _, err := p.Send(t.Context(), Message{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := s.count("messages"); n != 2 {
			t.Errorf("%d calls, want 2", n)
		}
		closeProducer(t, p)
	})
}

func TestProducerBackpressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		s.faults = func(string, int) fault { return fault{delay: time.Second} }
		p := newTestProducer(t, s, ProducerOptions{MaxInFlightBytes: 4 << 10, Lanes: 1, Linger: -1})
		body := make([]byte, 1000)
		for range 2 {
			if _, err := p.Send(t.Context(), Message{Body: body}); err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := p.Send(short, Message{Body: body}); !queue.Is(err, queue.KindCanceled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send without room: %v, want it canceled", err)
		}
		began := time.Now()
		if _, err := p.Send(t.Context(), Message{Body: body}); err != nil || time.Since(began) < 500*time.Millisecond {
			t.Errorf("Send had room after %v (%v), want to wait for the call under way", time.Since(began), err)
		}
		if _, err := p.Send(t.Context(), Message{Body: make([]byte, 64<<10)}); err != nil {
			t.Errorf("a message over the whole budget: %v, want it taken alone", err)
		}
		blocked := make(chan error)
		go func() { _, err := p.Send(t.Context(), Message{Body: body}); blocked <- err }()
		synctest.Wait()
		closeProducer(t, p)
		if err := <-blocked; !errors.Is(err, ErrClosed) {
			t.Errorf("Send that waits at Close: %v, want ErrClosed", err)
		}
		if got := len(s.bodies()); got != 4 {
			t.Errorf("%d messages stored, want 4", got)
		}
	})
}

func TestProducerClose(t *testing.T) {
	t.Parallel()
	t.Run("flushes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newFake(t)
			p := newTestProducer(t, s, ProducerOptions{Linger: time.Hour})
			f, err := p.Send(t.Context(), Message{Body: []byte("x")})
			if err != nil {
				t.Fatal(err)
			}
			closeProducer(t, p)
			if r, ok := f.Result(); !ok || r.Err != nil {
				t.Errorf("after Close: ready %v, %v", ok, r.Err)
			}
			if _, err := p.Send(t.Context(), Message{}); !errors.Is(err, ErrClosed) {
				t.Errorf("Send after Close: %v", err)
			}
			closeProducer(t, p)
			if err := p.Flush(t.Context()); err != nil {
				t.Errorf("Flush after Close: %v", err)
			}
		})
	})
	t.Run("out of time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newFake(t)
			s.faults = func(string, int) fault { return fault{delay: time.Hour} }
			p := newTestProducer(t, s, ProducerOptions{Lanes: 1, Linger: -1, MaxBatchMessages: 1})
			var futures []*Future
			for range 3 {
				f, err := p.Send(t.Context(), Message{Body: []byte("x")})
				if err != nil {
					t.Fatal(err)
				}
				futures = append(futures, f)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := p.Flush(ctx); !queue.Is(err, queue.KindCanceled) {
				t.Errorf("Flush: %v", err)
			}
			err := p.Close(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close: %v", err)
			}
			for i, want := range []queue.Kind{queue.KindOutcomeUnknown, queue.KindCanceled, queue.KindCanceled} {
				if r, ok := futures[i].Result(); !ok || queue.KindOf(r.Err) != want {
					t.Errorf("message %d: ready %v, %v, want %v", i, ok, r.Err, want)
				}
			}
		})
	})
}

func TestProducerGivesUp(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fault fault
		want  queue.Kind
	}{
		"never reached":   {fault{status: 503, code: queue.CodeUnavailable}, queue.KindUnavailable},
		"unknown":         {fault{lostAfter: true}, queue.KindOutcomeUnknown},
		"no such topic":   {fault{status: 404, code: queue.CodeTopicNotFound}, queue.KindNotFound},
		"fault of theirs": {fault{status: 500, code: queue.CodeInternal}, queue.KindInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				broken := true
				s.faults = func(string, int) fault {
					if broken {
						return row.fault
					}
					return fault{}
				}
				p := newTestProducer(t, s, ProducerOptions{DeliveryTimeout: 10 * time.Second})
				for range 40 {
					if _, err := p.Send(t.Context(), Message{Key: []byte("k")}); err != nil {
						t.Fatal(err)
					}
				}
				err := p.Flush(t.Context())
				if !queue.Is(err, row.want) {
					t.Errorf("Flush: %v, want kind %v", err, row.want)
				}
				broken = false
				if err := p.Flush(t.Context()); err != nil {
					t.Errorf("second Flush gives errors again: %v", err)
				}
				if _, err := p.SendSync(t.Context(), Message{Key: []byte("k")}); err != nil {
					t.Errorf("after the fault: %v", err)
				}
				closeProducer(t, p)
			})
		})
	}
}

// TestProducerForgottenSequence: a lane whose id the server knows better than we do goes on as another.
func TestProducerForgottenSequence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		p := newTestProducer(t, s, ProducerOptions{Lanes: 1})
		if _, err := p.SendSync(t.Context(), Message{Body: []byte("under a key")}); err != nil {
			t.Fatal(err)
		}
		s.producers[p.lanes[0].id] = producerState{sequence: 100}
		if _, err := p.SendSync(t.Context(), Message{Body: []byte("a")}); queue.CodeOf(err) != queue.CodeSequenceOutOfOrder {
			t.Errorf("first: %v", err)
		}
		if _, err := p.SendSync(t.Context(), Message{Body: []byte("b")}); err != nil {
			t.Errorf("second: %v", err)
		}
		if err := p.Close(t.Context()); queue.CodeOf(err) != queue.CodeSequenceOutOfOrder {
			t.Errorf("Close must give the error: %v", err)
		}
	})
}

// TestProducerLarge: bodies over the limit go by reference, in the order of their key, and a batch
// over the limit of a call goes as a file.
func TestProducerLarge(t *testing.T) {
	t.Parallel()
	t.Run("bodies", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newFake(t)
			s.faults = func(_ string, n int) fault {
				if n%2 == 0 {
					return fault{lostAfter: true}
				}
				return fault{}
			}
			p := newTestProducer(t, s, ProducerOptions{ReferenceAbove: 100})
			var want []string
			for i := range 30 {
				body := []byte(strconv.Itoa(i))
				if i%3 == 2 || i > 20 {
					body = append(body, bytes.Repeat([]byte("."), 200)...)
				}
				want = append(want, string(body))
				if _, err := p.Send(t.Context(), Message{Key: []byte("k"), Body: body}); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.byKey()["k"]; !slices.Equal(got, want) {
				t.Errorf("stored %q, want %q", got, want)
			}
			closeProducer(t, p)
		})
	})
	t.Run("batch", func(t *testing.T) {
		t.Parallel()
		s := newFake(t)
		p := newTestProducer(t, s, ProducerOptions{MaxBatchBytes: 64 << 20, ReferenceAbove: 4 << 20, Lanes: 1, Linger: time.Hour})
		var futures []*Future
		for i := range 4 {
			body := bytes.Repeat([]byte{byte('a' + i)}, 3<<20)
			f, err := p.Send(t.Context(), Message{Key: fmt.Appendf(nil, "%d", i), Body: body})
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, f)
		}
		closeProducer(t, p)
		if s.count("messages") != 0 || s.count("put") != 1 || s.count("references") != 1 {
			t.Errorf("calls %v, want one upload and one reference", s.calls)
		}
		for i, f := range futures {
			if r, _ := f.Result(); r.Err != nil || s.log[r.ID.Offset].Body[0] != byte('a'+i) {
				t.Errorf("message %d has result %+v", i, r)
			}
		}
	})
}

func TestProducerRefusesOneMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		p := newTestProducer(t, s, ProducerOptions{Lanes: 1})
		bad, err := p.Send(t.Context(), Message{Key: make([]byte, queue.MaxKeyBytes+1)})
		if err != nil {
			t.Fatal(err)
		}
		good, err := p.Send(t.Context(), Message{Body: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bad.Wait(t.Context()); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("a key that is too long: %v", err)
		}
		if _, err := good.Wait(t.Context()); err != nil {
			t.Errorf("its neighbour: %v", err)
		}
		if _, err := p.Send(t.Context(), Message{Headers: map[string]string{"": "x"}}); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("a header without a name: %v", err)
		}
		if err := p.Close(t.Context()); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("Close: %v", err)
		}
	})
}

// TestProducerKeylessSlot: a batch without keys has one slot, so it costs one head update.
func TestProducerKeylessSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		p := newTestProducer(t, s, ProducerOptions{MaxBatchMessages: 10})
		for range 100 {
			if _, err := p.Send(t.Context(), Message{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		closeProducer(t, p)
		slots := map[queue.Slot]int{}
		for i := range s.log {
			slots[s.log[i].Slot]++
		}
		if calls := s.count("messages"); len(slots) > calls || len(slots) < 2 {
			t.Errorf("%d slots in %d batches, want one each and not the same for all", len(slots), calls)
		}
	})
}

func TestProducerOptionsRefused(t *testing.T) {
	t.Parallel()
	c := newFake(t).client(Options{})
	for field, o := range map[string]ProducerOptions{
		"lanes":               {Lanes: 65},
		"max_batch_messages":  {MaxBatchMessages: queue.MaxBatchRecords + 1},
		"delivery_timeout":    {DeliveryTimeout: time.Hour},
		"reference_above":     {ReferenceAbove: -1},
		"codec":               {Codec: 9},
		"max_in_flight_bytes": {MaxInFlightBytes: -1},
	} {
		var e *queue.Error
		if _, err := NewProducer(c, "orders", o); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := NewProducer(c, "no..name", ProducerOptions{}); !queue.Is(err, queue.KindInvalid) {
		t.Errorf("topic: %v", err)
	}
}
