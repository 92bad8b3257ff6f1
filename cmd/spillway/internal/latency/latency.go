// Package latency counts durations in buckets of 1/32 of their size, so that percentiles are within 3 %
// of the truth in constant memory.
package latency

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	subBits = 5
	subs    = 1 << subBits
	buckets = (64 - subBits) * subs
)

// Histogram counts durations. The zero value is empty and ready; safe for concurrent use.
type Histogram struct {
	counts [buckets]atomic.Uint64
	max    atomic.Int64
}

// Add counts d; one below zero counts as zero.
func (h *Histogram) Add(d time.Duration) { h.AddN(d, 1) }

// AddN counts d n times.
func (h *Histogram) AddN(d time.Duration, n uint64) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d))].Add(n)
	for {
		old := h.max.Load()
		if int64(d) <= old || h.max.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// bucketOf: numbers below subs have a bucket each; above, the highest subBits+1 bits decide.
func bucketOf(v uint64) int {
	if v < subs {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift*subs + int(v>>shift)
}

// highest is the largest number of a bucket.
func highest(i int) uint64 {
	if i < 2*subs {
		return uint64(i)
	}
	shift := i/subs - 1
	return uint64(i-shift*subs+1)<<shift - 1
}

// Summary is what a report says of a histogram.
type Summary struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
}

// Summary reads the counts.
func (h *Histogram) Summary() Summary {
	var counts [buckets]uint64
	var total uint64
	for i := range counts {
		counts[i] = h.counts[i].Load()
		total += counts[i]
	}
	most := time.Duration(h.max.Load())
	at := func(fraction float64) float64 {
		want := uint64(fraction*float64(total) + 0.5)
		var seen uint64
		for i, n := range counts {
			seen += n
			if n > 0 && seen >= want {
				return min(time.Duration(highest(i)), most).Seconds()
			}
		}
		return 0
	}
	return Summary{Count: total, P50: at(0.5), P99: at(0.99), Max: most.Seconds()}
}
