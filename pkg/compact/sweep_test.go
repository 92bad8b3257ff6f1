package compact_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

func (r *rig) sweep() int {
	r.t.Helper()
	n, err := r.compactor(r.meta, r.blob).Sweep(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func large(n int) []produce.Message { return sized(n, 9000) }

func sized(n, size int) (out []produce.Message) {
	for i := range n {
		out = append(out, produce.Message{Key: fmt.Appendf(nil, "k%d", i), Body: bytes.Repeat([]byte{'y'}, size)})
	}
	return out
}

// TestOrphans: whatever a produce call or an edit leaves when it dies at any of its steps is removed in
// the end, and what is referred to is not.
func TestOrphans(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		r := newRig(t)
		r.create("one", topics.Config{})
		r.create("two", topics.Config{MinSegments: 2})
		r.create("late", topics.Config{DefaultDelay: 100 * time.Hour, MaxDelay: 1000 * time.Hour})
		r.send("two", large(4)...)
		r.send("late", large(3)...)
		sys := r.system(fault.Meta(r.meta, plan), fault.Blob(r.blob, plan), r.clock)
		for _, topic := range []string{"one", "late"} {
			_, _ = sys.Produce.Produce(t.Context(), produce.Request{Topic: topic, Messages: large(2)})
		}
		for _, topic := range []string{"two", "late"} { // payload records
			_, _ = sys.Produce.Produce(t.Context(), produce.Request{Topic: topic, Messages: sized(4, 100)})
		}
		listed, _, err := r.sys.Delay.List(t.Context(), "late", delay.Listing{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		body, wait := bytes.Repeat([]byte{'z'}, 9000), 50*time.Hour
		_, _ = sys.Delay.Edit(t.Context(), "late", listed[0].ID, delay.Edit{Body: &body})
		_, _ = sys.Delay.Edit(t.Context(), "late", listed[0].ID, delay.Edit{Delay: &wait})
		plan.Heal()
		r.pass(3 * time.Hour)
		r.settle()
		r.sweep()
		r.settle() // what has lost a part of its owners
		r.audit()
		if n := r.sweep(); n != 0 {
			t.Errorf("a sweep at once after another removed %d", n)
		}
	})
}

// TestHalfCall: a call that dies between two segments leaves bytes that have fewer owners than their refs
// say. They stay while they have any, and go after that.
func TestHalfCall(t *testing.T) {
	for name, size := range map[string]int{"object": 9000, "payload record": 300} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.target = 1_000
			m := r.create("two", topics.Config{MinSegments: 2})
			// Which of the two appends comes first is left to chance, and the crash may be of both.
			for rolled := false; !rolled; {
				plan := fault.Script(fault.Options{}, fault.Rule{Op: "append", Nth: 2, Fault: fault.CrashBefore})
				sys := r.system(fault.Meta(r.meta, plan), r.blob, r.clock)
				_, _ = sys.Produce.Produce(t.Context(), produce.Request{Topic: "two", Messages: sized(4, size)})
				for _, seg := range m.Open {
					rolled = rolled || len(r.query(meta.HeadPK(seg.ID))) > 1
				}
			}
			want := r.read("two")
			r.pass(3 * time.Hour)
			r.sweep()
			r.same("swept", r.read("two"), want)
			if len(m.Open) != 2 || len(want) == 0 {
				t.Fatal(len(m.Open), len(want))
			}
			r.note("two")
			r.settle()
			r.same("in the end", r.read("two"), want)
			r.audit()
		})
	}
}

// TestHeldUpload: a submission that dies after it took hold of its upload keeps the upload for a time, and
// not for ever; one that got through keeps it.
func TestHeldUpload(t *testing.T) {
	r := newRig(t)
	m := r.create("one", topics.Config{MinSegments: 2})
	submit := func(name string, fail bool) {
		key := "uploads/" + string(m.ID()) + "/" + name
		if _, err := r.blob.Put(t.Context(), key, strings.NewReader("body"), blob.Terms{Size: 4}); err != nil {
			t.Fatal(err)
		}
		plan := fault.Script(fault.Options{}, fault.Rule{Op: "append", Nth: 1, Fault: fault.CrashBefore})
		if !fail {
			plan.Heal()
		}
		sys := r.system(fault.Meta(r.meta, plan), r.blob, r.clock)
		_, err := sys.Produce.References(t.Context(), produce.ReferencesRequest{Topic: "one", References: []produce.Reference{{Object: key, Key: []byte(name)}}})
		if !fail && err != nil {
			t.Fatal(err)
		}
	}
	submit("a", false)
	submit("b", true)
	want := r.read("one")
	r.pass(23 * time.Hour)
	r.sweep()
	if len(r.objects()) != 2 {
		t.Error("an upload went before its time")
	}
	r.pass(12 * time.Hour)
	r.sweep()
	r.settle()
	if got := r.objects(); len(got) != 1 {
		t.Errorf("left are %v", got)
	}
	r.same("after the sweep", r.read("one"), want)
	r.audit()
}

// TestSweepLooksOnce: what was judged once is not looked for again: neither are its segments read, nor the
// pages from before what has come of age.
func TestSweepLooksOnce(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	r.fill("one", 400, 0)
	r.pass(3 * time.Hour)
	cost := func() meter.Snapshot {
		m := meter.New()
		if _, err := r.compactor(m.Meta(r.meta), m.Blob(r.blob)).Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		return m.Snapshot()
	}
	first := cost()
	if first.Ops("touch") != 1 {
		t.Errorf("the first sweep costs\n%s", first)
	}
	if got := cost(); got.Total().Calls != 1 {
		t.Errorf("a sweep at once after another costs\n%s", got)
	}
	r.pass(7 * time.Hour)
	if got := cost(); got.Ops("touch") != 0 || got.Ops("query") > 1+meta.PayloadShards || got.Ops("get") != 0 {
		t.Errorf("a sweep over nothing new costs\n%s", got)
	}
	r.fill("one", 40, 0)
	r.pass(7 * time.Hour)
	if got := cost(); got.Ops("touch") != 1 || got.Ops("query") > 1+meta.PayloadShards+8 {
		t.Errorf("a sweep over little that is new costs\n%s", got)
	}
}

// TestLateCommit: a writer that stalls between its put and its commit until its object is swept must not
// commit any more.
func TestLateCommit(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	r.send("one", large(1)...)
	want := r.read("one")
	slow := &held{Store: r.meta}
	slow.while = func() {
		r.pass(3 * time.Hour)
		if n := r.sweep(); n != 1 {
			t.Errorf("swept %d objects, want the stalled writer's", n)
		}
	}
	got, err := r.system(slow, r.blob, r.clock).Produce.Produce(t.Context(), produce.Request{Topic: "one", Messages: large(1)})
	if err == nil {
		err = got.Runs[0].Err
	}
	if !queue.Is(err, queue.KindUnavailable) || !slow.met {
		t.Errorf("the late commit ended with %v", err)
	}
	r.same("after it", r.read("one"), want)
	r.audit()
}
