package delay

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Message is a delayed message as an auditor sees it.
type Message struct {
	// ID is the home id, also after edits.
	ID      queue.DelayedID
	Slot    queue.Slot
	Key     []byte
	Headers map[string]string
	// Size is the body's length in bytes.
	Size int64
	// Body is set if it was asked for and Size is at most queue.MaxInlineMessageBytes.
	Body []byte
	// Created is the commit time, Visible when the message becomes claimable, Expires when it
	// expires (0: never).
	Created, Visible, Expires queue.Millis
	// Err is set if the message's bytes could not be read; then Key and Headers may be unset. It
	// does not keep the others of a listing from being seen.
	Err error
}

// Listing says what part of an index is listed.
type Listing struct {
	// Cursor is what the page before answered; "" starts at the message that is visible first.
	Cursor string
	// Limit is how many messages to answer at most, 1 to queue.MaxPageSize.
	Limit int
	// Bodies asks for bodies. The page ends when they are over queue.DefaultClaimBytes together.
	Bodies bool
}

// List gives the messages that wait, in order of visible time, moved ones under their home id. A
// further page starts with the cursor that it answers; "" means that there is none. Messages that are
// due and not yet promoted are among them. A topic that was never delayed costs no store call.
//
// Errors: NotFound with CodeTopicNotFound; Invalid for the listing; the store's.
func (s *Service) List(ctx context.Context, topic string, l Listing) ([]Message, string, error) {
	if l.Limit < 1 || l.Limit > queue.MaxPageSize {
		return nil, "", queue.Invalid("limit", queue.MaxPageSize, "must be 1 to %d", queue.MaxPageSize)
	}
	var after queue.DelayedID
	if l.Cursor != "" {
		var err error
		if after, err = queue.ParseDelayedID(l.Cursor); err != nil {
			return nil, "", queue.Invalid("cursor", nil, "is not one that a listing gave")
		}
	}
	m, err := s.Topics.Open(ctx, topic)
	if err != nil || !m.Topic.EverDelayed() {
		return nil, "", err
	}
	q := meta.Range{PK: meta.DelayedPK(m.ID(), shard), To: meta.DelayedEnd, Limit: min(l.Limit, fullLook)}
	if l.Cursor != "" {
		q.From = meta.DelayedSK(after.Visible, after.Entry)
	}
	page := listing{service: s, Listing: l, after: after}
	for {
		items, err := s.Meta.Query(ctx, q)
		if err != nil {
			return nil, "", err
		}
		for _, item := range items.Items {
			q.From = meta.After(item.Record.Key().SK)
			if d, ok := item.Record.(*meta.Delayed); ok && !page.add(ctx, d) {
				return page.out, page.last.String(), nil
			}
		}
		if !items.More {
			return page.out, "", nil
		}
	}
}

// listing is a page in the making.
type listing struct {
	Listing
	service *Service
	// after is where the page before ended, last where this one does: places in the index, which
	// for a moved message is not its id.
	after, last queue.DelayedID
	out         []Message
	bytes       int64
}

// add lists the messages of an entry; false if there are more than the page has room for.
func (l *listing) add(ctx context.Context, d *meta.Delayed) bool {
	var idx *batch.Index
	for i := range d.Slots {
		at := queue.DelayedID{Visible: d.Visible, Entry: d.ID, Index: uint32(i)} // #nosec G115 -- bounded by MaxBatchRecords
		if isGone(d, at.Index) || l.after.Entry == at.Entry && l.after.Visible == at.Visible && at.Index <= l.after.Index {
			continue
		}
		if len(l.out) >= l.Limit || l.bytes >= queue.DefaultClaimBytes {
			return false
		}
		if idx == nil && d.Ref.Kind == meta.RefBatch {
			// Once for all messages of the entry. An error shows again with each of them.
			idx, _, _ = l.service.Log.Index(ctx, &d.Ref)
		}
		msg := l.service.message(ctx, d, at.Index, idx, l.Bodies)
		l.out = append(l.out, msg)
		l.bytes += int64(len(msg.Body))
		l.last = at
	}
	return true
}

// Get gives one message, with its body. Errors: Conflict with CodeAlreadyPromoted, NotFound with
// CodeDelayedNotFound or CodeTopicNotFound; the store's, where the bytes cannot be read.
func (s *Service) Get(ctx context.Context, topic string, id queue.DelayedID) (Message, error) {
	m, err := s.Topics.Open(ctx, topic)
	if err != nil {
		return Message{}, err
	}
	p, err := s.find(ctx, m, id)
	if err != nil {
		return Message{}, err
	}
	msg := s.message(ctx, p.entry, p.index, nil, true)
	return msg, msg.Err
}

// message reads one message of an entry; idx is its batch's index if the caller has it.
func (s *Service) message(ctx context.Context, d *meta.Delayed, index uint32, idx *batch.Index, body bool) Message {
	ref := refOf(d, int(index), 1)
	msg := Message{
		ID: queue.DelayedID{Visible: d.Visible, Entry: d.ID, Index: index}, Slot: d.Slots[index], Size: ref.Bytes,
		Created: ref.Created, Visible: d.Visible, Expires: ref.MinExpires,
	}
	if d.Home != nil {
		msg.ID = *d.Home
	}
	rec, err := s.record(ctx, &ref, idx, body && ref.Bytes <= queue.MaxInlineMessageBytes)
	if rec != nil {
		msg.Key, msg.Headers, msg.Body = rec.Key, rec.Headers.Map(), rec.Body
		if ref.Kind == meta.RefBatch {
			msg.Created = ref.Created.Add(rec.CreatedDelta)
			msg.Expires = segment.ExpiryOf(&ref, rec)
		}
	}
	msg.Err = err
	return msg
}

// Count counts the messages that wait. It stops at limit (at least 1): more then says that there may
// be further ones. A topic that was never delayed costs no store call. Errors as List.
func (s *Service) Count(ctx context.Context, topic string, limit int) (n int, more bool, err error) {
	m, err := s.Topics.Open(ctx, topic)
	if err != nil {
		return 0, false, err
	}
	return s.count(ctx, m, limit)
}

func (s *Service) count(ctx context.Context, m *topics.Map, limit int) (n int, more bool, err error) {
	if !m.Topic.EverDelayed() {
		return 0, false, nil
	}
	q := meta.Range{PK: meta.DelayedPK(m.ID(), shard), To: meta.DelayedEnd, Limit: fullLook}
	for {
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return 0, false, err
		}
		for _, item := range page.Items {
			q.From = meta.After(item.Record.Key().SK)
			if d, ok := item.Record.(*meta.Delayed); ok {
				n += len(d.Slots) - len(d.Gone)
			}
			if n >= limit {
				return limit, true, nil
			}
		}
		if !page.More {
			return n, false, nil
		}
	}
}
