package consume_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// keyedModel is what a subscription with order must do, over processes, consumers and changes of the
// segment map.
type keyedModel struct {
	e *env
	m *topics.Map
	// processes take turns; each has what it remembers to itself.
	processes []*consume.Service
	keys      map[string][]*keyedMsg // in the order of commits
	byBody    map[string]*keyedMsg
	issued    []msg
	// sizes is how many messages each claim was of.
	sizes map[queue.ClaimID]int
}

// keyedMsg is one message.
type keyedMsg struct {
	key     string
	place   int // in its key
	expires queue.Millis
	// came says that it was delivered; held by claim until hold.
	came, held bool
	claim      queue.ClaimID
	hold       queue.Millis
	acked      bool
	attempts   uint32
}

func (x *keyedModel) over(m *keyedMsg) bool {
	return m.acked || m.expires != 0 && m.expires <= x.e.clock() ||
		m.attempts >= modelDeliveries && (!m.held || m.hold <= x.e.clock())
}

func (x *keyedModel) pickProcess(t *rapid.T) {
	x.e.svc = x.processes[rapid.IntRange(0, len(x.processes)-1).Draw(t, "process")]
}

func (x *keyedModel) send(t *rapid.T) {
	n := rapid.IntRange(1, 8).Draw(t, "messages")
	parts := make(map[*meta.Segment][]batch.Record)
	for range n {
		key := string(rune('a' + rapid.IntRange(0, 4).Draw(t, "key")))
		mm := &keyedMsg{key: key, place: len(x.keys[key])}
		r := batch.Record{Key: []byte(key), Slot: queue.SlotOf([]byte(key)), Body: fmt.Appendf(nil, "%s%d", key, mm.place)}
		if rapid.IntRange(0, 5).Draw(t, "has ttl") == 0 {
			r.TTL = time.Duration(rapid.IntRange(1, 90).Draw(t, "ttl")) * time.Second
			mm.expires = x.e.clock().Add(r.TTL)
		}
		x.keys[key] = append(x.keys[key], mm)
		x.byBody[string(r.Body)] = mm
		seg := x.m.Route(r.Slot)
		parts[seg] = append(parts[seg], r)
	}
	for _, seg := range x.m.Open {
		if recs := parts[seg]; len(recs) > 0 {
			slices.SortStableFunc(recs, func(a, b batch.Record) int { return int(a.Slot) - int(b.Slot) })
			x.e.addRecords(seg, rapid.Bool().Draw(t, "object"), recs)
		}
	}
}

func (x *keyedModel) claim(t *rapid.T) {
	x.pickProcess(t)
	x.claimSome(t, rapid.IntRange(1, 12).Draw(t, "max"), int64(rapid.SampledFrom([]int{3, 20, 1000}).Draw(t, "bytes")))
}

func (x *keyedModel) claimSome(t *rapid.T, n int, size int64) []msg {
	got, err := x.e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxMessages: n, MaxBytes: size})
	if err != nil {
		t.Fatal(err)
	}
	var ms []msg
	for i := range got.Deliveries {
		ms = append(ms, messages(x.e.t, got.Deliveries[i:i+1])...)
	}
	now := x.e.clock()
	here := make(map[*keyedMsg]bool)
	for _, g := range ms {
		mm := x.byBody[g.body]
		for _, before := range x.keys[mm.key][:mm.place] {
			// In the answer, and in it before.
			if !here[before] && !x.over(before) {
				t.Fatalf("%s came before message %d of its key was done: %+v", g.body, before.place, before)
			}
		}
		for _, other := range x.keys[mm.key] {
			if other.held && !other.acked && other.hold > now && !here[other] {
				t.Fatalf("%s came while message %d of its key is in flight", g.body, other.place)
			}
		}
		if mm.acked || mm.expires != 0 && mm.expires <= now {
			t.Fatalf("%s is done", g.body)
		}
		here[mm] = true
	}
	x.isolated(t, ms)
	for _, g := range ms {
		mm := x.byBody[g.body]
		mm.came, mm.held, mm.claim, mm.hold = true, true, g.claim, now.Add(30*time.Second)
		mm.attempts = g.attempt
		x.issued = append(x.issued, g)
	}
	return ms
}

// isolated checks that the messages of expired claims come back in ever smaller runs, of which an answer
// has one.
func (x *keyedModel) isolated(t *rapid.T, ms []msg) {
	from := make(map[queue.ClaimID]queue.ClaimID) // the run that a message comes from, to its new claim
	for _, with := range byClaim(ms) {
		x.sizes[with[0].claim] = len(with)
		for _, g := range with {
			mm := x.byBody[g.body]
			if !mm.held {
				continue
			}
			size := max(1, x.sizes[mm.claim]/2)
			if g.attempt > 2 || g.attempt == modelDeliveries {
				size = 1
			}
			if len(with) > size {
				t.Fatalf("%s comes back with %d others", g.body, len(with)-1)
			}
			if other, ok := from[mm.claim]; ok && other != g.claim {
				t.Fatalf("two pieces of one run are in one answer")
			}
			from[mm.claim] = g.claim
		}
	}
}

// draw takes some of the newest receipts.
func (x *keyedModel) draw(t *rapid.T) []msg {
	var out []msg
	for range min(len(x.issued), rapid.IntRange(1, 6).Draw(t, "receipts")) {
		g := x.issued[len(x.issued)-1-rapid.IntRange(0, min(len(x.issued)-1, 15)).Draw(t, "receipt")]
		if !slices.ContainsFunc(out, func(m msg) bool { return m.body == g.body }) {
			out = append(out, g)
		}
	}
	return out
}

func (x *keyedModel) holds(g msg) bool {
	mm := x.byBody[g.body]
	return mm.held && !mm.acked && mm.claim == g.claim
}

func (x *keyedModel) settle(t *rapid.T, act func([]queue.Receipt) ([]error, error), then func(*keyedMsg)) {
	x.pickProcess(t)
	list := x.draw(t)
	if len(list) == 0 {
		return
	}
	errs, err := act(receipts(list))
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range list {
		if errs[i] == nil && x.holds(g) {
			then(x.byBody[g.body])
		}
	}
}

func (x *keyedModel) ack(t *rapid.T) {
	x.settle(t, func(r []queue.Receipt) ([]error, error) { return x.e.svc.Ack(t.Context(), "a", "sub", r) },
		func(mm *keyedMsg) { mm.acked = true })
}

func (x *keyedModel) release(t *rapid.T) {
	how := consume.Release{HasDelay: true, Delay: time.Duration(rapid.IntRange(0, 20).Draw(t, "delay")) * time.Second}
	x.settle(t, func(r []queue.Receipt) ([]error, error) { return x.e.svc.Release(t.Context(), "a", "sub", r, how) },
		func(mm *keyedMsg) { mm.held = false })
}

func (x *keyedModel) extend(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 60).Draw(t, "visibility")) * time.Second
	x.settle(t, func(r []queue.Receipt) ([]error, error) { return x.e.svc.Extend(t.Context(), "a", "sub", r, d) },
		func(mm *keyedMsg) { mm.hold = x.e.clock().Add(d) })
}

// change splits or merges, and lets claims go on by the old map for a while.
func (x *keyedModel) change(t *rapid.T) {
	i := rapid.IntRange(0, len(x.m.Open)-1).Draw(t, "segment")
	seg := x.m.Open[i]
	switch {
	case len(x.m.Open) > 1 && i > 0 && rapid.Bool().Draw(t, "merge"):
		x.m = x.e.merge(x.m, x.m.Open[i-1], seg)
	case seg.Range.Len() > 1:
		x.m = x.e.split(x.m, seg)
	}
}

func (x *keyedModel) show(*rapid.T) {
	sub, _, err := meta.Fetch[*meta.Subscription](x.e.t.Context(), x.e.bare, meta.SubscriptionKey(x.m.ID(), "sub"))
	if err != nil {
		x.e.t.Fatal(err)
	}
	m := *x.m
	m.Subscriptions = map[string]*meta.Subscription{"sub": sub}
	x.e.show(&m)
}

// crash puts a process that knows nothing in the place of one.
func (x *keyedModel) crash(t *rapid.T) {
	x.e.fresh()
	x.processes[rapid.IntRange(0, len(x.processes)-1).Draw(t, "process")] = x.e.svc
}

// finish claims and acks until nothing is left: every message came, or expired first.
func (x *keyedModel) finish(t *rapid.T) {
	x.show(t)
	for range 3 * (len(x.byBody) + 5) {
		x.e.pass(time.Minute)
		x.pickProcess(t)
		for _, g := range x.claimSome(t, 100, 1000) {
			errs, err := x.e.svc.Ack(t.Context(), "a", "sub", []queue.Receipt{g.receipt()})
			if err != nil || errs[0] != nil {
				t.Fatalf("ack: %v, %v", errs, err)
			}
			x.byBody[g.body].acked = true
		}
	}
	for body, mm := range x.byBody {
		if !mm.came && mm.expires == 0 {
			t.Fatalf("%s never came", body)
		}
		if !mm.acked && mm.expires == 0 && mm.attempts < modelDeliveries {
			t.Fatalf("%s is lost after %d deliveries", body, mm.attempts)
		}
	}
	page, err := x.e.svc.Peek(t.Context(), consume.PeekRequest{Topic: "dead", Limit: queue.MaxPageSize})
	if err != nil {
		t.Fatal(err)
	}
	dead := make(map[string]int)
	for _, g := range messages(x.e.t, page.Deliveries) {
		dead[g.body]++
	}
	for body, mm := range x.byBody {
		if n := dead[body]; n > 1 || n == 0 && !mm.acked && mm.expires == 0 {
			t.Fatalf("%s is %d times in the dead-letter topic, acked %v", body, n, mm.acked)
		}
	}
	for _, seg := range x.m.Segments {
		h, err := x.e.log.Head(t.Context(), seg.ID)
		if err != nil {
			t.Fatal(err)
		}
		cur := x.e.cursor(x.m, seg)
		if h.Next > 0 && (cur == nil || cur.Floor != h.Next || cur.Entries() > 0) {
			t.Fatalf("something is stuck: %+v, the segment ends at %d", cur, h.Next)
		}
	}
}

// TestKeyedModel runs random calls of several processes against the model, while segments split and merge.
func TestKeyedModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := [32]byte{byte(rapid.IntRange(0, 255).Draw(rt, "seed"))}
		e := newEnv(t, options{ids: queue.NewIDs(rand.NewChaCha8(seed))})
		e.topic("dead", 1, nil)
		m, _ := e.keyed(func(s *meta.Subscription) { s.MaxDeliveries, s.DeadLetterTopic = modelDeliveries, "dead" })
		e.put(m.Subscriptions["sub"])
		x := &keyedModel{e: e, m: m, keys: make(map[string][]*keyedMsg), byBody: make(map[string]*keyedMsg), sizes: make(map[queue.ClaimID]int)}
		for range 3 {
			e.fresh()
			x.processes = append(x.processes, e.svc)
		}
		e.names.onReload = func() {
			latest := *x.m
			latest.Subscriptions = e.names.maps["a"].Subscriptions
			e.names.maps["a"] = &latest
		}
		rt.Repeat(map[string]func(*rapid.T){
			"send":    x.send,
			"claim":   x.claim,
			"claim2":  x.claim,
			"claim3":  x.claim,
			"ack":     x.ack,
			"ack2":    x.ack,
			"release": x.release,
			"extend":  x.extend,
			"change":  x.change,
			"show":    x.show,
			"crash":   x.crash,
			"pass": func(t *rapid.T) {
				e.pass(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				for _, seg := range x.m.Segments {
					if cur := e.cursor(m, seg); cur != nil {
						if err := cur.Check(); err != nil {
							t.Fatal(err)
						}
					}
				}
			},
		})
		x.finish(rt)
	})
}
