package consume_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// holds watches what consumers hold: no message may be held twice at once, or come back once acked.
type holds struct {
	t     *testing.T
	mu    sync.Mutex // guards all below
	held  map[queue.MessageID]queue.ClaimID
	acked map[queue.MessageID]bool
}

func (h *holds) take(ms []msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range ms {
		id := queue.MessageID{Segment: m.seg, Offset: m.off}
		if other, ok := h.held[id]; ok {
			h.t.Errorf("message %s is held by %s and %s", id, other, m.claim)
		}
		if h.acked[id] {
			h.t.Errorf("message %s was acked and came back", id)
		}
		h.held[id] = m.claim
	}
}

// drop is called before the call that ends the hold: after it another may have the message.
func (h *holds) drop(ms []msg, acked bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range ms {
		id := queue.MessageID{Segment: m.seg, Offset: m.off}
		delete(h.held, id)
		if acked {
			h.acked[id] = true
		}
	}
}

// TestManyConsumers lets 16 consumers of two processes work on 4 segments while messages come in: each
// message is acked once, and none is held twice at one time.
func TestManyConsumers(t *testing.T) {
	const consumers, segments, batches, perBatch = 16, 4, 30, 5
	const total = segments * batches * perBatch
	e := newEnv(t, options{})
	m := e.topic("a", segments, nil)
	clock := queue.Clock(func() time.Time { return time.UnixMilli(e.now.Load()) })
	other := consume.New(consume.Deps{
		Meta: e.meta, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: notify.NewHub(), IDs: e.ids, Clock: clock,
		Log: segment.New(segment.Deps{Meta: e.meta, Blob: e.blob, IDs: e.ids, Clock: clock}),
	})
	h := &holds{t: t, held: make(map[queue.MessageID]queue.ClaimID), acked: make(map[queue.MessageID]bool)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range batches {
			for _, seg := range m.Open {
				e.add(seg, i%7 == 0, numbered(perBatch)...)
			}
		}
	})
	for c := range consumers {
		svc := e.svc
		if c%2 == 0 {
			svc = other
		}
		wg.Go(func() { consumeAll(t, svc, h, total, rand.New(rand.NewPCG(uint64(c), 7))) })
	}
	wg.Wait()
	if len(h.acked) != total {
		t.Errorf("%d messages were acked, want %d", len(h.acked), total)
	}
	for _, seg := range m.Open {
		cur := e.cursor(m, seg)
		if err := cur.Check(); err != nil {
			t.Error(err)
		}
		if cur.Floor != batches*perBatch || len(cur.Claims)+len(cur.Retries)+len(cur.Done) != 0 {
			t.Errorf("cursor is %+v", cur)
		}
	}
}

func consumeAll(t *testing.T, svc *consume.Service, h *holds, total int, rng *rand.Rand) {
	for range 100_000 {
		h.mu.Lock()
		done := len(h.acked) == total
		h.mu.Unlock()
		if done {
			return
		}
		got, err := svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxMessages: 1 + rng.IntN(12)})
		if queue.Is(err, queue.KindThrottled) {
			continue
		}
		if err != nil {
			t.Errorf("claim: %v", err)
			return
		}
		ms := messages(t, got.Deliveries)
		h.take(ms)
		if len(ms) == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		n := rng.IntN(len(ms) + 1)
		if n < len(ms) {
			h.drop(ms[n:], false)
			errs, err := svc.Release(t.Context(), "a", "sub", receipts(ms[n:]), consume.Release{Uncounted: rng.IntN(2) == 0})
			wantNone(t, "release", errs, err)
		}
		if n > 0 {
			h.drop(ms[:n], true)
			errs, err := svc.Ack(t.Context(), "a", "sub", receipts(ms[:n]))
			wantNone(t, "ack", errs, err)
		}
	}
	t.Error("the messages never end")
}

func wantNone(t *testing.T, what string, errs []error, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestClaimersOfOneProcessDoNotConflict: they take turns, so none of their updates is refused.
func TestClaimersOfOneProcessDoNotConflict(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(400)...)
	var wg sync.WaitGroup
	s := e.spent(func() {
		for range 8 {
			wg.Go(func() {
				for range 5 {
					got, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
					if err != nil || len(got.Deliveries) == 0 {
						t.Errorf("claim: %v", err)
					}
				}
			})
		}
		wg.Wait()
	})
	if take := s.Row("take"); take.Ops != 40 || take.Refusals != 0 {
		t.Errorf("%d takes, %d refused", take.Ops, take.Refusals)
	}
}

// TestRefusedTakeNeedsNoRead: what a claimer of another process left is planned from the refusal.
func TestRefusedTakeNeedsNoRead(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(e *env) // the rival's work, between our read and our take
		after  []queue.Offset
	}{
		{"next has moved", func(e *env) { e.claim("a", 2) }, []queue.Offset{2, 3}},
		{"the cursor was created", func(e *env) { e.claim("a", 1) }, []queue.Offset{1, 2}},
		{"all is taken", func(e *env) { e.claim("a", 10) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			m := e.topic("a", 1, nil)
			e.add(m.Open[0], false, numbered(6)...)
			store := &interposer{Store: e.meta}
			clock := queue.Clock(func() time.Time { return time.UnixMilli(e.now.Load()) })
			e.svc = consume.New(consume.Deps{
				Meta: store, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids, Clock: clock,
				Log: segment.New(segment.Deps{Meta: e.meta, Blob: e.blob, IDs: e.ids, Clock: clock}),
			})
			ours := e.svc
			store.take = func() {
				e.second()
				tc.before(e)
				e.svc = ours
			}
			var got []msg
			s := e.spent(func() { got = e.claim("a", 2) })
			wantOffsets(t, "claim", got, tc.after...)
			if n := s.Ops("get cursor") + s.Ops("get"); n != 1 {
				t.Errorf("%d reads of the cursor", n)
			}
			if n := s.Row("take").Refusals; n != 1 {
				t.Errorf("%d refusals", n)
			}
		})
	}
}

// TestTakeoverRaces: the holder of an expired claim is heard between our read and our take.
func TestTakeoverRaces(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(e *env, held []msg)
		want   []queue.Offset // claimed by us
		floor  queue.Offset   // once we have acked that
	}{
		{"acks all", func(e *env, held []msg) { e.ack("a", held) }, nil, 4},
		{"acks a part", func(e *env, held []msg) { e.ack("a", held[:2]) }, []queue.Offset{2}, 3},
		{"extends", func(e *env, held []msg) {
			errs, err := e.svc.Extend(context.Background(), "a", "sub", receipts(held), time.Minute)
			e.noErrors("extend", errs, err)
		}, nil, 0},
		{"releases one", func(e *env, held []msg) { e.release("a", held[3:], consume.Release{}) }, []queue.Offset{0, 3}, 1},
		{"is taken over by another", func(e *env, _ []msg) { e.claim("a", 1) }, []queue.Offset{1, 2}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			m := e.topic("a", 1, nil)
			e.add(m.Open[0], false, numbered(4)...)
			held := e.claim("a", 4)
			e.pass(30 * time.Second)
			store := &interposer{Store: e.meta}
			clock := queue.Clock(func() time.Time { return time.UnixMilli(e.now.Load()) })
			ours := consume.New(consume.Deps{
				Meta: store, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids, Clock: clock,
				Log: segment.New(segment.Deps{Meta: e.meta, Blob: e.blob, IDs: e.ids, Clock: clock}),
			})
			e.second()
			theirs := e.svc
			store.take = func() {
				e.svc = theirs
				tc.before(e, held)
				e.svc = ours
			}
			e.svc = ours
			got := e.claim("a", 10)
			wantOffsets(t, "claim", got, tc.want...)
			if len(got) > 0 {
				e.ack("a", got)
			}
			e.sound(m)
			if cur := e.cursor(m, m.Open[0]); cur.Floor != tc.floor {
				t.Errorf("cursor is %+v", cur)
			}
		})
	}
}

// interposer does something before the first take.
type interposer struct {
	meta.Store
	take func()
}

func (i *interposer) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if f := i.take; f != nil && op.Name() == "take" {
		i.take = nil
		f()
	}
	return i.Store.Apply(ctx, op)
}
