package scale

import (
	"context"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// board is a topic's gauges, read and brought up to date.
type board struct {
	topic    queue.TopicID
	now      queue.Millis
	measures []Measure
	// stored are the versions of the gauges as they were read, by number.
	stored []meta.Version
}

// open reads the gauges and heads of a topic: a query, and a call for each hundred open segments.
func (s *Service) open(ctx context.Context, m *topics.Map) (*board, error) {
	b, last, err := s.gauges(ctx, m.ID())
	if err != nil {
		return nil, err
	}
	heads, err := s.Topics.Heads(ctx, m.Open)
	if err != nil {
		return nil, err
	}
	b.now = s.Clock.Millis()
	b.measures = make([]Measure, len(m.Open))
	for i, seg := range m.Open {
		found := last[seg.ID]
		b.measures[i] = measure(seg, heads[i], found.gauge, found.at, b.now)
		if found.gauge != nil {
			b.measures[i].Gauge.Hot = found.gauge.Hot
		}
	}
	return b, nil
}

type found struct {
	gauge *meta.SegmentGauge
	at    queue.Millis
}

// gauges reads what was last measured of each of a topic's segments.
func (s *Service) gauges(ctx context.Context, id queue.TopicID) (*board, map[queue.SegmentID]found, error) {
	b := &board{topic: id}
	last := make(map[queue.SegmentID]found)
	q := meta.Range{PK: meta.GaugePK(id), Limit: meta.MaxQueryLimit}
	for {
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		for _, item := range page.Items {
			g, ok := item.Record.(*meta.Gauge)
			if !ok || g.Number != len(b.stored) {
				return nil, nil, &queue.Error{Op: "read gauges", Subject: item.Record.Key().String(), Kind: queue.KindCorrupt, Message: "not the gauge that belongs there"}
			}
			b.stored = append(b.stored, item.Version)
			for i := range g.Segments {
				last[g.Segments[i].ID] = found{&g.Segments[i], g.At}
			}
			q.From = meta.After(item.Record.Key().SK)
		}
		if !page.More {
			return b, last, nil
		}
	}
}

// replace takes note of a change: the children inherit what their parents carried.
func (b *board) replace(parents []Measure, children []*meta.Segment) {
	b.measures = slices.DeleteFunc(b.measures, func(m Measure) bool {
		return slices.ContainsFunc(parents, func(p Measure) bool { return p.Segment.ID == m.Segment.ID })
	})
	for i, g := range heirs(parents, children, b.now) {
		b.measures = append(b.measures, Measure{Segment: children[i], Gauge: g})
	}
}

// hot takes note that a segment was found hot, so that it is told of once.
func (b *board) hot(id queue.SegmentID) {
	for i := range b.measures {
		if b.measures[i].Segment.ID == id {
			b.measures[i].Gauge.Hot = true
		}
	}
}

// cool takes the note off segments that carry no more than they should now.
func (b *board) cool(s State) {
	d := decider{State: s}
	for i := range b.measures {
		if b.measures[i].Gauge.Hot && d.most(i) <= 1 {
			b.measures[i].Gauge.Hot = false
		}
	}
}

func (b *board) countHot() (n int) {
	for i := range b.measures {
		if b.measures[i].Gauge.Hot {
			n++
		}
	}
	return n
}

// keep writes the gauges, each if it is still as it was read: a leader that another has overtaken writes
// nothing.
func (l *leader) keep(ctx context.Context, b *board) error {
	n := 0
	for some := range slices.Chunk(b.measures, meta.GaugeSegments) {
		g := &meta.Gauge{Topic: b.topic, Number: n, At: b.now}
		for i := range some {
			g.Segments = append(g.Segments, some[i].Gauge)
		}
		put := meta.Put{Record: g, If: meta.Absent(), Version: meta.NewVersion(l.IDs)}
		if n < len(b.stored) {
			put.If = meta.At(b.stored[n])
		}
		if _, err := l.Meta.Apply(ctx, put); err != nil && !lost(err) {
			return err
		}
		n++
	}
	return l.drop(ctx, b, n)
}

// clear deletes a topic's gauges.
func (l *leader) clear(ctx context.Context, b *board) error { return l.drop(ctx, b, 0) }

// drop deletes the gauges from number n on, the last first: so that what is left has no gap.
func (l *leader) drop(ctx context.Context, b *board, n int) error {
	for i := len(b.stored) - 1; i >= n; i-- {
		_, err := l.Meta.Apply(ctx, meta.Delete{Key: meta.GaugeKey(b.topic, i), If: meta.At(b.stored[i]), Kind: meta.KindGauge})
		if err != nil && !lost(err) {
			return err
		}
	}
	return nil
}

// lost reports whether a write of a gauge came to nothing, or may have, in a way that does not matter: the
// next run measures again.
func lost(err error) bool {
	_, refused := meta.AsRefused(err)
	return refused || queue.Is(err, queue.KindOutcomeUnknown)
}
