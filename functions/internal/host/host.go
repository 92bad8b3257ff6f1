// Package host is what the four Lambda functions share: their configuration, the system over the
// deployment's stores, and the way from an API Gateway event to the HTTP handler and back.
//
// Vocabulary: an event is what Lambda calls a function with; a budget is the time that a call may take.
//
// Invariants: the environment is read once, here; no payload, key, token or topic name gets into a log line
// or a metric's dimension; a call ends, with an answer, before Lambda would end it.
//
// Non-goals: routing between functions (API Gateway does), rights (infra).
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/spillway-mq/spillway/functions/emf"
	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/cloud"
	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/scale"
)

// Config is a function's configuration.
type Config struct {
	cloud.Config
	// AWS is what the stores are reached by.
	AWS aws.Config
	// Function is the function's name, a metric's dimension: "produce".
	Function string
	LogLevel slog.Level
	// Compact tunes the compactor.
	Compact compact.Tuning
	// Leader is the name of the leader's function, for those that wake it; empty for none. LambdaURL is where
	// it is called.
	Leader, LambdaURL string
	// RuntimeAPI is the address of Lambda's APIs; empty where there is no Lambda.
	RuntimeAPI string
	// Later is as in segment.Deps; waking the leader is left to it, too.
	Later func(work func())
}

// Logger makes the function's log: a JSON object a line.
func (c Config) Logger(out io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: c.LogLevel}))
}

// Host runs one function's calls. Safe for concurrent use, though Lambda makes one call at a time.
type Host struct {
	System *assembly.System
	Logger *slog.Logger

	metrics *metrics
}

// cacheBytes is what a function keeps of pages and batches: its memory is small, and it is one of many.
const cacheBytes = 8 << 20

// Open prepares a function: no store call is made.
func Open(c Config, out io.Writer) (*Host, error) {
	stores, err := cloud.New(c.AWS, c.Config)
	if err != nil {
		return nil, err
	}
	counts := meter.New()
	return New(c, assembly.Deps{
		Meta: counts.Meta(stores.Meta), Blob: counts.Blob(stores.Blob), Presigner: stores.Blob, CacheBytes: cacheBytes,
	}, out), nil
}

// New makes a host on given stores; its logs and metrics go to out, a JSON object a line.
func New(c Config, d assembly.Deps, out io.Writer) *Host {
	h := &Host{Logger: c.Logger(out)}
	d.Logger = h.Logger
	d.MaxInlineBytes, d.Compact = maxInlineBytes, c.Compact
	d.Marked = true
	d.Wake, d.Patience = c.waker(h.Logger), scale.LeaderTTL+time.Second
	if d.Later = c.Later; d.Later != nil && d.Wake != nil {
		wake := d.Wake
		d.Wake = func() { c.Later(wake) }
	}
	h.System = assembly.New(d)
	h.metrics = &metrics{function: c.Function, table: c.Table, out: out, clock: time.Now}
	return h
}

const (
	// maxInlineBytes bounds the bodies of one claim's answer: Lambda gives back at most 6 MB, and bytes
	// that are not text travel in base 64 inside it. What is larger goes by reference.
	maxInlineBytes = 3 << 20
	// reserve is the part of a call's budget that is kept for its answer.
	reserve = 1500 * time.Millisecond
)

// Promote is the part of the leader's scheduled run that is not Lead: it tells how long the oldest message
// waits, and promotes, on all topics, the delayed messages that are due, until all are or the budget is used up; what remains is the
// next run's.
func (h *Host) Promote(ctx context.Context) error {
	ctx, cancel := Budget(ctx)
	defer cancel()
	// First, and bounded, so that a run which has too much to promote still tells.
	age, lerr := h.age(ctx)
	promoted, _, err := h.System.Delay.PromoteAll(ctx)
	return h.ran(ctx, emf.Run{What: emf.Promoted, Done: promoted, Age: age, HasAge: true}, errors.Join(lerr, err))
}

// lookBudget bounds the time of a look for the oldest message; a run of lag.Service takes about a second
// at most, unless the table is slow.
const lookBudget = 15 * time.Second

func (h *Host) age(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, lookBudget)
	defer cancel()
	report, err := h.System.Lag.Look(ctx)
	return report.Oldest, err
}

// Compact merges and deletes what is due, until nothing is or the budget is used up; what remains is the
// next run's.
func (h *Host) Compact(ctx context.Context) error {
	ctx, cancel := Budget(ctx)
	defer cancel()
	report, err := h.System.Compact.Run(ctx)
	swept, serr := h.System.Compact.Sweep(ctx)
	return h.ran(ctx, emf.Run{What: emf.Deleted, Done: report.Deleted + swept}, errors.Join(err, serr))
}

// ran tells of a scheduled run in a metric, by whose absence an alarm tells that nobody runs any more. A run
// whose time was up is no failure.
func (h *Host) ran(ctx context.Context, r emf.Run, err error) error {
	if ctx.Err() != nil {
		err = nil
	}
	r.Failed = err != nil
	h.metrics.run(r)
	if err != nil {
		return fmt.Errorf("scheduled run: %w", err)
	}
	return nil
}

// Budget leaves a reserve of the time that Lambda gives a call.
func Budget(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-reserve))
}

// Must ends the program with a line on stderr if a function cannot start: Lambda then starts it anew and
// reports the failure.
func Must[T any](v T, err error) T {
	if err != nil {
		slog.New(slog.NewJSONHandler(os.Stderr, nil)).Error("start", "error", err.Error())
		os.Exit(1)
	}
	return v
}
