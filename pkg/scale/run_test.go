package scale_test

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// TestRunFollowsLoad drives a topic through a flood and back: the leader is asked by the producer, splits,
// and in the end has merged everything and forgotten the topic.
func TestRunFollowsLoad(t *testing.T) {
	r := newRig(t)
	r.create("t", topics.Config{TargetMessages: 100})
	if rep := r.runLeader(); rep.Led {
		t.Fatalf("an idle system: %+v", rep)
	}
	// 2,000 messages a second for two minutes.
	splits, most := 0, 0
	for range 120 {
		for range 10 {
			r.send("t", produce.Guard{}, keys("k", 200)...)
			r.now = r.now.Add(100 * time.Millisecond)
		}
		if r.woken > 0 {
			r.woken = 0
			splits += r.runLeader().Splits
		}
		most = max(most, len(r.load("t").Open))
	}
	if most < 10 || most > 40 {
		t.Errorf("2,000 messages a second at a target of 100 made %d segments", most)
	}
	r.tiles("t")
	if n := r.messages("t"); n != 120*10*200 {
		t.Errorf("%d messages", n)
	}
	// Idle: a run a minute.
	runs := 0
	for r.runLeader().Watched > 0 {
		if r.now, runs = r.now.Add(time.Minute), runs+1; runs > 240 {
			t.Fatalf("after %d minutes %d segments are left", runs, len(r.load("t").Open))
		}
	}
	r.tiles("t")
	if n := len(r.load("t").Open); n != 1 {
		t.Errorf("%d segments are left", n)
	}
	t.Logf("%d splits to %d segments, back to one after %d minutes", splits, most, runs)
}
