package latency

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Point is one percentile: the share At of requests, 0 to 1, took Took at most.
type Point struct {
	At   float64
	Took time.Duration
}

// Curve is a distribution of durations through some percentiles. The zero Curve takes no time.
type Curve struct {
	// z and ln are the points' places on the standard normal's scale, and the logarithms of their times.
	z, ln       []float64
	least, most time.Duration
}

// beyond is how many times the greatest percentile a draw may be at most.
const beyond = 5

// Through makes the curve through at least two points of rising share and time, the shares between 0 and 1.
// least bounds it from below.
func Through(least time.Duration, points ...Point) Curve {
	c := Curve{least: least}
	for _, p := range points {
		c.z = append(c.z, math.Sqrt2*math.Erfinv(2*p.At-1))
		c.ln = append(c.ln, math.Log(float64(p.Took)))
		c.most = beyond * p.Took
	}
	return c
}

// Draw takes one duration.
func (c *Curve) Draw(rng *rand.Rand) time.Duration { return c.at(rng.NormFloat64()) }

// At is the duration that the share p of draws, between 0 and 1, is at most.
func (c *Curve) At(p float64) time.Duration { return c.at(math.Sqrt2 * math.Erfinv(2*p-1)) }

func (c *Curve) at(z float64) time.Duration {
	if len(c.z) == 0 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(c.z, z, cmp.Compare[float64])
	i = min(max(i, 1), len(c.z)-1)
	slope := (c.ln[i] - c.ln[i-1]) / (c.z[i] - c.z[i-1])
	d := math.Exp(c.ln[i-1] + slope*(z-c.z[i-1]))
	return min(max(time.Duration(d), c.least), c.most)
}
