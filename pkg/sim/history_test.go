package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/meta"
)

// drawings is where histories that are not right are drawn.
var drawings = filepath.Join("..", "..", "out", "histories") //checks:state it is never changed

// judge makes a recorded run and holds what its clients saw against the models.
func judge(t *testing.T, opts Options) (*Result, *history.Report) {
	t.Helper()
	opts.Record = true
	res := simulate(t, opts)
	o := judged(opts)
	if opts.Mutation == nil {
		o.Dir, o.Label = drawings, fmt.Sprintf("sim-%d", opts.Seed)
	}
	rep, err := history.Check(res.Recorded, o)
	if err != nil {
		t.Fatal(err)
	}
	return res, rep
}

// TestHistories records runs of fixed seeds and of fresh ones, and holds what their clients saw against the models
// of pkg/history; or SPILLWAY_HISTORY_SEEDS many from SPILLWAY_SIM_SEED on.
func TestHistories(t *testing.T) {
	first := number(t, "SPILLWAY_SIM_SEED", 101)
	var seeds []uint64
	for i := range number(t, "SPILLWAY_HISTORY_SEEDS", 6) {
		seeds = append(seeds, first+i)
	}
	if os.Getenv("SPILLWAY_SIM_SEED") == "" {
		fresh := uint64(time.Now().UnixMilli()) // #nosec G115 -- not negative
		t.Logf("fresh seeds from %d on", fresh)
		seeds = append(seeds, fresh, fresh+1)
	}
	all := history.Report{Parts: make(map[string]int), Operations: make(map[string]int)}
	for _, seed := range seeds {
		res, rep := judge(t, Options{Seed: seed, Steps: int(number(t, "SPILLWAY_SIM_STEPS", 0)), Knowing: Open()})
		repeat := fmt.Sprintf("repeat: SPILLWAY_HISTORY_SEEDS=1 SPILLWAY_SIM_SEED=%d go test ./pkg/sim -run TestHistories", seed)
		if res.Finding != nil {
			t.Errorf("seed %d: %s\n%s", seed, res.Finding, repeat)
		}
		for _, v := range rep.Violations {
			t.Errorf("seed %d: %s%s", seed, v, repeat)
		}
		all.Slowest = max(all.Slowest, rep.Slowest)
		for model, n := range rep.Parts {
			all.Parts[model] += n
			all.Operations[model] += rep.Operations[model]
		}
	}
	t.Logf("%d runs: %s", len(seeds), &all)
	for _, model := range []string{"log", "cursor", "lease", "name"} {
		if all.Operations[model] == 0 {
			t.Errorf("nothing was recorded for the model %s", model)
		}
	}
}

// TestSameSeedSameRecording: what clients saw is decided by a run's options, too.
func TestSameSeedSameRecording(t *testing.T) {
	text := func(h *history.History) string {
		var b strings.Builder
		for _, p := range h.Produces {
			fmt.Fprintf(&b, "%+v\n", *p)
		}
		for _, c := range h.Claims {
			fmt.Fprintf(&b, "%+v\n", *c)
		}
		for _, n := range h.Names {
			fmt.Fprintf(&b, "%+v\n", *n)
		}
		for _, l := range h.Leases {
			fmt.Fprintf(&b, "%+v\n", *l)
		}
		return b.String()
	}
	a := simulate(t, Options{Seed: 3, Record: true})
	b := simulate(t, Options{Seed: 3, Record: true})
	if len(a.Recorded.Claims) == 0 || len(a.Recorded.Leases) == 0 {
		t.Fatal("nothing was recorded")
	}
	one, two := strings.Split(text(a.Recorded), "\n"), strings.Split(text(b.Recorded), "\n")
	for i := range one {
		if i >= len(two) || one[i] != two[i] {
			t.Fatalf("two runs of one seed saw different things:\n%s\n%s", one[i], two[min(i, len(two)-1)])
		}
	}
}

// unfencedLeases lets a lease be taken and renewed whatever is there.
var unfencedLeases = each("leases are put whatever is there", func(p meta.Put, _ *rand.Rand) meta.Op { //checks:state it is never changed
	if p.Record.Kind() == meta.KindLease {
		p.If = meta.Any()
	}
	return p
})

// keptSubscriptions answers some deletions of subscriptions and does not carry them out.
var keptSubscriptions = each("deletions of subscriptions are answered and not carried out", func(d meta.Delete, rng *rand.Rand) meta.Op { //checks:state it is never changed
	if d.Kind == meta.KindSubscription && rng.IntN(3) == 0 {
		return nil
	}
	return d
})

// TestHistoriesShowMutations: what clients saw is enough to find these of the deliberate faults: the simulator's own
// rules are off. A run without the fault is right.
func TestHistoriesShowMutations(t *testing.T) {
	const tries = 60
	byName := map[string]Mutation{unfencedLeases.Name: unfencedLeases, keptSubscriptions.Name: keptSubscriptions}
	for _, m := range Mutations() {
		byName[m.Name] = m
	}
	var table strings.Builder
	for _, c := range []struct {
		name, model string
		// from is the seed by which it was found last.
		from uint64
	}{
		{"append is acknowledged before it is durable", "log", 1},
		{"append is doubled", "log", 1},
		{"append does not put its payload", "log", 1},
		{"append ignores the producer's sequence, and the tail", "log", 2},
		{"reads of heads are stale", "log", 1},
		{"objects are lost", "log", 1},
		{"merged pages lose a ref's offset", "log", 7},
		{"promotion leaves the entry", "log", 11},
		{"what is to be put once is put again", "log", 17},
		{"attempts are put whatever is there", "log", 19},
		{"take ignores Next", "cursor", 9},
		{"take takes claims that others hold", "cursor", 3},
		{"release does not count", "cursor", 3},
		{"ack is answered and not carried out", "cursor", 3},
		{"clocks run ahead", "cursor", 11},
		{"transactions are torn", "name", 14},
		{keptSubscriptions.Name, "name", 2},
		{unfencedLeases.Name, "lease", 3},
	} {
		m, known := byName[c.name]
		if !known {
			t.Errorf("there is no mutation %q", c.name)
			continue
		}
		found := false
		for seed := c.from; seed < c.from+tries && !found; seed++ {
			_, rep := judge(t, Options{Seed: seed, Times: TimesCoarse, Mutation: &m, Blind: true})
			i := slices.IndexFunc(rep.Violations, func(v *history.Violation) bool { return v.Model == c.model })
			if i < 0 {
				continue
			}
			found = true
			fmt.Fprintf(&table, "%-55s seed %2d: %s, %s\n", c.name, seed, c.model, rep.Violations[i].Part)
			if _, bare := judge(t, Options{Seed: seed, Times: TimesCoarse, Knowing: Open()}); len(bare.Violations) > 0 {
				t.Errorf("%s: seed %d shows this without the fault, too: %s", c.name, seed, bare.Violations[0])
			}
		}
		if !found {
			t.Errorf("not found by the model %s in %d runs: %s", c.model, tries, c.name)
		}
	}
	t.Logf("mutations that histories show:\n%s", table.String())
}
