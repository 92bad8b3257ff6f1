package scale

import (
	"cmp"
	"context"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Planned is a change by hand: as it was made, or, of a dry run, as it would be.
type Planned struct {
	Topic  string
	Action meta.Action
	// Segments are replaced by Made, which own Ranges; Made is empty after a dry run.
	Segments, Made []queue.SegmentID
	Ranges         []queue.SlotRange
	DryRun         bool
}

// SplitRequest asks for a split by hand.
type SplitRequest struct {
	Topic   string
	Segment queue.SegmentID
	// Into is the number of parts, 2 to queue.MaxSplit, cut where the load of the last minutes is equal; At
	// are the slots to cut at, ascending, instead. 0 and nil mean two parts.
	Into   int
	At     []queue.Slot
	DryRun bool
}

// Split divides an open segment. Whatever the leader thinks of it: it may merge what is cold.
//
// Errors: NotFound with CodeTopicNotFound or CodeSegmentNotFound; Invalid for into, at, and a range that
// cannot be divided; Conflict if the segment is sealed, or would make more segments than the topic's
// maximum, or if others changed the topic; the store's. After OutcomeUnknown the topic's segments tell.
func (s *Service) Split(ctx context.Context, req SplitRequest) (Planned, error) {
	if req.Into != 0 && (req.Into < 2 || req.Into > queue.MaxSplit) {
		return Planned{}, queue.Invalid("into", queue.Bound(req.Into, 2, queue.MaxSplit), "must be 2 to %d", queue.MaxSplit)
	}
	if req.Into != 0 && len(req.At) > 0 {
		return Planned{}, queue.Invalid("at", nil, "cannot be used together with into")
	}
	if n := len(req.At); n >= queue.MaxSplit {
		return Planned{}, queue.Invalid("at", queue.MaxSplit-1, "has %d slots, more than %d", n, queue.MaxSplit-1)
	}
	m, err := s.Topics.Reload(ctx, req.Topic)
	if err != nil {
		return Planned{}, err
	}
	seg, err := openSegment(m, req.Segment)
	if err != nil {
		return Planned{}, err
	}
	ranges, err := s.rangesOf(ctx, m, seg, req)
	if err != nil {
		return Planned{}, err
	}
	if n, most := len(m.Open)+len(ranges)-1, s.Topics.Policy(m).Max; n > most {
		return Planned{}, conflict("split segment", req.Topic, queue.CodeSegmentBounds, "the topic would have %d segments, more than its maximum of %d", n, most)
	}
	event := &meta.Event{Action: meta.ActionSplit}
	return s.byHand(ctx, m, s.newChange(m, event, []*meta.Segment{seg}, ranges), req.DryRun)
}

func (s *Service) rangesOf(ctx context.Context, m *topics.Map, seg *meta.Segment, req SplitRequest) ([]queue.SlotRange, error) {
	if len(req.At) > 0 {
		points := make([]uint32, len(req.At))
		last := seg.Range.Lo
		for i, p := range req.At {
			if points[i] = uint32(p); points[i] <= last || points[i] >= seg.Range.Hi {
				return nil, queue.Invalid("at", nil, "must ascend within the segment's range %v, its first slot not among them", seg.Range)
			}
			last = points[i]
		}
		return divide(seg.Range, points), nil
	}
	heads, err := s.Topics.Heads(ctx, []*meta.Segment{seg})
	if err != nil {
		return nil, err
	}
	_, last, err := s.gauges(ctx, m.ID())
	if err != nil {
		return nil, err
	}
	known := last[seg.ID]
	measured := measure(seg, heads[0], known.gauge, known.at, s.Clock.Millis())
	ranges := measured.cut(max(req.Into, 2))
	if len(ranges) < 2 {
		return nil, queue.Invalid("segment", nil, "has the range %v, which cannot be divided", seg.Range)
	}
	return ranges, nil
}

// MergeRequest asks for a merge by hand.
type MergeRequest struct {
	Topic string
	// Segments are 2 to queue.MaxSplit open neighbours, in any order.
	Segments []queue.SegmentID
	DryRun   bool
}

// Merge joins open neighbours into one segment. Errors as Split; Invalid (field "segments") if they are not
// neighbours; Conflict if the topic would have fewer segments than its minimum.
func (s *Service) Merge(ctx context.Context, req MergeRequest) (Planned, error) {
	if n := len(req.Segments); n < 2 || n > queue.MaxSplit {
		return Planned{}, queue.Invalid("segments", queue.Bound(n, 2, queue.MaxSplit), "has %d, not 2 to %d", n, queue.MaxSplit)
	}
	m, err := s.Topics.Reload(ctx, req.Topic)
	if err != nil {
		return Planned{}, err
	}
	parents := make([]*meta.Segment, len(req.Segments))
	for i, id := range req.Segments {
		if parents[i], err = openSegment(m, id); err != nil {
			return Planned{}, err
		}
	}
	slices.SortFunc(parents, func(a, b *meta.Segment) int { return cmp.Compare(a.Range.Lo, b.Range.Lo) })
	for i, p := range parents[1:] {
		if p.Range.Lo != parents[i].Range.Hi {
			return Planned{}, queue.Invalid("segments", nil, "%s and %s are not neighbours", parents[i].ID, p.ID)
		}
	}
	if n, least := len(m.Open)-len(parents)+1, s.Topics.Policy(m).Min; n < least {
		return Planned{}, conflict("merge segments", req.Topic, queue.CodeSegmentBounds, "the topic would have %d segments, fewer than its minimum of %d", n, least)
	}
	whole := queue.SlotRange{Lo: parents[0].Range.Lo, Hi: parents[len(parents)-1].Range.Hi}
	event := &meta.Event{Action: meta.ActionMerge}
	return s.byHand(ctx, m, s.newChange(m, event, parents, []queue.SlotRange{whole}), req.DryRun)
}

func (s *Service) byHand(ctx context.Context, m *topics.Map, c *change, dry bool) (Planned, error) {
	event := c.event
	event.Reason = "by hand"
	p := Planned{Topic: m.Name, Action: event.Action, Segments: event.Segments, Ranges: event.Ranges, DryRun: dry}
	if dry {
		return p, nil
	}
	// The leader is to take it back once it is cold.
	watch := &meta.Watch{Topic: m.ID(), Name: m.Name, Put: event.At}
	c.ops = append(c.ops, meta.Put{Record: watch, Version: meta.NewVersion(s.IDs)})
	after, err := s.commit(ctx, c, func(ctx context.Context, ops []meta.Op) error {
		_, err := s.Meta.Transact(ctx, ops)
		return err
	})
	if err != nil {
		return Planned{}, err
	}
	s.trimByHand(ctx, after.Topic.Epoch)
	p.Made = event.Made
	return p, nil
}

// openSegment finds a segment that a change may replace.
func openSegment(m *topics.Map, id queue.SegmentID) (*meta.Segment, error) {
	seg := m.Segment(id)
	switch {
	case seg == nil:
		return nil, &queue.Error{
			Op: "change segments", Subject: m.Name, Kind: queue.KindNotFound, Code: queue.CodeSegmentNotFound,
			Message: "the topic has no segment " + string(id),
		}
	case seg.Sealed != 0 || m.Topic.State != meta.TopicOpen:
		return nil, conflict("change segments", m.Name, queue.CodeSegmentSealed, "segment %s is sealed", id)
	}
	return seg, nil
}
