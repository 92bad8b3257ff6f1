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

func TestSplitAndMergeByHand(t *testing.T) {
	r := newRig(t)
	r.create("t", topics.Config{})
	first := r.send("t", produce.Guard{}, keys("k", 100)...)
	seg := first[0].Segment
	dry, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: seg, Into: 4, DryRun: true})
	if err != nil || len(dry.Made) != 0 || len(dry.Ranges) != 4 || len(r.load("t").Open) != 1 {
		t.Fatalf("%+v, %v", dry, err)
	}
	made, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: seg, Into: 4})
	if err != nil || !slices.Equal(made.Ranges, dry.Ranges) || len(made.Made) != 4 {
		t.Fatalf("%+v, %v", made, err)
	}
	r.tiles("t")
	// The producer still has the old map.
	second := r.send("t", produce.Guard{}, keys("k", 100)...)
	seen := make(map[queue.SegmentID]bool)
	for _, id := range second {
		if seen[id.Segment] = true; id.Segment == seg {
			t.Fatalf("%v is in the sealed segment", id)
		}
	}
	if len(seen) != 4 {
		t.Errorf("messages went to %d segments", len(seen))
	}
	merged, err := r.scale.Merge(t.Context(), scale.MergeRequest{Topic: "t", Segments: made.Made[1:3]})
	if err != nil || len(merged.Made) != 1 {
		t.Fatalf("%+v, %v", merged, err)
	}
	r.tiles("t")
	one := r.load("t").Segment(merged.Made[0])
	if len(one.Predecessors) != 2 || !slices.Contains(one.Predecessors, made.Made[1]) || !slices.Contains(one.Predecessors, made.Made[2]) {
		t.Errorf("predecessors %v", one.Predecessors)
	}
	r.send("t", produce.Guard{}, keys("k", 100)...)
	if n := r.messages("t"); n != 300 {
		t.Errorf("%d messages, want 300", n)
	}
	events, _, err := r.scale.Events(t.Context(), "", "", 10)
	if err != nil || len(events) != 2 || events[0].Action != meta.ActionMerge && events[1].Action != meta.ActionMerge {
		t.Errorf("%d events, %v", len(events), err)
	}
	v, err := r.scale.Segments(t.Context(), "t")
	if err != nil || len(v.Segments) != 6 || v.Epoch != 3 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestByHandRefuses(t *testing.T) {
	r := newRig(t)
	r.create("t", topics.Config{MinSegments: 2, MaxSegments: 3})
	open := r.load("t").Open
	a, b := open[0].ID, open[1].ID
	split := func(req scale.SplitRequest) error {
		req.Topic = "t"
		_, err := r.scale.Split(t.Context(), req)
		return err
	}
	merge := func(ids ...queue.SegmentID) error {
		_, err := r.scale.Merge(t.Context(), scale.MergeRequest{Topic: "t", Segments: ids})
		return err
	}
	for name, tc := range map[string]struct {
		err  error
		kind queue.Kind
	}{
		"into one":          {split(scale.SplitRequest{Segment: a, Into: 1}), queue.KindInvalid},
		"into too many":     {split(scale.SplitRequest{Segment: a, Into: queue.MaxSplit + 1}), queue.KindInvalid},
		"both":              {split(scale.SplitRequest{Segment: a, Into: 2, At: []queue.Slot{5}}), queue.KindInvalid},
		"at its start":      {split(scale.SplitRequest{Segment: a, At: []queue.Slot{0}}), queue.KindInvalid},
		"outside":           {split(scale.SplitRequest{Segment: a, At: []queue.Slot{40000}}), queue.KindInvalid},
		"descending":        {split(scale.SplitRequest{Segment: a, At: []queue.Slot{9, 8}}), queue.KindInvalid},
		"too many slots":    {split(scale.SplitRequest{Segment: a, At: make([]queue.Slot, queue.MaxSplit)}), queue.KindInvalid},
		"above the maximum": {split(scale.SplitRequest{Segment: a, Into: 3}), queue.KindConflict},
		"no such segment":   {split(scale.SplitRequest{Segment: "none"}), queue.KindNotFound},
		"one alone":         {merge(a), queue.KindInvalid},
		"one twice":         {merge(a, a), queue.KindInvalid},
		"below the minimum": {merge(a, b), queue.KindConflict},
	} {
		if !queue.Is(tc.err, tc.kind) {
			t.Errorf("%s: %v, want %v", name, tc.err, tc.kind)
		}
	}
	if err := split(scale.SplitRequest{Segment: a, At: []queue.Slot{100}}); err != nil {
		t.Fatal(err)
	}
	if err := split(scale.SplitRequest{Segment: a}); !queue.Is(err, queue.KindConflict) {
		t.Errorf("a sealed segment: %v", err)
	}
	parts := r.load("t").Open
	if err := merge(parts[0].ID, parts[2].ID); !queue.Is(err, queue.KindInvalid) {
		t.Errorf("not neighbours: %v", err)
	}
	if _, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "none", Segment: a}); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("no topic: %v", err)
	}
}

// TestRetryAcrossChange: a guarded call that is tried again after a split or merge finds what its first try
// committed, to the segments that are sealed now.
func TestRetryAcrossChange(t *testing.T) {
	for name, guard := range map[string]func(n uint64) produce.Guard{
		"sequence": func(n uint64) produce.Guard { return produce.Guard{ProducerID: "p", Sequence: n} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create("t", topics.Config{})
			ks := keys("k", 50)
			r.send("t", guard(1), keys("x", 3)...)
			first := r.send("t", guard(2), ks...)
			parts, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: first[0].Segment, Into: 4})
			if err != nil {
				t.Fatal(err)
			}
			r.now = r.now.Add(time.Minute)
			if again := r.send("t", guard(2), ks...); !slices.Equal(again, first) {
				t.Errorf("after the split the retry gives other ids")
			}
			// Twice split and merged again: the first try is behind several changes.
			if _, err := r.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: parts.Made[0]}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.scale.Merge(t.Context(), scale.MergeRequest{Topic: "t", Segments: parts.Made[1:]}); err != nil {
				t.Fatal(err)
			}
			if again := r.send("t", guard(2), ks...); !slices.Equal(again, first) {
				t.Errorf("after the merge the retry gives other ids")
			}
			if _, err := r.trySend(t.Context(), "t", guard(1), keys("x", 3)...); !queue.Is(err, queue.KindConflict) {
				t.Errorf("an older sequence: %v", err)
			}
			next := r.send("t", guard(3), ks...)
			if slices.ContainsFunc(next, func(id queue.MessageID) bool { return slices.Contains(first, id) }) {
				t.Error("the next sequence is answered with the last one's ids")
			}
			if again := r.send("t", guard(3), ks...); !slices.Equal(again, next) {
				t.Error("the next sequence's retry gives other ids")
			}
			if n := r.messages("t"); n != 103 {
				t.Errorf("%d messages, want 103", n)
			}
		})
	}
}
