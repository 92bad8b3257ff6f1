package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// LeaseName is the name of the leader's lease. It is none of those that single runs take, of scaling or of a
	// segment's compaction: this one is held for as long as the process lives.
	LeaseName = "background"
	// LeaseTTL is how long the others watch a leader that says nothing before one of them takes its
	// place. Each of them reads the lease about once in it; the leader renews it every renewEvery.
	LeaseTTL   = time.Minute
	renewEvery = LeaseTTL / 2
	// releaseTimeout bounds what a leader that stops does for its successor.
	releaseTimeout = 3 * time.Second
)

// RunInFleet works while it is the leader of all processes on the stores, watches the leader while another is,
// and ends when ctx does; a leader then lets the lease go, so that another takes over at its next look.
func (w *Worker) RunInFleet(ctx context.Context) {
	var woken sync.WaitGroup
	woken.Go(func() { w.whenWoken(ctx) })
	defer woken.Wait()
	for ctx.Err() == nil {
		held, err := w.Leases.Acquire(ctx, LeaseName, LeaseTTL)
		if err == nil {
			w.lead(ctx, held)
			continue
		}
		// Nothing it has heard of counts: who becomes the leader begins with a review.
		w.Agenda.Forget()
		rest := LeaseTTL
		var e *queue.Error
		switch {
		case errors.As(err, &e) && e.RetryAfter > 0:
			rest = min(e.RetryAfter, LeaseTTL)
		case ctx.Err() == nil:
			w.Logger.Warn("look for the leader", "error", err)
		}
		sleep(ctx, rest)
	}
}

// lead works until the lease is lost or ctx ends.
func (w *Worker) lead(ctx context.Context, held *lease.Held) {
	w.Logger.Info("leading: this process does the background work of all")
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { w.work(working, FleetReview) })
	w.keep(ctx, held)
	stop()
	work.Wait()
	if ctx.Err() == nil {
		w.Logger.Info("another process leads now")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := held.Release(ctx); err != nil {
		w.Logger.Info("the leader's lease was not let go, and ends by itself", "error", err)
	}
}

// keep renews the lease until it is lost or ctx ends.
func (w *Worker) keep(ctx context.Context, held *lease.Held) {
	for sleep(ctx, renewEvery) {
		err := held.Commit(ctx, held.Value())
		for err != nil && queue.Retryable(err) && held.Valid() && sleep(ctx, time.Second) {
			err = held.Commit(ctx, held.Value())
		}
		if err != nil {
			if ctx.Err() == nil {
				w.Logger.Warn("the leader's lease could not be renewed", "error", err)
			}
			return
		}
	}
}

// sleep says whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
