package compact_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
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
		r.audit()
		if n := r.sweep(); n != 0 {
			t.Errorf("a sweep at once after another removed %d", n)
		}
	})
}

// TestHalfCall: a call that dies between two segments leaves an object that has fewer owners than it
// says. It stays while it has any, and goes after that.
func TestHalfCall(t *testing.T) {
	r := newRig(t)
	r.target = 100_000
	m := r.create("two", topics.Config{MinSegments: 2})
	// Which of the two appends comes first is left to chance, and the crash may be of both.
	for rolled := false; !rolled; {
		plan := fault.Script(fault.Options{}, fault.Rule{Op: "append", Nth: 2, Fault: fault.CrashBefore})
		sys := r.system(fault.Meta(r.meta, plan), r.blob, r.clock)
		_, _ = sys.Produce.Produce(t.Context(), produce.Request{Topic: "two", Messages: large(4)})
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
	r.settle() // frees what there is to free, which is not all that was said
	r.pass(12 * time.Hour)
	if n := r.sweep(); n == 0 {
		t.Error("nothing was left to sweep")
	}
	r.same("in the end", r.read("two"), want)
	r.audit()
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
