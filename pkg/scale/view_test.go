package scale_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// TestSegmentsPage walks all pages of all states: what they show together is what one view shows.
func TestSegmentsPage(t *testing.T) {
	r := newRig(t)
	r.create("t", topics.Config{TargetMessages: 10})
	r.send("t", produce.Guard{}, keys("k", 100)...)
	r.now = r.now.Add(20 * time.Second)
	for range 3 {
		for _, seg := range r.load("t").Open {
			if _, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: seg.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.now = r.now.Add(time.Minute)
	whole, err := r.scale.Segments(t.Context(), "t")
	if err != nil || len(whole.Segments) != 15 || whole.Next != "" {
		t.Fatalf("%d segments, next %q, %v", len(whole.Segments), whole.Next, err)
	}
	for _, state := range []scale.SegmentState{"", scale.SegmentOpen, scale.SegmentSealed} {
		var want []queue.SegmentID
		for _, s := range whole.Segments {
			if state == "" || scale.StateOf(s.Segment) == state {
				want = append(want, s.ID)
			}
		}
		for _, limit := range []int{1, 4, 15, queue.MaxPageSize} {
			var got []queue.SegmentID
			for p := (scale.Page{Limit: limit, State: state}); ; {
				v, err := r.scale.SegmentsPage(t.Context(), "t", p)
				if err != nil || len(v.Segments) > limit {
					t.Fatalf("%d segments, %v", len(v.Segments), err)
				}
				for _, s := range v.Segments {
					got = append(got, s.ID)
				}
				if p.Cursor = v.Next; p.Cursor == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("state %q, limit %d: %v, want %v", state, limit, got, want)
			}
		}
	}
	first := whole.Segments[slices.IndexFunc(whole.Segments, func(s scale.SegmentView) bool { return s.Range == queue.Ring() })]
	if first.Life != 20*time.Second || first.Mean != (meta.Rate{Messages: 5, Bytes: first.Mean.Bytes, Commits: 0.05}) {
		t.Errorf("the first segment took %+v over %v", first.Mean, first.Life)
	}
	for _, p := range []scale.Page{{Limit: -1}, {Limit: queue.MaxPageSize + 1}, {State: "shut"}} {
		if _, err := r.scale.SegmentsPage(t.Context(), "t", p); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
