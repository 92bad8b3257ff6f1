package cost

import "math"

// Crossing says for which rates Spillway costs less than a rival.
type Crossing struct {
	Rival string `json:"rival"`
	// Always and Never: at every rate that was looked at, and that the rival bears. Otherwise Spillway
	// costs less up to Rate messages a second, or, if From, from it on.
	Always bool    `json:"always,omitempty"`
	Never  bool    `json:"never,omitempty"`
	From   bool    `json:"from,omitempty"`
	Rate   float64 `json:"rate_per_second,omitempty"`
}

// The rates that are looked at, in steps of rateStep.
const (
	leastRate = 0.01
	mostRate  = 100_000
	rateStep  = 1.01
)

// CrossingRates compares a workload's costs with each rival's at all rates: fixed is what Spillway costs a
// month whatever comes, perMillion what a million messages cost. Each is taken at its rate alone; the
// first rate is told at which the cheaper one changes.
func CrossingRates(w Workload, fixed, perMillion float64, p Prices) []Crossing {
	var out []Crossing
	for i, r := range Rivals(w, p) {
		c := Crossing{Rival: r.Name}
		cheaper := func(rate float64) (yes, known bool) {
			at := w
			at.Rate = rate
			rival := Rivals(at, p)[i]
			ours := perMillion + fixed/(rate*hoursPerMonth*3600)*million
			return ours < rival.PerMillion, !rival.Beyond
		}
		first, _ := cheaper(leastRate)
		c.Always, c.Never = first, !first
		for rate := leastRate; rate <= mostRate; rate *= rateStep {
			yes, known := cheaper(rate)
			if !known {
				break
			}
			if yes != first {
				c = Crossing{Rival: r.Name, From: yes, Rate: rate}
				break
			}
		}
		out = append(out, c)
	}
	return out
}

// point is a cost, in dollars for a million messages, at a batch size.
type point struct {
	batch int
	usd   float64
}

// crossingBatch is the batch size from which on ours is below theirs, both given at the same batch sizes,
// between which costs are straight lines on paper with two logarithmic scales. 0 if it never is, 1 if
// always.
func crossingBatch(ours, theirs []point) float64 {
	for i := len(ours) - 1; i >= 0; i-- {
		if ours[i].usd < theirs[i].usd {
			continue
		}
		if i == len(ours)-1 {
			return 0
		}
		// The difference of the logarithms is a straight line, too.
		d := func(k int) float64 { return math.Log(ours[k].usd / theirs[k].usd) }
		x0, x1 := math.Log(float64(ours[i].batch)), math.Log(float64(ours[i+1].batch))
		return math.Exp(x0 + (x1-x0)*d(i)/(d(i)-d(i+1)))
	}
	return 1
}
