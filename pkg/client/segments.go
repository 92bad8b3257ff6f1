package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// What segments and their changes look like in the API.
type (
	// Segment is the status of a segment.
	Segment = wire.Segment
	// SegmentChange is a split or merge, made or only planned.
	SegmentChange = wire.SegmentChange
	// Event tells of a split, a merge or a hot segment.
	Event = wire.Event
)

// Segments iterates over a topic's segments by creation, sealed ones included.
func (c *Client) Segments(ctx context.Context, topic string) iter.Seq2[*Segment, error] {
	return c.segments(ctx, topic, "")
}

// OpenSegments iterates over the segments of a topic that take messages.
func (c *Client) OpenSegments(ctx context.Context, topic string) iter.Seq2[*Segment, error] {
	return c.segments(ctx, topic, "open")
}

func (c *Client) segments(ctx context.Context, topic, state string) iter.Seq2[*Segment, error] {
	if err := queue.ValidateTopicName("topic", topic); err != nil {
		return failed[*Segment](err)
	}
	first := &call{op: "list segments", path: topicPath(topic, "segments"), query: url.Values{}}
	if state != "" {
		first.query.Set("state", state)
	}
	return pages(ctx, c, first, func(page *wire.SegmentList) ([]Segment, string) { return page.Segments, page.NextCursor })
}

// SplitOptions say how a segment is to be split. The zero value makes two parts of equal load.
type SplitOptions struct {
	// Into is a number of parts, 2 to queue.MaxSplit; At are the slots to cut at instead, ascending, each
	// the first of its part.
	Into int
	At   []queue.Slot
	// DryRun only asks what would be done.
	DryRun bool
}

// Split divides an open segment. ErrSegmentSealed if it was split or merged before, ErrSegmentBounds if the
// topic would have more segments than its maximum. It is not tried again where its outcome is not known
// (ErrOutcomeUnknown): the topic's segments tell, and a second Split does no harm.
func (c *Client) Split(ctx context.Context, topic string, segment queue.SegmentID, o SplitOptions) (*SegmentChange, error) {
	if !queue.ValidID(string(segment)) {
		return nil, queue.Invalid("segment", nil, "is not a segment id")
	}
	in := &wire.SplitRequest{DryRun: o.DryRun}
	if o.Into != 0 {
		in.Into = &o.Into
	}
	for _, slot := range o.At {
		in.At = append(in.At, int64(slot))
	}
	return c.changeSegments(ctx, topic, &call{op: "split segment", path: topicPath(topic, "segments", string(segment), "split"), in: in})
}

// MergeOptions are the optional arguments of Merge.
type MergeOptions struct {
	// DryRun only asks what would be done.
	DryRun bool
}

// Merge joins 2 to queue.MaxSplit open neighbours, in any order. Errors as of Split; ErrSegmentBounds if the
// topic would have fewer segments than its minimum.
func (c *Client) Merge(ctx context.Context, topic string, segments []queue.SegmentID, o MergeOptions) (*SegmentChange, error) {
	return c.changeSegments(ctx, topic, &call{
		op: "merge segments", path: topicPath(topic, "segments", "merge"),
		in: &wire.MergeRequest{Segments: segments, DryRun: o.DryRun},
	})
}

func (c *Client) changeSegments(ctx context.Context, topic string, call *call) (*SegmentChange, error) {
	if err := queue.ValidateTopicName("topic", topic); err != nil {
		return nil, err
	}
	out := new(SegmentChange)
	call.method, call.out = http.MethodPost, out
	if _, err := c.do(ctx, call); err != nil {
		return nil, err
	}
	return out, nil
}

// Events iterates over what became of segments, the newest first, of one topic if topic is not empty. The
// server keeps the last thousand at least.
func (c *Client) Events(ctx context.Context, topic string) iter.Seq2[*Event, error] {
	first := &call{op: "list events", path: "/v1/events", query: url.Values{}}
	if topic != "" {
		if err := queue.ValidateTopicName("topic", topic); err != nil {
			return failed[*Event](err)
		}
		first.query.Set("topic", topic)
	}
	return pages(ctx, c, first, func(page *wire.EventList) ([]Event, string) { return page.Events, page.NextCursor })
}

// LatestEvents gives the newest limit events, 1 to queue.MaxPageSize, the newest first, by one call.
func (c *Client) LatestEvents(ctx context.Context, topic string, limit int) ([]Event, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if topic != "" {
		if err := queue.ValidateTopicName("topic", topic); err != nil {
			return nil, err
		}
		query.Set("topic", topic)
	}
	var page wire.EventList
	_, err := c.do(ctx, &call{op: "list events", method: http.MethodGet, path: "/v1/events", query: query, out: &page, repeatable: true})
	return page.Events, err
}
