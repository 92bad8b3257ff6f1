package client

import (
	"context"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// RetryPolicy says how often and how soon a call is made again. The zero value takes the defaults.
type RetryPolicy struct {
	// Attempts is the number of tries of one call, the first included; 5 unless set, 1 for no
	// retries. A Producer tries until its DeliveryTimeout instead.
	Attempts int
	// MinDelay and MaxDelay bound the pause before a retry, which doubles from MinDelay and of which
	// a random half is taken off; 50 ms and 5 s unless set. A server's Retry-After may be longer and
	// is then kept to.
	MinDelay, MaxDelay time.Duration
	// AttemptTimeout bounds one try, besides the wait of a long poll and the time that an upload
	// needs; 30 s unless set, which is longer than the server lets a commit take.
	AttemptTimeout time.Duration
}

const (
	defaultAttempts       = 5
	defaultMinDelay       = 50 * time.Millisecond
	defaultMaxDelay       = 5 * time.Second
	defaultAttemptTimeout = 30 * time.Second
)

func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.Attempts < 0 || p.MinDelay < 0 || p.MaxDelay < 0 || p.AttemptTimeout < 0 {
		return p, queue.Invalid("retry", 0, "must not be negative")
	}
	p.Attempts = orDefault(p.Attempts, defaultAttempts)
	p.MinDelay = orDefault(p.MinDelay, defaultMinDelay)
	p.MaxDelay = max(orDefault(p.MaxDelay, defaultMaxDelay), p.MinDelay)
	p.AttemptTimeout = orDefault(p.AttemptTimeout, defaultAttemptTimeout)
	return p, nil
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// pause is how long to wait after failed tries, 1 or more of them.
func (c *Client) pause(failed int, err error) time.Duration {
	d := c.retry.MaxDelay
	if shift := failed - 1; shift < 32 && c.retry.MinDelay<<shift>>shift == c.retry.MinDelay {
		d = min(d, c.retry.MinDelay<<shift)
	}
	return max(c.jitter.half(d), retryAfterOf(err))
}

// jitter takes a random half off pauses, so that clients which failed together do not come back
// together.
type jitter struct {
	mu   sync.Mutex // guards rand
	rand *mathrand.Rand
}

func (j *jitter) half(d time.Duration) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return d/2 + time.Duration(j.rand.Int64N(int64(d/2)+1))
}

// slot is a random slot of r.
func (j *jitter) slot(r queue.SlotRange) queue.Slot {
	j.mu.Lock()
	defer j.mu.Unlock()
	return queue.Slot(r.Lo + j.rand.Uint32N(r.Len())) // #nosec G115 -- below Slots
}

// sleep waits; it reports false if ctx ends first, or would end before the wait is over, in which
// case it does not wait at all.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
