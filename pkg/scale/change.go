package scale

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// change replaces parents by children that own the same slots. It is worked out from a map, and holds only
// for that.
type change struct {
	before   *topics.Map
	event    *meta.Event
	children []*meta.Segment
	// puts are the topic and the descriptors, as they are put; ops the whole transaction: 3 ops, 2 for each
	// parent and 2 for each child.
	puts []meta.Put
	ops  []meta.Op
}

// newChange works a change out. ranges tile the parents' slots; parents are neighbours by range.
func (s *Service) newChange(m *topics.Map, event *meta.Event, parents []*meta.Segment, ranges []queue.SlotRange) *change {
	now := s.Clock.Millis()
	event.At, event.ID, event.Topic, event.Name = now, s.IDs.ID(), m.ID(), m.Name
	c := &change{before: m, event: event}
	topic := *m.Topic
	topic.Epoch++
	topic.Modified = now
	c.put(meta.Put{Record: &topic, If: meta.At(m.Version), Version: meta.NewVersion(s.IDs)})
	for _, r := range ranges {
		child := &meta.Segment{Topic: m.ID(), ID: s.IDs.Segment(), Range: r, Epoch: topic.Epoch, Created: now}
		for _, p := range parents {
			if overlap(p.Range, r) {
				child.Predecessors = append(child.Predecessors, p.ID)
			}
		}
		c.children = append(c.children, child)
		event.Made, event.Ranges = append(event.Made, child.ID), append(event.Ranges, r)
		c.put(meta.Put{Record: child, If: meta.Absent(), Version: meta.NewVersion(s.IDs)})
		head := &meta.Head{Segment: child.ID, Epoch: child.Epoch, Range: r}
		c.ops = append(c.ops, meta.Put{Record: head, If: meta.Absent(), Version: meta.NewVersion(s.IDs)})
	}
	for _, p := range parents {
		sealed := *p
		sealed.Sealed = now
		for _, child := range c.children {
			if overlap(p.Range, child.Range) {
				sealed.Successors = append(sealed.Successors, child.ID)
			}
		}
		event.Segments = append(event.Segments, p.ID)
		c.put(meta.Put{Record: &sealed, If: meta.At(m.SegmentVersion(p.ID)), Version: meta.NewVersion(s.IDs)})
		c.ops = append(c.ops, meta.Seal{Segment: p.ID, Epoch: p.Epoch})
	}
	c.ops = append(c.ops, meta.Put{Record: event, If: meta.Absent(), Version: meta.NewVersion(s.IDs)})
	return c
}

func overlap(a, b queue.SlotRange) bool { return a.Lo < b.Hi && b.Lo < a.Hi }

func (c *change) put(p meta.Put) {
	c.puts = append(c.puts, p)
	c.ops = append(c.ops, p)
}

// commit carries a change out by means of write: its transaction alone, or one under the leader's lease. It
// gives the map after it. A store that will not is asked again for a while: a parent under load is a record
// that many write.
//
// Errors: Conflict if the topic was changed meanwhile, and nothing was done; Fenced if the lease was lost;
// the store's.
func (s *Service) commit(ctx context.Context, c *change, write func(context.Context, []meta.Op) error) (*topics.Map, error) {
	defer s.Topics.Forget(c.before.Name)
	var err error
	unknown := false
	for try := range commitTries {
		err = write(ctx, c.ops)
		unknown = unknown || queue.Is(err, queue.KindOutcomeUnknown)
		switch _, refused := meta.AsRefused(err); {
		case err == nil:
			return c.done(ctx, s)
		case refused, queue.Is(err, queue.KindOutcomeUnknown):
			// The topic's record tells whether this very transaction was carried out.
			made, rerr := s.made(ctx, c)
			switch {
			case rerr != nil:
				return nil, err
			case made:
				return c.done(ctx, s)
			case refused:
				return nil, &queue.Error{
					Op: "change segments", Subject: c.before.Name, Kind: queue.KindConflict, Err: err,
					Message: "the topic was changed meanwhile; look again",
				}
			}
		case queue.Is(err, queue.KindThrottled), queue.Is(err, queue.KindUnavailable), queue.Is(err, queue.KindConflict):
		default:
			return nil, queue.Unsure(err, unknown)
		}
		if serr := s.pause(ctx, try); serr != nil {
			return nil, queue.Unsure(err, unknown)
		}
	}
	return nil, queue.Unsure(err, unknown)
}

// done logs a change and works the map after it out.
func (c *change) done(ctx context.Context, s *Service) (*topics.Map, error) {
	e := c.event
	s.Logger.LogAttrs(ctx, levelOf(e.Action), "segments changed", attrsOf(e)...)
	return c.before.With(c.puts)
}

// made reports whether the change's own transaction put the topic's record as it is now.
func (s *Service) made(ctx context.Context, c *change) (bool, error) {
	_, version, err := meta.Fetch[*meta.Topic](ctx, s.Meta, meta.TopicKey(c.before.ID()))
	if queue.Is(err, queue.KindNotFound) {
		return false, nil
	}
	if err != nil || version == c.puts[0].Version {
		return err == nil, err
	}
	// Another change may stand on this one already, and may have sealed what this one made: no other makes
	// segments of these ids.
	_, _, err = meta.Fetch[*meta.Segment](ctx, s.Meta, c.children[0].Key())
	if queue.Is(err, queue.KindNotFound) {
		return false, nil
	}
	return err == nil, err
}

// pause waits before try n+1 of a change that the store would not make.
func (s *Service) pause(ctx context.Context, n int) error {
	return queue.Backoff{First: 20 * time.Millisecond, Last: 100 * time.Millisecond}.Wait(ctx, n, s.IDs.Jitter)
}
