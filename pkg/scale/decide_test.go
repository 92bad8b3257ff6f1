package scale_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

const decideNow = queue.Millis(1_785_000_000_000)

// load is an open segment as a table gives it: its rates are multiples of the target.
type load struct {
	last  float64
	rates [queue.RateWindowCount]float64
	// age is how long ago it was made; 0 means long ago.
	age time.Duration
	// slots is how many slots it owns; 0 means an equal part of the ring.
	slots uint32
	hot   bool
	// at is where in its range the messages fell, by bucket.
	at map[int]uint64
}

// steady is a load that has been the same for long.
func steady(x float64) load { return load{last: x, rates: [queue.RateWindowCount]float64{x, x, x, x}} }

func (l load) aged(d time.Duration) load {
	l.age = d
	return l
}

const decideTarget = 1000

func rateOf(x float64) meta.Rate {
	// Many messages a commit, so that messages alone count.
	return meta.Rate{Messages: float32(x * decideTarget), Commits: float32(x)}
}

// stateOf lays loads out on the ring, one segment after the other.
func stateOf(p topics.Policy, loads ...load) scale.State {
	p.Messages, p.Bytes = decideTarget, 1<<40
	if p.Min == 0 {
		p.Min = 1
	}
	if p.Max == 0 {
		p.Max = 256
	}
	st := scale.State{Policy: p, Now: decideNow}
	lo := uint32(0)
	for i, l := range loads {
		hi := uint32((i + 1) * queue.Slots / len(loads))
		if l.slots > 0 {
			hi = lo + l.slots
		}
		if l.age == 0 {
			l.age = time.Hour
		}
		id := queue.SegmentID(fmt.Sprintf("s%d", i))
		m := scale.Measure{
			Segment: &meta.Segment{ID: id, Range: queue.SlotRange{Lo: lo, Hi: hi}, Created: decideNow.Add(-l.age)},
			Gauge:   meta.SegmentGauge{ID: id, Last: rateOf(l.last), Hot: l.hot},
		}
		for w, x := range l.rates {
			m.Gauge.Rates[w] = rateOf(x)
		}
		for b, n := range l.at {
			m.Load[b] = n
		}
		st.Open = append(st.Open, m)
		lo = hi
	}
	return st
}

// told renders decisions: "split s0 into 2", "merge s1 s2", "hot s3".
func told(all []scale.Decision) string {
	var out []string
	for _, d := range all {
		text := string(d.Action)
		for i := range d.Segments {
			text += " " + string(d.Segments[i].Segment.ID)
		}
		if d.Action == meta.ActionSplit {
			text += fmt.Sprintf(" into %d", len(d.Ranges))
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	window := func(w int, x float64) load {
		l := steady(0.9)
		l.rates[w] = x
		return l
	}
	cold, warm := steady(0.1), steady(0.9)
	one := load{last: 20, rates: [4]float64{20, 20, 20, 20}, slots: 1}
	oneHot := one
	oneHot.hot = true
	rest := steady(0.9)
	rest.slots = queue.Slots - 1
	for name, tc := range map[string]struct {
		state scale.State
		want  string
	}{
		"nothing to do":                {stateOf(topics.Policy{}, warm), ""},
		"2 minutes at 5 times":         {stateOf(topics.Policy{}, window(0, 5)), ""},
		"2 minutes above 5 times":      {stateOf(topics.Policy{}, window(0, 5.1)), "split s0 into 6"},
		"5 minutes at twice":           {stateOf(topics.Policy{}, window(1, 2)), ""},
		"5 minutes above twice":        {stateOf(topics.Policy{}, window(1, 2.1)), "split s0 into 3"},
		"10 minutes at the target":     {stateOf(topics.Policy{}, window(2, 1)), ""},
		"10 minutes above the target":  {stateOf(topics.Policy{}, window(2, 1.1)), "split s0 into 2"},
		"20 minutes never split":       {stateOf(topics.Policy{}, window(3, 9)), ""},
		"by the last rate, if greater": {stateOf(topics.Policy{}, load{last: 12, rates: [4]float64{5.5, 0, 0, 0}}), "split s0 into 12"},
		"16 parts at most":             {stateOf(topics.Policy{}, steady(100)), "split s0 into 16"},

		"pressed above the target":  {pressed(stateOf(topics.Policy{}, load{last: 3.2})), "split s0 into 4"},
		"pressed at the target":     {pressed(stateOf(topics.Policy{}, load{last: 1})), "split s0 into 2"},
		"pressed above the half":    {pressed(stateOf(topics.Policy{}, load{last: 0.51})), "split s0 into 2"},
		"pressed at the half":       {pressed(stateOf(topics.Policy{}, load{last: 0.5})), ""},
		"pressed, and young":        {pressed(stateOf(topics.Policy{}, load{last: 4}.aged(scale.SplitCooldown))), "split s0 into 4"},
		"pressed before it was old": {pressedAgo(11*time.Second, stateOf(topics.Policy{}, load{last: 4}.aged(scale.SplitCooldown))), ""},
		"not pressed, a short peak": {stateOf(topics.Policy{}, load{last: 4}), ""},

		"too young to split":      {stateOf(topics.Policy{}, steady(9).aged(scale.SplitCooldown-time.Millisecond)), ""},
		"old enough to split":     {stateOf(topics.Policy{}, steady(2.5).aged(scale.SplitCooldown)), "split s0 into 3"},
		"too young to merge":      {stateOf(topics.Policy{}, cold.aged(scale.MergeCooldown-time.Millisecond), cold), ""},
		"old enough to merge":     {stateOf(topics.Policy{}, cold.aged(scale.MergeCooldown), cold), "merge s0 s1"},
		"young ones merge nobody": {stateOf(topics.Policy{}, cold, cold.aged(time.Minute), cold, cold), "merge s2 s3"},

		"greatest load first":           {stateOf(topics.Policy{}, steady(2.5), steady(4.5), steady(3.5)), "split s1 into 5, split s2 into 4, split s0 into 3"},
		"up to the maximum":             {stateOf(topics.Policy{Max: 6}, steady(3.5), steady(6.5)), "split s1 into 5"},
		"two more, then the maximum":    {stateOf(topics.Policy{Max: 7}, steady(3.5), steady(4.5)), "split s1 into 5, split s0 into 2"},
		"at the maximum":                {stateOf(topics.Policy{Max: 2}, steady(9), steady(9)), ""},
		"above the maximum":             {stateOf(topics.Policy{Max: 2}, warm, steady(0.8), steady(0.7)), "merge s1 s2"},
		"far above the maximum":         {stateOf(topics.Policy{Max: 2}, warm, warm, warm, warm), "merge s0 s1, merge s2 s3"},
		"above the maximum, all loaded": {stateOf(topics.Policy{Max: 2}, steady(9), steady(9), steady(8)), "merge s1 s2"},

		"below the minimum":             {stateOf(topics.Policy{Min: 3}, cold), "split s0 into 3"},
		"below the minimum, two":        {stateOf(topics.Policy{Min: 3}, cold, steady(0.2)), "split s1 into 2"},
		"far below the minimum":         {stateOf(topics.Policy{Min: 40}, cold, cold), "split s0 into 16, split s1 into 16"},
		"below the minimum, young":      {stateOf(topics.Policy{Min: 2}, cold.aged(time.Millisecond)), "split s0 into 2"},
		"a loaded one fills as it must": {stateOf(topics.Policy{Min: 4}, steady(1.5), cold), "split s0 into 2, split s1 into 2"},

		"cold ones join":              {stateOf(topics.Policy{}, cold, cold, cold), "merge s0 s1 s2"},
		"not below the minimum":       {stateOf(topics.Policy{Min: 2}, cold, cold, cold), "merge s0 s1"},
		"two runs, one minimum":       {stateOf(topics.Policy{Min: 4}, cold, cold, warm, cold, cold), "merge s0 s1"},
		"two runs, room for both":     {stateOf(topics.Policy{Min: 3}, cold, cold, warm, cold, cold), "merge s0 s1, merge s3 s4"},
		"a split makes room to merge": {stateOf(topics.Policy{Min: 4}, steady(1.5), cold, cold, cold), "split s0 into 2, merge s1 s2"},
		"at the minimum":              {stateOf(topics.Policy{Min: 2}, cold, cold), ""},
		"together no more than cold":  {stateOf(topics.Policy{}, steady(0.2), steady(0.2), steady(0.2)), "merge s0 s1"},
		"together too warm":           {stateOf(topics.Policy{}, steady(0.3), steady(0.3)), ""},
		"warm neighbours keep apart":  {stateOf(topics.Policy{}, cold, warm, cold), ""},
		"one that was warm lately":    {stateOf(topics.Policy{}, load{rates: [4]float64{0, 0, 0, 0.6}}, cold), ""},
		"never what was split just now": {
			stateOf(topics.Policy{Max: 3}, steady(9), cold, cold, cold), "merge s1 s2 s3",
		},

		"one hot slot":        {stateOf(topics.Policy{}, one, rest), "hot s0"},
		"one hot slot, again": {stateOf(topics.Policy{}, oneHot, rest), ""},
	} {
		got := scale.Decide(tc.state)
		if told(got) != tc.want {
			t.Errorf("%s: %q, want %q", name, told(got), tc.want)
		}
		holds(t, name, tc.state, got)
	}
}

func pressedAgo(d time.Duration, s scale.State) scale.State {
	s.Pressed = decideNow.Add(-d)
	return s
}

func pressed(s scale.State) scale.State {
	s.Pressed = decideNow
	return s
}

// holds checks what is so of any decisions: no segment is in two, ranges tile what they replace, and the
// bounds are kept, or come nearer.
func holds(t *testing.T, name string, s scale.State, all []scale.Decision) {
	t.Helper()
	seen := make(map[queue.SegmentID]bool)
	count := len(s.Open)
	for _, d := range all {
		if d.Reason == "" {
			t.Errorf("%s: %s gives no reason", name, told([]scale.Decision{d}))
		}
		for i := range d.Segments {
			if id := d.Segments[i].Segment.ID; seen[id] {
				t.Errorf("%s: %s is changed twice", name, id)
			} else {
				seen[id] = true
			}
		}
		if d.Action == meta.ActionHot {
			continue
		}
		count += len(d.Ranges) - len(d.Segments)
		if len(d.Ranges) > queue.MaxSplit || len(d.Segments) > queue.MaxSplit {
			t.Errorf("%s: %d segments become %d, too many for a transaction", name, len(d.Segments), len(d.Ranges))
		}
		edge := d.Segments[0].Segment.Range.Lo
		for _, r := range d.Ranges {
			if r.Lo != edge || r.Hi <= r.Lo {
				t.Errorf("%s: %v leave or share slots at %d", name, d.Ranges, edge)
			}
			edge = r.Hi
		}
		if edge != d.Segments[len(d.Segments)-1].Segment.Range.Hi {
			t.Errorf("%s: %v end at %d", name, d.Ranges, edge)
		}
		for i := range d.Segments[1:] {
			if d.Segments[i].Segment.Range.Hi != d.Segments[i+1].Segment.Range.Lo {
				t.Errorf("%s: %s are no neighbours", name, told([]scale.Decision{d}))
			}
		}
	}
	if least := min(s.Policy.Min, len(s.Open)); count < least {
		t.Errorf("%s: %d segments, fewer than %d", name, count, least)
	}
	if most := max(s.Policy.Max, len(s.Open)); count > most {
		t.Errorf("%s: %d segments, more than %d", name, count, most)
	}
}

// TestCutPoints: a split cuts where the load is equal; one bucket that has most of it is cut out.
func TestCutPoints(t *testing.T) {
	bucket := uint32(queue.Slots / queue.LoadBuckets)
	hot := steady(3)
	for name, tc := range map[string]struct {
		at   map[int]uint64
		x    float64
		p    topics.Policy
		ends []uint32
	}{
		"nothing counted":          {nil, 3.5, topics.Policy{}, []uint32{16384, 32768, 49152, 65536}},
		"even":                     {even(10), 3.5, topics.Policy{}, []uint32{16384, 32768, 49152, 65536}},
		"all of it in one half":    {map[int]uint64{0: 5, 1: 5, 2: 5, 3: 5, 4: 5, 5: 5, 6: 5, 7: 5}, 3.5, topics.Policy{}, []uint32{8192, 16384, 24576, 65536}},
		"two places":               {map[int]uint64{2: 10, 9: 10}, 1.5, topics.Policy{}, []uint32{3 * bucket, 65536}},
		"within a bucket":          {map[int]uint64{0: 1, 4: 2, 15: 1}, 1.5, topics.Policy{}, []uint32{4*bucket + bucket/2, 65536}},
		"a hot bucket":             {map[int]uint64{4: 85, 9: 15}, 7.5, topics.Policy{}, []uint32{4 * bucket, 5 * bucket, 65536}},
		"a hot bucket, the first":  {map[int]uint64{0: 85, 9: 15}, 7.5, topics.Policy{}, []uint32{bucket, 65536}},
		"a hot bucket, the last":   {map[int]uint64{15: 85, 9: 15}, 7.5, topics.Policy{}, []uint32{15 * bucket, 65536}},
		"a hot bucket, room for 2": {map[int]uint64{4: 85, 9: 15}, 7.5, topics.Policy{Max: 2}, []uint32{4 * bucket, 65536}},
		"almost hot":               {map[int]uint64{4: 79, 9: 21}, 1.5, topics.Policy{}, nil},
		"as many as the maximum":   {even(10), 7.5, topics.Policy{Max: 3}, []uint32{21845, 43691, 65536}},
		"the load of one slot":     {map[int]uint64{7: 1}, 2.5, topics.Policy{}, []uint32{7 * bucket, 8 * bucket, 65536}},
	} {
		l := hot
		l.at = tc.at
		for i := range l.rates {
			l.rates[i] = tc.x
		}
		l.last = tc.x
		st := stateOf(tc.p, l)
		got := scale.Decide(st)
		holds(t, name, st, got)
		if len(got) != 1 {
			t.Errorf("%s: %s", name, told(got))
			continue
		}
		var ends []uint32
		for _, r := range got[0].Ranges {
			ends = append(ends, r.Hi)
		}
		if tc.ends != nil && !slices.Equal(ends, tc.ends) {
			t.Errorf("%s: cut at %v, want %v", name, ends, tc.ends)
		}
	}
}

func even(n uint64) map[int]uint64 {
	out := make(map[int]uint64)
	for i := range queue.LoadBuckets {
		out[i] = n
	}
	return out
}

// TestHotSlotIsCutOut: whatever a hot slot's segment, a few splits leave the slot alone in one of its own.
func TestHotSlotIsCutOut(t *testing.T) {
	const slot = 43210
	r := queue.SlotRange{Lo: 0, Hi: queue.Slots}
	for n := 1; ; n++ {
		st := stateOf(topics.Policy{}, steady(3))
		st.Open[0].Segment.Range = r
		st.Open[0].Load[r.LoadBucket(slot)] = 1000
		got := scale.Decide(st)
		if len(got) != 1 {
			t.Fatalf("%v: %s", r, told(got))
		}
		if got[0].Action == meta.ActionHot {
			if r.Len() != 1 || n > 6 {
				t.Errorf("after %d splits the slot is in %v", n-1, r)
			}
			return
		}
		holds(t, r.String(), st, got)
		i := slices.IndexFunc(got[0].Ranges, func(r queue.SlotRange) bool { return r.Contains(slot) })
		if n > 20 || got[0].Ranges[i].Len() >= r.Len() {
			t.Fatalf("%v is cut into %v", r, got[0].Ranges)
		}
		r = got[0].Ranges[i]
	}
}
