// Package rounds runs every peer in turn, again and again, and keeps what each run measured.
//
// Vocabulary: a round runs each peer once for a workload; peers of one round are next to each other in time, and
// each round begins with another peer.
//
// Invariants: each run is a process of its own, with a client that has done nothing before; it is killed with its
// servers when it takes too long. A run that is in the file is not made again, so what was cut off goes on.
package rounds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/result"
	"github.com/spillway-mq/spillway/bench/internal/workload"
)

const (
	// overhead is what a run takes besides its sending: starting, the warm-up, draining, stopping. By
	// experience, for the estimate.
	overhead = 8 * time.Second
	// defaultSlack is for a JVM on a busy machine, and a slow drain.
	defaultSlack = 3 * time.Minute
	// killTime is how long a killed run's output is waited for.
	killTime = 5 * time.Second
)

// Plan is what is to be run.
type Plan struct {
	Peers     []peer.Peer
	Workloads []workload.Workload
	Pairs     int
	Scale     float64
	// File gets the runs; those in it are not made again.
	File string
	// Program, with Args before those of the run, makes one run and prints it. The run's data is in a folder
	// of its own below Scratch, which is removed whatever becomes of the run.
	Program string
	Args    []string
	Scratch string
	// Slack is how much longer than its sending a run may take before it is killed; 3 minutes unless set.
	Slack time.Duration
	// Report hears how it goes, a line at a time.
	Report func(line string)
}

// Estimate is how long the runs that are still to be made should take.
func (p *Plan) Estimate(done map[result.Key]bool) (runs int, total time.Duration) {
	for _, key := range p.keys(done) {
		runs++
		total += time.Duration(float64(p.workload(key.Workload).Time)*p.Scale) + overhead
	}
	return runs, total
}

func (p *Plan) workload(name string) *workload.Workload {
	for i := range p.Workloads {
		if p.Workloads[i].Name == name {
			return &p.Workloads[i]
		}
	}
	return nil
}

// keys are the runs that are still to be made, in order.
func (p *Plan) keys(done map[result.Key]bool) []result.Key {
	var keys []result.Key
	for _, w := range p.Workloads {
		for round := range p.Pairs {
			for i := range p.Peers {
				key := result.Key{Workload: w.Name, Peer: p.Peers[(i+round)%len(p.Peers)].Name, Round: round, Scale: p.Scale}
				if !done[key] {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}

// Run makes the runs. The error is of a file, or ctx's: a run that fails is a result.
func (p *Plan) Run(ctx context.Context) error {
	known, err := result.Load(p.File)
	if err != nil {
		return err
	}
	done, absent := map[result.Key]bool{}, map[string]string{}
	for i := range known {
		done[known[i].Key()] = true
	}
	runs, estimate := p.Estimate(done)
	p.reportf("%d runs to make, %d there already; about %s", runs, len(known), estimate.Round(time.Minute))
	for i, key := range p.keys(done) {
		// What a peer does not have, or not bring to work at all, will be no better in the next round.
		r := result.Run{Workload: key.Workload, Peer: key.Peer, Round: key.Round, Scale: key.Scale, Status: absent[key.Workload+key.Peer]}
		if r.Status == "" {
			if r, err = p.one(ctx, key); err != nil {
				return err
			}
		}
		if strings.HasPrefix(r.Status, result.NoFeature) || strings.HasPrefix(r.Status, result.Silent) {
			absent[key.Workload+key.Peer] = r.Status
		}
		if err := result.Append(p.File, &r); err != nil {
			return err
		}
		p.reportf("%3d/%d %-11s %-13s in %8.0f/s out %8.0f/s, call p99 %7.1f ms, end to end p99 %7.1f ms  %s",
			i+1, runs, r.Workload, r.Peer, r.In, r.Out, 1000*r.Call.P99, 1000*r.End.P99, r.Status)
	}
	return nil
}

func (p *Plan) reportf(format string, args ...any) { p.Report(fmt.Sprintf(format, args...)) }

// one makes a run in a process of its own.
func (p *Plan) one(ctx context.Context, key result.Key) (r result.Run, err error) {
	r = result.Run{Workload: key.Workload, Peer: key.Peer, Round: key.Round, Scale: key.Scale}
	w := p.workload(key.Workload)
	dir, err := os.MkdirTemp(p.Scratch, "data-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	slack := p.Slack
	if slack == 0 {
		slack = defaultSlack
	}
	limited, cancel := context.WithTimeout(ctx, 2*time.Duration(float64(w.Time)*p.Scale)+slack)
	defer cancel()
	args := append(append([]string{}, p.Args...), "--peer", key.Peer, "--workload", key.Workload, "--scale", fmt.Sprint(key.Scale), "--dir", dir)
	c := exec.CommandContext(limited, p.Program, args...) //nolint:gosec // this program
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	// The servers that it starts are in its group, too.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = killTime
	err = c.Run()
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if err != nil {
		if c.Process != nil {
			// Whatever is left of its group.
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		}
		why := err.Error()
		if errors.Is(limited.Err(), context.DeadlineExceeded) {
			why = "it hung and was killed"
		}
		p.reportf("%s", log.Bytes())
		r.Status = result.Line(result.Failed, fmt.Errorf("%s: %s", why, strings.TrimSpace(log.String())))
		return r, nil
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("read a run's result: %w", err)
	}
	r.Round = key.Round
	return r, nil
}
