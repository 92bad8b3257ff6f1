package delay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

func TestPromote(t *testing.T) {
	for _, c := range []struct {
		name string
		put  []group
		pass time.Duration
		// want are the bodies promoted, left those that wait; next is in seconds from the start.
		want, left []string
		next       int
	}{
		{name: "nothing"},
		{name: "not yet", put: []group{{visible: 60, name: "a"}}, pass: 59 * time.Second, left: []string{"a-0"}, next: 60},
		{name: "at the instant", put: []group{{visible: 60, name: "a"}}, pass: 60 * time.Second, want: []string{"a-0"}},
		{
			name: "a delayed one beside a due one", pass: 60 * time.Second,
			put:  []group{{visible: 61, name: "b"}, {visible: 60, name: "a"}},
			want: []string{"a-0"}, left: []string{"b-0"}, next: 61,
		},
		{
			name: "a whole page that waits", pass: time.Second,
			put:  []group{{visible: 60, name: "a"}, {visible: 60, name: "b"}, {visible: 60, name: "c"}, {visible: 60, name: "d"}, {visible: 60, name: "e"}, {visible: 61, name: "f"}},
			left: []string{"a-0", "b-0", "c-0", "d-0", "e-0", "f-0"}, next: 60,
		},
		{
			name: "expired before visible", pass: 60 * time.Second,
			put:  []group{{visible: 60, expires: 30, name: "a"}, {visible: 60, expires: 61, name: "b"}},
			want: []string{"b-0"},
		},
		{
			name: "expires when it becomes visible", pass: 60 * time.Second,
			put: []group{{visible: 60, expires: 60, name: "a"}},
		},
		{
			name: "expired, but not due", pass: 59 * time.Second,
			put:  []group{{visible: 60, expires: 30, name: "a"}},
			left: []string{"a-0"}, next: 60,
		},
		{
			name: "groups", pass: 60 * time.Second,
			put:  []group{{visible: 60, slots: spread(5), name: "a"}, {visible: 59, slots: spread(2), name: "b", noSizes: true}},
			want: []string{"a-0", "a-1", "a-2", "a-3", "a-4", "b-0", "b-1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, delayedTopic(3))
			start := r.millis()
			at := func(seconds queue.Millis) queue.Millis {
				if seconds == 0 {
					return 0
				}
				return start.Add(time.Duration(seconds) * time.Second)
			}
			for _, g := range c.put {
				g.visible, g.expires = at(g.visible), at(g.expires)
				r.put(t, g)
			}
			r.pass(c.pass)
			n, next := r.promote(t)
			if n != len(c.want) || next != at(queue.Millis(c.next)) {
				t.Errorf("promoted %d, next %v", n, next)
			}
			if got := bodies(r.contents(t)); !slices.Equal(got, c.want) {
				t.Errorf("promoted %v, want %v", got, c.want)
			}
			if got := bodiesOf(r.waiting(t)); !slices.Equal(got, c.left) {
				t.Errorf("waiting %v, want %v", got, c.left)
			}
			if n, _ := r.promote(t); n != 0 {
				t.Errorf("promoted %d again", n)
			}
		})
	}
}

func TestPromoteKeepsTimesAndOrder(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	for i := range 10 {
		r.put(t, group{visible: r.in(60 - i), name: fmt.Sprintf("m%d", 60-i)})
	}
	r.pass(2 * time.Minute)
	r.promote(t)
	got := r.contents(t)
	if !slices.IsSortedFunc(got, func(a, b promotedMessage) int { return int(a.visible - b.visible) }) {
		t.Error("not promoted in order of visible time")
	}
	for _, m := range got {
		if want := fmt.Sprintf("m%d-0", m.visible.Sub(r.in(-120))/time.Second); m.body != want {
			t.Errorf("%s became visible at the time of %s", m.body, want)
		}
	}
}

func TestPromoteWakesWaiters(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	woken, leave := r.Hub.Wait(r.open(t).ID())
	defer leave()
	r.put(t, group{visible: r.in(1), name: "a"})
	r.promote(t)
	select {
	case <-woken:
		t.Error("woken though nothing was due")
	default:
	}
	r.pass(time.Second)
	r.promote(t)
	select {
	case <-woken:
	default:
		t.Error("not woken")
	}
}

// An entry that spans more segments than one transaction may touch, or whose gaps make more refs than
// a head takes at once, is promoted in parts.
func TestPromoteInParts(t *testing.T) {
	for _, c := range []struct {
		name              string
		segments, count   int
		cancelEverySecond bool
	}{
		{"many segments", 250, 1000, false},
		{"many gaps", 1, 200, true},
		{"both", 120, 1000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, delayedTopic(c.segments))
			ids := r.put(t, group{visible: r.in(1), slots: spread(c.count), name: "a"})
			r.put(t, group{visible: r.in(1), slots: spread(3), name: "b"})
			want := c.count + 3
			if c.cancelEverySecond {
				for i := 0; i < len(ids); i += 2 {
					want--
				}
				r.edit(t, ids[0], func(d *meta.Delayed) {
					for i := 0; i < len(ids); i += 2 {
						d.Gone = append(d.Gone, uint32(i))
					}
				})
			}
			r.pass(time.Second)
			if n, next := r.promote(t); n != want || next != 0 {
				t.Errorf("promoted %d of %d, next %v", n, want, next)
			}
			got := bodies(r.contents(t))
			if len(got) != want || len(slices.Compact(got)) != want {
				t.Errorf("%d messages, want %d", len(got), want)
			}
			if n := r.entries(t); n != 0 {
				t.Errorf("%d entries left", n)
			}
		})
	}
}

// edit changes an entry behind the service's back.
func (r *rig) edit(t tester, id queue.DelayedID, change func(*meta.Delayed)) {
	t.Helper()
	d, _, err := meta.Fetch[*meta.Delayed](background(), r.store, meta.DelayedKey(r.open(t).ID(), shard, id.Visible, id.Entry))
	if err != nil {
		t.Fatal(err)
	}
	c := *d
	change(&c)
	if _, err := r.store.Apply(background(), meta.Put{Record: &c, Version: meta.NewVersion(r.IDs)}); err != nil {
		t.Fatal(err)
	}
}

func TestPromoteRollsFullTails(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	for i := range 150 {
		r.put(t, group{visible: r.in(1), name: fmt.Sprintf("m%d", i)})
	}
	r.pass(time.Second)
	if n, _ := r.promote(t); n != 150 {
		t.Errorf("promoted %d", n)
	}
	// A head that nobody has rolled in time.
	seg := r.open(t).Open[0]
	h, _ := r.Log.Head(t.Context(), seg.ID)
	for i := len(h.Tail); i < queue.MaxTailRefs; i++ {
		ref := meta.Ref{Kind: meta.RefPayload, ID: r.IDs.Nonce(), Object: r.object(t, "x"), Len: 1, Count: 1, Bytes: 1, Slot: 1, Created: r.millis()}
		op := meta.Append{Segment: seg.ID, Epoch: seg.Epoch, Refs: []meta.Ref{ref}, At: r.millis()}
		op.Buckets[0] = 1
		if _, err := r.store.Apply(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	r.put(t, group{visible: r.in(1), name: "late"})
	r.pass(time.Second)
	if n, _ := r.promote(t); n != 1 {
		t.Errorf("promoted %d", n)
	}
	r.contents(t)
}

func (r *rig) object(t tester, data string) string {
	t.Helper()
	key, err := r.blobs.Create(background(), "uploads/", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// split replaces a segment by two.
func (r *rig) split(t tester, seg *meta.Segment) {
	t.Helper()
	clock := queue.Clock(r.clock)
	leader := scale.New(scale.Deps{
		Meta: r.store, Topics: r.Topics, Lease: lease.New(r.store, r.IDs, clock), IDs: r.IDs, Clock: clock,
	})
	_, err := leader.Split(background(), scale.SplitRequest{Topic: topicName, Segment: seg.ID})
	if err != nil && !queue.Is(err, queue.KindConflict) { // of two that race one wins
		t.Fatal(err)
	}
}

func TestPromoteFollowsASplit(t *testing.T) {
	r := newRig(t, delayedTopic(2))
	m := r.open(t)
	r.put(t, group{visible: r.in(1), slots: spread(64), name: "a"})
	r.split(t, m.Open[0])
	r.pass(time.Second)
	n, _, err := r.Promote(t.Context(), m, r.millis())
	if err != nil || n != 64 {
		t.Fatal(n, err)
	}
	if got := r.contents(t); len(got) != 64 {
		t.Errorf("%d messages", len(got))
	}
}

func TestPromoteOfADeletedTopic(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	m := r.open(t)
	r.put(t, group{visible: r.in(1), name: "a"})
	r.pass(time.Second)
	if err := r.Topics.Delete(t.Context(), topicName); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.Promote(t.Context(), m, r.millis())
	wantCode(t, err, queue.CodeTopicNotFound)
	if _, _, err := r.Topics.Create(t.Context(), topicName, delayedTopic(1)); err != nil {
		t.Fatal(err)
	}
	_, _, err = r.Promote(t.Context(), m, r.millis())
	wantCode(t, err, queue.CodeTopicNotFound)
	if got := r.contents(t); len(got) != 0 {
		t.Errorf("the new topic got the old one's messages: %v", got)
	}
}

// An entry that is damaged does not keep the others from being promoted.
func TestPromotePassesOverDamage(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	ids := r.put(t, group{visible: r.in(1), name: "a"})
	r.edit(t, ids[0], func(d *meta.Delayed) { d.Slots = append(d.Slots, 9) })
	r.put(t, group{visible: r.in(2), name: "b"})
	r.pass(2 * time.Second)
	n, _, err := r.Promote(t.Context(), r.open(t), r.millis())
	wantCode(t, err, queue.CodeCorrupt)
	if n != 1 {
		t.Errorf("promoted %d", n)
	}
}

func TestCosts(t *testing.T) {
	calls := func(r *rig, do func()) int64 {
		before := r.meter.Snapshot()
		do()
		return r.meter.Snapshot().Sub(before).Calls()
	}
	t.Run("normal topic", func(t *testing.T) {
		r := newRig(t, topics.Config{})
		m := r.open(t)
		n := calls(r, func() {
			if n, next, err := r.Promote(t.Context(), m, r.millis()); n != 0 || next != 0 || err != nil {
				t.Error(n, next, err)
			}
			if _, _, err := r.Count(t.Context(), topicName, 10); err != nil {
				t.Error(err)
			}
			if _, _, err := r.List(t.Context(), topicName, Listing{Limit: 10}); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("%d store calls", n)
		}
	})
	t.Run("nothing due", func(t *testing.T) {
		r := newRig(t, delayedTopic(1))
		m := r.open(t)
		for range 100 {
			r.put(t, group{visible: r.in(60), name: "a"})
		}
		if n := calls(r, func() { _, _, _ = r.Promote(t.Context(), m, r.millis()) }); n != 1 {
			t.Errorf("%d store calls", n)
		}
	})
	t.Run("some due", func(t *testing.T) {
		r := newRig(t, delayedTopic(8))
		m := r.open(t)
		for range 3 {
			r.put(t, group{visible: r.in(1), slots: spread(50), name: "a"})
		}
		r.pass(time.Second)
		// One query, one transaction: it reaches all 8 heads and takes 3 entries.
		if n := calls(r, func() { _, _, _ = r.Promote(t.Context(), m, r.millis()) }); n != 2 {
			t.Errorf("%d store calls", n)
		}
	})
}

func TestFormerlyDelayedTopic(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	r.put(t, group{visible: r.in(60), name: "a"})
	stale := group{visible: r.in(60), name: "stale"}
	if _, err := r.Topics.Update(t.Context(), topicName, topics.Patch{DefaultDelay: ptr(time.Duration(0))}); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Minute)
	if n, _ := r.promote(t); n != 1 {
		t.Errorf("consumers promoted %d of what was put before the update", n)
	}
	// A producer that slept with the old config puts an entry long after.
	r.pass(24 * time.Hour)
	r.put(t, stale)
	if n, _ := r.promote(t); n != 0 {
		t.Errorf("consumers still look: %d", n)
	}
	n, _, err := r.PromoteAll(t.Context())
	if n != 1 || err != nil {
		t.Errorf("the backstop promoted %d: %v", n, err)
	}
}

func TestPromoteAll(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	if _, _, err := r.Topics.Create(t.Context(), "normal", topics.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Topics.Create(t.Context(), "other", delayedTopic(1)); err != nil {
		t.Fatal(err)
	}
	r.put(t, group{visible: r.in(1), name: "a"})
	r.put(t, group{visible: r.in(9), name: "b"})
	r.pass(time.Second)
	n, next, err := r.PromoteAll(t.Context())
	if n != 1 || next != r.in(8) || err != nil {
		t.Errorf("promoted %d, next %v: %v", n, next, err)
	}
}
