package scale_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// TestEventsAreKept: of many events, large enough that a page of the store does not hold as many as are kept,
// the newest thousand stay, whoever makes changes.
func TestEventsAreKept(t *testing.T) {
	const before = 1100
	for _, who := range []string{"by hand", "leader"} {
		t.Run(who, func(t *testing.T) {
			r := newRig(t)
			for i := range before {
				r.putEvent(i)
			}
			count := func() int {
				events, _, err := r.scale.Events(t.Context(), "", "", meta.EventsKept)
				if err != nil || len(events) != meta.EventsKept {
					t.Fatalf("%d events, %v", len(events), err)
				}
				all := 0
				q := meta.Range{PK: meta.EventPK, Limit: meta.MaxQueryLimit}
				for {
					page, err := r.bare.Query(t.Context(), q)
					if err != nil {
						t.Fatal(err)
					}
					if all += len(page.Items); !page.More {
						return all
					}
					q.From = meta.After(page.Items[len(page.Items)-1].Record.Key().SK)
				}
			}
			if who == "by hand" {
				r.create("t", topics.Config{})
				for range 64 { // twice the changes between two removals: each removes 99
					open := r.load("t").Open
					widest := slices.MaxFunc(open, func(a, b *meta.Segment) int { return cmp.Compare(a.Range.Len(), b.Range.Len()) })
					if _, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: widest.ID}); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				for i := range 100 {
					r.create(fmt.Sprintf("t%d", i), topics.Config{MinSegments: 1, TargetMessages: 1})
					two := 2
					if _, err := r.topics.Update(t.Context(), fmt.Sprintf("t%d", i), topics.Patch{MinSegments: &two}); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 {
					r.runLeader()
				}
			}
			if n := count(); n > meta.EventsKept+100 {
				t.Errorf("%d events stay", n)
			}
		})
	}
}

// putEvent puts an event of 2 KB that is older than any that the rig's clock makes.
func (r *rig) putEvent(i int) {
	r.t.Helper()
	e := &meta.Event{At: queue.Millis(i + 1), ID: r.ids.ID(), Name: "old", Action: meta.ActionSplit, Reason: strings.Repeat("x", 2000)}
	if _, err := r.bare.Apply(r.t.Context(), meta.Put{Record: e, If: meta.Absent(), Version: meta.NewVersion(r.ids)}); err != nil {
		r.t.Fatal(err)
	}
}
