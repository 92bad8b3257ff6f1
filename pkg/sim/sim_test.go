package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

func simulate(t *testing.T, opts Options) (res *Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { res = Run(opts) })
	return res
}

func number(t *testing.T, name string, byDefault uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return byDefault
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func TestSeed(t *testing.T) {
	opts := Options{Seed: number(t, "SPILLWAY_SIM_SEED", 1), Steps: int(number(t, "SPILLWAY_SIM_STEPS", 0)), Knowing: Open()}
	res := simulate(t, opts)
	t.Log(res.Counts)
	if res.Finding != nil {
		h := res.History
		t.Log("\n" + strings.Join(h[max(0, len(h)-100):], "\n"))
		if p := os.Getenv("SPILLWAY_SIM_HISTORY"); p != "" {
			_ = os.WriteFile(p, []byte(res.Text()), 0o600)
		}
		t.Fatalf("seed %d: %s", opts.Seed, res.Finding)
	}
}

// TestSeeds runs a few fixed seeds, and fresh ones, which it prints.
func TestSeeds(t *testing.T) {
	n := number(t, "SPILLWAY_SIM_SEEDS", 10)
	first := number(t, "SPILLWAY_SIM_SEED", 1)
	steps := int(number(t, "SPILLWAY_SIM_STEPS", 0))
	failed := map[string][]uint64{}
	for seed := first; seed < first+n; seed++ {
		res := simulate(t, Options{Seed: seed, Steps: steps, Knowing: Open()})
		if res.Finding != nil {
			failed[res.Finding.Rule] = append(failed[res.Finding.Rule], seed)
			if len(failed[res.Finding.Rule]) <= 3 {
				t.Errorf("seed %d: %s", seed, res.Finding)
			}
		}
	}
	for rule, seeds := range failed {
		t.Errorf("%s: %d seeds, %v", rule, len(seeds), seeds[:min(10, len(seeds))])
	}
}

// TestSameSeedSameHistory: a run is decided by its options and by nothing else.
func TestSameSeedSameHistory(t *testing.T) {
	n := number(t, "SPILLWAY_SIM_SEEDS", 5)
	for seed := uint64(1); seed <= n; seed++ {
		opts := Options{Seed: seed, Knowing: Open()}
		a, b := simulate(t, opts), simulate(t, opts)
		for i := range a.History {
			if i >= len(b.History) || a.History[i] != b.History[i] {
				t.Errorf("seed %d: line %d is\n%s\nand then\n%s", seed, i, strings.Join(a.History[max(0, i-12):i+3], "\n"), strings.Join(b.History[i:min(len(b.History), i+3)], "\n"))
				break
			}
		}
		if a.Counts["random draws of nobody"] > 0 {
			t.Errorf("seed %d: %v", seed, a.Counts)
		}
	}
}
