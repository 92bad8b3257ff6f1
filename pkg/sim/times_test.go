package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/latency"
)

// TestTimesBySeed: some seeds have coarse times, some published ones, of each storage class; a run says which, and the
// same seed has the same.
func TestTimesBySeed(t *testing.T) {
	texts := make(map[string]int)
	for seed := range uint64(100) {
		opts := Options{Seed: seed}
		one := newTiming(&opts)
		if again := newTiming(&opts); again.text != one.text || again.kind() != one.kind() {
			t.Errorf("seed %d has two kinds of times", seed)
		}
		texts[one.text]++
		opts.Times = TimesCoarse
		if newTiming(&opts).published() {
			t.Errorf("seed %d: coarse times are not", seed)
		}
		opts.Times = TimesPublished
		if !newTiming(&opts).published() {
			t.Errorf("seed %d: published times are not", seed)
		}
	}
	if len(texts) != 4 || texts["coarse times"] < 50 || texts["coarse times"] > 80 {
		t.Errorf("of 100 seeds: %v", texts)
	}
}

// TestPublishedTimes: requests that meet no fault take what is published of their kind.
func TestPublishedTimes(t *testing.T) {
	took := make(map[string][]time.Duration)
	for seed := range uint64(8) {
		opts := Options{Seed: seed + 1, Times: TimesPublished, Knowing: Open()}
		res := simulate(t, opts)
		if res.Times != TimesPublished {
			t.Fatalf("seed %d has %s times", opts.Seed, res.Times)
		}
		if res.Finding != nil {
			report(t, opts, res)
		}
		for kind, list := range res.Took {
			took[kind] = append(took[kind], list...)
		}
	}
	table := latency.DynamoDB()
	for kind, f := range map[latency.Kind]latency.Figure{
		latency.Read: table.Read, latency.Write: table.Write, latency.Many: table.Many, latency.Transact: table.Transact,
	} {
		list := took[kind.String()]
		slices.Sort(list)
		if len(list) < 300 {
			t.Fatalf("%s: %d requests", kind, len(list))
		}
		curve := f.Curve()
		for _, p := range []float64{0.5, 0.9, 0.99} {
			// As many should take longer than the percentile as it says, give or take what chance makes of it.
			at, _ := slices.BinarySearch(list, curve.At(p))
			longer, want := float64(len(list)-at), (1-p)*float64(len(list))
			if chance := 4 * math.Sqrt(want); math.Abs(longer-want) > chance {
				t.Errorf("%s: %v of %d requests take longer than the published p%v, %v; want %.0f", kind, longer, len(list), 100*p, curve.At(p), want)
			}
		}
	}
}
