//go:build !race

// Under the race detector pools drop what they hold at random, so allocations are no fixed number there.

package hotpath

import (
	"runtime"
	"testing"
)

// TestBudgets holds each path on the embedded stores to its budget of allocations, the committer's included. A
// budget is what the path takes, and a quarter more: rolls, pages of the database that split and the
// collector's emptying of pools come by chance. Whoever needs more says why, and raises it.
func TestBudgets(t *testing.T) {
	budgets := map[string]uint64{
		"produce-one": 240, "produce-100": 395, "produce-100-base64": 520, "produce-100-keyed": 820,
		"produce-batch": 210, "produce-batch-keyed": 425,
		"claim-100": 220, "claim-100-binary": 230, "ack-100": 455,
		"service-produce-one": 195, "service-produce-100": 215, "service-produce-guarded": 205,
		"service-claim-100": 175, "service-ack-100": 150,
	}
	for _, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, "embedded", p.segments)
			s := p.make(t, r)
			round(s, 32, func() {}, func() {})
			const calls = 64 // two rolls
			var before, after runtime.MemStats
			var made uint64
			round(s, calls, func() { runtime.ReadMemStats(&before) }, func() {
				runtime.ReadMemStats(&after)
				made += after.Mallocs - before.Mallocs
			})
			if got, most := made/calls, budgets[p.name]; got > most {
				t.Errorf("%d allocations a call, more than %d", got, most)
			}
		})
	}
}
