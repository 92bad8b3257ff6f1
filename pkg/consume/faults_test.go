package consume_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// second gives e a service on the bare stores: the next process.
func (e *env) second() {
	clock := queue.Clock(func() time.Time { return time.UnixMilli(e.now.Load()) })
	e.svc = consume.New(consume.Deps{
		Meta: e.bare, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids, Clock: clock,
		Log: segment.New(segment.Deps{Meta: e.bare, Blob: e.bareBlob, IDs: e.ids, Clock: clock}),
	})
}

// drain plays the next process until nothing is left: all that "a" still holds is claimed and acked.
// It gives the bodies that were delivered meanwhile, and those of the dead-letter topic.
func (e *env) drain() (delivered, dead []string) {
	e.t.Helper()
	e.second()
	for range 60 {
		e.pass(5 * time.Minute)
		got := e.claim("a", 100)
		for _, m := range got {
			delivered = append(delivered, m.body)
		}
		if len(got) > 0 {
			e.ack("a", got)
		}
	}
	m := e.names.maps["a"]
	for _, seg := range m.Open {
		h, err := e.log.Head(context.Background(), seg.ID)
		if err != nil {
			e.t.Fatal(err)
		}
		cur := e.cursor(m, seg)
		if cur == nil || cur.Floor != h.Next || len(cur.Claims)+len(cur.Retries) != 0 {
			e.t.Errorf("something is stuck: %+v, the segment ends at %d", cur, h.Next)
		}
		e.sound(m)
	}
	if e.names.maps["dead"] == nil {
		return delivered, nil
	}
	got, err := e.svc.Peek(context.Background(), consume.PeekRequest{Topic: "dead", Limit: 1000})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, m := range messages(e.t, got.Deliveries) {
		dead = append(dead, m.body)
	}
	return delivered, dead
}

// sound checks that the cursors of a topic hold every offset in one place.
func (e *env) sound(m *topics.Map) {
	e.t.Helper()
	for _, seg := range m.Open {
		if cur := e.cursor(m, seg); cur != nil {
			if err := cur.Check(); err != nil {
				e.t.Errorf("cursor of %s: %v", seg.ID, err)
			}
		}
	}
}

// accounted checks that each message is accounted for. It must be in exactly one of: acked, delivered to the next process (and acked there), or
// the dead-letter topic. What a failed call may have done goes either way.
func (e *env) accounted(n int, acked map[string]bool) {
	e.t.Helper()
	delivered, dead := e.drain()
	seen := make(map[string]int)
	for body := range acked {
		seen[body]++
	}
	for _, body := range delivered {
		seen[body]++
	}
	for _, body := range dead {
		seen[body]++
	}
	for i := range n {
		if body := fmt.Sprintf("m%d", i); seen[body] != 1 {
			e.t.Errorf("%s left %d times (acked %v, delivered %v, dead %v)", body, seen[body], acked[body], slices.Contains(delivered, body), slices.Contains(dead, body))
		}
	}
}

// eachStep runs each scenario in a bubble, where the pauses between tries take no time. Besides the
// standard faults a store's client may send a request twice and give the second answer.
func eachStep(t *testing.T, scenario func(*testing.T, *fault.Plan)) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		synctest.Test(t, func(t *testing.T) { scenario(t, plan) })
	}, append(fault.Standard(), fault.Repeat)...)
}

func TestFaultsOfClaim(t *testing.T) {
	eachStep(t, func(t *testing.T, plan *fault.Plan) {
		e := newEnv(t, options{plan: plan})
		m := e.topic("a", 1, nil)
		e.add(m.Open[0], false, rec{"m0", 0}, rec{"m1", 0})
		e.add(m.Open[0], false, rec{"gone", time.Millisecond})
		e.add(m.Open[0], true, rec{"m2", 0})
		e.pass(time.Second)
		got, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
		ms := messages(t, got.Deliveries)
		if err == nil && len(plan.Fired()) == 0 && len(ms) != 3 {
			t.Errorf("claimed %v", ms)
		}
		if err != nil && len(ms) != 0 {
			t.Errorf("messages with an error: %v", err)
		}
		// What was delivered is held: nobody else gets it before its time.
		e.second()
		for _, other := range e.claim("a", 10) {
			if slices.ContainsFunc(ms, func(m msg) bool { return m.off == other.off }) {
				t.Errorf("message %d is in two live claims", other.off)
			}
		}
		e.sound(m)
		e.accounted(3, nil)
	})
}

func TestFaultsOfRedelivery(t *testing.T) {
	eachStep(t, func(t *testing.T, plan *fault.Plan) {
		e := newEnv(t, options{plan: plan})
		m := e.topic("a", 1, nil)
		e.add(m.Open[0], false, numbered(8)...)
		first := e.svc
		e.second()
		got := e.claim("a", 6)
		e.release("a", got[:2], consume.Release{})
		e.pass(time.Minute)
		e.svc = first
		again, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
		if err != nil && len(again.Deliveries) > 0 {
			t.Error("messages with an error")
		}
		ms := messages(t, again.Deliveries)
		e.second()
		for _, other := range append(e.claim("a", 10), e.claim("a", 10)...) {
			if slices.ContainsFunc(ms, func(m msg) bool { return m.off == other.off }) {
				t.Errorf("message %d is in two live claims", other.off)
			}
		}
		e.sound(m)
		e.accounted(8, nil)
	})
}

func TestFaultsOfAck(t *testing.T) {
	eachStep(t, func(t *testing.T, plan *fault.Plan) {
		e := newEnv(t, options{plan: plan})
		m := e.topic("a", 1, nil)
		e.add(m.Open[0], false, numbered(6)...)
		first := e.svc
		e.second()
		got := append(e.claim("a", 3), e.claim("a", 3)...)
		e.svc = first
		list := []msg{got[0], got[1], got[4]}
		errs, err := e.svc.Ack(t.Context(), "a", "sub", receipts(list))
		if err != nil {
			t.Fatal(err)
		}
		acked := make(map[string]bool)
		for i := range list {
			// An error other than a clear answer leaves it open.
			if errs[i] == nil || e.cursor(m, m.Open[0]).IsDone(list[i].off) {
				acked[list[i].body] = true
			}
			if queue.CodeOf(errs[i]) == queue.CodeClaimLost {
				t.Errorf("receipt %d: %v", i, errs[i])
			}
		}
		if !plan.Crashed() && len(acked) != 3 {
			t.Errorf("a store that failed once kept acks from being made: %v", errs)
		}
		e.sound(m)
		e.accounted(6, acked)
	})
}

func TestFaultsOfRelease(t *testing.T) {
	eachStep(t, func(t *testing.T, plan *fault.Plan) {
		e := newEnv(t, options{plan: plan})
		m := e.topic("a", 1, nil)
		e.add(m.Open[0], false, numbered(4)...)
		first := e.svc
		e.second()
		got := e.claim("a", 4)
		e.svc = first
		errs, err := e.svc.Release(t.Context(), "a", "sub", receipts(got[1:3]), consume.Release{Reason: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if !plan.Crashed() && (errs[0] != nil || errs[1] != nil) {
			t.Errorf("a store that failed once kept a release from being made: %v", errs)
		}
		if errs[0] == nil {
			e.second()
			wantOffsets(t, "released", e.claim("a", 10), 1, 2)
		}
		e.sound(m)
		e.accounted(4, nil)
	})
}

func TestFaultsOfExtend(t *testing.T) {
	eachStep(t, func(t *testing.T, plan *fault.Plan) {
		e := newEnv(t, options{plan: plan})
		m := e.topic("a", 1, nil)
		e.add(m.Open[0], false, numbered(4)...)
		first := e.svc
		e.second()
		got := e.claim("a", 4)
		e.svc = first
		errs, err := e.svc.Extend(t.Context(), "a", "sub", receipts(got), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if errs[0] == nil {
			e.second()
			e.pass(59 * time.Minute)
			wantOffsets(t, "while extended", e.claim("a", 10))
		} else if !plan.Crashed() {
			t.Error(errs[0])
		}
		e.sound(m)
		e.accounted(4, nil)
	})
}

func TestFaultsOfDeadLetterAtRelease(t *testing.T) {
	eachStep(t, func(t *testing.T, plan *fault.Plan) {
		e := newEnv(t, options{plan: plan})
		m, dead := e.withDead(3, 2)
		// The tail is nearly full, so that a roll is among the steps.
		for range queue.RollRefs - 1 {
			e.add(dead.Open[0], false, rec{"old", time.Millisecond})
		}
		e.add(m.Open[0], false, numbered(5)...)
		first := e.svc
		e.second()
		got := e.claim("a", 5)
		e.svc = first
		errs, err := e.svc.Release(t.Context(), "a", "sub", receipts(got[1:4]), consume.Release{DeadLetter: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range errs {
			if err != nil && !queue.Retryable(err) {
				t.Errorf("the caller is not told to try again: %v", err)
			}
		}
		e.pass(time.Second)
		e.sound(m)
		e.accounted(5, nil)
	})
}

func TestFaultsOfDeadLetterAtClaim(t *testing.T) {
	eachStep(t, func(t *testing.T, plan *fault.Plan) {
		e := newEnv(t, options{plan: plan})
		m, _ := e.withDead(2, 2)
		e.add(m.Open[0], false, numbered(6)...)
		first := e.svc
		e.second()
		got := e.claim("a", 4)
		e.ack("a", got[3:])
		e.pass(time.Minute)
		for range 3 {
			e.claim("a", 1)
		}
		e.pass(time.Minute)
		e.svc = first
		claimed, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
		if err != nil && len(claimed.Deliveries) > 0 {
			t.Error("messages with an error")
		}
		e.sound(m)
		e.accounted(6, map[string]bool{got[3].body: true})
	})
}

// TestLateTake: the request of a take whose answer was lost arrives after the caller has gone on.
func TestLateTake(t *testing.T) {
	plan := fault.Script(fault.Options{}, fault.Rule{Op: "take", Nth: 1, Fault: fault.Late})
	e := newEnv(t, options{plan: plan})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(4)...)
	got := e.claim("a", 4)
	plan.Release()
	wantOffsets(t, "claimed", got, 0, 1, 2, 3)
	if cur := e.cursor(m, m.Open[0]); len(cur.Claims) != 1 {
		t.Errorf("the late request was carried out, too: %+v", cur)
	}
	e.ack("a", got)
	e.sound(m)
}

// TestLateDeadLetter: the same for a move.
func TestLateDeadLetter(t *testing.T) {
	plan := fault.Script(fault.Options{}, fault.Rule{Op: "transact", Nth: 1, Fault: fault.Late})
	e := newEnv(t, options{plan: plan})
	m, dead := e.withDead(1, 1)
	e.add(m.Open[0], false, numbered(2)...)
	e.release("a", e.claim("a", 2), consume.Release{})
	plan.Release()
	h, err := e.log.Head(t.Context(), dead.Open[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if h.Next != 2 {
		t.Errorf("%d dead letters, want 2", h.Next)
	}
}

// TestRepeatedTake: the store's client sends a take twice and sees the second answer.
func TestRepeatedTake(t *testing.T) {
	plan := fault.Script(fault.Options{}, fault.Rule{Op: "take", Nth: 1, Fault: fault.Repeat})
	e := newEnv(t, options{plan: plan})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(4)...)
	got := e.claim("a", 2)
	wantOffsets(t, "claimed", got, 0, 1)
	wantOffsets(t, "the others", e.claim("a", 4), 2, 3)
}
