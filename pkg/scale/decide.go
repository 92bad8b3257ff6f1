package scale

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

const (
	// SplitCooldown is how long a new segment is not split: until it has a measure of its own.
	SplitCooldown = 20 * time.Second
	// MergeCooldown is how long a new segment is not merged.
	MergeCooldown = 10 * time.Minute
	// coldScore is the score of a segment that may be merged, and of what a merge makes: half of what a
	// split makes at least, so that the two do not take turns.
	coldScore = 0.5
	// pressedAge is how old a segment is when pressure begins to count against it: before, it may be that of
	// its parents, which those who wait hear of late.
	pressedAge = 10 * time.Second
	// pressedScore is the score above which a segment is split while the store refuses. It is below 1 as what
	// was refused is not in any rate, and no less than coldScore, so that the parts are not merged at once.
	pressedScore = 0.5
)

// splitRules are the rates that split a segment: the longer the window, the less it takes (the rules of
// Pravega's scaling).
func splitRules() [queue.RateWindowCount]float64 { return [...]float64{5, 2, 1, math.Inf(1)} }

// Decision is a change to make, or a finding, and its reason.
type Decision struct {
	Action meta.Action
	// Segments are what is to be replaced, by segments of Ranges; Ranges is empty for a finding.
	Segments []Measure
	Ranges   []queue.SlotRange
	Reason   string
}

// State is all that a decision goes by.
type State struct {
	Policy topics.Policy
	// Open are the open segments by slot range.
	Open []Measure
	// Pressed is when producers were last refused by the store; 0 if they were not lately.
	Pressed queue.Millis
	Now     queue.Millis
}

// decider collects decisions; no segment is in two of them.
type decider struct {
	State
	// count is the number of open segments once all decisions are carried out.
	count   int
	changed []bool
	out     []Decision
}

// Decide says what to change. It is a pure function. Splits come first, the greatest load first.
func Decide(s State) []Decision {
	d := &decider{State: s, count: len(s.Open), changed: make([]bool, len(s.Open))}
	d.splitLoaded()
	d.fillMinimum()
	d.mergeCold()
	d.keepMaximum()
	return d.out
}

// byScore are the places of the open segments, the greatest load first.
func (d *decider) byScore() []int {
	order := make([]int, len(d.Open))
	load := make([]float64, len(d.Open))
	for i := range order {
		order[i], load[i] = i, d.most(i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(load[b], load[a]), cmp.Compare(d.Open[b].Segment.Range.Len(), d.Open[a].Segment.Range.Len()))
	})
	return order
}

func (d *decider) most(i int) float64 { return most(d.Policy, &d.Open[i].Gauge) }

func (d *decider) age(i int) time.Duration { return d.Now.Sub(d.Open[i].Segment.Created) }

func (d *decider) splitLoaded() {
	for _, i := range d.byScore() {
		m := &d.Open[i]
		load, reason := d.trigger(m)
		if reason == "" || d.age(i) < SplitCooldown {
			continue
		}
		if m.Segment.Range.Len() == 1 {
			if !m.Gauge.Hot {
				d.out = append(d.out, Decision{Action: meta.ActionHot, Segments: []Measure{*m}, Reason: reason + "; all of it is of one slot"})
			}
			continue
		}
		d.split(i, int(math.Ceil(min(load, queue.MaxSplit))), reason)
	}
}

// trigger finds the rate that asks for a split, and why; "" if none does.
func (d *decider) trigger(m *Measure) (load float64, reason string) {
	last := d.Policy.Score(m.Gauge.Last)
	windows := queue.RateWindows()
	for i, factor := range splitRules() {
		if s := d.Policy.Score(m.Gauge.Rates[i]); s > factor {
			return max(s, last), fmt.Sprintf("%d-minute rate is %.1f times the target, more than %g", int(windows[i].Minutes()), s, factor)
		}
	}
	if d.Pressed != 0 && d.Pressed.Sub(m.Segment.Created) >= pressedAge && last > pressedScore {
		return last, fmt.Sprintf("the store refuses, and the rate is %.1f times the target", last)
	}
	return 0, ""
}

// split divides segment i into up to k, as far as the maximum allows.
func (d *decider) split(i, k int, reason string) {
	k = min(max(k, 2), queue.MaxSplit, d.Policy.Max-d.count+1)
	if k < 2 || d.changed[i] {
		return
	}
	ranges := d.Open[i].cut(k)
	if len(ranges) > d.Policy.Max-d.count+1 {
		ranges = divide(d.Open[i].Segment.Range, []uint32{ranges[0].Hi})
	}
	if len(ranges) < 2 {
		return
	}
	d.changed[i] = true
	d.count += len(ranges) - 1
	d.out = append(d.out, Decision{Action: meta.ActionSplit, Segments: []Measure{d.Open[i]}, Ranges: ranges, Reason: reason})
}

// fillMinimum splits until there are as many segments as the policy asks for.
func (d *decider) fillMinimum() {
	for _, i := range d.byScore() {
		if d.count >= d.Policy.Min {
			return
		}
		d.split(i, d.Policy.Min-d.count+1, fmt.Sprintf("%d open, fewer than the minimum of %d", d.count, d.Policy.Min))
	}
}

// mergeCold joins runs of neighbours that are cold and stay so together.
func (d *decider) mergeCold() {
	for i := 0; i < len(d.Open); {
		j, load := i, 0.0
		for j < len(d.Open) && d.cold(j) && load+d.most(j) <= coldScore && j-i < queue.MaxSplit && d.count-(j-i) >= d.Policy.Min {
			load += d.most(j)
			j++
		}
		if j-i >= 2 {
			d.merge(i, j, fmt.Sprintf("together %.2f times the target", load))
		}
		i = max(j, i+1)
	}
}

func (d *decider) cold(i int) bool {
	return !d.changed[i] && d.age(i) >= MergeCooldown && d.most(i) <= coldScore
}

// merge joins segments [i, j).
func (d *decider) merge(i, j int, reason string) {
	for k := i; k < j; k++ {
		d.changed[k] = true
	}
	d.count -= j - i - 1
	d.out = append(d.out, Decision{
		Action: meta.ActionMerge, Segments: slices.Clone(d.Open[i:j]),
		Ranges: []queue.SlotRange{{Lo: d.Open[i].Segment.Range.Lo, Hi: d.Open[j-1].Segment.Range.Hi}}, Reason: reason,
	})
}

// keepMaximum joins the neighbours with the least load together while there are too many: the maximum was
// lowered.
func (d *decider) keepMaximum() {
	for d.count > d.Policy.Max {
		best, least := -1, math.Inf(1)
		for i := range len(d.Open) - 1 {
			if load := d.most(i) + d.most(i+1); !d.changed[i] && !d.changed[i+1] && load < least {
				best, least = i, load
			}
		}
		if best < 0 {
			return
		}
		d.merge(best, best+2, fmt.Sprintf("%d open, more than the maximum of %d", d.count, d.Policy.Max))
	}
}

// calm reports whether a topic needs no watching: it is at its minimum, and far from any change.
func calm(s State) bool {
	d := decider{State: s}
	for i := range s.Open {
		if d.most(i) > coldScore {
			return false
		}
	}
	return len(s.Open) == s.Policy.Min
}
