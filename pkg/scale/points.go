package scale

import (
	"github.com/spillway-mq/spillway/pkg/queue"
)

// curve is the part of a segment's load that lies below a slot: straight within each bucket of the
// histogram, and over the whole range where nothing was counted.
type curve struct {
	lo, hi uint32
	// below has the part of the load before each bucket edge, from 0 to 1.
	below [queue.LoadBuckets + 1]float64
}

func (m *Measure) curve() curve {
	c := curve{lo: m.Segment.Range.Lo, hi: m.Segment.Range.Hi}
	var total uint64
	for _, n := range m.Load {
		total += n
	}
	sum := uint64(0)
	for i, n := range m.Load {
		sum += n
		c.below[i+1] = float64(i+1) / queue.LoadBuckets
		if total > 0 {
			c.below[i+1] = float64(sum) / float64(total)
		}
	}
	return c
}

// place is where a slot lies on the scale of bucket edges.
func (c *curve) place(slot uint32) float64 {
	return float64(slot-c.lo) * queue.LoadBuckets / float64(c.hi-c.lo)
}

// at is the part of the load below a slot.
func (c *curve) at(slot uint32) float64 {
	x := c.place(slot)
	i := min(int(x), queue.LoadBuckets-1)
	return c.below[i] + (x-float64(i))*(c.below[i+1]-c.below[i])
}

// slot is the first one that has the given part of the load below it.
func (c *curve) slot(part float64) uint32 {
	i := 0
	for i < queue.LoadBuckets-1 && c.below[i+1] < part {
		i++
	}
	x := float64(i)
	if d := c.below[i+1] - c.below[i]; d > 0 {
		x += (part - c.below[i]) / d
	}
	return c.lo + uint32(x*float64(c.hi-c.lo)/queue.LoadBuckets+0.5) // #nosec G115 -- within the range
}

// hotShare is the part of a segment's load from which on one bucket counts as hot: equal parts would cut
// through it, and leave most of the load on one side.
const hotShare = 0.8

// cut divides a segment's range into k parts of equal load, or cuts its hot bucket out. It gives fewer
// where the range has too few slots, and the range itself if it cannot be divided.
func (m *Measure) cut(k int) []queue.SlotRange {
	r := m.Segment.Range
	c := m.curve()
	var points []uint32
	if i, ok := m.hotBucket(); ok {
		points = []uint32{c.edge(i), c.edge(i + 1)}
	} else {
		for j := 1; j < k; j++ {
			points = append(points, c.slot(float64(j)/float64(k)))
		}
	}
	return divide(r, points)
}

// edge is the first slot of bucket i.
func (c *curve) edge(i int) uint32 {
	n := uint64(c.hi - c.lo)
	return c.lo + uint32((uint64(i)*n+queue.LoadBuckets-1)/queue.LoadBuckets) // #nosec G115 -- within the range
}

// hotBucket finds a bucket that has hotShare of the load and is narrower than the range.
func (m *Measure) hotBucket() (int, bool) {
	if m.Segment.Range.Len() < 2 {
		return 0, false
	}
	var total uint64
	for _, n := range m.Load {
		total += n
	}
	for i, n := range m.Load {
		if total > 0 && float64(n) >= hotShare*float64(total) {
			return i, true
		}
	}
	return 0, false
}

// divide cuts r at points, which ascend; those at its ends, or at one another, do nothing.
func divide(r queue.SlotRange, points []uint32) []queue.SlotRange {
	var out []queue.SlotRange
	lo := r.Lo
	for _, p := range points {
		if p > lo && p < r.Hi {
			out = append(out, queue.SlotRange{Lo: lo, Hi: p})
			lo = p
		}
	}
	return append(out, queue.SlotRange{Lo: lo, Hi: r.Hi})
}
