package compact_test

import (
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// TestReplayCost: history of single messages is read by few requests once it was compacted, though each
// commit has a ref of its own still. It is what docs/decisions/0012 goes by.
func TestReplayCost(t *testing.T) {
	const commits = 2048
	r := newRig(t)
	r.target = 1 << 20
	r.create("one", topics.Config{})
	for i := range commits {
		r.send("one", produce.Message{Key: fmt.Appendf(nil, "k%d", i%100), Body: fmt.Appendf(nil, "%0100d", i)})
	}
	cost := func() meter.Snapshot {
		m := meter.New()
		if got := r.readBy(r.system(m.Meta(r.meta), m.Blob(r.blob), r.clock), "one"); len(got) != commits {
			t.Fatalf("%d messages", len(got))
		}
		return m.Snapshot()
	}
	before, want := cost(), r.read("one")
	r.pass(2 * queue.CompactAge)
	r.note("one")
	r.target = 100_000
	if got := r.run(); got.Pages < 60 || got.NewPages > 10 {
		t.Fatalf("compaction did %+v", got)
	}
	r.settle()
	after := cost()
	r.same("one", r.read("one"), want)
	t.Logf("before:\n%s\nafter:\n%s", before, after)
	if before.Ops("get payload") != commits {
		t.Errorf("before compaction a replay costs\n%s", before)
	}
	// What is still in the tail, or in no full group, is read as before.
	few := int64(commits / 16)
	if n := after.Ops("get payload") + after.Ops("get object"); n > few || after.Ops("query page") > before.Ops("query page")/4 {
		t.Errorf("after compaction a replay costs\n%s", after)
	}
}
