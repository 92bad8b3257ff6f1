package topics

import (
	"context"
	"strings"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Status is what there is to know of a topic.
type Status struct {
	Name   string
	ID     queue.TopicID
	State  meta.TopicState
	Config Config
	// Policy is the scaling policy in effect: Config's, and the service's where that sets none.
	Policy   Policy
	Created  queue.Millis
	Modified queue.Millis
	// Segments are all segments, open and sealed, by creation and id.
	Segments []SegmentStatus
	// Messages is the number of messages that can be read: expired ones not yet removed count,
	// delayed ones do not.
	Messages uint64
	// Bytes is the length of all bodies ever appended, in bytes.
	Bytes uint64
}

// SegmentStatus is what there is to know of a segment.
type SegmentStatus struct {
	ID           queue.SegmentID
	Range        queue.SlotRange
	Sealed       bool
	Created      queue.Millis
	Predecessors []queue.SegmentID
	Successors   []queue.SegmentID
	// First is the first offset that can be read, Next the one that the next message gets.
	First, Next queue.Offset
	// Bytes is the length of all bodies ever appended, in bytes.
	Bytes uint64
	Load  meta.Load
}

// Status reads a topic and the heads of all its segments, past the cache. Errors as Open.
func (s *Service) Status(ctx context.Context, name string) (Status, error) {
	m, err := s.Reload(ctx, name)
	if err != nil {
		return Status{}, err
	}
	heads, err := s.Heads(ctx, m.Segments)
	if err != nil {
		return Status{}, err
	}
	return s.statusOf(m, heads), nil
}

func (s *Service) statusOf(m *Map, heads []*meta.Head) Status {
	t := m.Topic
	st := Status{
		Name: m.Name, ID: t.ID, State: t.State, Config: configOf(t.Config), Policy: s.Policy(m),
		Created: t.Created, Modified: t.Modified, Segments: make([]SegmentStatus, len(heads)),
	}
	for i, h := range heads {
		seg := m.Segments[i]
		st.Segments[i] = SegmentStatus{
			ID: seg.ID, Range: seg.Range, Sealed: h.Sealed, Created: seg.Created,
			Predecessors: seg.Predecessors, Successors: seg.Successors,
			First: h.Start, Next: h.Next, Bytes: h.Bytes, Load: h.Load,
		}
		st.Messages += uint64(h.Next - h.Start)
		st.Bytes += h.Bytes
	}
	return st
}

// Listed is one line of a listing.
type Listed struct {
	Name    string
	ID      queue.TopicID
	Created queue.Millis
}

// List gives topics whose name starts with prefix, by name, limit (1 to queue.MaxPageSize) at most. A
// further page starts with the cursor that it answers; "" means that there is none. A topic that is
// being deleted is listed until its name is free.
func (s *Service) List(ctx context.Context, prefix, cursor string, limit int) ([]Listed, string, error) {
	if len(prefix) > queue.MaxNameBytes {
		return nil, "", queue.Invalid("prefix", queue.MaxNameBytes, "is longer than %d bytes", queue.MaxNameBytes)
	}
	if strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, "", queue.Invalid("prefix", nil, "is not the start of a topic name")
	}
	if cursor != "" && queue.ValidateTopicName("cursor", cursor) != nil {
		return nil, "", queue.Invalid("cursor", nil, "is not one that a listing gave")
	}
	if limit < 1 || limit > queue.MaxPageSize {
		return nil, "", queue.Invalid("limit", queue.MaxPageSize, "must be 1 to %d", queue.MaxPageSize)
	}
	q := meta.Range{PK: meta.NamespacePK, From: prefix, Limit: limit}
	if cursor != "" {
		q.From = max(q.From, meta.After(cursor))
	}
	if prefix != "" {
		q.To = prefix + "~" // above every character of a name
	}
	var out []Listed
	for {
		page, err := s.meta.Query(ctx, q)
		if err != nil {
			return nil, "", err
		}
		for _, item := range page.Items {
			name, ok := item.Record.(*meta.Name)
			if ok {
				out = append(out, Listed{name.Name, name.Topic, name.Created})
				q.From = meta.After(name.Name)
			}
		}
		switch {
		case !page.More:
			return out, "", nil
		case len(out) >= limit:
			return out, out[len(out)-1].Name, nil
		}
		q.Limit = limit - len(out)
	}
}
