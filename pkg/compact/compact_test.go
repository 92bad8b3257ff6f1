package compact_test

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// TestNothingChanges: after compaction every message is what it was, in far fewer pages and objects, and
// after the grace period the old bytes are gone and nothing else.
func TestNothingChanges(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	r.create("four", topics.Config{MinSegments: 4})
	r.fill("one", 660, 0)
	r.fill("four", 660, 1000)
	one, four := r.read("one"), r.read("four")
	before := r.stored()
	r.note("one")
	r.note("four")
	if got := r.run(); got != (compact.Report{}) {
		t.Errorf("pages were compacted that writers may still look into: %+v", got)
	}
	r.pass(queue.CompactAge)
	r.note("one")
	r.note("four")
	got := r.run()
	if got.Pages == 0 || got.NewPages >= got.Pages || got.Objects == 0 || got.Refs < 10*got.Objects || got.Deleted != 0 {
		t.Errorf("the run did %+v", got)
	}
	r.same("one", r.read("one"), one)
	r.same("four", r.read("four"), four)
	r.pass(queue.GracePeriod - time.Second)
	if got := r.run(); got.Deleted != 0 || got.Objects != 0 {
		t.Errorf("deleted within the grace period: %+v", got)
	}
	r.settle()
	r.same("one, after the grace period", r.read("one"), one)
	r.same("four, after the grace period", r.read("four"), four)
	r.audit()
	if after := r.stored(); after > before/2 {
		t.Errorf("%d objects of %d are left", after, before)
	}
}

// TestCost: an idle run is one query; so is one while everything waits.
func TestCost(t *testing.T) {
	r := newRig(t)
	m := meter.New()
	s := r.compactor(m.Meta(r.meta), m.Blob(r.blob))
	if _, err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.Snapshot(); got.Ops("query") != 1 || got.Total().Calls != 1 {
		t.Errorf("an idle run costs\n%s", got)
	}
	topic := r.create("one", topics.Config{})
	r.fill("one", 128, 0) // 4 pages, all of them in one group or two
	r.pass(queue.CompactAge + time.Hour)
	if _, err := r.meta.Apply(t.Context(), meta.Put{Record: &meta.Work{Due: 1, Segment: topic.Open[0].ID}, Version: 1}); err != nil {
		t.Fatal(err)
	}
	m = meter.New()
	s = r.compactor(m.Meta(r.meta), m.Blob(r.blob))
	got, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	snap := m.Snapshot()
	groups := int64(got.Objects)
	if groups == 0 || snap.Ops("put object") != groups || snap.Ops("put drop") != 2*groups || snap.Ops("delete drop") != groups || snap.Ops("put lease") != groups+2 {
		t.Errorf("a run that did %+v costs\n%s", got, snap)
	}
}

// TestRollLeavesNotes: the index of work is filled by rolls, and emptied by the compactor.
func TestRollLeavesNotes(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	r.fill("one", 1500, 0)
	n := len(r.query(meta.WorkPK(0)))
	if n == 0 || n > 20 {
		t.Fatalf("47 rolls left %d notes", n)
	}
	r.pass(queue.CompactAge + 2*queue.ClockSlack)
	want := r.read("one")
	if got := r.run(); got.Pages == 0 {
		t.Errorf("the notes led to %+v", got)
	}
	r.settle()
	if left := r.query(meta.WorkPK(0)); len(left) != 0 {
		t.Errorf("%d notes are left", len(left))
	}
	r.same("one", r.read("one"), want)
	r.audit()
}

// TestCrash stops a compactor at each of its store calls, in each way; another one finishes: nothing is
// lost and nothing is leaked.
func TestCrash(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		r.target = 9_000
		r.create("two", topics.Config{MinSegments: 2})
		for i := range 8 { // each call's bytes are shared by both segments, inline and not
			r.send("two", sized(4, []int{2500, 700, 700}[i%3])...)
		}
		r.rollAll("two")
		want := r.read("two")
		r.pass(queue.CompactAge + time.Minute)
		r.note("two")
		s := r.compactor(fault.Meta(r.meta, plan), fault.Blob(r.blob, plan))
		got, _ := s.Run(t.Context())
		if len(plan.Fired()) == 0 && got.Objects < 2 {
			t.Errorf("the scenario compacts nothing: %+v", got)
		}
		r.same("after the first run", r.read("two"), want)
		r.pass(queue.GracePeriod + time.Minute)
		_, _ = s.Run(t.Context())
		r.same("after the second run", r.read("two"), want)
		plan.Heal()
		r.settle()
		r.note("two")
		r.settle()
		r.same("after others came", r.read("two"), want)
		r.audit()
	}, append(fault.Standard(), fault.Repeat)...)
}
