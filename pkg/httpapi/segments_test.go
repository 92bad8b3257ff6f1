package httpapi_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
)

func TestSegmentShapes(t *testing.T) {
	a := newAPI()
	got := a.do(t, "GET", "/v1/topics/orders/segments", "")
	var out wire.SegmentList
	got.into(t, &out)
	if a.page != (scale.Page{Limit: queue.DefaultPageSize}) || len(out.Segments) != 2 {
		t.Fatalf("%+v gives %s", a.page, got.body)
	}
	sealed := wire.Segment{
		ID: segmentB, Range: queue.Ring(), State: "sealed", Epoch: 1, NextOffset: 90, Bytes: 900, Commits: 9,
		CreatedAt: wire.Time(now - 9000), SealedAt: wire.Time(now), Predecessors: []queue.SegmentID{}, Successors: []queue.SegmentID{segmentA},
		Mean: wire.Rate{Window: 9, Score: 0.1, MessagesPerSecond: 10, BytesPerSecond: 100, CommitsPerSecond: 1},
	}
	if !reflect.DeepEqual(out.Segments[0], sealed) {
		t.Errorf("sealed: %+v", out.Segments[0])
	}
	open := out.Segments[1]
	last := wire.Rate{Score: 2.5, MessagesPerSecond: 250, BytesPerSecond: 1000, CommitsPerSecond: 10}
	if open.State != "open" || open.Load == nil || !open.Load.Hot || open.Load.Score != 2.5 || open.Load.MeasuredAt != wire.Time(now+2) || open.Load.Last != last {
		t.Fatalf("open: %s", got.body)
	}
	var windows []float64
	for _, r := range open.Load.Rates {
		windows = append(windows, r.Window)
	}
	// Rates that are no numbers are none.
	if !reflect.DeepEqual(windows, []float64{120, 300, 600, 1200}) || open.Load.Rates[2].MessagesPerSecond != 0 || open.Load.Rates[3].Score != 0 {
		t.Errorf("rates %+v", open.Load.Rates)
	}
	if !strings.Contains(string(got.body), `"predecessors":[]`) {
		t.Errorf("no predecessors must be an empty list: %s", got.body)
	}
}

func TestSplitAndMergeShapes(t *testing.T) {
	a := newAPI()
	target := "/v1/topics/orders/segments/" + string(segmentA) + "/split"
	var out wire.SegmentChange
	a.do(t, "POST", target, `{"at":[100,65535],"dry_run":true}`).into(t, &out)
	if want := (scale.SplitRequest{Topic: "orders", Segment: segmentA, At: []queue.Slot{100, 65535}, DryRun: true}); !reflect.DeepEqual(a.split, want) {
		t.Errorf("%+v", a.split)
	}
	if !out.DryRun || len(out.Made) != 0 || len(out.Ranges) != 2 || out.Action != "split" || out.Segments[0] != segmentA {
		t.Errorf("%+v", out)
	}
	a.do(t, "POST", target, `{"into":16}`).into(t, &out)
	if a.split.Into != 16 || len(out.Made) != 2 || out.DryRun {
		t.Errorf("%+v %+v", a.split, out)
	}
	if a.do(t, "POST", target, ""); !reflect.DeepEqual(a.split, scale.SplitRequest{Topic: "orders", Segment: segmentA}) {
		t.Errorf("no body: %+v", a.split)
	}
	a.do(t, "POST", "/v1/topics/orders/segments/merge", `{"segments":["`+string(segmentB)+`","`+string(segmentA)+`"],"dry_run":true}`).into(t, &out)
	if want := (scale.MergeRequest{Topic: "orders", Segments: []queue.SegmentID{segmentB, segmentA}, DryRun: true}); !reflect.DeepEqual(a.merge, want) || out.Action != "merge" {
		t.Errorf("%+v %+v", a.merge, out)
	}
}

func TestEventShapes(t *testing.T) {
	a := newAPI()
	got := a.do(t, "GET", "/v1/events", "")
	var out wire.EventList
	got.into(t, &out)
	if len(out.Events) != 2 || out.NextCursor == "" || a.eventsOf != [2]string{} {
		t.Fatalf("%s", got.body)
	}
	want := wire.Event{
		ID: "00000000000000ee", At: wire.Time(now), Topic: "orders", TopicID: topicID, Action: "split", Reason: "much load", LeaderEpoch: 3,
		Segments: []queue.SegmentID{segmentB}, Made: []queue.SegmentID{segmentA}, Ranges: []queue.SlotRange{queue.Ring()},
	}
	if !reflect.DeepEqual(out.Events[0], want) || out.Events[1].Action != "hot" || out.Events[1].Made == nil {
		t.Errorf("%s", got.body)
	}
}

// TestSegmentErrors: codes of a change that the topic is not in the state for tell a client not to try again.
func TestSegmentErrors(t *testing.T) {
	for _, code := range []queue.Code{queue.CodeSegmentSealed, queue.CodeSegmentBounds} {
		a := newAPI()
		a.err = &queue.Error{Kind: queue.KindConflict, Code: code, Message: "no"}
		got := a.do(t, "POST", "/v1/topics/orders/segments/"+string(segmentA)+"/split", "{}")
		if e := got.fault(); got.StatusCode != 409 || e.Code != code || e.Retryable || wire.KindOf(code) != queue.KindConflict {
			t.Errorf("%s: %d %s", code, got.StatusCode, got.body)
		}
	}
}
