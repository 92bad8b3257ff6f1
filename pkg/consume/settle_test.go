package consume_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestAckAnswersPerReceipt(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 2, nil)
	e.add(m.Open[0], false, numbered(4)...)
	e.add(m.Open[1], false, numbered(4)...)
	got := e.claim("a", 8)
	unknown := got[6].receipt()
	unknown.Claim[0]++
	foreign := got[0].receipt()
	foreign.Segment = e.ids.Segment()
	backwards := got[0].receipt()
	backwards.Lo, backwards.Hi = 3, 3
	whole := queue.Receipt{Segment: got[0].seg, Claim: got[0].claim, Lo: 0, Hi: 4}
	past := queue.Receipt{Segment: got[0].seg, Claim: got[0].claim, Lo: 2, Hi: 5}
	list := []queue.Receipt{unknown, got[0].receipt(), foreign, got[5].receipt(), backwards, whole, past, got[0].receipt()}
	var errs []error
	s := e.spent(func() {
		var err error
		if errs, err = e.svc.Ack(t.Context(), "a", "sub", list); err != nil {
			t.Fatal(err)
		}
	})
	wantOps(t, "ack", s, "settle 3")
	want := []queue.Code{queue.CodeClaimLost, "", queue.CodeClaimLost, "", queue.CodeInvalidArgument, "", queue.CodeClaimLost, ""}
	for i, err := range errs {
		if (err == nil) != (want[i] == "") || err != nil && queue.CodeOf(err) != want[i] {
			t.Errorf("receipt %d: %v, want %q", i, err, want[i])
		}
	}
	if cur := e.cursor(m, m.Segment(got[0].seg)); cur.Floor != 4 {
		t.Errorf("cursor is %+v", cur)
	}
}

func TestAckOfManyIsOneSettlePerClaim(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(100)...)
	var got []msg
	for range 10 {
		got = append(got, e.claim("a", 10)...)
	}
	wantOps(t, "ack", e.spent(func() { e.ack("a", got) }), "settle 10")
	if cur := e.cursor(m, m.Open[0]); cur.Floor != 100 || len(cur.Done) != 0 {
		t.Errorf("cursor is %+v", cur)
	}
}

// TestGapsSurvive: what was acked behind a gap is not fetched again, by another process either.
func TestGapsSurvive(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(9)...)
	got := e.claim("a", 9)
	e.ack("a", []msg{got[1], got[3], got[4], got[8]})
	e.pass(30 * time.Second)
	var again []queue.Offset
	for range 6 {
		again = append(again, offsets(e.claim("a", 10))...)
	}
	if fmt.Sprint(again) != "[0 2 5 6 7]" {
		t.Errorf("redelivered %v", again)
	}
}

func TestExtend(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(3)...)
	got := e.claim("a", 3)
	e.ack("a", got[2:])
	errs, err := e.svc.Extend(t.Context(), "a", "sub", receipts(got), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if errs[0] != nil || errs[1] != nil {
		t.Errorf("extend: %v", errs)
	}
	wantCode(t, errs[2], queue.CodeClaimLost)
	e.pass(time.Minute - time.Millisecond)
	wantOffsets(t, "before the end", e.claim("a", 10))
	e.pass(time.Millisecond)
	wantOffsets(t, "at the end", e.claim("a", 10), 0)
	_, err = e.svc.Extend(t.Context(), "a", "sub", receipts(got), 13*time.Hour)
	wantCode(t, err, queue.CodeInvalidArgument)
}

func TestExtendDoesNotBlockAcks(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(10)...)
	got := e.claim("a", 10)
	errs, err := e.svc.Extend(t.Context(), "a", "sub", receipts(got[2:8]), time.Hour)
	e.noErrors("extend", errs, err)
	e.ack("a", got)
	if cur := e.cursor(m, m.Open[0]); cur.Floor != 10 || len(cur.Claims) != 0 {
		t.Errorf("cursor is %+v", cur)
	}
}

func TestReleaseDelays(t *testing.T) {
	backoff := func(_ *meta.Topic, s *meta.Subscription) { s.Backoff = []time.Duration{time.Second, time.Minute} }
	for _, tc := range []struct {
		name   string
		change func(*meta.Topic, *meta.Subscription)
		how    consume.Release
		want   []time.Duration // after the first, second and third delivery
	}{
		{"at once", nil, consume.Release{}, []time.Duration{0, 0, 0}},
		{"own delay", nil, consume.Release{HasDelay: true, Delay: 5 * time.Second}, []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}},
		{"backoff", backoff, consume.Release{}, []time.Duration{time.Second, time.Minute, time.Minute}},
		{"own delay over backoff", backoff, consume.Release{HasDelay: true}, []time.Duration{0, 0, 0}},
		{"uncounted", backoff, consume.Release{Uncounted: true}, []time.Duration{time.Second, time.Second, time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			m := e.topic("a", 1, tc.change)
			e.add(m.Open[0], false, numbered(1)...)
			for i, d := range tc.want {
				got := e.claim("a", 1)
				want := uint32(i + 1)
				if tc.how.Uncounted {
					want = 1
				}
				if len(got) != 1 || got[0].attempt != want {
					t.Fatalf("delivery %d: %+v", i+1, got)
				}
				e.release("a", got, tc.how)
				if d > 0 {
					e.pass(d - time.Millisecond)
					wantOffsets(t, "before the delay is over", e.claim("a", 1))
					e.pass(time.Millisecond)
				}
			}
		})
	}
}

func TestReleaseArguments(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(1)...)
	rs := receipts(e.claim("a", 1))
	for name, how := range map[string]consume.Release{
		"delay":         {HasDelay: true, Delay: 13 * time.Hour},
		"reason":        {Reason: strings.Repeat("x", 257)},
		"reason's text": {Reason: "\xff"},
	} {
		_, err := e.svc.Release(t.Context(), "a", "sub", rs, how)
		if queue.CodeOf(err) != queue.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := e.svc.Ack(t.Context(), "a", "sub", nil)
	wantCode(t, err, queue.CodeInvalidArgument)
	_, err = e.svc.Ack(t.Context(), "a", "sub", make([]queue.Receipt, queue.MaxReceipts+1))
	wantCode(t, err, queue.CodeInvalidArgument)
}

func TestReleaseTwice(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(2)...)
	got := e.claim("a", 2)
	e.release("a", got[:1], consume.Release{})
	errs, err := e.svc.Release(t.Context(), "a", "sub", receipts(got), consume.Release{})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, errs[0], queue.CodeClaimLost)
	if errs[1] != nil {
		t.Error(errs[1])
	}
}

// TestManyReasons: reasons may not make a cursor too large to be written.
func TestManyReasons(t *testing.T) {
	const n = 4000
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(n)...)
	got := e.claim("a", n)
	var odd []msg
	for i := 0; i < n; i += 2 {
		odd = append(odd, got[i])
	}
	e.release("a", odd, consume.Release{Reason: strings.Repeat("x", 256)})
	if cur := e.cursor(m, m.Open[0]); len(cur.Retries) != n/2 {
		t.Errorf("%d retries", len(cur.Retries))
	}
}

// TestReceiptsOfUnknownSegments: they are lost, and cost one look at the topic however many they are;
// a segment that is only new to this process is found by it.
func TestReceiptsOfUnknownSegments(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(1)...)
	got := e.claim("a", 1)
	stale := *m
	stale.Segments, stale.Open = nil, nil
	e.names.maps["a"] = &stale
	e.names.onReload = func() { e.names.maps["a"] = m }
	list := []queue.Receipt{{Segment: e.ids.Segment(), Hi: 1}, got[0].receipt(), {Segment: e.ids.Segment(), Hi: 1}}
	errs, err := e.svc.Ack(t.Context(), "a", "sub", list)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, errs[0], queue.CodeClaimLost)
	wantCode(t, errs[2], queue.CodeClaimLost)
	if errs[1] != nil || e.names.reloads != 1 {
		t.Errorf("ack: %v, %d reloads", errs[1], e.names.reloads)
	}
}

// TestReceiptsOfDeletedSubscription: the same, but the new subscription is gone by now: nothing was acked.
func TestReceiptsOfDeletedSubscription(t *testing.T) {
	e := newEnv(t, options{})
	old := e.topic("a", 1, nil)
	e.add(old.Open[0], false, numbered(1)...)
	e.ack("a", e.claim("a", 1))
	sub := *old.Subscriptions["sub"]
	sub.ID = e.ids.Subscription()
	anew, gone := *old, *old
	anew.Subscriptions = map[string]*meta.Subscription{"sub": &sub}
	gone.Subscriptions = nil
	e.names.maps["a"] = &anew
	list := []queue.Receipt{e.claim("a", 1)[0].receipt()}
	e.names.maps["a"] = old
	e.names.onReload = func() { e.names.maps["a"] = &gone }
	errs, err := e.svc.Ack(t.Context(), "a", "sub", list)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, errs[0], queue.CodeSubscriptionNotFound)
}

// TestReceiptsOfMovedSubscription: a process that has not yet heard that a subscription was moved, and so
// has a new id, must not judge receipts of the new one by what is done under the old one.
func TestReceiptsOfMovedSubscription(t *testing.T) {
	for _, act := range []string{"ack", "extend", "release"} {
		t.Run(act, func(t *testing.T) {
			e := newEnv(t, options{})
			old := e.topic("a", 1, nil)
			e.add(old.Open[0], false, numbered(1)...)
			e.ack("a", e.claim("a", 1))
			sub := *old.Subscriptions["sub"]
			sub.ID = e.ids.Subscription()
			moved := *old
			moved.Subscriptions = map[string]*meta.Subscription{"sub": &sub}
			e.names.maps["a"] = &moved
			list := []queue.Receipt{e.claim("a", 1)[0].receipt()}
			e.names.maps["a"] = old
			e.names.onReload = func() { e.names.maps["a"] = &moved }
			var errs []error
			var err error
			switch act {
			case "ack":
				errs, err = e.svc.Ack(t.Context(), "a", "sub", list)
			case "extend":
				errs, err = e.svc.Extend(t.Context(), "a", "sub", list, time.Hour)
			case "release":
				errs, err = e.svc.Release(t.Context(), "a", "sub", list, consume.Release{})
			}
			if err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
			cur := e.cursor(&moved, old.Open[0])
			part := meta.Part{}
			if c := cur.Claims[list[0].Claim]; len(c.Parts) > 0 {
				part = c.Parts[0]
			}
			if ok := map[string]bool{
				"ack": cur.Floor == 1, "extend": part.Expires.Sub(e.clock()) > time.Minute, "release": len(cur.Retries) == 1,
			}; !ok[act] {
				t.Errorf("the cursor is %+v", cur)
			}
		})
	}
}
