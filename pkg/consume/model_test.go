package consume_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// model is what a subscription must do, message by message.
type model struct {
	e    *env
	m    *topics.Map
	msgs []*modelMsg
	// sizes is how many messages each claim was of.
	sizes  map[queue.ClaimID]int
	issued []msg
}

// modelMsg is one message; its place in model.msgs is its offset.
type modelMsg struct {
	expires  queue.Millis // by its ttl; 0 for never
	attempts uint32
	// held by claim until hold, even if that has passed; or, if not held, to be claimed from hold on.
	held  bool
	claim queue.ClaimID
	hold  queue.Millis
	acked bool
	// maybe: it was acked when it may have been moved to the dead-letter topic already. An ack of
	// what is done is answered as one that did it.
	maybe bool
}

const modelDeliveries = 3

func (x *model) gone(m *modelMsg) bool { return m.expires != 0 && m.expires <= x.e.clock() }

func (x *model) add(t *rapid.T) {
	n := rapid.IntRange(1, 6).Draw(t, "messages")
	recs := make([]rec, n)
	for i := range recs {
		recs[i].body = fmt.Sprintf("m%d", len(x.msgs))
		mm := &modelMsg{}
		if rapid.IntRange(0, 3).Draw(t, "has ttl") == 0 {
			recs[i].ttl = time.Duration(rapid.IntRange(1, 90).Draw(t, "ttl")) * time.Second
			mm.expires = x.e.clock().Add(recs[i].ttl)
		}
		x.msgs = append(x.msgs, mm)
	}
	x.e.add(x.m.Open[0], rapid.Bool().Draw(t, "object"), recs...)
}

func (x *model) claim(t *rapid.T) {
	got, err := x.e.svc.Claim(t.Context(), consume.ClaimRequest{
		Topic: "a", Subscription: "sub", MaxMessages: rapid.IntRange(1, 12).Draw(t, "max"),
		MaxBytes: int64(rapid.SampledFrom([]int{3, 20, 1000}).Draw(t, "bytes")),
	})
	if err != nil {
		t.Fatal(err)
	}
	now := x.e.clock()
	from := make(map[queue.ClaimID]queue.ClaimID) // the run that a message comes from, to its new claim
	for _, with := range byClaim(messages(x.e.t, got.Deliveries)) {
		x.sizes[with[0].claim] = len(with)
		for _, g := range with {
			mm := x.msgs[g.off]
			switch {
			case mm.acked:
				t.Fatalf("message %d was acked", g.off)
			case x.gone(mm):
				t.Fatalf("message %d has expired", g.off)
			case mm.hold > now:
				t.Fatalf("message %d is held or hidden", g.off)
			case mm.attempts >= modelDeliveries:
				t.Fatalf("message %d has had its deliveries", g.off)
			case g.attempt != mm.attempts+1:
				t.Fatalf("message %d: attempt %d, want %d", g.off, g.attempt, mm.attempts+1)
			}
			if mm.held { // nobody said whether it failed
				size := max(1, x.sizes[mm.claim]/2)
				if g.attempt > 2 || g.attempt == modelDeliveries {
					size = 1
				}
				if len(with) > size {
					t.Fatalf("message %d comes back with %d others", g.off, len(with)-1)
				}
				if other, ok := from[mm.claim]; ok && other != g.claim {
					t.Fatalf("two pieces of one run are in one answer")
				}
				from[mm.claim] = g.claim
			}
			mm.held, mm.claim, mm.hold = true, g.claim, now.Add(30*time.Second)
			mm.attempts++
			x.issued = append(x.issued, g)
		}
	}
}

// draw takes some of the receipts that were ever given out.
func (x *model) draw(t *rapid.T) []msg {
	n := min(len(x.issued), rapid.IntRange(1, 5).Draw(t, "receipts"))
	var out []msg
	for range n {
		// The newer ones more often.
		i := len(x.issued) - 1 - rapid.IntRange(0, min(len(x.issued)-1, 20)).Draw(t, "receipt")
		if !slices.ContainsFunc(out, func(m msg) bool { return m.off == x.issued[i].off }) {
			out = append(out, x.issued[i])
		}
	}
	return out
}

func (x *model) holds(g msg) bool {
	mm := x.msgs[g.off]
	return !mm.acked && mm.held && mm.claim == g.claim
}

// settle checks the answers for receipts. Of a message that has expired or whose claim has ended the
// model does not know whether the claim was broken up already, nor of one whose deliveries are used up
// whether it was moved: that decides the answer.
func (x *model) settle(t *rapid.T, list []msg, errs []error, err error, ok func(msg) bool, then func(*modelMsg)) {
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range list {
		mm := x.msgs[g.off]
		used := mm.attempts >= modelDeliveries
		open := x.gone(mm) || !mm.acked && (mm.held && mm.hold <= x.e.clock() || !mm.held && used)
		if !open && (errs[i] == nil) != ok(g) {
			t.Fatalf("message %d: answer %v, want success %v", g.off, errs[i], ok(g))
		}
		if errs[i] == nil && x.holds(g) {
			mm.maybe = used && mm.hold <= x.e.clock()
			then(mm)
		}
	}
}

func (x *model) ack(t *rapid.T) {
	list := x.draw(t)
	if len(list) == 0 {
		return
	}
	errs, err := x.e.svc.Ack(t.Context(), "a", "sub", receipts(list))
	x.settle(t, list, errs, err, func(g msg) bool { return x.holds(g) || x.msgs[g.off].acked }, func(mm *modelMsg) { mm.acked = true })
}

func (x *model) release(t *rapid.T) {
	list := x.draw(t)
	if len(list) == 0 {
		return
	}
	how := consume.Release{
		HasDelay: true, Delay: time.Duration(rapid.IntRange(0, 20).Draw(t, "delay")) * time.Second,
		Uncounted: rapid.Bool().Draw(t, "uncounted"),
	}
	errs, err := x.e.svc.Release(t.Context(), "a", "sub", receipts(list), how)
	x.settle(t, list, errs, err, x.holds, func(mm *modelMsg) {
		mm.held, mm.hold = false, x.e.clock().Add(how.Delay)
		if how.Uncounted {
			mm.attempts--
		}
	})
}

func (x *model) extend(t *rapid.T) {
	list := x.draw(t)
	if len(list) == 0 {
		return
	}
	d := time.Duration(rapid.IntRange(1, 60).Draw(t, "visibility")) * time.Second
	errs, err := x.e.svc.Extend(t.Context(), "a", "sub", receipts(list), d)
	x.settle(t, list, errs, err, x.holds, func(mm *modelMsg) { mm.hold = x.e.clock().Add(d) })
}

// finish claims and acks until nothing is left, and accounts for every message.
func (x *model) finish(t *rapid.T) {
	e := x.e
	for range 3 * (len(x.msgs) + 5) {
		e.pass(time.Minute)
		before := len(x.issued)
		x.claim(t)
		for _, g := range x.issued[before:] {
			errs, err := e.svc.Ack(t.Context(), "a", "sub", []queue.Receipt{g.receipt()})
			if err != nil || errs[0] != nil {
				t.Fatalf("ack: %v, %v", errs, err)
			}
			x.msgs[g.off].acked = true
		}
	}
	if cur := e.cursor(x.m, x.m.Open[0]); cur != nil && (int(cur.Floor) != len(x.msgs) || len(cur.Claims)+len(cur.Retries)+len(cur.Done) != 0) {
		t.Fatalf("something is stuck: %+v of %d messages", cur, len(x.msgs))
	}
	page, err := e.svc.Peek(t.Context(), consume.PeekRequest{Topic: "dead", Limit: queue.MaxPageSize})
	if err != nil {
		t.Fatal(err)
	}
	dead := make(map[string]int)
	for _, g := range messages(e.t, page.Deliveries) {
		dead[g.body]++
	}
	for off, mm := range x.msgs {
		n := dead[fmt.Sprintf("m%d", off)]
		switch {
		case n > 1:
			t.Fatalf("message %d is %d times in the dead-letter topic", off, n)
		case n == 1 && mm.acked && !mm.maybe:
			t.Fatalf("message %d was acked and is a dead letter", off)
		case n == 0 && !mm.acked && mm.expires == 0:
			t.Fatalf("message %d is lost after %d deliveries", off, mm.attempts)
		case n == 1 && mm.attempts < modelDeliveries:
			t.Fatalf("message %d is a dead letter after %d deliveries", off, mm.attempts)
		}
	}
}

// TestModel runs random calls against the model and checks the cursor after each.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := [32]byte{byte(rapid.IntRange(0, 255).Draw(rt, "seed"))}
		e := newEnv(t, options{ids: queue.NewIDs(rand.NewChaCha8(seed))})
		m, _ := e.withDead(modelDeliveries, 2)
		x := &model{e: e, m: m, sizes: make(map[queue.ClaimID]int)}
		rt.Repeat(map[string]func(*rapid.T){
			"add":     x.add,
			"claim":   x.claim,
			"claim2":  x.claim,
			"ack":     x.ack,
			"release": x.release,
			"extend":  x.extend,
			"pass": func(t *rapid.T) {
				e.pass(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if cur := e.cursor(m, m.Open[0]); cur != nil {
					if err := cur.Check(); err != nil {
						t.Fatal(err)
					}
				}
			},
		})
		x.finish(rt)
	})
}
