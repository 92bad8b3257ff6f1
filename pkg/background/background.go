package background

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/scale"
)

const (
	// backstopEvery is how often the delayed messages that no claim has promoted are promoted. By
	// the agenda that costs the stores nothing while nothing is due.
	backstopEvery = time.Second
	// AloneReview is how often a process that is alone looks at all topics, for what its agenda does
	// not know of, such as an entry whose write ended after its caller was told that the outcome is
	// unknown.
	AloneReview = 10 * time.Minute
	// FleetReview is how often a leader does, for what others wrote, too.
	FleetReview = time.Minute
	// compactEvery is how often the compactor looks for work; sweepEvery how often for uploads that
	// nobody has submitted.
	compactEvery = 2 * time.Minute
	sweepEvery   = time.Hour
)

// Deps are what a Worker stands on. All are required; Leases for a fleet only.
type Deps struct {
	Delay   *delay.Service
	Compact *compact.Service
	Scale   *scale.Service
	// Led hears of each look at the topics' load; it may be nil.
	Led func(scale.Report)
	// Woken tells that a topic of the process asks for a look at its load.
	Woken <-chan struct{}
	// Agenda hears of all writes of the process (delay.Agenda.Watch).
	Agenda *delay.Agenda
	Leases *lease.Keeper
	Logger *slog.Logger
}

// Worker does the work of one process, by RunAlone or RunInFleet, one of them and once.
type Worker struct {
	Deps
}

// New makes a Worker.
func New(d Deps) *Worker { return &Worker{d} }

// RunAlone works until ctx ends. No other process may write to the stores.
func (w *Worker) RunAlone(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { w.whenWoken(ctx) })
	both.Go(func() { w.work(ctx, AloneReview) })
	both.Wait()
}

// work does everything until ctx ends.
func (w *Worker) work(ctx context.Context, review time.Duration) {
	var all sync.WaitGroup
	all.Go(func() { w.backstop(ctx, review) })
	all.Go(func() { w.compact(ctx) })
	all.Go(func() { w.scale(ctx) })
	all.Wait()
}

// backstop promotes what no claim has promoted: delayed messages of topics that nobody reads.
func (w *Worker) backstop(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(backstopEvery)
	defer ticker.Stop()
	var review time.Time // when the next one is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var err error
		if now := time.Now(); !now.Before(review) {
			// One that fails has noted what to look at again, but may not have come to all topics.
			if _, err = w.Delay.Review(ctx, w.Agenda); err == nil {
				review = now.Add(every)
			}
		} else {
			_, err = w.Delay.PromoteDue(ctx, w.Agenda)
		}
		if err != nil && ctx.Err() == nil {
			w.Logger.Warn("promote due messages", "error", err)
		}
	}
}

// compact keeps the object store in order, as the scheduled function does in AWS.
func (w *Worker) compact(ctx context.Context) {
	ticker := time.NewTicker(compactEvery)
	defer ticker.Stop()
	var swept time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := w.Compact.Run(ctx); err != nil && ctx.Err() == nil {
			w.Logger.Warn("compact", "error", err)
		}
		if time.Since(swept) < sweepEvery {
			continue
		}
		swept = time.Now()
		if _, err := w.Compact.Sweep(ctx); err != nil && ctx.Err() == nil {
			w.Logger.Warn("sweep abandoned uploads", "error", err)
		}
	}
}
