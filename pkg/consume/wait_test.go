package consume_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// waited runs one long poll of 20 s and gives what it claimed and how long it took.
func (e *env) waited(topic string) ([]msg, time.Duration) {
	e.t.Helper()
	start := time.Now()
	got := e.claimWith(consume.ClaimRequest{Topic: topic, Wait: queue.MaxWait})
	return got, time.Since(start)
}

// inBubble runs f with a service whose clock is the bubble's; harness appends carry the bubble's time.
func inBubble(t *testing.T, f func(t *testing.T, e *env)) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, options{bubble: true})
		e.now.Store(time.Now().UnixMilli())
		f(t, e)
	})
}

func TestIdleWaitIsCheap(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.topic("a", 1, nil)
		var took time.Duration
		s := e.spent(func() { _, took = e.waited("a") })
		if took != queue.MaxWait {
			t.Errorf("waited %v", took)
		}
		// Looks at 0, 0.1, 0.3, 0.7, 1.2, 1.7 … 19.7 and 20 s.
		wantOps(t, "20 s without a message", s, "get 43, get head 43")
	})
}

// TestIdleWaitOnManySegments: looks at more segments come less often, down to one in 5 s.
func TestIdleWaitOnManySegments(t *testing.T) {
	for segments, want := range map[int]string{
		4:  "get 60, get head 60",   // at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 5.1 … 19.1 and 20 s
		16: "get 160, get head 160", // at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3 … 16.3 and 20 s
	} {
		inBubble(t, func(t *testing.T, e *env) {
			e.topic("a", segments, nil)
			wantOps(t, "20 s without a message", e.spent(func() { e.waited("a") }), want)
		})
	}
}

// TestWaitOnSealedTopic: with no segment open there is still a pause.
func TestWaitOnSealedTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.topic("a", 1, nil).Open = nil
		wantOps(t, "20 s without a message", e.spent(func() { e.waited("a") }), "get 43, get head 43")
	})
}

func TestWaitWakesAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(e *env, m *topics.Map)
	}{
		{"a message comes", func(e *env, m *topics.Map) {
			e.add(m.Open[0], false, numbered(1)...)
			e.hub.Signal(m.ID())
		}},
		{"a message is released", func(e *env, m *topics.Map) {
			e.add(m.Open[0], false, numbered(1)...)
			e.release("a", e.claim("a", 1), consume.Release{})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				// Between two looks of the poll itself, which come after 1.5 and 2.5 s: at one of them it
				// could take the message before tc.do does.
				const at = 2 * time.Second
				m := e.topic("a", 2, nil)
				go func() {
					time.Sleep(at)
					tc.do(e, m)
				}()
				got, took := e.waited("a")
				if len(got) != 1 || took != at {
					t.Errorf("got %d messages after %v", len(got), took)
				}
			})
		})
	}
}

// TestKeyedWaitWakes: who waits for a key hears of it when the key is free.
func TestKeyedWaitWakes(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(e *env, got []msg)
	}{
		{"by an ack", func(e *env, got []msg) { e.ack("a", got) }},
		{"by a release", func(e *env, got []msg) { e.release("a", got, consume.Release{}) }},
		{"by a rejection", func(e *env, got []msg) { e.release("a", got, consume.Release{DeadLetter: true}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.topic("dead", 1, nil)
				_, seg := e.keyed(func(s *meta.Subscription) { s.MaxDeliveries, s.DeadLetterTopic = 5, "dead" })
				e.addKeys(seg, false, "a1 a2")
				got := e.wantClaim("the first", 1, "a1")
				go func() {
					time.Sleep(2500 * time.Millisecond)
					tc.do(e, got)
				}()
				if got, took := e.waited("a"); len(got) == 0 || took != 2500*time.Millisecond {
					t.Errorf("got %d messages after %v", len(got), took)
				}
			})
		})
	}
}

func TestWaitFindsWhatNobodySignals(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		m := e.topic("a", 1, nil)
		go func() {
			time.Sleep(7500 * time.Millisecond)
			e.add(m.Open[0], false, numbered(1)...)
		}()
		if got, took := e.waited("a"); len(got) != 1 || took != 7700*time.Millisecond {
			t.Errorf("got %d messages after %v", len(got), took)
		}
	})
}

func TestWaitWakesWhenSomethingFallsDue(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(e *env, got []msg)
		want time.Duration
	}{
		{"a claim ends", func(*env, []msg) {}, 2 * time.Second},
		{"a released message's delay is over", func(e *env, got []msg) {
			e.release("a", got, consume.Release{HasDelay: true, Delay: 3300 * time.Millisecond})
		}, 3300 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				m := e.topic("a", 1, nil)
				e.add(m.Open[0], false, numbered(1)...)
				tc.do(e, e.claimWith(consume.ClaimRequest{Topic: "a", Visibility: 2 * time.Second}))
				if got, took := e.waited("a"); len(got) != 1 || took != tc.want {
					t.Errorf("got %d messages after %v, want %v", len(got), took, tc.want)
				}
			})
		})
	}
}

// TestReleaseWhileOthersWait: they learn of the delay although they looked before the release.
func TestReleaseWhileOthersWait(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		m := e.topic("a", 1, nil)
		e.add(m.Open[0], false, numbered(1)...)
		held := e.claim("a", 1)
		go func() {
			time.Sleep(8100 * time.Millisecond)
			e.release("a", held, consume.Release{HasDelay: true, Delay: 1200 * time.Millisecond})
		}()
		if got, took := e.waited("a"); len(got) != 1 || took != 9300*time.Millisecond {
			t.Errorf("got %d messages after %v", len(got), took)
		}
	})
}

// TestDelayedBesideDue: a message that is not visible yet is not claimed with one that is, and a poll
// that finds only delayed ones goes on waiting until the first is visible.
func TestDelayedBesideDue(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		m := e.topic("a", 1, func(topic *meta.Topic, _ *meta.Subscription) { topic.Config.DefaultDelay = time.Second })
		start := time.Now()
		visible := []time.Duration{3 * time.Second, 3 * time.Second, 9 * time.Second}
		e.delay.promote = func(now queue.Millis) (int, queue.Millis, error) {
			n := 0
			for len(visible) > 0 && now >= queue.MillisOf(start.Add(visible[0])) {
				e.add(m.Open[0], false, numbered(1)...)
				visible = visible[1:]
				n++
			}
			if len(visible) == 0 {
				return n, 0, nil
			}
			return n, queue.MillisOf(start.Add(visible[0])), nil
		}
		for _, want := range []struct {
			n  int
			at time.Duration
		}{{2, 3 * time.Second}, {1, 9 * time.Second}, {0, 29 * time.Second}} {
			if got, _ := e.waited("a"); len(got) != want.n || time.Since(start) != want.at {
				t.Errorf("got %d messages at %v, want %d at %v", len(got), time.Since(start), want.n, want.at)
			}
		}
	})
}

func TestPromotionFails(t *testing.T) {
	for _, tc := range []struct {
		kind queue.Kind
		code queue.Code
	}{{queue.KindUnavailable, queue.CodeUnavailable}, {queue.KindCorrupt, ""}, {queue.KindConflict, ""}} {
		e := newEnv(t, options{})
		m := e.topic("a", 1, func(topic *meta.Topic, _ *meta.Subscription) { topic.Config.DefaultDelay = time.Second })
		e.delay.promote = func(queue.Millis) (int, queue.Millis, error) {
			return 0, 0, &queue.Error{Op: "promote", Kind: tc.kind}
		}
		_, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
		if tc.code != "" {
			wantCode(t, err, tc.code)
		} else if err != nil {
			t.Error(err)
		}
		e.add(m.Open[0], false, numbered(1)...)
		wantOffsets(t, "what is there", e.claim("a", 1), 0)
	}
}

func TestWaitCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.topic("a", 1, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		start := time.Now()
		_, err := e.svc.Claim(ctx, consume.ClaimRequest{Topic: "a", Subscription: "sub", Wait: queue.MaxWait})
		wantCode(t, err, queue.CodeCanceled)
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// TestWaitWithinABudget: a wait that is longer than its caller has time ends early, with an answer.
func TestWaitWithinABudget(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.topic("a", 1, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		got, err := e.svc.Claim(ctx, consume.ClaimRequest{Topic: "a", Subscription: "sub", Wait: queue.MaxWait})
		if took := time.Since(start); err != nil || len(got.Deliveries) != 0 || took != 2500*time.Millisecond {
			t.Errorf("after %v: %+v, %v", took, got, err)
		}
	})
}

func TestWaitEndsWhenTheTopicGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		m := e.topic("a", 1, nil)
		go func() {
			time.Sleep(time.Second / 2)
			e.names.drop("a")
			e.hub.Signal(m.ID())
		}()
		_, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", Wait: queue.MaxWait})
		wantCode(t, err, queue.CodeTopicNotFound)
	})
}

func TestManyWait(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		m := e.topic("a", 1, nil)
		const n = 20
		got := make(chan int, n)
		for range n {
			go func() {
				ms, _ := e.waited("a")
				got <- len(ms)
			}()
		}
		time.Sleep(500 * time.Millisecond)
		e.add(m.Open[0], false, numbered(5)...)
		e.hub.Signal(m.ID())
		sum := 0
		for range n {
			sum += <-got
		}
		if sum != 5 {
			t.Errorf("%d messages were claimed, want 5", sum)
		}
	})
}

// slow is a store whose reads take 5 ms.
type slow struct{ meta.Store }

func (s slow) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	time.Sleep(5 * time.Millisecond)
	return s.Store.Get(ctx, key)
}

func TestManyEmptySegmentsAreReadTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		const n = 32
		store := slow{e.meta}
		e.svc = consume.New(consume.Deps{
			Meta: store, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids, Clock: time.Now,
			Log: segment.New(segment.Deps{Meta: store, Blob: e.blob, IDs: e.ids, Clock: time.Now}),
		})
		e.topic("a", n, nil)
		start := time.Now()
		s := e.spent(func() { e.claim("a", 10) })
		if took := time.Since(start); took > 80*time.Millisecond {
			t.Errorf("a poll of %d segments took %v", n, took)
		}
		wantOps(t, "poll", s, "get 32, get head 32")
	})
}
