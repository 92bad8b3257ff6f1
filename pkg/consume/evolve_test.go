package consume_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// evolve seals parents and makes a segment for each range in their place, in one transaction, as a split
// or merge does. It gives the map after it, which e.show makes known.
func (e *env) evolve(m *topics.Map, ranges []queue.SlotRange, parents ...*meta.Segment) *topics.Map {
	e.t.Helper()
	topic := *m.Topic
	topic.Epoch++
	next := &topics.Map{Name: m.Name, Topic: &topic, Subscriptions: m.Subscriptions}
	var ops []meta.Op
	put := func(r meta.Record) { ops = append(ops, meta.Put{Record: r, Version: meta.NewVersion(e.ids)}) }
	var children []*meta.Segment
	for _, r := range ranges {
		child := &meta.Segment{Topic: m.ID(), ID: e.ids.Segment(), Range: r, Epoch: topic.Epoch, Created: e.clock()}
		for _, p := range parents {
			child.Predecessors = append(child.Predecessors, p.ID)
		}
		children = append(children, child)
		put(child)
		put(&meta.Head{Segment: child.ID, Epoch: child.Epoch, Range: r})
	}
	for _, seg := range m.Segments {
		if slices.Contains(parents, seg) {
			sealed := *seg
			sealed.Sealed = e.clock()
			for _, c := range children {
				sealed.Successors = append(sealed.Successors, c.ID)
			}
			put(&sealed)
			ops = append(ops, meta.Seal{Segment: seg.ID, Epoch: seg.Epoch})
			seg = &sealed
		}
		next.Segments = append(next.Segments, seg)
	}
	next.Segments = append(next.Segments, children...)
	if _, err := e.bare.Transact(context.Background(), ops); err != nil {
		e.t.Fatal(err)
	}
	for _, seg := range next.Segments {
		if seg.Sealed == 0 {
			next.Open = append(next.Open, seg)
		}
	}
	slices.SortFunc(next.Open, func(a, b *meta.Segment) int { return cmp.Compare(a.Range.Lo, b.Range.Lo) })
	return next
}

func (e *env) split(m *topics.Map, parent *meta.Segment) *topics.Map {
	e.t.Helper()
	mid := (parent.Range.Lo + parent.Range.Hi) / 2
	return e.evolve(m, []queue.SlotRange{{Lo: parent.Range.Lo, Hi: mid}, {Lo: mid, Hi: parent.Range.Hi}}, parent)
}

func (e *env) merge(m *topics.Map, a, b *meta.Segment) *topics.Map {
	e.t.Helper()
	return e.evolve(m, []queue.SlotRange{{Lo: a.Range.Lo, Hi: b.Range.Hi}}, a, b)
}

// show is what Open and Reload find from now on.
func (e *env) show(m *topics.Map) *topics.Map {
	e.names.mu.Lock()
	defer e.names.mu.Unlock()
	e.names.maps[m.Name] = m
	return m
}

// send appends messages, separated by spaces, to the segments that own their keys.
func (e *env) send(m *topics.Map, list string) {
	e.t.Helper()
	parts := make(map[*meta.Segment][]batch.Record)
	for body := range strings.FieldsSeq(list) {
		r := batch.Record{Key: keyOf(body), Body: []byte(body)}
		r.Slot = queue.SlotOf(r.Key)
		seg := m.Route(r.Slot)
		parts[seg] = append(parts[seg], r)
	}
	for _, seg := range m.Open {
		if recs := parts[seg]; len(recs) > 0 {
			slices.SortStableFunc(recs, func(a, b batch.Record) int { return cmp.Compare(a.Slot, b.Slot) })
			e.addRecords(seg, false, recs)
		}
	}
}

// keyIn gives a key whose slot lies in r.
func keyIn(r queue.SlotRange) string {
	for i := 'a'; ; i++ {
		if r.Contains(queue.SlotOf([]byte(string(i)))) {
			return string(i)
		}
	}
}

// halves are keys of the two halves of the ring.
func halves() (low, high string) {
	return keyIn(queue.SlotRange{Lo: 0, Hi: queue.Slots / 2}), keyIn(queue.SlotRange{Lo: queue.Slots / 2, Hi: queue.Slots})
}

// wantBodies claims all there is, and checks what comes, whatever the order of segments.
func (e *env) wantBodies(what, want string) []msg {
	e.t.Helper()
	got := e.claim("a", 100)
	var have []string
	for _, m := range got {
		have = append(have, m.body)
	}
	wanted := strings.Fields(want)
	slices.Sort(have)
	slices.Sort(wanted)
	if !slices.Equal(have, wanted) {
		e.t.Fatalf("%s: claimed %v, want %v", what, have, wanted)
	}
	return got
}

func TestSuccessorsOpenWhenAllIsDone(t *testing.T) {
	e := newEnv(t, options{})
	m, _ := e.keyed(nil)
	low, high := halves()
	e.send(m, low+"1 "+high+"1")
	got := e.wantBodies("before the split", low+"1 "+high+"1")
	m = e.show(e.split(m, m.Open[0]))
	e.send(m, low+"2 "+high+"2")
	e.wantBodies("while the predecessor has some in flight", "")
	e.ack("a", pick(got, low+"1"))
	e.wantBodies("while it has one in flight, of whichever key", "")
	e.ack("a", pick(got, high+"1"))
	e.wantBodies("in the look that finds it drained", low+"2 "+high+"2")
}

// TestSuccessorOfTwoWaitsForBoth: others let events reach a successor while another predecessor had some
// in flight.
func TestSuccessorOfTwoWaitsForBoth(t *testing.T) {
	e := newEnv(t, options{})
	m, _ := e.keyed(nil)
	low, high := halves()
	m = e.split(m, m.Open[0])
	e.show(m)
	e.send(m, low+"1 "+high+"1 "+high+"2")
	got := e.wantBodies("of both", low+"1 "+high+"1 "+high+"2")
	m = e.show(e.merge(m, m.Open[0], m.Open[1]))
	e.send(m, low+"2 "+high+"3")
	e.ack("a", pick(got, low+"1"))
	e.wantBodies("one predecessor is drained", "")
	e.release("a", pick(got, high+"1"), consume.Release{})
	e.ack("a", pick(got, high+"2"))
	again := e.wantBodies("a retry of the other", high+"1")
	e.wantBodies("and while that is in flight", "")
	e.ack("a", again)
	e.wantBodies("both are drained", low+"2 "+high+"3")
}

// TestMergeOfFreshlySplitSegments: others got predecessor lists wrong where all of it happens at once, and
// opened the last segment while the first was at work. Here it must not be, whatever of it the map knows.
func TestMergeOfFreshlySplitSegments(t *testing.T) {
	without := func(m *topics.Map, gone ...*meta.Segment) *topics.Map {
		part := *m
		part.Segments = slices.DeleteFunc(slices.Clone(m.Segments), func(s *meta.Segment) bool { return slices.Contains(gone, s) })
		return &part
	}
	e := newEnv(t, options{})
	first, _ := e.keyed(nil)
	low, high := halves()
	e.send(first, low+"1 "+high+"1")
	got := e.wantBodies("before", low+"1 "+high+"1")
	split := e.split(first, first.Open[0])
	merged := e.merge(split, split.Open[0], split.Open[1])
	e.send(merged, low+"2 "+high+"2")
	for _, order := range []func(a, b *meta.Segment) int{
		func(a, b *meta.Segment) int { return cmp.Compare(a.ID, b.ID) },
		func(a, b *meta.Segment) int { return cmp.Compare(b.ID, a.ID) },
	} {
		shuffled := *merged
		shuffled.Segments = slices.SortedFunc(slices.Values(merged.Segments), order)
		e.show(&shuffled)
		e.wantBodies("the first has some in flight", "")
	}
	e.show(without(merged, merged.Segments[1], merged.Segments[2]))
	e.fresh()
	e.wantBodies("a map that lacks the two between", "")
	e.show(without(merged, merged.Segments[2]))
	e.wantBodies("a map that lacks one between", "")
	e.show(merged)
	e.ack("a", pick(got, low+"1"))
	e.wantBodies("one is in flight", "")
	e.ack("a", pick(got, high+"1"))
	e.wantBodies("all three are drained in one look", low+"2 "+high+"2")
}

// TestPredecessorsThatAreGone: what was removed, by retention, holds nobody up.
func TestPredecessorsThatAreGone(t *testing.T) {
	e := newEnv(t, options{})
	m, root := e.keyed(nil)
	low, high := halves()
	m = e.split(m, root)
	if _, err := e.bare.Apply(t.Context(), meta.Delete{Key: root.Key(), Kind: meta.KindSegment}); err != nil {
		t.Fatal(err)
	}
	m.Segments = m.Segments[1:]
	e.show(m)
	e.send(m, low+"1 "+high+"1")
	e.wantBodies("both children", low+"1 "+high+"1")
	wantOps(t, "and it is not asked for again", e.spent(func() { e.claim("a", 1) }), "get cursor 2, get head 2")
}

func TestWithoutOrderNothingWaits(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	low, high := halves()
	e.send(m, low+"1 "+high+"1")
	e.wantBodies("before the split", low+"1 "+high+"1")
	m = e.show(e.split(m, m.Open[0]))
	e.send(m, low+"2 "+high+"2")
	e.wantBodies("at once", low+"2 "+high+"2")
}

// TestEachSubscriptionWaitsByItself: one opens a successor while another has not begun with the
// predecessor; and what another process drains opens it, too.
func TestEachSubscriptionWaitsByItself(t *testing.T) {
	e := newEnv(t, options{})
	m, _ := e.keyed(nil)
	other := *m.Subscriptions["sub"]
	other.Name, other.ID = "other", e.ids.Subscription()
	m.Subscriptions["other"] = &other
	low, high := halves()
	e.send(m, low+"1 "+high+"1")
	m = e.show(e.split(m, m.Open[0]))
	e.send(m, low+"2 "+high+"2")
	ours := e.svc
	got := e.wantBodies("the predecessor", low+"1 "+high+"1")
	e.second()
	e.ack("a", got)
	e.svc = ours
	e.wantBodies("drained by another process", low+"2 "+high+"2")
	if got := e.claimWith(consume.ClaimRequest{Topic: "a", Subscription: "other", MaxMessages: 1}); len(got) != 1 || !strings.HasSuffix(got[0].body, "1") {
		t.Errorf("the other subscription got %v", got)
	}
	if got := e.claimWith(consume.ClaimRequest{Topic: "a", Subscription: "other"}); len(got) != 1 || !strings.HasSuffix(got[0].body, "1") {
		t.Errorf("the other subscription got %v", got)
	}
}

// TestMapOlderThanTheStore: a process that has not heard of a change finds it where it meets the seal.
func TestMapOlderThanTheStore(t *testing.T) {
	e := newEnv(t, options{})
	old, _ := e.keyed(nil)
	low, high := halves()
	e.send(old, low+"1 "+high+"1")
	got := e.wantBodies("before", low+"1 "+high+"1")
	m := e.split(old, old.Open[0])
	e.send(m, low+"2 "+high+"2")
	e.wantBodies("in flight", "")
	e.ack("a", got)
	e.names.onReload = func() { e.names.maps["a"] = m }
	e.wantBodies("the seal is met", low+"2 "+high+"2")
}

// TestStartBehindAChange: a subscription whose cut passes the predecessors does not wait for them.
func TestStartBehindAChange(t *testing.T) {
	e := newEnv(t, options{})
	m, root := e.keyed(nil)
	low, high := halves()
	e.send(m, low+"1 "+high+"1")
	m = e.show(e.split(m, root))
	e.send(m, low+"2 "+high+"2 "+high+"3")
	m.Subscriptions["sub"].Cut = map[queue.SegmentID]queue.Offset{root.ID: 2, m.Open[1].ID: 1}
	e.wantBodies("from the cut", low+"2 "+high+"3")
}

// history makes n rounds of split and merge, with a message before each.
func (e *env) history(m *topics.Map, n int) *topics.Map {
	e.t.Helper()
	for i := range n {
		e.send(m, fmt.Sprintf("k%d", i))
		m = e.split(m, m.Open[0])
		m = e.merge(m, m.Open[0], m.Open[1])
	}
	return e.show(m)
}

// stored reads the subscription's record.
func (e *env) stored(m *topics.Map) *meta.Subscription {
	e.t.Helper()
	sub, _, err := meta.Fetch[*meta.Subscription](e.t.Context(), e.bare, meta.SubscriptionKey(m.ID(), "sub"))
	if err != nil {
		e.t.Fatal(err)
	}
	return sub
}

// drainAll claims and acks until nothing comes.
func (e *env) drainAll() (n int) {
	e.t.Helper()
	for {
		got := e.claim("a", 1000)
		if len(got) == 0 {
			return n
		}
		n += len(got)
		e.ack("a", got)
	}
}

// TestDrainedSegmentsCostNothing: a new process over 201 sealed segments looks at the open one alone.
func TestDrainedSegmentsCostNothing(t *testing.T) {
	for _, ordering := range []meta.Ordering{meta.OrderingNone, meta.OrderingKey} {
		t.Run("ordering "+string(ordering), func(t *testing.T) {
			e := newEnv(t, options{})
			m, _ := e.keyed(func(s *meta.Subscription) { s.Ordering = ordering })
			e.put(m.Subscriptions["sub"])
			m = e.history(m, 67)
			if n := e.drainAll(); n != 67 {
				t.Fatalf("drained %d messages", n)
			}
			sub := e.stored(m)
			if len(sub.Drained) != 201 || len(m.Segments) != 202 {
				t.Fatalf("%d of %d segments are noted", len(sub.Drained), len(m.Segments))
			}
			m.Subscriptions["sub"] = sub
			e.fresh()
			wantOps(t, "first claim of a new process", e.spent(func() { e.claim("a", 10) }), "get 1, get head 1")
		})
	}
}

// TestNotesOfDrainedSegments: they are pruned with the topic, are not made for a subscription that was
// moved, and are no matter if they fail.
func TestNotesOfDrainedSegments(t *testing.T) {
	e := newEnv(t, options{})
	m, root := e.keyed(nil)
	e.put(m.Subscriptions["sub"])
	m = e.history(m, 1)
	moved := *m.Subscriptions["sub"]
	moved.ID = e.ids.Subscription()
	e.put(&moved)
	e.drainAll()
	if got := e.stored(m).Drained; got != nil {
		t.Errorf("noted %v for a subscription that was moved", got)
	}
	gone := *m.Subscriptions["sub"]
	gone.Drained = []queue.SegmentID{e.ids.Segment()}
	e.put(&gone)
	e.fresh()
	e.drainAll()
	if got := e.stored(m).Drained; len(got) != 3 || got[0] != root.ID {
		t.Errorf("noted %v", got)
	}
}

// TestFaultsOfOrder runs into every store call of a claim that drains a predecessor and opens its
// successor: order holds, and nothing is lost.
func TestFaultsOfOrder(t *testing.T) {
	eachStep(t, func(t *testing.T, plan *fault.Plan) {
		e := newEnv(t, options{plan: plan})
		m, _ := e.keyed(nil)
		e.put(m.Subscriptions["sub"])
		low, high := halves()
		e.send(m, low+"0 "+high+"0 "+low+"1")
		m = e.show(e.split(m, m.Open[0]))
		e.send(m, low+"2 "+high+"1")
		seen := &ordered{e: e, m: m, places: make(map[string]msg)}
		for round := range 16 {
			if round == 4 {
				e.second()
			}
			if round >= 4 {
				e.pass(2 * queue.DefaultVisibilityTimeout)
			}
			got, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxMessages: 2})
			ms := messages(t, got.Deliveries)
			if err != nil && (len(ms) > 0 || round >= 4) {
				t.Errorf("%d messages with the error %v", len(ms), err)
			}
			seen.claimed(ms)
			if len(ms) == 0 {
				continue
			}
			errs, err := e.svc.Ack(t.Context(), "a", "sub", receipts(ms))
			if round >= 4 {
				e.noErrors("ack", errs, err)
			}
		}
		for body := range seen.places {
			if !seen.done(body) {
				t.Errorf("%s is not done", body)
			}
		}
		if len(seen.places) != 5 {
			t.Errorf("only %v came", seen.places)
		}
	})
}

// ordered checks that a message comes only when all before it of its key are done or in the same answer.
type ordered struct {
	e *env
	m *topics.Map
	// places are where the messages are that came so far.
	places map[string]msg
}

func (o *ordered) done(body string) bool {
	at, ok := o.places[body]
	if !ok {
		return false
	}
	cur := o.e.cursor(o.m, o.m.Segment(at.seg))
	return cur != nil && cur.IsDone(at.off)
}

func (o *ordered) claimed(ms []msg) {
	o.e.t.Helper()
	here := make(map[string]bool)
	for _, m := range ms {
		here[m.body] = true
		o.places[m.body] = m
	}
	for _, m := range ms {
		key := string(keyOf(m.body))
		for i := range int(m.body[len(key)] - '0') {
			if before := fmt.Sprintf("%s%d", key, i); !here[before] && !o.done(before) {
				o.e.t.Errorf("%s came before %s was done", m.body, before)
			}
		}
	}
}
