package scale

import (
	"math"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Measure is what is known of one open segment's load.
type Measure struct {
	Segment *meta.Segment
	Gauge   meta.SegmentGauge
	// Load is where in the segment's range the messages of the last minutes fell.
	Load [queue.LoadBuckets]uint64
}

// baseEvery is after how long the histogram starts anew: a split goes by the load of the last minutes.
const baseEvery = 10 * time.Minute

// measure brings a segment's gauge up to date with its head. last is the gauge of at, or nil if there is
// none: then rates start from nothing at the segment's creation.
func measure(seg *meta.Segment, head *meta.Head, last *meta.SegmentGauge, at, now queue.Millis) Measure {
	g := meta.SegmentGauge{
		ID: seg.ID, Messages: uint64(head.Next), Bytes: head.Bytes, Commits: head.Load.Commits,
	}
	fresh := last == nil
	if fresh {
		last, at = &meta.SegmentGauge{BaseAt: seg.Created}, seg.Created
	}
	g.Base, g.BaseAt = last.Base, last.BaseAt
	dt := max(now.Sub(at), time.Second)
	g.Last = since(&g, last, dt)
	if pace, ok := head.Pace(now); ok && fresh {
		// The average since creation says nothing of an old segment that wakes up.
		g.Last = pace
	}
	for i, window := range queue.RateWindows() {
		g.Rates[i] = blend(last.Rates[i], g.Last, 1-math.Exp(-float64(dt)/float64(window)))
	}
	m := Measure{Segment: seg, Gauge: g}
	for i, n := range head.Load.Buckets {
		m.Load[i] = n - min(n, g.Base[i])
	}
	if now.Sub(g.BaseAt) >= baseEvery {
		m.Gauge.Base, m.Gauge.BaseAt = head.Load.Buckets, now
	}
	return m
}

func since(g, last *meta.SegmentGauge, dt time.Duration) meta.Rate {
	per := func(now, before uint64) float32 {
		return float32(float64(now-min(now, before)) / dt.Seconds())
	}
	return meta.Rate{
		Messages: per(g.Messages, last.Messages), Bytes: per(g.Bytes, last.Bytes), Commits: per(g.Commits, last.Commits),
	}
}

func blend(old, inst meta.Rate, alpha float64) meta.Rate {
	mix := func(a, b float32) float32 { return float32(float64(a)*(1-alpha) + float64(b)*alpha) }
	return meta.Rate{Messages: mix(old.Messages, inst.Messages), Bytes: mix(old.Bytes, inst.Bytes), Commits: mix(old.Commits, inst.Commits)}
}

func scaled(r meta.Rate, by float64) meta.Rate {
	f := float32(by)
	return meta.Rate{Messages: r.Messages * f, Bytes: r.Bytes * f, Commits: r.Commits * f}
}

func sum(a, b meta.Rate) meta.Rate {
	return meta.Rate{Messages: a.Messages + b.Messages, Bytes: a.Bytes + b.Bytes, Commits: a.Commits + b.Commits}
}

// heirs are the gauges of the segments that replace parents: the rates go over in proportion to where the
// load fell, so that a change does not look like the end of the load.
func heirs(parents []Measure, children []*meta.Segment, now queue.Millis) []meta.SegmentGauge {
	out := make([]meta.SegmentGauge, len(children))
	for i, child := range children {
		g := meta.SegmentGauge{ID: child.ID, BaseAt: now}
		for _, p := range parents {
			share := p.share(child.Range)
			g.Last = sum(g.Last, scaled(p.Gauge.Last, share))
			for w := range g.Rates {
				g.Rates[w] = sum(g.Rates[w], scaled(p.Gauge.Rates[w], share))
			}
		}
		out[i] = g
	}
	return out
}

// share is the part of the measure's load that fell in r.
func (m *Measure) share(r queue.SlotRange) float64 {
	lo, hi := max(r.Lo, m.Segment.Range.Lo), min(r.Hi, m.Segment.Range.Hi)
	if lo >= hi {
		return 0
	}
	c := m.curve()
	return c.at(hi) - c.at(lo)
}

// most is the greatest score of a segment by any of its rates.
func most(p topics.Policy, g *meta.SegmentGauge) float64 {
	s := p.Score(g.Last)
	for _, r := range g.Rates {
		s = max(s, p.Score(r))
	}
	return s
}
