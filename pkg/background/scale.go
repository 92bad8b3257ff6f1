package background

import (
	"context"
	"time"
)

const (
	// ScaleIdle is how often watched topics are looked for where there were none.
	ScaleIdle = time.Minute
	// ScaleBusy is how often the watched ones are looked at.
	ScaleBusy = 10 * time.Second
	// wakeRest is the least time between two looks that producers ask for.
	wakeRest = 2 * time.Second
)

// scale lets the segments of watched topics follow their load.
func (w *Worker) scale(ctx context.Context) {
	rest := ScaleBusy
	for sleep(ctx, rest) {
		if rest = ScaleIdle; w.look(ctx) > 0 {
			rest = ScaleBusy
		}
	}
}

// whenWoken looks as soon as a producer of this process asks for it, whichever process leads: what changes
// segments takes a lease of its own.
func (w *Worker) whenWoken(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.Woken:
		}
		w.look(ctx)
		if !sleep(ctx, wakeRest) {
			return
		}
	}
}

// look says how many topics are watched.
func (w *Worker) look(ctx context.Context) int {
	rep, err := w.Scale.Run(ctx)
	if w.Led != nil {
		w.Led(rep)
	}
	if err != nil && ctx.Err() == nil {
		w.Logger.Warn("look at the load of topics", "error", err)
	}
	return rep.Watched
}
