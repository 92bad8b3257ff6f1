package later_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/later"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w later.Work
		began := time.Now()
		check := func(what string, want time.Duration) {
			t.Helper()
			if err := w.Wait(t.Context()); err != nil || time.Since(began) != want {
				t.Errorf("%s: waited %v, %v, want %v", what, time.Since(began), err, want)
			}
		}
		check("nothing runs", 0)
		w.Go(func() { time.Sleep(2 * time.Second) })
		w.Go(func() {
			time.Sleep(time.Second)
			w.Go(func() { time.Sleep(4 * time.Second) }) // begun while somebody waits
		})
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := w.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cut short: %v", err)
		}
		check("all of it", 5*time.Second)
		check("and again", 5*time.Second)
	})
}
