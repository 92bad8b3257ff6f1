package turn_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/turn"
)

func TestOneAtATimeForEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := turn.New[string]()
		began := time.Now()
		finished := make(chan time.Duration, 4)
		for _, key := range []string{"a", "a", "a", "b"} {
			go func() {
				done, err := turns.Take(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				time.Sleep(time.Second)
				finished <- time.Since(began)
			}()
		}
		got := make(map[time.Duration]int)
		for range 4 {
			got[<-finished]++
		}
		if got[time.Second] != 2 || got[2*time.Second] != 1 || got[3*time.Second] != 1 {
			t.Errorf("turns ended after %v, want those of one key one after the other", got)
		}
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := turn.New[int]()
		done, err := turns.Take(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turns.Take(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting past the deadline: %v", err)
		}
		done()
		again, err := turns.Take(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		again()
		if n := turns.Held(); n != 0 {
			t.Errorf("%d keys are held by nobody", n)
		}
	})
}
