// Package command reads the command line of bench.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/rounds"
	"github.com/spillway-mq/spillway/bench/internal/systems"
	"github.com/spillway-mq/spillway/bench/internal/workload"
)

// Files below the output folder, and below docs.
const (
	runsFile    = "runs.jsonl"
	machineFile = "machine.json"
	mediansFile = "bench/medians.jsonl"
	pageFile    = "bench.md"
)

type options struct {
	spillway, tools, out, docs, dir, peers, workloads, peer, workload, commit string
	pairs                                                                     int
	scale                                                                     float64
	kept                                                                      bool
	stdout, stderr                                                            io.Writer
}

// Run does what the arguments say.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{stdout: stdout, stderr: stderr}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.spillway, "spillway", "../bin/spillway", "the `program` under test")
	flags.StringVar(&o.tools, "tools", "../.tools/peers", "`folder` where tools/peers has installed the peers")
	flags.StringVar(&o.out, "out", "../out/bench", "`folder` for runs, data and logs, on the disk that is to be measured")
	flags.StringVar(&o.docs, "docs", "../docs", "`folder` of the page")
	flags.StringVar(&o.peers, "peers", "", "`names` of peers, with commas; all unless given")
	flags.StringVar(&o.workloads, "workloads", "", "`names` of workloads, with commas; all but the extra ones unless given")
	flags.StringVar(&o.commit, "commit", "unknown", "what Spillway was built from, for the page")
	flags.IntVar(&o.pairs, "pairs", 3, "how often each peer runs each workload")
	flags.Float64Var(&o.scale, "scale", 1, "multiplies times and counts")
	flags.BoolVar(&o.kept, "kept", false, "make the page anew from the medians that are kept with it, not from runs")
	flags.StringVar(&o.peer, "peer", "", "the peer of one run")
	flags.StringVar(&o.workload, "workload", "", "the workload of one run")
	flags.StringVar(&o.dir, "dir", "", "an empty `folder` for the data of one run")
	if len(args) == 0 {
		return errors.New("run, page or list?")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if o.pairs < 1 || o.scale <= 0 || flags.NArg() > 0 {
		return errors.New("--pairs must be 1 or more, --scale above 0, and nothing may follow the flags")
	}
	switch args[0] {
	case "run":
		return o.run(ctx)
	case "one":
		return o.one(ctx)
	case "page":
		return o.page()
	case "list":
		return o.list()
	default:
		return fmt.Errorf("no command %q", args[0])
	}
}

// choose gives those of all whose names are in a list.
func choose[T any](list string, all []T, name func(*T) string, unless func(*T) bool) ([]T, error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(all), func(t T) bool { return unless(&t) }), nil
	}
	var chosen []T
	for word := range strings.SplitSeq(list, ",") {
		at := slices.IndexFunc(all, func(t T) bool { return name(&t) == word })
		if at < 0 {
			return nil, fmt.Errorf("there is no %q: bench list", word)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

func choosePeers(list string) ([]peer.Peer, error) {
	return choose(list, systems.All(), func(p *peer.Peer) string { return p.Name }, func(*peer.Peer) bool { return false })
}

func chooseWorkloads(list string) ([]workload.Workload, error) {
	return choose(list, workload.All(), func(w *workload.Workload) string { return w.Name }, func(w *workload.Workload) bool { return w.Extra })
}

func (o *options) run(ctx context.Context) error {
	peers, err := choosePeers(o.peers)
	if err != nil {
		return err
	}
	workloads, err := chooseWorkloads(o.workloads)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o750); err != nil {
		return err
	}
	if err := o.look(); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	plan := rounds.Plan{
		Peers: peers, Workloads: workloads, Pairs: o.pairs, Scale: o.scale, File: filepath.Join(o.out, runsFile),
		Program: program, Args: []string{"one", "--spillway", o.spillway, "--tools", o.tools}, Scratch: o.out,
		Report: func(line string) { _, _ = fmt.Fprintln(o.stdout, line) },
	}
	return plan.Run(ctx)
}

// one makes one run and prints it.
func (o *options) one(ctx context.Context) error {
	peers, err := choosePeers(o.peer)
	if err != nil {
		return err
	}
	workloads, err := chooseWorkloads(o.workload)
	if err != nil {
		return err
	}
	if len(peers) != 1 || len(workloads) != 1 || o.dir == "" {
		return errors.New("one run has one --peer, one --workload and a --dir")
	}
	for _, path := range []*string{&o.spillway, &o.tools, &o.dir} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	r := workload.Run(ctx, workload.Options{
		Peer: peers[0], Workload: workloads[0], Scale: o.scale, Start: peer.StartOptions{Spillway: o.spillway, Tools: o.tools, Dir: o.dir},
	})
	return json.NewEncoder(o.stdout).Encode(&r)
}

func (o *options) list() error {
	for _, p := range systems.All() {
		if _, err := fmt.Fprintf(o.stdout, "%-14s %s: %s\n", p.Name, p.Title, p.Durability); err != nil {
			return err
		}
	}
	for _, w := range workload.All() {
		extra := ""
		if w.Extra {
			extra = " (only when named)"
		}
		if _, err := fmt.Fprintf(o.stdout, "%-14s %s%s\n", w.Name, w.Title, extra); err != nil {
			return err
		}
	}
	return nil
}
