package latency_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/latency"
)

func within(t *testing.T, what string, got, want time.Duration, share float64) {
	t.Helper()
	if d := math.Abs(float64(got-want)) / float64(want); d > share {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func allFigures() []latency.Figure {
	table := latency.DynamoDB()
	out := []latency.Figure{table.Read, table.Many, table.Write, table.Transact, table.TransactMany}
	for _, b := range []latency.BucketFigures{latency.S3Standard(), latency.S3StandardFast(), latency.S3Express()} {
		out = append(out, b.Get, b.Put)
	}
	return out
}

// TestCurveMeetsItsFigure: a curve goes through what was published, and so do draws from it.
func TestCurveMeetsItsFigure(t *testing.T) {
	for _, f := range allFigures() {
		c := f.Curve()
		const draws = 200_000
		rng := rand.New(rand.NewPCG(1, 2))
		drawn := make([]time.Duration, draws)
		for i := range drawn {
			drawn[i] = c.Draw(rng)
		}
		slices.Sort(drawn)
		for at, want := range map[float64]float64{0.5: f.P50, 0.9: f.P90, 0.95: f.P95, 0.99: f.P99, 0.999: f.P999} {
			if want == 0 {
				continue
			}
			name, d := f.Service+" "+f.Request, time.Duration(want*float64(time.Millisecond))
			within(t, name, c.At(at), d, 1e-6)
			within(t, name+", drawn", drawn[int(at*draws)], d, 0.03)
		}
		if least := time.Duration(f.Least * float64(time.Millisecond)); drawn[0] < least {
			t.Errorf("%s %s: %v was drawn, %v was the least", f.Service, f.Request, drawn[0], least)
		}
	}
}

// TestFiguresAreWhole: each has a source and a date, rises, and tells what it is not verified for.
func TestFiguresAreWhole(t *testing.T) {
	for _, f := range allFigures() {
		if f.Service == "" || f.Request == "" || f.Source == "" || f.Date == "" || !f.Read && f.Note == "" {
			t.Errorf("%+v", f)
		}
		last := f.Least
		for _, ms := range []float64{f.P50, f.P90, f.P95, f.P99, f.P999} {
			if ms != 0 && ms <= last {
				t.Errorf("%s %s: %v ms after %v", f.Service, f.Request, ms, last)
			}
			last = max(last, ms)
		}
	}
}

func TestCurveIsBounded(t *testing.T) {
	c := latency.Through(4*time.Millisecond,
		latency.Point{At: 0.5, Took: 5 * time.Millisecond}, latency.Point{At: 0.99, Took: 50 * time.Millisecond})
	if got := c.At(1e-9); got != 4*time.Millisecond {
		t.Errorf("least: %v", got)
	}
	if got := c.At(1 - 1e-12); got != 250*time.Millisecond {
		t.Errorf("most: %v", got)
	}
	within(t, "p90, between the two", c.At(0.9), 17_800*time.Microsecond, 0.01)
	var none latency.Curve
	if got := none.At(0.99); got != 0 {
		t.Errorf("no points: %v", got)
	}
}
