package scale_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// spent counts what a step costs: calls by name, and the ops of transactions.
type spent struct {
	m    *meter.Meter
	last meter.Snapshot
}

// since gives the calls, and the ops that transactions held, since it was last asked.
func (s *spent) since() (calls map[string]int64, total, ops int64) {
	now := s.m.Snapshot()
	diff := now.Sub(s.last)
	s.last = now
	calls = make(map[string]int64)
	for _, row := range diff.Rows {
		if row.Calls > 0 {
			calls[row.Op] = row.Calls
			total += row.Calls
		}
		ops += row.Ops - row.Calls
	}
	return calls, total, ops
}

func newCostRig(t *testing.T) (*rig, *spent) {
	m := meter.New()
	r := newRig(t, m.Meta)
	return r, &spent{m: m}
}

// TestCost holds the price of a change: a read of the map, and one transaction of a fixed number of ops for
// each segment that goes or comes. The leader costs one query where nothing is watched, and as many calls for
// a calm topic as for any that needs no change.
func TestCost(t *testing.T) {
	r, spent := newCostRig(t)
	r.create("t", topics.Config{})
	spent.since()
	for _, k := range []int{2, 4, queue.MaxSplit} {
		open := r.load("t").Open
		spent.since()
		made, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: open[0].ID, Into: k})
		if err != nil {
			t.Fatal(err)
		}
		// Topic, event and watch; descriptor and head of the parent and of each child. Before it: name and
		// map, head and gauges.
		if calls, total, ops := spent.since(); total != 5 || calls["transact"] != 1 || ops != int64(3+2+2*k) {
			t.Errorf("a split into %d: %d calls %v, %d ops", k, total, calls, ops)
		}
		if _, err := r.scale.Merge(t.Context(), scale.MergeRequest{Topic: "t", Segments: made.Made}); err != nil {
			t.Fatal(err)
		}
		if calls, total, ops := spent.since(); total != 3 || calls["transact"] != 1 || ops != int64(3+2*k+2) {
			t.Errorf("a merge of %d: %d calls %v, %d ops", k, total, calls, ops)
		}
	}

	r.now = r.now.Add(time.Hour)
	r.runLeader()
	spent.since()
	for range 3 {
		if rep := r.runLeader(); rep.Led {
			t.Fatalf("%+v", rep)
		}
	}
	if calls, total, _ := spent.since(); total != 3 {
		t.Errorf("three runs of an idle leader: %v", calls)
	}
}

// TestLeaderCost: a topic that is watched costs a query for its map, one for its gauges, a read for each
// hundred heads, and one gauge; and the run one query and the lease. Each change is one transaction more.
func TestLeaderCost(t *testing.T) {
	r, spent := newCostRig(t)
	r.create("t", topics.Config{MinSegments: 2, TargetMessages: 1000})
	watch := func(pressed bool) { r.topics.Alert(t.Context(), r.load("t"), pressed) }
	watch(false)
	r.runLeader()
	r.now = r.now.Add(time.Minute)
	spent.since()
	if rep := r.runLeader(); rep.Watched != 1 || rep.Splits != 0 {
		t.Fatalf("%+v", rep)
	}
	calls, total, _ := spent.since()
	want := map[string]int64{"query watch": 1, "get lease": 1, "put lease": 1, "query segment": 1, "get all head": 1, "query gauge": 1, "put gauge": 1, "transact": 1}
	for name, n := range want {
		if calls[name] != n {
			t.Errorf("a calm topic: %s %d times, want %d (%v)", name, calls[name], n, calls)
		}
	}
	const calm = 8
	if total != calm {
		t.Errorf("a calm topic: %d calls %v, want %d", total, calls, calm)
	}

	// One of the two is to be split.
	least := 3
	if _, err := r.topics.Update(t.Context(), "t", topics.Patch{MinSegments: &least}); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(time.Minute)
	spent.since()
	if rep := r.runLeader(); rep.Splits != 1 {
		t.Fatalf("%+v", rep)
	}
	// Lease, topic and event; descriptor and head of the parent and of two children. And the lease is given up.
	calls, total, ops := spent.since()
	if total != calm+1 || calls["transact"] != 2 || ops != 3+2+4+1 {
		t.Errorf("a split by the leader: %d calls %v, %d ops", total, calls, ops)
	}
}

// TestProduceCostAfterChange: a commit costs what it always does; a guarded one reads each predecessor of a
// young segment once in a process, and not at all once the segment is older than any retry.
func TestProduceCostAfterChange(t *testing.T) {
	r, spent := newCostRig(t)
	r.create("t", topics.Config{})
	seg := r.send("t", produce.Guard{}, "a")[0].Segment
	if _, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: seg, Into: 2}); err != nil {
		t.Fatal(err)
	}
	r.load("t")
	r.send("t", produce.Guard{}, "a")
	sequence := uint64(0)
	cost := func(guarded bool) (map[string]int64, int64) {
		if _, err := r.topics.Open(t.Context(), "t"); err != nil { // the map is in the cache
			t.Fatal(err)
		}
		spent.since()
		g := produce.Guard{}
		if sequence++; guarded {
			g = produce.Guard{ProducerID: "p", Sequence: sequence}
		}
		r.send("t", g, "a")
		calls, total, _ := spent.since()
		return calls, total
	}
	if calls, total := cost(false); total != 1 {
		t.Errorf("a commit to a young segment: %v", calls)
	}
	if calls, total := cost(true); total != 2 || calls["get head"] != 1 {
		t.Errorf("the first guarded commit to a young segment: %v", calls)
	}
	if calls, total := cost(true); total != 1 {
		t.Errorf("the second guarded commit to a young segment: %v", calls)
	}
	r.assemble(r.store) // another process
	r.now = r.now.Add(queue.ProducerWindow + 2*queue.ClockSlack)
	if calls, total := cost(true); total != 1 {
		t.Errorf("a guarded commit to an old segment: %v", calls)
	}
}

// TestLeaderCostOfManySegments: a topic of 5,000 segments costs the leader one query page for 100 of them at
// most, and the same again for their heads.
func TestLeaderCostOfManySegments(t *testing.T) {
	r, spent := newCostRig(t)
	r.create("t", topics.Config{MinSegments: queue.MaxSegments})
	r.topics.Alert(t.Context(), r.load("t"), false)
	r.runLeader()
	r.now = r.now.Add(time.Minute)
	spent.since()
	if rep := r.runLeader(); rep.Watched != 1 || rep.Splits+rep.Merges != 0 {
		t.Fatalf("%+v", rep)
	}
	calls, _, _ := spent.since()
	queries, heads := int64(0), calls["get all head"]
	for name, n := range calls {
		if len(name) > 5 && name[:5] == "query" {
			queries += n
		}
	}
	if queries > queue.MaxSegments/100 || heads != queue.MaxSegments/meta.MaxGetKeys {
		t.Errorf("%d queries and %d reads of heads: %v", queries, heads, calls)
	}
	t.Log(fmt.Sprint(calls))
}
