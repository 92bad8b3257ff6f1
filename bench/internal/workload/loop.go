package workload

import (
	"context"
	"time"
)

// nextFunc gives a sender that has made so many calls its next messages: the first's number, how many, and the time
// that they are stamped with. more is false when there are none. Safe for concurrent use.
type nextFunc func(calls int) (first, n int64, due time.Duration, more bool)

// closedLoop gives a batch to whoever asks, until the numbers are used up or the time is over; but each sender gets
// one, however slow the start was.
func (r *run) closedLoop(limit int64, long time.Duration) nextFunc {
	over := r.now() + long
	return func(calls int) (int64, int64, time.Duration, bool) {
		now := r.now()
		if now >= over && calls > 0 {
			return 0, 0, 0, false
		}
		first, n := r.ledger.reserve(int64(r.workload.Batch))
		if n = min(n, limit-first); n <= 0 {
			return 0, 0, 0, false
		}
		return first, n, now, true
	}
}

// lag is how far an open loop's senders may fall behind before the rest is given up, as a part of its time.
const lag = 3

// openLoop gives each of count messages to a sender when it is due, at even distances, whether or not those before it
// are acknowledged. One that has to wait for a sender is stamped with when it was due.
func (r *run) openLoop(ctx context.Context, count int64, long time.Duration) nextFunc {
	count = min(count, int64(long.Seconds()*float64(r.workload.Rate)))
	began := r.now()
	due := make(chan time.Duration, count)
	go func() {
		defer close(due)
		for i := range count {
			at := began + time.Duration(i)*time.Second/time.Duration(r.workload.Rate)
			if wait := at - r.now(); wait > 0 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
			}
			due <- at
		}
	}()
	return func(int) (int64, int64, time.Duration, bool) {
		at, more := <-due
		if !more || r.now() > began+lag*long {
			return 0, 0, 0, false
		}
		first, n := r.ledger.reserve(1)
		return first, n, at, n == 1
	}
}
