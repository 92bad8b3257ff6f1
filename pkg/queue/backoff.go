package queue

import (
	"context"
	"time"
)

// Backoff is the wait before something is tried again: First, doubled with each further try, up to Last.
type Backoff struct{ First, Last time.Duration }

// Wait waits before try n+1; n counts from 0. jitter, such as IDs.Jitter, spreads the wait, so that those who
// were refused together do not come back together; nil leaves it as it is. The error is the cause of ctx's end.
func (b Backoff) Wait(ctx context.Context, n int, jitter func(time.Duration) time.Duration) error {
	const most = 30 // doublings, beyond which a duration may overflow
	d := b.Last
	if n < most {
		d = min(b.First<<n, b.Last)
	}
	if jitter != nil {
		d = jitter(d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
