package httpapi

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

func (s *server) listSegments(w http.ResponseWriter, r *http.Request) error {
	name, _, err := names(r)
	if err != nil {
		return err
	}
	q, err := parseQuery(r, "state", "limit", "cursor")
	if err != nil {
		return err
	}
	p := scale.Page{State: scale.SegmentState(q.text("state"))}
	if q.has("state") && p.State != scale.SegmentOpen && p.State != scale.SegmentSealed {
		return queue.Invalid("state", nil, "must be open or sealed")
	}
	if p.Limit, p.Cursor, err = q.page(); err != nil {
		return err
	}
	v, err := s.Scale.SegmentsPage(r.Context(), name, p)
	if err != nil {
		return err
	}
	out := wire.SegmentList{Segments: make([]wire.Segment, len(v.Segments)), NextCursor: opaque(v.Next)}
	for i := range v.Segments {
		out.Segments[i] = segment(&v, &v.Segments[i])
	}
	return s.writeJSON(w, http.StatusOK, out)
}

func segment(v *scale.View, seg *scale.SegmentView) wire.Segment {
	out := wire.Segment{
		ID: seg.ID, Range: seg.Range, State: string(scale.StateOf(seg.Segment)), Epoch: seg.Epoch,
		FirstOffset: seg.First, NextOffset: seg.Next, Bytes: seg.Bytes, Commits: seg.Commits,
		CreatedAt: wire.Time(seg.Created), SealedAt: wire.Time(seg.Sealed),
		Predecessors: noNil(seg.Predecessors), Successors: noNil(seg.Successors),
		Mean: rate(v.Policy, seg.Mean, seg.Life),
	}
	if seg.Measured {
		load := &wire.SegmentLoad{
			MeasuredAt: wire.Time(v.Measured), Score: finite(seg.Score), Hot: seg.Hot, Last: rate(v.Policy, seg.Last, 0),
		}
		for i, window := range queue.RateWindows() {
			load.Rates = append(load.Rates, rate(v.Policy, seg.Rates[i], window))
		}
		out.Load = load
	}
	return out
}

func rate(p topics.Policy, r meta.Rate, window time.Duration) wire.Rate {
	messages, bytes, commits := finite(float64(r.Messages)), finite(float64(r.Bytes)), finite(float64(r.Commits))
	return wire.Rate{
		Window: window.Seconds(), Score: finite(p.Score(r)),
		MessagesPerSecond: messages, BytesPerSecond: bytes, CommitsPerSecond: commits,
	}
}

// finite keeps what JSON cannot write out of an answer, and digits that mean nothing.
func finite(f float64) float64 {
	const digits = 1000
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return math.Round(f*digits) / digits
}

func (s *server) splitSegment(w http.ResponseWriter, r *http.Request) error {
	topic, id, err := segmentNames(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var in wire.SplitRequest
	if err := s.readJSON(w, r, &in); err != nil {
		return err
	}
	if in.Into != nil { // 0 would be taken as absent
		if err := queue.Whole("into", *in.Into, 2, queue.MaxSplit); err != nil {
			return err
		}
	}
	req := scale.SplitRequest{Topic: topic, Segment: id, Into: deref(in.Into), DryRun: in.DryRun}
	for i, at := range in.At {
		if err := queue.Whole("at["+strconv.Itoa(i)+"]", at, 0, queue.Slots-1); err != nil {
			return err
		}
		req.At = append(req.At, queue.Slot(at))
	}
	made, err := s.Scale.Split(r.Context(), req)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, segmentChange(made))
}

func (s *server) mergeSegments(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var in wire.MergeRequest
	if err := s.readJSON(w, r, &in); err != nil {
		return err
	}
	if n := len(in.Segments); n < 2 || n > queue.MaxSplit {
		return queue.Invalid("segments", queue.Bound(n, 2, queue.MaxSplit), "has %d entries, not 2 to %d", n, queue.MaxSplit)
	}
	for i, id := range in.Segments {
		if !queue.ValidID(string(id)) {
			return queue.Invalid("segments["+strconv.Itoa(i)+"]", nil, "is not a segment id")
		}
	}
	made, err := s.Scale.Merge(r.Context(), scale.MergeRequest{Topic: topic, Segments: in.Segments, DryRun: in.DryRun})
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, segmentChange(made))
}

func segmentChange(p scale.Planned) wire.SegmentChange {
	return wire.SegmentChange{
		Topic: p.Topic, Action: string(p.Action), DryRun: p.DryRun,
		Segments: noNil(p.Segments), Made: noNil(p.Made), Ranges: noNil(p.Ranges),
	}
}

// segmentNames reads a path's topic and segment, checked.
func segmentNames(r *http.Request) (topic string, id queue.SegmentID, err error) {
	if topic, _, err = names(r); err != nil {
		return "", "", err
	}
	id = queue.SegmentID(r.PathValue("segment"))
	if !queue.ValidID(string(id)) {
		return "", "", queue.Invalid("segment", nil, "is not a segment id")
	}
	return topic, id, nil
}

func (s *server) listEvents(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r, "topic", "limit", "cursor")
	if err != nil {
		return err
	}
	topic := q.text("topic")
	if q.has("topic") {
		if err := queue.ValidateTopicName("topic", topic); err != nil {
			return err
		}
	}
	limit, cursor, err := q.page()
	if err != nil {
		return err
	}
	page, next, err := s.Scale.Events(r.Context(), topic, cursor, limit)
	if err != nil {
		return err
	}
	out := wire.EventList{Events: make([]wire.Event, len(page)), NextCursor: opaque(next)}
	for i, e := range page {
		out.Events[i] = wire.Event{
			ID: e.ID, At: wire.Time(e.At), Topic: e.Name, TopicID: e.Topic, Action: string(e.Action), Reason: e.Reason,
			LeaderEpoch: e.By, Segments: noNil(e.Segments), Made: noNil(e.Made), Ranges: noNil(e.Ranges),
		}
	}
	return s.writeJSON(w, http.StatusOK, out)
}
