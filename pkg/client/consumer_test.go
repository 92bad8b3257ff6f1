package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// consuming is a Run under way.
type consuming struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan error

	mu     sync.Mutex // guards errs
	errs   []error
	server *fakeServer
}

func consume(t testing.TB, s *fakeServer, o ConsumerOptions, handler Handler) *consuming {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &consuming{t: t, cancel: cancel, done: make(chan error, 1), server: s}
	o.OnError = func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, err)
	}
	c, err := NewConsumer(s.client(Options{Token: "secret"}), "orders", "billing", o)
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- c.Run(ctx, handler) }()
	return r
}

// until waits until the server's state fits.
func (r *consuming) until(what string, fits func(s *fakeServer) bool) {
	r.t.Helper()
	for range 20_000 {
		r.server.mu.Lock()
		ok := fits(r.server)
		r.server.mu.Unlock()
		if ok {
			return
		}
		select {
		case err := <-r.done:
			r.t.Fatalf("Run ended with %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	r.t.Fatalf("it never came to this: %s; errors %v", what, r.errors())
}

func (r *consuming) errors() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

// stop ends the run and gives what Run did.
func (r *consuming) stop() error {
	r.cancel()
	return <-r.done
}

func allDone(n int) func(*fakeServer) bool {
	return func(s *fakeServer) bool { return len(s.done) == n }
}

// TestConsumerUnderFaults: whatever happens to calls and answers, every message is handled and done.
func TestConsumerUnderFaults(t *testing.T) {
	t.Parallel()
	pick := func(list ...fault) func(string, int) fault {
		return func(verb string, call int) fault {
			if verb == "billing" { // the subscription's config is asked for once
				return fault{}
			}
			r := rand.New(rand.NewPCG(7, uint64(call)))
			return list[r.IntN(len(list))]
		}
	}
	for name, faults := range map[string]func(string, int) fault{
		"none":      nil,
		"lost":      pick(fault{}, fault{lostBefore: true}, fault{lostAfter: true}),
		"cut":       pick(fault{}, fault{cut: 150}, fault{cut: 400}),
		"refused":   pick(fault{}, fault{status: 503, code: queue.CodeUnavailable}, fault{status: 429, code: queue.CodeTooManyInFlight, retryAfter: "1"}),
		"slow":      pick(fault{}, fault{delay: 2 * time.Second}),
		"gateway":   pick(fault{}, fault{status: 504, noBody: true}),
		"all of it": pick(fault{}, fault{lostAfter: true}, fault{cut: 300}, fault{delay: time.Second}, fault{status: 503, code: queue.CodeOutcomeUnknown}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const total = 300
				s := newFake(t)
				s.fill(total)
				s.faults, s.visibility = faults, 10*time.Second
				var mu sync.Mutex
				seen := map[string]int{}
				r := consume(t, s, ConsumerOptions{MaxMessages: 20, Parallelism: 4}, func(_ context.Context, m *Received) error {
					if string(m.Body) != strconv.FormatUint(uint64(m.ID.Offset), 10) || string(m.Key) != "k" {
						t.Errorf("message %s has body %q", m.ID, m.Body)
					}
					mu.Lock()
					defer mu.Unlock()
					seen[string(m.Body)]++
					return nil
				})
				r.until("all done", allDone(total))
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if len(seen) != total {
					t.Errorf("%d messages were handled, want %d", len(seen), total)
				}
				if faults == nil {
					for body, n := range seen {
						if n != 1 {
							t.Errorf("message %s was handled %d times", body, n)
						}
					}
					if errs := r.errors(); len(errs) > 0 {
						t.Errorf("errors %v", errs)
					}
				}
			})
		})
	}
}

// TestConsumerJoinsAcks: acks of one claim that end together are one receipt in one call.
func TestConsumerJoinsAcks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		s.fill(400)
		r := consume(t, s, ConsumerOptions{}, func(context.Context, *Received) error { return nil })
		r.until("all done", allDone(400))
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		receipts := 0
		for _, call := range s.acks {
			receipts += len(call)
		}
		if len(s.acks) > 20 || receipts > 20 {
			t.Errorf("%d ack calls with %d receipts for 400 messages in 4 or more claims", len(s.acks), receipts)
		}
	})
}

// TestConsumerBounds: no more handlers than Parallelism, no more messages than they and Prefetch.
func TestConsumerBounds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ parallelism, prefetch, bound int }{{1, -1, 1}, {3, 2, 5}, {8, 30, 38}} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				s.fill(100)
				var running, most atomic.Int32
				gate := make(chan struct{})
				r := consume(t, s, ConsumerOptions{Parallelism: row.parallelism, Prefetch: row.prefetch}, func(context.Context, *Received) error {
					n := running.Add(1)
					defer running.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						continue
					}
					<-gate
					return nil
				})
				time.Sleep(5 * time.Second)
				s.mu.Lock()
				held := s.inFlight
				s.mu.Unlock()
				if held != row.bound || int(running.Load()) != row.parallelism {
					t.Errorf("%d messages held, %d handlers, want %d and %d", held, running.Load(), row.bound, row.parallelism)
				}
				close(gate)
				r.until("all done", allDone(100))
				if int(most.Load()) != row.parallelism {
					t.Errorf("%d handlers at once, want %d", most.Load(), row.parallelism)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestConsumerReleases(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 400)
	for name, row := range map[string]struct {
		handler func() error
		want    wire.ReleaseRequest
		report  error
	}{
		"error":       {func() error { return errors.New("no\nluck") }, wire.ReleaseRequest{Reason: "no luck"}, nil},
		"long error":  {func() error { return errors.New(long) }, wire.ReleaseRequest{Reason: long[:wire.MaxReasonBytes]}, nil},
		"retry after": {func() error { return RetryAfter(90*time.Second, errors.New("later")) }, wire.ReleaseRequest{Reason: "later", Delay: Of(90.0)}, nil},
		"dead letter": {func() error { return fmt.Errorf("wrapped: %w", DeadLetter(errors.New("never"))) }, wire.ReleaseRequest{Reason: "never", DeadLetter: true}, nil},
		"panic":       {func() error { panic("boom") }, wire.ReleaseRequest{Reason: "handler panicked: boom"}, new(PanicError)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				s.fill(1)
				began := time.Now()
				r := consume(t, s, ConsumerOptions{}, func(_ context.Context, m *Received) error {
					if m.Attempt == 1 {
						return row.handler()
					}
					return nil
				})
				r.until("done", allDone(1))
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if len(s.releases) != 1 {
					t.Fatalf("%d releases, want 1", len(s.releases))
				}
				got := s.releases[0]
				if got.Reason != row.want.Reason || got.DeadLetter != row.want.DeadLetter || got.CountDelivery != nil ||
					(got.Delay == nil) != (row.want.Delay == nil) || got.Delay != nil && *got.Delay != *row.want.Delay {
					t.Errorf("released with %+v, want %+v", got, row.want)
				}
				if row.want.Delay != nil && time.Since(began) < 90*time.Second {
					t.Errorf("came back after %v", time.Since(began))
				}
				var of *MessageError
				if errs := r.errors(); len(errs) != 1 || !errors.As(errs[0], &of) {
					t.Errorf("errors %v, want one of a message", errs)
				}
				var p *PanicError
				if row.report != nil && (!errors.As(r.errors()[0], &p) || len(p.Stack) == 0) {
					t.Errorf("errors %v, want a panic with its stack", r.errors())
				}
			})
		})
	}
}

// TestConsumerExtends: a handler may take many times the visibility timeout, as may a message that
// waits for one.
func TestConsumerExtends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		s.fill(4)
		s.visibility = 10 * time.Second
		s.faults = func(verb string, n int) fault {
			if verb == "extend" && n%2 == 1 {
				return fault{status: 503, code: queue.CodeUnavailable}
			}
			return fault{}
		}
		r := consume(t, s, ConsumerOptions{Parallelism: 1, Prefetch: 10}, func(ctx context.Context, m *Received) error {
			if m.Attempt != 1 {
				t.Errorf("message %s came again", m.ID)
			}
			return wait(ctx, time.Minute)
		})
		r.until("all done", allDone(4))
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if s.extended < 24 || s.extended > 80 {
			t.Errorf("%d extensions in 4 minutes, want one in 5 s or so", s.extended)
		}
	})
}

// wait is a handler that works for d.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestConsumerLosesClaim: the handler's context ends, and the message is not settled.
func TestConsumerLosesClaim(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options ConsumerOptions
		faults  func(string, int) fault
		steal   bool
		after   time.Duration
	}{
		"stolen":        {steal: true, after: 5 * time.Second},
		"not extended":  {options: ConsumerOptions{NoAutoExtend: true}, after: 10 * time.Second},
		"server silent": {faults: func(verb string, _ int) fault { return fault{lostBefore: verb == "extend"} }, after: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				s.fill(1)
				s.visibility, s.faults = 10*time.Second, row.faults
				lost := make(chan time.Duration, 1)
				began := time.Now()
				r := consume(t, s, row.options, func(ctx context.Context, m *Received) error {
					if m.Attempt > 1 {
						return nil
					}
					if row.steal {
						s.mu.Lock()
						s.claimed[0].id[5]++
						s.mu.Unlock()
					}
					err := wait(ctx, time.Hour)
					if !errors.Is(err, ErrClaimLost) {
						t.Errorf("the handler's context ended with %v", err)
					}
					lost <- time.Since(began)
					return err
				})
				if took := <-lost; took < row.after || took > row.after+time.Second {
					t.Errorf("the claim was known to be lost after %v, want %v", took, row.after)
				}
				synctest.Wait()
				if len(s.acks)+len(s.releases) != 0 {
					t.Errorf("a lost message was settled: %v %v", s.acks, s.releases)
				}
				r.until("done", allDone(1))
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestConsumerDrains: what runs is finished and acked, what waits is given back uncounted.
func TestConsumerDrains(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		work, timeout, want time.Duration
		acked, released     int
	}{
		"in time":     {work: 20 * time.Second, timeout: 30 * time.Second, want: 19 * time.Second, acked: 2, released: 8},
		"out of time": {work: time.Hour, timeout: 30 * time.Second, want: 30 * time.Second, acked: 0, released: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				s.fill(10)
				r := consume(t, s, ConsumerOptions{Parallelism: 2, DrainTimeout: row.timeout}, func(ctx context.Context, _ *Received) error {
					return wait(ctx, row.work)
				})
				time.Sleep(time.Second)
				began := time.Now()
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began).Round(100 * time.Millisecond); took != row.want {
					t.Errorf("drained in %v, want %v", took, row.want)
				}
				released := 0
				for _, call := range s.releases {
					if call.CountDelivery == nil || *call.CountDelivery {
						t.Errorf("released with %+v, want it uncounted", call)
					}
					for _, text := range call.Receipts {
						receipt, err := queue.ParseReceipt(text)
						if err != nil {
							t.Fatal(err)
						}
						released += int(receipt.Hi - receipt.Lo)
					}
				}
				if len(s.done) != row.acked || released != row.released || s.inFlight != 0 {
					t.Errorf("%d acked, %d released, %d left in flight, want %d, %d, 0", len(s.done), released, s.inFlight, row.acked, row.released)
				}
			})
		})
	}
}

// TestConsumerStopsDuringClaim: a claim that is granted while the run is told to end is not forgotten:
// its messages are given back.
func TestConsumerStopsDuringClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		r := consume(t, s, ConsumerOptions{}, func(context.Context, *Received) error {
			t.Error("a handler was begun after the end")
			return nil
		})
		time.Sleep(time.Second)
		r.cancel()
		synctest.Wait()
		s.mu.Lock()
		s.fill(3) // the long poll is still open and takes them
		s.mu.Unlock()
		began := time.Now()
		if err := <-r.done; err != nil || time.Since(began) > time.Second {
			t.Errorf("Run ended with %v after %v", err, time.Since(began))
		}
		if s.next != 3 || s.inFlight != 0 || len(s.ready) != 3 {
			t.Errorf("%d claimed, %d in flight, %d given back, want 3, 0, 3", s.next, s.inFlight, len(s.ready))
		}
	})
}

func TestConsumerEnds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		verb string
		code queue.Code
		want error
	}{
		"no subscription at the start": {"billing", queue.CodeSubscriptionNotFound, ErrSubscriptionNotFound},
		"no subscription any more":     {"claims", queue.CodeSubscriptionNotFound, ErrSubscriptionNotFound},
		"no rights":                    {"claims", queue.CodeUnauthorized, ErrUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				s.fill(5)
				s.faults = func(verb string, n int) fault {
					if verb == row.verb && (n > 0 || verb == "billing") {
						return fault{status: row.code.Status(), code: row.code}
					}
					return fault{}
				}
				r := consume(t, s, ConsumerOptions{}, func(context.Context, *Received) error { return nil })
				if err := <-r.done; !errors.Is(err, row.want) {
					t.Errorf("Run gives %v, want %v", err, row.want)
				}
				if s.inFlight != 0 {
					t.Errorf("%d messages of the first claim were neither acked nor released", s.inFlight)
				}
				r.cancel()
			})
		})
	}
}

// TestConsumerOutage: a server that is away for less than the visibility timeout costs no delivery.
func TestConsumerOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		s.fill(20)
		began := time.Now()
		s.faults = func(string, int) fault {
			away := time.Since(began) > time.Second && time.Since(began) < 12*time.Second
			return fault{lostBefore: away}
		}
		r := consume(t, s, ConsumerOptions{Parallelism: 2}, func(ctx context.Context, m *Received) error {
			if m.Attempt != 1 {
				t.Errorf("message %s came again", m.ID)
			}
			return wait(ctx, 700*time.Millisecond)
		})
		r.until("all done", allDone(20))
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestConsumerIdle: empty answers are not asked for in a tight loop.
func TestConsumerIdle(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		wait time.Duration
		most int
	}{"long poll": {0, 8}, "no wait": {-1, 30}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				r := consume(t, s, ConsumerOptions{Wait: row.wait}, nil)
				time.Sleep(time.Minute)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if n := s.count("claims"); n < 5 || n > row.most {
					t.Errorf("%d claims in an idle minute, want at most %d", n, row.most)
				}
			})
		})
	}
}

func TestConsumerByReference(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]int64{"fetched": 0, "opened": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				s.fill(50)
				s.byRef = true
				s.faults = func(verb string, n int) fault { return fault{lostAfter: verb == "get" && n%2 == 0} }
				r := consume(t, s, ConsumerOptions{ByReference: true, FetchBelow: below}, func(ctx context.Context, m *Received) error {
					if (m.Body == nil) != (below < 0) {
						t.Errorf("message %s has body %q", m.ID, m.Body)
					}
					body, err := m.Open(ctx)
					if err != nil {
						return err
					}
					got, err := io.ReadAll(body)
					if err != nil || string(got) != strconv.FormatUint(uint64(m.ID.Offset), 10) {
						t.Errorf("message %s has %q, %v", m.ID, got, err)
					}
					return body.Close()
				})
				r.until("all done", allDone(50))
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if n := s.count("get"); n > 8 {
					t.Errorf("%d requests for the bodies of a few claims: a run is fetched once", n)
				}
			})
		})
	}
}

// TestConsumerDamaged: one damaged message does not cost its neighbours anything.
func TestConsumerDamaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		s.fill(10)
		s.corrupt[0] = true // damages the last record of the frame that starts there, once
		r := consume(t, s, ConsumerOptions{}, func(context.Context, *Received) error { return nil })
		r.until("all done", allDone(10))
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if len(s.releases) == 0 || !strings.Contains(s.releases[0].Reason, "checksum") {
			t.Errorf("releases %+v, want one that names the checksum", s.releases)
		}
	})
}
