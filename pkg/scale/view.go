package scale

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// View is a topic's segments, open and sealed.
type View struct {
	Topic  string
	Epoch  queue.Epoch
	Policy topics.Policy
	// Measured is when the leader last measured the topic; 0 if it does not watch it.
	Measured queue.Millis
	// Segments are by creation and id.
	Segments []SegmentView
	// Next is the cursor of the page after this one; "" if it is the last.
	Next string
}

// SegmentView is one segment of a View.
type SegmentView struct {
	*meta.Segment
	// First is the first offset that can be read, Next the one that the next message gets: of a sealed
	// segment its end.
	First, Next queue.Offset
	Bytes       uint64
	Commits     uint64
	// Measured says that Last, Rates and Hot are the leader's, of an open segment that it watches.
	Measured bool
	Last     meta.Rate
	Rates    [queue.RateWindowCount]meta.Rate
	// Score is the greatest of the rates, 1 being what one segment should carry.
	Score float64
	Hot   bool
	// Life is how long the segment was open, or has been so far; Mean the rate over that time.
	Life time.Duration
	Mean meta.Rate
}

// Page says which segments of a topic a View is to show. The zero Page is all of them.
type Page struct {
	// Cursor is a View's Next; "" begins with the first.
	Cursor string
	// Limit bounds the segments, 1 to queue.MaxPageSize; 0 is no bound.
	Limit int
	// State shows only open or only sealed segments; the zero State both.
	State SegmentState
}

// SegmentState is whether a segment takes messages.
type SegmentState string

// The states.
const (
	SegmentOpen   SegmentState = "open"
	SegmentSealed SegmentState = "sealed"
)

// StateOf is a segment's state.
func StateOf(seg *meta.Segment) SegmentState {
	if seg.Sealed != 0 {
		return SegmentSealed
	}
	return SegmentOpen
}

// Segments shows all of a topic's segments. Errors as topics.Service.Reload.
func (s *Service) Segments(ctx context.Context, topic string) (View, error) {
	return s.SegmentsPage(ctx, topic, Page{})
}

// SegmentsPage shows some of a topic's segments: a query of the topic's partition and of its gauges, and a
// call for each hundred segments shown. Errors as topics.Service.Reload; Invalid for limit and state.
func (s *Service) SegmentsPage(ctx context.Context, topic string, p Page) (View, error) {
	if p.Limit < 0 || p.Limit > queue.MaxPageSize {
		return View{}, queue.Invalid("limit", queue.MaxPageSize, "must be 1 to %d", queue.MaxPageSize)
	}
	if p.State != "" && p.State != SegmentOpen && p.State != SegmentSealed {
		return View{}, queue.Invalid("state", nil, "must be open or sealed")
	}
	m, err := s.Topics.Reload(ctx, topic)
	if err != nil {
		return View{}, err
	}
	v := View{Topic: m.Name, Epoch: m.Topic.Epoch, Policy: s.Topics.Policy(m)}
	var shown []*meta.Segment
	shown, v.Next = p.of(m.Segments)
	heads, err := s.Topics.Heads(ctx, shown)
	if err != nil {
		return View{}, err
	}
	_, last, err := s.gauges(ctx, m.ID())
	if err != nil {
		return View{}, err
	}
	now := s.Clock.Millis()
	v.Segments = make([]SegmentView, len(shown))
	for i, seg := range shown {
		h := heads[i]
		one := SegmentView{Segment: seg, First: h.Start, Next: h.Next, Bytes: h.Bytes, Commits: h.Load.Commits}
		one.mean(now)
		if g := last[seg.ID]; g.gauge != nil && seg.Sealed == 0 {
			v.Measured = max(v.Measured, g.at)
			one.Measured, one.Last, one.Rates, one.Hot = true, g.gauge.Last, g.gauge.Rates, g.gauge.Hot
			one.Score = most(v.Policy, g.gauge)
		}
		v.Segments[i] = one
	}
	return v, nil
}

// mean works out the rate over the segment's life. What lived for less than a second counts as a second.
func (v *SegmentView) mean(now queue.Millis) {
	end := v.Sealed
	if end == 0 {
		end = now
	}
	v.Life = max(end.Sub(v.Created), 0)
	seconds := max(v.Life, time.Second).Seconds()
	v.Mean = meta.Rate{
		Messages: float32(float64(v.Next) / seconds), Bytes: float32(float64(v.Bytes) / seconds),
		Commits: float32(float64(v.Commits) / seconds),
	}
}

// of finds a page's segments among all of them, which are by creation and id, and the cursor of the next.
func (p Page) of(all []*meta.Segment) (shown []*meta.Segment, next string) {
	for _, seg := range all {
		if p.State != "" && StateOf(seg) != p.State || p.Cursor != "" && place(seg) <= p.Cursor {
			continue
		}
		if p.Limit > 0 && len(shown) == p.Limit {
			return shown, place(shown[len(shown)-1])
		}
		shown = append(shown, seg)
	}
	return shown, ""
}

// place orders segments as a View does: by creation, then id.
func place(seg *meta.Segment) string { return fmt.Sprintf("%015d/%s", seg.Created, seg.ID) }

// conflict is a change that the topic is not in the state for; asking again as it is does not help.
func conflict(op, subject string, code queue.Code, format string, args ...any) error {
	return &queue.Error{Op: op, Subject: subject, Kind: queue.KindConflict, Code: code, Message: fmt.Sprintf(format, args...)}
}
