package topics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// evolve seals parents and makes a segment for each range in their place, in one transaction, as a split
// or merge does. It gives the new ones.
func (r *rig) evolve(t *testing.T, ranges []queue.SlotRange, parents ...*meta.Segment) []*meta.Segment {
	t.Helper()
	topic, _, err := meta.Fetch[*meta.Topic](t.Context(), r.store, meta.TopicKey(parents[0].Topic))
	if err != nil {
		t.Fatal(err)
	}
	next := *topic
	next.Epoch++
	now := queue.MillisOf(r.clock())
	var ops []meta.Op
	put := func(rec meta.Record) { ops = append(ops, meta.Put{Record: rec, Version: meta.NewVersion(r.ids)}) }
	put(&next)
	var children []*meta.Segment
	for _, slots := range ranges {
		child := &meta.Segment{Topic: next.ID, ID: r.ids.Segment(), Range: slots, Epoch: next.Epoch, Created: now}
		for _, p := range parents {
			child.Predecessors = append(child.Predecessors, p.ID)
		}
		children = append(children, child)
		put(child)
		put(&meta.Head{Segment: child.ID, Epoch: child.Epoch, Range: slots})
	}
	for _, p := range parents {
		sealed := *p
		sealed.Sealed = now
		for _, c := range children {
			sealed.Successors = append(sealed.Successors, c.ID)
		}
		put(&sealed)
		ops = append(ops, meta.Seal{Segment: p.ID, Epoch: p.Epoch})
	}
	if _, err := r.store.Transact(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	return children
}

func (r *rig) split(t *testing.T, p *meta.Segment) (low, high *meta.Segment) {
	t.Helper()
	mid := (p.Range.Lo + p.Range.Hi) / 2
	out := r.evolve(t, []queue.SlotRange{{Lo: p.Range.Lo, Hi: mid}, {Lo: mid, Hi: p.Range.Hi}}, p)
	return out[0], out[1]
}

func (r *rig) merge(t *testing.T, a, b *meta.Segment) *meta.Segment {
	t.Helper()
	return r.evolve(t, []queue.SlotRange{{Lo: a.Range.Lo, Hi: b.Range.Hi}}, a, b)[0]
}

// write appends n messages that become visible sec seconds after the rig's first time.
func (r *rig) write(t *testing.T, seg *meta.Segment, sec, n int) {
	t.Helper()
	at := atSecond(sec)
	_, err := r.store.Apply(t.Context(), meta.Append{Segment: seg.ID, Epoch: seg.Epoch, At: at, Refs: []meta.Ref{{
		Kind: meta.RefBatch, ID: meta.RefID(r.ids.Nonce()), Object: "o", Count: uint32(n), Created: at,
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

func atSecond(sec int) queue.Millis {
	return queue.Millis(1_700_000_000_000).Add(time.Duration(sec) * time.Second)
}

// TestStartsOverAHistory: root is split into a and b (b stays empty), these merge into c, that is split
// into d and e.
func TestStartsOverAHistory(t *testing.T) {
	r := newRig(t)
	r.create(t, "t", Config{})
	m, err := r.Reload(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	root := m.Open[0]
	r.write(t, root, 1, 2)
	a, b := r.split(t, root)
	r.write(t, a, 5, 2)
	c := r.merge(t, a, b)
	r.write(t, c, 9, 3)
	d, e := r.split(t, c)
	r.write(t, d, 12, 4)
	names := map[queue.SegmentID]string{root.ID: "root", a.ID: "a", b.ID: "b", c.ID: "c", d.ID: "d", e.ID: "e"}
	at := func(sec int) Start { return Start{Kind: StartTime, Time: atSecond(sec)} }
	cut := func(c map[queue.SegmentID]queue.Offset) Start { return Start{Kind: StartCut, Cut: c} }
	for _, tc := range []struct {
		name    string
		start   Start
		cut     map[string]queue.Offset
		drained string
	}{
		{"earliest", Start{}, map[string]queue.Offset{}, ""},
		{"latest", Start{Kind: StartLatest}, map[string]queue.Offset{"root": 2, "a": 2, "b": 0, "c": 3, "d": 4, "e": 0}, "root a b c"},
		{"the first's time: what is empty after it is not drained before it", at(1), map[string]queue.Offset{"root": 0, "a": 0, "b": 0, "c": 0, "d": 0, "e": 0}, ""},
		{"a time in the second", at(2), map[string]queue.Offset{"root": 2, "a": 0, "b": 0, "c": 0, "d": 0, "e": 0}, "root b"},
		{"a time in the third", at(6), map[string]queue.Offset{"root": 2, "a": 2, "b": 0, "c": 0, "d": 0, "e": 0}, "root a b"},
		{"a time after all", at(99), map[string]queue.Offset{"root": 2, "a": 2, "b": 0, "c": 3, "d": 4, "e": 0}, "root a b c"},
		{"a cut in the third", cut(map[queue.SegmentID]queue.Offset{c.ID: 1}), map[string]queue.Offset{"root": 2, "a": 2, "b": 0, "c": 1}, "root a b"},
		{"a cut in one of the second", cut(map[queue.SegmentID]queue.Offset{a.ID: 1}), map[string]queue.Offset{"root": 2, "a": 1}, "root"},
		{"a cut in one of the last", cut(map[queue.SegmentID]queue.Offset{d.ID: 1}), map[string]queue.Offset{"root": 2, "a": 2, "b": 0, "c": 3, "d": 1}, "root a b c"},
		{"a cut with an ancestor", cut(map[queue.SegmentID]queue.Offset{d.ID: 1, root.ID: 1}), map[string]queue.Offset{"root": 1, "a": 2, "b": 0, "c": 3, "d": 1}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub, _, err := r.CreateSubscription(t.Context(), "t", "s", SubscriptionConfig{Ordering: meta.OrderingKey, Start: tc.start})
			if err != nil {
				t.Fatal(err)
			}
			check := func(what string, sub *meta.Subscription) {
				t.Helper()
				got := make(map[string]queue.Offset)
				for id, off := range sub.Cut {
					got[names[id]] = off
				}
				var drained []string
				for _, id := range sub.Drained {
					drained = append(drained, names[id])
				}
				slices.Sort(drained)
				want := strings.Fields(tc.drained)
				slices.Sort(want)
				if !maps.Equal(got, tc.cut) || !slices.Equal(drained, want) {
					t.Errorf("%s: cut %v, drained %v; want %v, %v", what, got, drained, tc.cut, want)
				}
			}
			check("create", sub)
			moved, err := r.Seek(t.Context(), "t", "s", Start{})
			if err != nil || moved.Drained != nil || moved.Cut != nil {
				t.Errorf("seek to the earliest: %+v, %v", moved, err)
			}
			if moved, err = r.Seek(t.Context(), "t", "s", tc.start); err != nil {
				t.Fatal(err)
			}
			check("seek", moved)
			if err := r.DeleteSubscription(t.Context(), "t", "s"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// between runs a step once, before the first read of a head.
type between struct {
	meta.Store
	once sync.Once
	step func()
}

func (b *between) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	if key.SK == "head" {
		b.once.Do(b.step)
	}
	return b.Store.Get(ctx, key)
}

// TestChangeWhileASubscriptionStarts: a split after the map was read and before the heads are. What was
// there before the call is not read, what comes after it is.
func TestChangeWhileASubscriptionStarts(t *testing.T) {
	for _, how := range []string{"create", "seek"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			r.create(t, "t", Config{})
			m, err := r.Reload(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			root := m.Open[0]
			r.write(t, root, 1, 5)
			var low, high *meta.Segment
			s := New(Deps{IDs: r.ids, Clock: r.clock, Meta: &between{Store: r.store, step: func() {
				r.write(t, root, 2, 1)
				low, high = r.split(t, root)
				r.write(t, high, 3, 1)
			}}})
			var sub *meta.Subscription
			if how == "create" {
				sub, _, err = s.CreateSubscription(t.Context(), "t", "s", SubscriptionConfig{Start: Start{Kind: StartLatest}})
			} else {
				if _, _, err := s.CreateSubscription(t.Context(), "t", "s", SubscriptionConfig{}); err != nil {
					t.Fatal(err)
				}
				sub, err = s.Seek(t.Context(), "t", "s", Start{Kind: StartLatest})
			}
			if err != nil {
				t.Fatal(err)
			}
			if off := sub.Cut[root.ID]; off < 5 {
				t.Errorf("root is read from %d: what was there before comes", off)
			}
			r.write(t, low, 4, 1)
			r.write(t, high, 4, 1)
			if sub.Cut[low.ID] > 0 || sub.Cut[high.ID] > 1 {
				t.Errorf("what comes after the call is passed over: %v", sub.Cut)
			}
			_, found := sub.Cut[high.ID]
			if how == "create" && !found {
				t.Error("the creation did not look again")
			}
		})
	}
}

// torn hides segments from the first query.
type torn struct {
	meta.Store
	hide []queue.SegmentID
}

func (q *torn) Query(ctx context.Context, r meta.Range) (meta.Page, error) {
	page, err := q.Store.Query(ctx, r)
	hide := q.hide
	q.hide = nil
	page.Items = slices.DeleteFunc(slices.Clone(page.Items), func(it meta.Item) bool {
		seg, ok := it.Record.(*meta.Segment)
		return ok && slices.Contains(hide, seg.ID)
	})
	return page, err
}

// TestStartByAMapReadInHalves: the map's records are not read at one instant. One that lacks two segments
// which were split off and merged in between tiles the ring all the same, and must not be gone by.
func TestStartByAMapReadInHalves(t *testing.T) {
	r := newRig(t)
	r.create(t, "t", Config{})
	m, err := r.Reload(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	a, b := r.split(t, m.Open[0])
	r.write(t, a, 1, 3)
	r.merge(t, a, b)
	for _, how := range []string{"create", "seek"} {
		q := &torn{Store: r.store}
		s := New(Deps{Meta: q, IDs: r.ids, Clock: r.clock})
		q.hide = []queue.SegmentID{a.ID, b.ID}
		var sub *meta.Subscription
		if how == "create" {
			sub, _, err = s.CreateSubscription(t.Context(), "t", "s", SubscriptionConfig{Start: Start{Kind: StartLatest}})
		} else {
			sub, err = s.Seek(t.Context(), "t", "s", Start{Kind: StartLatest})
		}
		if err != nil || sub.Cut[a.ID] != 3 {
			t.Errorf("%s: %+v, %v", how, sub, err)
		}
	}
	// What was removed is no reason to look again.
	if _, err := r.store.Apply(t.Context(), meta.Delete{Key: m.Open[0].Key(), Kind: meta.KindSegment}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Seek(t.Context(), "t", "s", Start{Kind: StartLatest}); err != nil {
		t.Error(err)
	}
}
