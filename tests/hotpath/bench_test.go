package hotpath

import (
	"runtime"
	"testing"
	"time"
)

// BenchmarkPath tells what one call of each path costs on each pair of stores: allocations, bytes, and the
// processor time of the whole process, committer and collector included.
func BenchmarkPath(b *testing.B) {
	for _, store := range []string{"memory", "embedded"} {
		for _, p := range paths() {
			b.Run(store+"/"+p.name, func(b *testing.B) {
				r := newRig(b, store, p.segments)
				s := p.make(b, r)
				round(s, 64, func() {}, func() {}) // caches, pools and pages come to their size
				runtime.GC()
				var used, began time.Duration
				b.ReportAllocs()
				b.ResetTimer()
				b.StopTimer()
				round(s, b.N, func() {
					began = processorTime()
					b.StartTimer()
				}, func() {
					b.StopTimer()
					used += processorTime() - began
				})
				b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// round makes n calls, each between start and stop.
func round(s steps, n int, start, stop func()) {
	for range n {
		if s.before != nil {
			s.before()
		}
		start()
		s.call()
		stop()
		if s.after != nil {
			s.after()
		}
	}
}
