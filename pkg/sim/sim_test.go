package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func simulate(t *testing.T, opts Options) (res *Result) {
	t.Helper()
	// One processor numbers the goroutines of an op in the order in which they were started.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
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

// report fails a test with all that is needed to understand a finding and to repeat it.
func report(t *testing.T, opts Options, res *Result) {
	t.Helper()
	small, shrunk := Shrink(opts, res, func(o Options) *Result { return simulate(t, o) }, 20*time.Second)
	h := shrunk.History
	t.Logf("the last lines of a shrunk run (without %v, skipping %d of %d faults):\n%s",
		small.Without, len(small.Skip), shrunk.Faults, strings.Join(h[max(0, len(h)-100):], "\n"))
	t.Logf("shrunk: %s", shrunk.Finding)
	if dir := os.Getenv("SPILLWAY_SIM_OUT"); dir != "" {
		file := filepath.Join(dir, fmt.Sprintf("seed-%d.txt", opts.Seed))
		text := fmt.Sprintf("%s\n\nshrunk, without %q, skipping %v:\n%s", res.Text(), small.Without, small.Skip, shrunk.Text())
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
		t.Logf("both histories are in %s", file)
	}
	t.Errorf("seed %d, %s times: %s\nrepeat: go run ./cmd/spillway-sim --seed %d --steps %d --times %s", opts.Seed, res.Times, res.Finding, opts.Seed, opts.Steps, res.Times)
}

// TestSeed makes the one run that SPILLWAY_SIM_SEED and SPILLWAY_SIM_STEPS say; with SPILLWAY_SIM_ALL set
// known findings count, too. SPILLWAY_SIM_OUT is a folder for histories.
func TestSeed(t *testing.T) {
	opts := Options{Seed: number(t, "SPILLWAY_SIM_SEED", 1), Steps: int(number(t, "SPILLWAY_SIM_STEPS", 0)), Knowing: Open()}
	if os.Getenv("SPILLWAY_SIM_ALL") != "" {
		opts.Knowing = nil
	}
	res := simulate(t, opts)
	t.Log(res.Counts)
	if res.Finding != nil {
		report(t, opts, res)
	}
}

// TestSeeds makes some runs of fixed seeds and some of fresh ones; or SPILLWAY_SIM_SEEDS many from
// SPILLWAY_SIM_SEED on.
func TestSeeds(t *testing.T) {
	var seeds []uint64
	for i := range number(t, "SPILLWAY_SIM_SEEDS", 25) {
		seeds = append(seeds, number(t, "SPILLWAY_SIM_SEED", 1)+i)
	}
	if os.Getenv("SPILLWAY_SIM_SEED") == "" {
		fresh := uint64(time.Now().UnixMilli()) // #nosec G115 -- not negative
		t.Logf("fresh seeds from %d on", fresh)
		seeds = append(seeds, fresh, fresh+1, fresh+2, fresh+3, fresh+4)
	}
	counts, known := make(map[string]int), make(map[string]int)
	failed := make(map[string][]uint64)
	for _, seed := range seeds {
		opts := Options{Seed: seed, Steps: int(number(t, "SPILLWAY_SIM_STEPS", 0)), Knowing: Open()}
		res := simulate(t, opts)
		for k, n := range res.Counts {
			counts[k] += n
		}
		for k := range res.Known {
			known[k]++
		}
		if res.Finding == nil {
			continue
		}
		if rule := res.Finding.Rule; failed[rule] == nil {
			report(t, opts, res)
		}
		failed[res.Finding.Rule] = append(failed[res.Finding.Rule], seed)
	}
	for rule, list := range failed {
		t.Errorf("%s: seeds %v", rule, list)
	}
	t.Logf("%d runs: %v\nknown and open, by runs: %v", len(seeds), counts, known)
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

// TestMutations builds each deliberate fault into the stores and lets the simulator find it; only those whose
// name has SPILLWAY_SIM_MUTATION in it. What a run finds without the fault, too, proves nothing.
func TestMutations(t *testing.T) {
	const tries = 300
	var table strings.Builder
	bare := make(map[uint64]*Result)
	for _, m := range Mutations() {
		if !strings.Contains(m.Name, os.Getenv("SPILLWAY_SIM_MUTATION")) {
			continue
		}
		found := false
		for seed := max(1, m.From); seed < max(1, m.From)+tries && !found; seed++ {
			res := simulate(t, Options{Seed: seed, Times: TimesCoarse, Knowing: Open(), Mutation: &m})
			if res.Finding == nil {
				continue
			}
			if bare[seed] == nil {
				bare[seed] = simulate(t, Options{Seed: seed, Times: TimesCoarse, Knowing: Open()})
			}
			if f := bare[seed].Finding; f != nil {
				t.Errorf("%s: seed %d finds this without the fault, too: %s", m.Name, seed, f)
			} else {
				found = true
				fmt.Fprintf(&table, "%-50s run %2d, step %4d: %s\n", m.Name, seed, res.Finding.Step, res.Finding.Rule)
			}
		}
		if !found {
			fmt.Fprintf(&table, "%-50s NOT FOUND in %d runs\n", m.Name, tries)
			t.Errorf("not found: %s", m.Name)
		}
	}
	t.Logf("mutations:\n%s", table.String())
}
