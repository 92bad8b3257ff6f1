package consume_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestClaimAndAck(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(10)...)
	got := e.claim("a", 6)
	wantOffsets(t, "first claim", got, span(0, 6)...)
	for i, g := range got {
		if g.body != "m"+string(rune('0'+i)) || g.attempt != 1 {
			t.Errorf("message %d is %+v", i, g)
		}
	}
	wantOffsets(t, "second claim", e.claim("a", 6), span(6, 10)...)
	wantOffsets(t, "third claim", e.claim("a", 6))
	e.ack("a", got)
	if cur := e.cursor(m, m.Open[0]); cur.Floor != 6 || cur.Next != 10 || len(cur.Claims) != 1 {
		t.Errorf("cursor is %+v", cur)
	}
	e.ack("a", got) // again: no error
}

func TestStoreCalls(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	wantOps(t, "empty poll of a new subscription", e.spent(func() { e.claim("a", 10) }), "get 1, get head 1")
	e.add(seg, false, numbered(10)...)
	var got []msg
	wantOps(t, "first claim", e.spent(func() { got = e.claim("a", 4) }), "get 1, get head 1, get payload 1, take 1")
	wantOps(t, "second claim", e.spent(func() { got = append(got, e.claim("a", 4)...) }), "get cursor 1, get head 1, take 1")
	wantOps(t, "ack of all messages of one claim", e.spent(func() { e.ack("a", got[:4]) }), "settle 1")
	wantOps(t, "ack of half a claim", e.spent(func() { e.ack("a", got[4:6]) }), "settle 1")
	wantOps(t, "release", e.spent(func() { e.release("a", got[6:8], consume.Release{}) }), "get cursor 1, settle 1")
	wantOps(t, "claim of retries and fresh ones", e.spent(func() { got = e.claim("a", 10) }), "get cursor 1, get head 1, take 1")
	wantOffsets(t, "claim of retries and fresh ones", got, 6, 7, 8, 9)
	wantOps(t, "empty poll", e.spent(func() { e.claim("a", 10) }), "get cursor 1, get head 1")
	if n := e.delay.calls.Load(); n != 0 {
		t.Errorf("%d promotions of a topic without delay", n)
	}
}

func TestStoreCallsInPages(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	for range 3 * queue.RollRefs {
		e.add(seg, false, numbered(1)...)
	}
	e.claim("a", 1) // learns where the tail starts, and reads a page
	wantOps(t, "claim within a page that is known", e.spent(func() { e.claim("a", 4) }), "get cursor 1, get payload 4, take 1")
	e.claim("a", queue.RollRefs-5)
	wantOps(t, "claim at the start of the next page", e.spent(func() { e.claim("a", 1) }),
		"get cursor 1, get payload 1, query page 1, take 1")
	e.pass(3 * time.Second)
	wantOps(t, "claim once the head was not seen for a while", e.spent(func() { e.claim("a", 1) }),
		"get cursor 1, get head 1, get payload 1, take 1")
}

func TestClaimAcrossPages(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	n := queue.Offset(3*queue.RollRefs + 7)
	for range n {
		e.add(m.Open[0], false, numbered(1)...)
	}
	wantOffsets(t, "one claim", e.claim("a", 1000), span(0, n)...)
}

func TestClaimSpreadsAndStops(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 4, nil)
	for _, seg := range m.Open {
		e.add(seg, false, numbered(5)...)
	}
	first := make(map[queue.SegmentID]bool)
	for range 20 {
		got := e.claim("a", 1)
		if len(got) != 1 {
			t.Fatalf("claimed %d messages", len(got))
		}
		first[got[0].seg] = true
	}
	if len(first) < 2 {
		t.Error("all claims started at one segment")
	}
	wantOffsets(t, "after all were claimed", e.claim("a", 10))
}

func TestMaxBytes(t *testing.T) {
	big := strings.Repeat("x", 1000)
	for _, tc := range []struct {
		name     string
		batches  [][]rec
		maxBytes int64
		want     []queue.Offset
	}{
		{"whole refs that fit", [][]rec{bodies(big, big), bodies(big, big)}, 4000, span(0, 4)},
		{"a part of a ref", [][]rec{bodies(big, big), bodies(big, big)}, 3500, span(0, 3)},
		{"the first message though larger", [][]rec{bodies(big, big)}, 10, span(0, 1)},
		{"the first message of one though larger", [][]rec{bodies(big), bodies(big)}, 10, span(0, 1)},
		{"nothing that does not fit after it", [][]rec{bodies("1"), bodies(big), bodies("2")}, 100, span(0, 1)},
		{"empty bodies", [][]rec{bodies("", "", ""), bodies("")}, 1, span(0, 4)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			m := e.topic("a", 1, nil)
			for _, b := range tc.batches {
				e.add(m.Open[0], false, b...)
			}
			wantOffsets(t, "claim", e.claimWith(consume.ClaimRequest{Topic: "a", MaxMessages: 100, MaxBytes: tc.maxBytes}), tc.want...)
		})
	}
}

func TestExpiredAreNeverDelivered(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	e.add(seg, false, rec{"gone", time.Minute}, rec{"gone", time.Minute}) // 0, 1
	e.add(seg, false, rec{"a", 0}, rec{"gone", time.Minute}, rec{"b", time.Hour}, rec{"gone", time.Minute}, rec{"c", 0})
	e.add(seg, false, rec{"gone", time.Minute}) // 7
	e.pass(time.Minute)
	got := e.claim("a", 100)
	wantOffsets(t, "claim", got, 2, 4, 6)
	e.ack("a", got)
	if cur := e.cursor(m, seg); cur.Floor != 8 || len(cur.Done) != 0 {
		t.Errorf("what expired is not done: %+v", cur)
	}
	wantOps(t, "poll afterwards", e.spent(func() { e.claim("a", 1) }), "get cursor 1, get head 1")
}

func TestExpiredWhileHidden(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, rec{"a", time.Minute}, rec{"b", 0}, rec{"c", 2 * time.Minute})
	got := e.claim("a", 10)
	e.release("a", got[2:], consume.Release{HasDelay: true, Delay: 10 * time.Minute})
	e.pass(10 * time.Minute)
	wantOffsets(t, "after their ttl", e.claim("a", 10), 1)
	if cur := e.cursor(m, m.Open[0]); cur.Floor != 1 || len(cur.Retries) != 0 {
		t.Errorf("cursor is %+v", cur)
	}
}

func TestOnlyExpired(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	for range 100 {
		e.add(m.Open[0], false, rec{"gone", time.Second})
	}
	e.add(m.Open[0], false, rec{"here", 0})
	e.pass(time.Second)
	wantOffsets(t, "claim behind a desert", e.claim("a", 10), 100)
}

func TestTruncated(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	e.add(seg, false, numbered(10)...)
	got := e.claim("a", 2)
	e.truncate(seg, 5)
	wantOffsets(t, "claim after truncation", e.claim("a", 3), 5, 6, 7)
	e.pass(time.Minute) // both claims end: 0 and 1 are gone, 5..8 are cut
	wantOffsets(t, "what is left", e.claim("a", 10), 5, 8, 9)
	if cur := e.cursor(m, seg); cur.Floor != 5 {
		t.Errorf("truncated messages are not done: %+v", cur)
	}
	errs, err := e.svc.Ack(context.Background(), "a", "sub", receipts(got))
	e.noErrors("ack of what was truncated while in flight", errs, err)
}

func (e *env) truncate(seg *meta.Segment, start queue.Offset) {
	e.t.Helper()
	h, _, err := meta.Fetch[*meta.Head](context.Background(), e.bare, meta.HeadKey(seg.ID))
	if err != nil {
		e.t.Fatal(err)
	}
	next := *h
	next.Start = start
	e.put(&next)
}

func TestTruncatedInPages(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	for range 2*queue.RollRefs + 5 {
		e.add(seg, false, numbered(1)...)
	}
	e.claim("a", 1)
	e.truncate(seg, queue.RollRefs+3)
	e.pass(3 * time.Second)
	wantOffsets(t, "claim", e.claim("a", 2), queue.RollRefs+3, queue.RollRefs+4)
}

func TestStartOfSubscription(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	e.add(seg, false, numbered(10)...)
	m.Subscriptions["sub"].Cut = map[queue.SegmentID]queue.Offset{seg.ID: 7}
	wantOffsets(t, "claim", e.claim("a", 10), 7, 8, 9)
	if cur := e.cursor(m, seg); cur.Floor != 7 {
		t.Errorf("floor is %d", cur.Floor)
	}
}

func TestSealedSegmentsAreReadToTheirEnd(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 2, nil)
	seg, empty := m.Open[0], m.Open[1]
	e.add(seg, false, numbered(3)...)
	for _, s := range m.Open {
		s.Sealed = 1
		if _, err := e.bare.Apply(context.Background(), meta.Seal{Segment: s.ID, Epoch: 1}); err != nil {
			t.Fatal(err)
		}
	}
	_ = empty
	got := e.claim("a", 10)
	wantOffsets(t, "claim", got, 0, 1, 2)
	e.ack("a", got)
	e.claim("a", 10)
	if n := e.spent(func() { e.claim("a", 10) }).Calls(); n != 0 {
		t.Errorf("%d calls for segments that are sealed and drained", n)
	}
}

func TestNewSegmentsAreFoundWhenASealIsMet(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	if _, err := e.bare.Apply(context.Background(), meta.Seal{Segment: m.Open[0].ID, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	next := e.topic("b", 1, nil)
	e.add(next.Open[0], false, numbered(1)...)
	after := *m
	after.Segments = append(after.Segments[:1:1], next.Segments...)
	e.names.onReload = func() { e.names.maps["a"] = &after }
	wantOffsets(t, "claim", e.claim("a", 10), 0)
}

func wantLimit(t *testing.T, err error, limit int) {
	t.Helper()
	var e *queue.Error
	if !errors.As(err, &e) {
		t.Errorf("%v cites no limit", err)
	} else if e.Limit != limit {
		t.Errorf("%v cites the limit %v, want %d", err, e.Limit, limit)
	}
}

func TestLimits(t *testing.T) {
	t.Run("messages in flight", func(t *testing.T) {
		e := newEnv(t, options{})
		m := e.topic("a", 1, func(_ *meta.Topic, s *meta.Subscription) { s.MaxInFlight = 5 })
		e.add(m.Open[0], false, numbered(10)...)
		got := e.claim("a", 10)
		wantOffsets(t, "claim", got, span(0, 5)...)
		var err error
		wantOps(t, "claim past the limit", e.spent(func() {
			_, err = e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", Wait: time.Second})
		}), "get cursor 1, get head 1")
		wantCode(t, err, queue.CodeTooManyInFlight)
		wantLimit(t, err, 5)
		e.ack("a", got[:1])
		wantOffsets(t, "claim after an ack", e.claim("a", 10), 5)
		e.release("a", got[1:2], consume.Release{})
		wantOffsets(t, "claim after a release", e.claim("a", 10), 1)
		e.pass(time.Minute)
		if got := e.claim("a", 10); len(got) == 0 {
			t.Error("expired claims are kept back by the limit that they fill")
		}
	})
	t.Run("entries of a cursor", func(t *testing.T) {
		e := newEnv(t, options{})
		m := e.topic("a", 1, func(_ *meta.Topic, s *meta.Subscription) { s.MaxInFlight = queue.MaxMaxInFlight })
		seg := m.Open[0]
		e.add(seg, false, numbered(queue.MaxBatchRecords)...)
		got := e.claim("a", queue.MaxBatchRecords)
		var odd []msg
		for i := 1; i < len(got); i += 2 {
			odd = append(odd, got[i])
		}
		e.ack("a", odd[:queue.MaxCursorEntries/2])
		e.add(seg, false, numbered(1)...)
		_, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
		wantCode(t, err, queue.CodeTooManyInFlight)
		wantLimit(t, err, queue.MaxCursorEntries) // not MaxInFlight, which is far away
		e.pass(time.Minute)
		if got := e.claim("a", 10); len(got) == 0 {
			t.Error("a cursor that is full of expired claims is stuck")
		}
	})
	t.Run("nothing there is no error", func(t *testing.T) {
		e := newEnv(t, options{})
		m := e.topic("a", 1, func(_ *meta.Topic, s *meta.Subscription) { s.MaxInFlight = 1 })
		e.add(m.Open[0], false, numbered(1)...)
		e.claim("a", 1)
		wantOffsets(t, "claim", e.claim("a", 1))
	})
}

func TestClaimArguments(t *testing.T) {
	e := newEnv(t, options{})
	e.topic("a", 1, nil)
	for _, tc := range []struct {
		name string
		req  consume.ClaimRequest
		code queue.Code
	}{
		{"no such topic", consume.ClaimRequest{Topic: "x", Subscription: "sub"}, queue.CodeTopicNotFound},
		{"no such subscription", consume.ClaimRequest{Topic: "a", Subscription: "x"}, queue.CodeSubscriptionNotFound},
		{"max_messages", consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxMessages: queue.MaxClaimMessages + 1}, queue.CodeInvalidArgument},
		{"max_bytes", consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxBytes: queue.MaxClaimBytes + 1}, queue.CodeInvalidArgument},
		{"wait", consume.ClaimRequest{Topic: "a", Subscription: "sub", Wait: queue.MaxWait + 1}, queue.CodeInvalidArgument},
		{"visibility", consume.ClaimRequest{Topic: "a", Subscription: "sub", Visibility: time.Millisecond}, queue.CodeInvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := e.svc.Claim(t.Context(), tc.req)
			wantCode(t, err, tc.code)
		})
	}
}

func TestVisibility(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(2)...)
	own := e.claimWith(consume.ClaimRequest{Topic: "a", MaxMessages: 1, Visibility: 5 * time.Second})
	e.claim("a", 1)
	e.pass(5*time.Second - time.Millisecond)
	wantOffsets(t, "before its own timeout", e.claim("a", 10))
	e.pass(time.Millisecond)
	again := e.claim("a", 10)
	wantOffsets(t, "after its own timeout", again, 0)
	if again[0].attempt != 2 {
		t.Errorf("attempt is %d", again[0].attempt)
	}
	errs, err := e.svc.Ack(t.Context(), "a", "sub", receipts(own))
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, errs[0], queue.CodeClaimLost)
	e.ack("a", again)
}

// TestSubscriptionsAreApart: what one does with a message is nothing to another.
func TestSubscriptionsAreApart(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], true, numbered(3)...)
	second := *m.Subscriptions["sub"]
	second.Name, second.ID = "second", e.ids.Subscription()
	m.Subscriptions["second"] = &second
	got := e.claim("a", 10)
	e.ack("a", got)
	other := e.claimWith(consume.ClaimRequest{Topic: "a", Subscription: "second"})
	wantOffsets(t, "the other's", other, 0, 1, 2)
	errs, err := e.svc.Ack(t.Context(), "a", "second", receipts(got))
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, errs[0], queue.CodeClaimLost)
}
