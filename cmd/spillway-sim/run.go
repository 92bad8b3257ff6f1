package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/pkg/sim"
)

// runner makes one run.
type runner func(sim.Options) *sim.Result

// errBroken ends the program with 1; what was broken has been printed.
var errBroken = errors.New("a promise was broken")

// given is the command line.
type given struct {
	opts     sim.Options
	seeds    uint64
	times    string
	mutation string
	history  bool
	shrink   time.Duration
}

const (
	bySeed = "seed"
	// shownLines are of a shrunk history: its end tells most.
	shownLines = 100
)

// run is the program but for its process.
func run(args []string, out, errs io.Writer, simulate runner) int {
	var g given
	cmd := &cobra.Command{
		Use:   "spillway-sim",
		Short: "Run the simulator, which tries to break what Spillway promises",
		Long: "Run the simulator: the real use cases on simulated stores, clocks and a network that a seed decides.\n" +
			"The same seed makes the same run. Ends with 1 if a promise was broken, and tells how.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				g.opts.Seed = uint64(time.Now().UnixMilli()) // #nosec G115 -- not negative
			}
			return g.make(out, simulate)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&g.opts.Seed, "seed", 0, "the first run's `seed`; the clock's time unless given")
	f.Uint64Var(&g.seeds, "seeds", 1, "how many runs, of seeds one after the other")
	f.IntVar(&g.opts.Steps, "steps", 0, "decisions of a run before everything is healed and drained; 0 is 3000")
	f.StringVar(&g.times, "times", bySeed, "the stores' times: coarse, published, or as the seed says: seed")
	f.StringVar(&g.mutation, "mutation", "", "build a deliberate fault into the stores, by its `name`; \"list\" lists them")
	f.StringSliceVar(&g.opts.Without, "without", nil, "leave out a kind of fault or of call, as a shrunk run says")
	f.BoolVar(&g.history, "history", false, "print each run's whole history")
	f.DurationVar(&g.shrink, "shrink", 20*time.Second, "how long to look for a smaller run that breaks the same promise")
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	switch err := cmd.Execute(); {
	case errors.Is(err, errBroken):
		return 1
	case err != nil:
		_, _ = fmt.Fprintf(errs, "spillway-sim: %v\n", err)
		return 2
	}
	return 0
}

// check reads what cobra does not.
func (g *given) check() error {
	switch g.times {
	case bySeed:
	case string(sim.TimesCoarse), string(sim.TimesPublished):
		g.opts.Times = sim.Times(g.times)
	default:
		return fmt.Errorf("--times must be coarse, published or seed, not %q", g.times)
	}
	if g.opts.Steps < 0 {
		return fmt.Errorf("--steps must be 0 or more, not %d", g.opts.Steps)
	}
	for _, name := range g.opts.Without {
		if !slices.Contains(sim.Kinds(), name) {
			return fmt.Errorf("--without knows no %q; it knows %s", name, strings.Join(sim.Kinds(), ", "))
		}
	}
	if g.mutation == "" {
		return nil
	}
	for _, m := range sim.Mutations() {
		if m.Name == g.mutation {
			g.opts.Mutation = &m
			return nil
		}
	}
	return fmt.Errorf("--mutation knows no %q; \"list\" lists them", g.mutation)
}

// make makes the runs.
func (g *given) make(out io.Writer, simulate runner) error {
	if g.mutation == "list" {
		for _, m := range sim.Mutations() {
			_, _ = fmt.Fprintln(out, m.Name)
		}
		return nil
	}
	if err := g.check(); err != nil {
		return err
	}
	g.opts.Knowing = sim.Open()
	broken := uint64(0)
	for i := range g.seeds {
		opts := g.opts
		opts.Seed += i
		res := simulate(opts)
		if g.history {
			_, _ = io.WriteString(out, res.Text())
		}
		if res.Finding != nil {
			broken++
			g.tell(out, opts, res, simulate)
			continue
		}
		_, _ = fmt.Fprintf(out, "seed %d, %s times: every promise held; %s\n", opts.Seed, res.Times, counts(res))
	}
	if broken > 0 {
		_, _ = fmt.Fprintf(out, "%d of %d runs broke a promise\n", broken, g.seeds)
		return errBroken
	}
	return nil
}

// tell prints all that is needed to understand a finding and to repeat it.
func (g *given) tell(out io.Writer, opts sim.Options, res *sim.Result, simulate runner) {
	small, shrunk := sim.Shrink(opts, res, simulate, g.shrink)
	if !g.history {
		lines := shrunk.History
		_, _ = fmt.Fprintf(out, "the last lines of a shrunk run (without %q, skipping %d of %d faults):\n%s\n",
			small.Without, len(small.Skip), shrunk.Faults, strings.Join(lines[max(0, len(lines)-shownLines):], "\n"))
	}
	_, _ = fmt.Fprintf(out, "seed %d, %s times: %s\nshrunk: %s\n", opts.Seed, res.Times, res.Finding, shrunk.Finding)
	again := fmt.Sprintf("repeat: go run ./cmd/spillway-sim --seed %d --steps %d --times %s", opts.Seed, opts.Steps, res.Times)
	if opts.Mutation != nil {
		again += fmt.Sprintf(" --mutation %q", opts.Mutation.Name)
	}
	_, _ = fmt.Fprintln(out, again)
}

// counts are what a run did, most first.
func counts(res *sim.Result) string {
	names := slices.Sorted(maps.Keys(res.Counts))
	slices.SortStableFunc(names, func(a, b string) int { return res.Counts[b] - res.Counts[a] })
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %d", name, res.Counts[name])
	}
	return strings.Join(parts, ", ")
}
