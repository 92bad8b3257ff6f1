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

// trim removes the oldest events once the leader has put many new ones.
func (l *leader) trim(ctx context.Context) error {
	if l.events < trimEvery || !l.holds(ctx) {
		return nil
	}
	ops, more, err := l.dropOld(ctx)
	if err != nil {
		return err
	}
	left := uint64(0)
	if more {
		left = l.events // the next run goes on
	}
	return l.held.Commit(ctx, left, ops...)
}

// trimByHand does the same for those who make changes by hand, every handEvery-th change of a topic. What it
// cannot remove the next one does.
func (s *Service) trimByHand(ctx context.Context, epoch queue.Epoch) {
	const handEvery = 32
	if epoch%handEvery != 0 {
		return
	}
	ops, _, err := s.dropOld(ctx)
	if err == nil && len(ops) > 0 {
		_, err = s.Meta.Transact(ctx, ops)
	}
	if err != nil {
		s.Logger.LogAttrs(ctx, slog.LevelInfo, "old events are left to the next change", slog.String("error", err.Error()))
	}
}

// dropOld gives ops that delete the oldest of the events that need not be kept, as many as one transaction
// takes beside a lease; more says that there are others.
func (s *Service) dropOld(ctx context.Context) (ops []meta.Op, more bool, err error) {
	kept := meta.Range{PK: meta.EventPK, Limit: meta.EventsKept, Reverse: true}
	for kept.Limit > 0 { // a page may hold fewer than asked for
		page, err := s.Meta.Query(ctx, kept)
		if err != nil || !page.More {
			return nil, false, err
		}
		kept.Limit -= len(page.Items)
		kept.To = page.Items[len(page.Items)-1].Record.Key().SK
	}
	old, err := s.Meta.Query(ctx, meta.Range{PK: meta.EventPK, To: kept.To, Limit: meta.MaxTransactOps - 1})
	if err != nil {
		return nil, false, err
	}
	for _, item := range old.Items {
		ops = append(ops, meta.Delete{Key: item.Record.Key(), If: meta.Any(), Kind: meta.KindEvent})
	}
	return ops, old.More, nil
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
