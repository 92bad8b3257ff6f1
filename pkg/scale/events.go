package scale

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// trimEvery is after how many new events the oldest are removed.
const trimEvery = 90

// Events gives the newest events first, limit (1 to meta.EventsKept) at most, of one topic if topic is not
// empty. A further page starts with the cursor that it answers; "" means that there is none.
//
// Errors: Invalid for limit and cursor; the store's.
func (s *Service) Events(ctx context.Context, topic, cursor string, limit int) ([]*meta.Event, string, error) {
	if limit < 1 || limit > meta.EventsKept {
		return nil, "", queue.Invalid("limit", meta.EventsKept, "must be 1 to %d", meta.EventsKept)
	}
	q := meta.Range{PK: meta.EventPK, Limit: meta.MaxQueryLimit, Reverse: true}
	if cursor != "" {
		if err := queue.ValidateToken("cursor", cursor, meta.MaxSKBytes); err != nil {
			return nil, "", queue.Invalid("cursor", nil, "is not one that a listing gave")
		}
		q.To = cursor
	}
	if topic == "" {
		q.Limit = limit
	}
	var out []*meta.Event
	for {
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return nil, "", err
		}
		for i, item := range page.Items {
			q.To = item.Record.Key().SK
			e, ok := item.Record.(*meta.Event)
			if ok && (topic == "" || e.Name == topic) {
				out = append(out, e)
			}
			if len(out) == limit && (page.More || i+1 < len(page.Items)) {
				return out, q.To, nil
			}
		}
		if !page.More {
			return out, "", nil
		}
	}
}

// note puts an event that comes with no change.
func (l *leader) note(ctx context.Context, m *topics.Map, e *meta.Event, about []*meta.Segment) error {
	e.At, e.ID, e.Topic, e.Name = l.Clock.Millis(), l.IDs.ID(), m.ID(), m.Name
	for _, seg := range about {
		e.Segments, e.Ranges = append(e.Segments, seg.ID), append(e.Ranges, seg.Range)
	}
	l.Logger.LogAttrs(ctx, levelOf(e.Action), "segment is hot", attrsOf(e)...)
	return l.write(ctx, []meta.Op{meta.Put{Record: e, If: meta.Absent(), Version: meta.NewVersion(l.IDs)}})
}

// trim removes the oldest events once many new ones were put.
func (l *leader) trim(ctx context.Context) error {
	if l.events < trimEvery || !l.holds(ctx) {
		return nil
	}
	kept, err := l.Meta.Query(ctx, meta.Range{PK: meta.EventPK, Limit: meta.EventsKept, Reverse: true})
	if err != nil {
		return err
	}
	var ops []meta.Op
	if kept.More {
		oldest := kept.Items[len(kept.Items)-1].Record.Key().SK
		old, err := l.Meta.Query(ctx, meta.Range{PK: meta.EventPK, To: oldest, Limit: meta.MaxTransactOps - 1})
		if err != nil {
			return err
		}
		for _, item := range old.Items {
			ops = append(ops, meta.Delete{Key: item.Record.Key(), If: meta.Any(), Kind: meta.KindEvent})
		}
		if old.More {
			return l.held.Commit(ctx, l.events, ops...) // more next time
		}
	}
	return l.held.Commit(ctx, 0, ops...)
}

func levelOf(a meta.Action) slog.Level {
	if a == meta.ActionHot {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func attrsOf(e *meta.Event) []slog.Attr {
	return []slog.Attr{
		slog.String("action", string(e.Action)), slog.String("topic", e.Name),
		slog.Any("segments", e.Segments), slog.Any("made", e.Made),
		slog.String("ranges", fmt.Sprint(e.Ranges)), slog.String("reason", e.Reason), slog.Uint64("epoch", uint64(e.By)),
	}
}
