package delay

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Edit says what of a delayed message is changed; nil fields stay as they are.
type Edit struct {
	// Body is the new body, up to the topic's max_message_bytes.
	Body *[]byte
	// Headers replace all headers.
	Headers *map[string]string
	// Delay counts from the message's creation, 0 to the topic's max_delay. What would be visible
	// in the past becomes visible now.
	Delay *time.Duration
}

// Edit changes a message that has not been promoted, and answers with the message as it is then. Key,
// slot and expiry stay. The first edit takes the message out of its entry into one of its own; its id
// stays. The new bytes are put first, or in the same transaction if they are few.
//
// Errors: Conflict with CodeAlreadyPromoted, NotFound with CodeDelayedNotFound or CodeTopicNotFound;
// Invalid and TooLarge for the edit (fields "body", "headers", "delay"); Conflict where others keep
// changing it; OutcomeUnknown where the edit may have been made and the message promoted since.
func (s *Service) Edit(ctx context.Context, topic string, id queue.DelayedID, e Edit) (Message, error) {
	m, err := s.Topics.Open(ctx, topic)
	if err != nil {
		return Message{}, err
	}
	if err := e.check(m.Topic.Config); err != nil {
		return Message{}, err
	}
	var lost error
	for n := range maxTries {
		p, err := s.find(ctx, m, id)
		if err != nil {
			if lost != nil && queue.CodeOf(err) == queue.CodeAlreadyPromoted {
				return Message{}, lost
			}
			return Message{}, err
		}
		moved, err := s.edit(ctx, m, id, p, e)
		switch {
		case err == nil:
			return s.message(ctx, moved, 0, nil, false), nil
		case queue.Is(err, queue.KindOutcomeUnknown):
			// Made or not, the same edit from where the message is now does it. A request that
			// arrives late cannot undo that: it asks for a version that is gone.
			lost = err
		case !again(err):
			return Message{}, err
		}
		if err := s.pause(ctx, n); err != nil {
			return Message{}, err
		}
	}
	return Message{}, tooBusy("edit delayed message", id.String(), lost)
}

func (e Edit) check(c meta.TopicConfig) error {
	if e.Body == nil && e.Headers == nil && e.Delay == nil {
		return queue.Invalid("body", nil, "nothing to change: give body, headers or delay")
	}
	if e.Body != nil && int64(len(*e.Body)) > c.MaxMessageBytes {
		return queue.TooLarge("body", c.MaxMessageBytes, int64(len(*e.Body)))
	}
	if e.Headers != nil {
		if err := queue.ValidateHeaders("headers", *e.Headers); err != nil {
			return err
		}
	}
	if e.Delay != nil && (*e.Delay < 0 || *e.Delay > c.MaxDelay) {
		return queue.Invalid("delay", c.MaxDelay.Seconds(), "must be 0 to the topic's max_delay of %s seconds", queue.Plain(c.MaxDelay.Seconds()))
	}
	return nil
}

// again reports whether a change that was not made may be tried anew, from a new look.
func again(err error) bool {
	if _, refused := meta.AsRefused(err); refused {
		return true
	}
	switch queue.KindOf(err) {
	case queue.KindThrottled, queue.KindUnavailable, queue.KindConflict:
		return true
	default:
		return false
	}
}

// edit makes one attempt from one look.
func (s *Service) edit(ctx context.Context, m *topics.Map, id queue.DelayedID, p place, e Edit) (*meta.Delayed, error) {
	next, payload, err := s.edited(ctx, id, p, e)
	if err != nil {
		return nil, err
	}
	version := meta.NewVersion(s.IDs)
	put := meta.Put{Record: next, If: meta.Absent(), Version: version}
	forward := &meta.Forward{Topic: m.ID(), Home: id, Visible: next.Visible, Entry: next.ID}
	var ops []meta.Op
	switch {
	case p.entry.Home == nil:
		ops = append(ops, s.moveOut(p), put, meta.Put{Record: forward, If: meta.Absent(), Version: meta.NewVersion(s.IDs)})
	case next.Visible == p.entry.Visible:
		next.ID = p.entry.ID
		put.If = meta.At(p.version)
		ops = append(ops, put)
	default:
		// The forward needs no condition: who changes it changes the entry in the same transaction.
		ops = append(ops, s.moveOut(p), put, meta.Put{Record: forward, Version: meta.NewVersion(s.IDs)})
	}
	if old := refOf(p.entry, int(p.index), 1); next.Ref.Object != old.Object {
		ops = append(ops, meta.PutDrop(s.Clock.Millis(), s.IDs, old.Owned()))
		if !next.Ref.Inline {
			// An object that nothing referred to for hours, as we stalled, may have been swept.
			ops = append(ops, meta.Check{Key: meta.CondemnedKey(next.Ref.Object, false), If: meta.Absent(), Kind: meta.KindCondemned})
		}
	}
	if payload != nil {
		ops = append(ops, meta.Put{Record: payload, If: meta.Absent(), Version: meta.NewVersion(s.IDs)})
	}
	if _, err = s.Meta.Transact(ctx, ops); err == nil {
		return next, nil
	}
	if _, refused := meta.AsRefused(err); refused || queue.Is(err, queue.KindOutcomeUnknown) {
		// The refusal may be of the store client's own second try: our version tells.
		if made, have, ferr := fetch(ctx, s.Meta, next.Key()); ferr == nil && made != nil && have == version {
			return made, nil
		}
	}
	return nil, err
}

// takeOut removes a message from its entry, and the entry if nothing is left in it.
func (s *Service) takeOut(p place) meta.Op {
	if len(p.entry.Gone)+1 >= len(p.entry.Slots) {
		return meta.Delete{Key: p.entry.Key(), If: meta.At(p.version), Kind: p.entry.Kind()}
	}
	return s.moveOut(p)
}

// moveOut marks a message as gone from its entry. An entry of which nothing is left stays, as a husk, until it is
// due and a promotion deletes it: so an edit deletes nothing, and may be made by a process that has no right to. A
// husk is no message's second place any more, so its promotion leaves the forward alone.
func (s *Service) moveOut(p place) meta.Op {
	rest := *p.entry
	rest.Gone = withGone(rest.Gone, p.index)
	if len(rest.Gone) >= len(rest.Slots) {
		rest.Home = nil
	}
	return meta.Put{Record: &rest, If: meta.At(p.version), Version: meta.NewVersion(s.IDs)}
}

// Cancel removes a message that has not been promoted: it will never be claimable. Its bytes become
// garbage, for the compactor.
//
// Errors: as Edit. One that is cancelled already is not found.
func (s *Service) Cancel(ctx context.Context, topic string, id queue.DelayedID) error {
	m, err := s.Topics.Open(ctx, topic)
	if err != nil {
		return err
	}
	var tried error
	for n := range maxTries {
		p, err := s.find(ctx, m, id)
		if err != nil {
			return settleCancel(err, tried, id.Visible > s.Clock.Millis().Add(clockSlack))
		}
		gone := refOf(p.entry, int(p.index), 1)
		ops := []meta.Op{s.takeOut(p), meta.PutDrop(s.Clock.Millis(), s.IDs, gone.Owned())}
		if p.entry.Home != nil {
			ops = append(ops, meta.Delete{Key: meta.ForwardKey(m.ID(), id), Kind: meta.KindForward})
		}
		_, err = s.Meta.Transact(ctx, ops)
		if err == nil {
			return nil
		}
		if !again(err) && !queue.Is(err, queue.KindOutcomeUnknown) {
			return err
		}
		if tried == nil || queue.Is(err, queue.KindOutcomeUnknown) {
			tried = err
		}
		if err := s.pause(ctx, n); err != nil {
			return err
		}
	}
	return tooBusy("cancel delayed message", id.String(), tried)
}

// clockSlack is more than the clocks of two processes differ.
const clockSlack = 10 * time.Second

// settleCancel judges a message that is not found after an attempt to cancel it. early says that its
// visible time has not come by any process's clock: then it cannot have been promoted from its first
// place, and a promotion from elsewhere leaves a tombstone: so it was cancelled, by us or by another who
// wanted the same. One whose time has come, or may have come for a process whose clock is ahead of ours,
// may have been either.
func settleCancel(found, tried error, early bool) error {
	switch {
	case tried == nil:
		return found
	case queue.CodeOf(found) == queue.CodeDelayedNotFound && early:
		return nil
	case queue.CodeOf(found) == queue.CodeDelayedNotFound && queue.Is(tried, queue.KindOutcomeUnknown):
		return tried
	case queue.CodeOf(found) == queue.CodeAlreadyPromoted && queue.Is(tried, queue.KindOutcomeUnknown):
		return tried
	}
	return found
}
