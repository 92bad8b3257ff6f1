package reshape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// changer splits and merges the segments of a topic at random.
type changer struct {
	topic  string
	client *client.Client
	rng    *rand.Rand

	mu   sync.Mutex // guards made
	made []*client.SegmentChange
}

// run changes until stop is closed. A change may be refused for what others have changed, and for the bounds.
func (c *changer) run(ctx context.Context, stop <-chan struct{}) error {
	for !closed(stop) {
		open, err := openSegments(ctx, c.client, c.topic)
		if err == nil {
			err = tiles(open)
			if err != nil {
				return err
			}
			err = c.once(ctx, open)
		}
		var api *client.APIError
		if errors.As(err, &api) && !slices.Contains(mayRefuse, api.Code) {
			return fmt.Errorf("change of %s: %w", c.topic, err)
		}
		_ = pause(ctx, time.Duration(c.rng.IntN(120))*time.Millisecond)
	}
	return nil
}

var mayRefuse = []queue.Code{queue.CodeSegmentSealed, queue.CodeSegmentBounds, queue.CodeConflict}

func (c *changer) once(ctx context.Context, open []client.Segment) error {
	at := c.rng.IntN(len(open))
	var did *client.SegmentChange
	var err error
	if c.rng.IntN(len(open)) < 6 {
		seg := open[at]
		o := client.SplitOptions{Into: 2 + c.rng.IntN(4)}
		if c.rng.IntN(3) == 0 && seg.Range.Len() > 2 {
			o = client.SplitOptions{At: []queue.Slot{queue.Slot(seg.Range.Lo + 1 + c.rng.Uint32N(seg.Range.Len()-1))}}
		}
		if seg.Range.Len() < 8 {
			return nil
		}
		did, err = c.client.Split(ctx, c.topic, seg.ID, o)
	} else {
		var ids []queue.SegmentID
		for _, seg := range open[at:min(at+2+c.rng.IntN(6), len(open))] {
			ids = append(ids, seg.ID)
		}
		if len(ids) < 2 {
			return nil
		}
		c.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		did, err = c.client.Merge(ctx, c.topic, ids, client.MergeOptions{})
	}
	if err == nil {
		c.mu.Lock()
		c.made = append(c.made, did)
		c.mu.Unlock()
	}
	return err
}

// policies sets one policy after another, with targets so low that the leader acts by itself.
func policies(ctx context.Context, c *client.Client, topic string, rng *rand.Rand, stop <-chan struct{}) error {
	for !closed(stop) {
		least := 1 + rng.IntN(8)
		_, err := c.UpdateTopic(ctx, topic, client.TopicPatch{Scaling: &client.Scaling{
			MinSegments: &least, MaxSegments: client.Of(least + rng.IntN(30)),
			TargetMessagesPerSecond: client.Of(1 + rng.Int64N(50)),
		}})
		var api *client.APIError
		if errors.As(err, &api) && api.Code != queue.CodeConflict {
			return fmt.Errorf("update of %s: %w", topic, err)
		}
		_ = pause(ctx, time.Duration(300+rng.IntN(900))*time.Millisecond)
	}
	return nil
}

// seeks moves a subscription that nobody reads of to its beginning, in one way after another.
func seeks(ctx context.Context, c *client.Client, sub string, began time.Time, rng *rand.Rand, stop <-chan struct{}) error {
	for !closed(stop) {
		to := client.Position{Word: client.Earliest}
		if rng.IntN(2) == 0 {
			to = client.Position{Time: wire.Time(queue.MillisOf(began))}
		}
		if err := c.Seek(ctx, work, sub, to); err != nil && !over(err) {
			return fmt.Errorf("seek of %s: %w", sub, err)
		}
		_ = pause(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
	}
	return nil
}

func openSegments(ctx context.Context, c *client.Client, topic string) ([]client.Segment, error) {
	var out []client.Segment
	for seg, err := range c.OpenSegments(ctx, topic) {
		if err != nil {
			return nil, err
		}
		out = append(out, *seg)
	}
	slices.SortFunc(out, func(a, b client.Segment) int { return cmp.Compare(a.Range.Lo, b.Range.Lo) })
	return out, nil
}

// tiles says whether open segments own each slot exactly once.
func tiles(open []client.Segment) error {
	next := uint32(0)
	for _, seg := range open {
		if seg.Range.Lo != next {
			return fmt.Errorf("the open segments do not tile the ring at slot %d: %v", next, ranges(open))
		}
		next = seg.Range.Hi
	}
	if next != queue.Slots {
		return fmt.Errorf("the open segments do not tile the ring: %v", ranges(open))
	}
	return nil
}

func ranges(open []client.Segment) []queue.SlotRange {
	out := make([]queue.SlotRange, len(open))
	for i := range open {
		out[i] = open[i].Range
	}
	return out
}

// readAll reads the whole log of a topic, segment by segment, and checks offsets, lineage and events on the
// way. It says what is wrong.
func readAll(ctx context.Context, c *client.Client, topic string) (log map[string][]found, wrong []string, err error) {
	log = map[string][]found{}
	byID := map[queue.SegmentID]*client.Segment{}
	var open []client.Segment
	for seg, err := range c.Segments(ctx, topic) {
		if err != nil {
			return nil, nil, err
		}
		byID[seg.ID] = seg
		if seg.State == "open" {
			open = append(open, *seg)
		}
		at := queue.Offset(0)
		for {
			page, err := c.ReadRecords(ctx, topic, client.RecordsOptions{Segment: seg.ID, Offset: at, Limit: queue.MaxPageSize})
			if err != nil {
				return nil, nil, err
			}
			for _, m := range page.Messages {
				if m.ID.Segment != seg.ID || m.ID.Offset != at {
					wrong = append(wrong, fmt.Sprintf("segment %s: %v where offset %d should be", seg.ID, m.ID, at))
				}
				if len(m.Key) > 0 && !seg.Range.Contains(queue.SlotOf(m.Key)) {
					wrong = append(wrong, fmt.Sprintf("%v has a key that is not of the segment", m.ID))
				}
				at = m.ID.Offset + 1
				log[string(m.Body)] = append(log[string(m.Body)], found{m.ID, seg.Epoch})
			}
			if page.EndOfSegment || len(page.Messages) == 0 {
				break
			}
		}
		if at != seg.NextOffset {
			wrong = append(wrong, fmt.Sprintf("segment %s ends at %d, not at %d", seg.ID, at, seg.NextOffset))
		}
	}
	slices.SortFunc(open, func(a, b client.Segment) int { return cmp.Compare(a.Range.Lo, b.Range.Lo) })
	if err := tiles(open); err != nil {
		wrong = append(wrong, err.Error())
	}
	told, err := lineage(ctx, c, topic, byID)
	return log, append(wrong, told...), err
}

// lineage holds segments and events against one another: each sealed segment was replaced by exactly one
// change, each that has predecessors was made by one, and all agree.
func lineage(ctx context.Context, c *client.Client, topic string, byID map[queue.SegmentID]*client.Segment) (wrong []string, err error) {
	sealedBy, madeBy := map[queue.SegmentID]string{}, map[queue.SegmentID]string{}
	for e, err := range c.Events(ctx, topic) {
		if err != nil {
			return nil, err
		}
		if e.Action == "hot" {
			continue
		}
		for _, id := range e.Segments {
			if sealedBy[id] != "" {
				wrong = append(wrong, fmt.Sprintf("%s was replaced twice", id))
			}
			sealedBy[id] = e.ID
		}
		for i, id := range e.Made {
			madeBy[id] = e.ID
			if seg := byID[id]; seg == nil || seg.Range != e.Ranges[i] {
				wrong = append(wrong, fmt.Sprintf("event %s made %s of %v, which is not there", e.ID, id, e.Ranges[i]))
			}
		}
	}
	for id, seg := range byID {
		if (seg.State == "sealed") != (sealedBy[id] != "") || (len(seg.Predecessors) > 0) != (madeBy[id] != "") {
			wrong = append(wrong, fmt.Sprintf("segment %s: %s, from %v: events say it was made by %q, sealed by %q", id, seg.State, seg.Predecessors, madeBy[id], sealedBy[id]))
		}
		for _, next := range seg.Successors {
			if s := byID[next]; s == nil || !slices.Contains(s.Predecessors, id) || s.Epoch <= seg.Epoch {
				wrong = append(wrong, fmt.Sprintf("segment %s: successor %s does not know it", id, next))
			}
		}
	}
	return wrong, nil
}
