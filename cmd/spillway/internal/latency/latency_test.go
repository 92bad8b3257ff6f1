package latency_test

import (
	"math"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/latency"
)

func TestSummary(t *testing.T) {
	var h latency.Histogram
	if got := h.Summary(); got != (latency.Summary{}) {
		t.Errorf("empty: %+v", got)
	}
	for i := 1; i <= 1000; i++ {
		h.Add(time.Duration(i) * time.Millisecond)
	}
	h.Add(-time.Second)
	got := h.Summary()
	if got.Count != 1001 || got.Max != 1 || math.Abs(got.P50-0.5) > 0.02 || math.Abs(got.P99-0.99) > 0.03 {
		t.Errorf("%+v", got)
	}
}

func TestEveryDurationHasABucket(t *testing.T) {
	for shift := range 63 {
		for _, d := range []time.Duration{1 << shift, 1<<shift - 1, 1<<shift + 1, math.MaxInt64} {
			var h latency.Histogram
			h.Add(d)
			got := h.Summary()
			if got.P50 != got.Max || got.Max != d.Seconds() {
				t.Fatalf("%d: %+v", d, got)
			}
		}
	}
}
