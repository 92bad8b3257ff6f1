package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := queue.Backoff{First: 5 * time.Millisecond, Last: 200 * time.Millisecond}
		half := func(d time.Duration) time.Duration { return d / 2 }
		for _, tc := range []struct {
			n      int
			jitter func(time.Duration) time.Duration
			want   time.Duration
		}{
			{0, nil, 5 * time.Millisecond},
			{1, nil, 10 * time.Millisecond},
			{5, nil, 160 * time.Millisecond},
			{6, nil, 200 * time.Millisecond},
			{1000, nil, 200 * time.Millisecond},
			{1, half, 5 * time.Millisecond},
		} {
			began := time.Now()
			if err := b.Wait(t.Context(), tc.n, tc.jitter); err != nil || time.Since(began) != tc.want {
				t.Errorf("before try %d: %v, %v; want %v", tc.n+1, time.Since(began), err, tc.want)
			}
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := b.Wait(ctx, 3, nil); !errors.Is(err, gone) {
			t.Errorf("a caller that has gone away: %v", err)
		}
	})
}
