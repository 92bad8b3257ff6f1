package scale

import (
	"context"
	"fmt"

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
}

// Segments shows a topic's segments. Errors as topics.Service.Reload.
func (s *Service) Segments(ctx context.Context, topic string) (View, error) {
	m, err := s.Topics.Reload(ctx, topic)
	if err != nil {
		return View{}, err
	}
	heads, err := s.Topics.Heads(ctx, m.Segments)
	if err != nil {
		return View{}, err
	}
	_, last, err := s.gauges(ctx, m.ID())
	if err != nil {
		return View{}, err
	}
	v := View{Topic: m.Name, Epoch: m.Topic.Epoch, Policy: s.Topics.Policy(m), Segments: make([]SegmentView, len(m.Segments))}
	for i, seg := range m.Segments {
		h := heads[i]
		one := SegmentView{Segment: seg, First: h.Start, Next: h.Next, Bytes: h.Bytes, Commits: h.Load.Commits}
		if g := last[seg.ID]; g.gauge != nil && seg.Sealed == 0 {
			v.Measured = max(v.Measured, g.at)
			one.Measured, one.Last, one.Rates, one.Hot = true, g.gauge.Last, g.gauge.Rates, g.gauge.Hot
			one.Score = score(v.Policy, g.gauge.Last)
			for _, r := range g.gauge.Rates {
				one.Score = max(one.Score, score(v.Policy, r))
			}
		}
		v.Segments[i] = one
	}
	return v, nil
}

func conflict(op, subject, format string, args ...any) error {
	return &queue.Error{Op: op, Subject: subject, Kind: queue.KindConflict, Message: fmt.Sprintf(format, args...)}
}
