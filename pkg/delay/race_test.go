package delay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Two processes promote, one edits, one cancels, one splits segments, all at once, while time passes.
// Each message that was not cancelled is promoted once, and an acknowledged cancel holds.
func TestRaces(t *testing.T) {
	r := newRig(t, delayedTopic(2))
	const groups, size = 12, 6
	var ids []queue.DelayedID
	for i := range groups {
		ids = append(ids, r.put(t, group{visible: r.in(i + 1), slots: spread(size), name: fmt.Sprintf("g%02d", i)})...)
	}
	stop := make(chan struct{})
	var promoters, changers sync.WaitGroup
	for range 2 {
		s := r.next()
		promoters.Go(func() {
			for {
				m, err := s.Topics.Open(t.Context(), topicName)
				if err != nil {
					t.Error(err)
					return
				}
				if _, _, err := s.Promote(t.Context(), m, r.millis()); err != nil && !queue.Retryable(err) {
					t.Error(err)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var mu sync.Mutex
	cancelled := map[string]bool{}
	change := func(seed uint64, f func(s *Service, i int) error) {
		s := r.next()
		rng := rand.New(rand.NewPCG(seed, 1))
		changers.Go(func() {
			for range 60 {
				if err := f(s, rng.IntN(len(ids))); err != nil && !queue.Retryable(err) &&
					queue.CodeOf(err) != queue.CodeAlreadyPromoted && queue.CodeOf(err) != queue.CodeDelayedNotFound {
					t.Error(err)
				}
				r.pass(time.Duration(rng.IntN(200)) * time.Millisecond)
			}
		})
	}
	body := func(i int) string { return fmt.Sprintf("g%02d-%d", i/size, i%size) }
	change(1, func(s *Service, i int) error {
		_, err := s.Edit(t.Context(), topicName, ids[i], Edit{Delay: ptr(time.Duration(i%20) * time.Second)})
		return err
	})
	change(2, func(s *Service, i int) error {
		_, err := s.Edit(t.Context(), topicName, ids[i], Edit{Headers: &map[string]string{"edited": "yes"}})
		return err
	})
	change(3, func(s *Service, i int) error {
		if i%3 != 0 {
			return nil
		}
		err := s.Cancel(t.Context(), topicName, ids[i])
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			cancelled[body(i)] = true
		}
		return err
	})
	changers.Go(func() { r.split(t, r.open(t).Open[0]) })
	changers.Wait()
	close(stop)
	promoters.Wait()
	r.pass(time.Minute)
	if _, _, err := r.PromoteAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range ids {
		if !cancelled[body(i)] {
			want = append(want, body(i))
		}
	}
	if got := bodies(r.contents(t)); !slices.Equal(got, want) {
		t.Errorf("promoted %v\nwant %v\ncancelled %v", got, want, cancelled)
	}
	if r.entries(t)+r.forwards(t) != 0 {
		t.Errorf("%d entries, %d forwards left", r.entries(t), r.forwards(t))
	}
}

// Callers of one process share runs, and none is answered by a run that began before it called.
func TestConcurrentCallersShareRuns(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	m := r.open(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			ids := r.put(t, group{visible: r.millis(), name: fmt.Sprintf("m%d", i)})
			if _, _, err := r.Promote(t.Context(), m, r.millis()); err != nil {
				t.Error(err)
			}
			// What was put before the call is promoted after it.
			if _, err := r.Get(t.Context(), topicName, ids[0]); queue.CodeOf(err) != queue.CodeAlreadyPromoted {
				t.Errorf("left behind: %v", err)
			}
		})
	}
	wg.Wait()
	if n, _ := r.promote(t); n != 0 || len(r.contents(t)) != 64 || r.turns.Held() != 0 {
		t.Errorf("%d left, %d promoted, %d turns held", n, len(r.contents(t)), r.turns.Held())
	}
}

// silent is a store that does not answer queries before their caller gives up.
type silent struct{ meta.Store }

func (silent) Query(ctx context.Context, _ meta.Range) (meta.Page, error) {
	<-ctx.Done()
	return meta.Page{}, meta.Canceled(ctx, "query")
}

// The time of a shared run is up while its caller still waits: the stores are to blame, not the caller, who is not to be
// told that it went away.
func TestRunOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, delayedTopic(1))
		_, _, err := r.on(silent{r.store}, r.blobs).Promote(t.Context(), r.open(t), r.millis())
		if queue.CodeOf(err) != queue.CodeUnavailable {
			t.Errorf("promote on stores that are silent: %v", err)
		}
	})
}

// A caller with a later idea of now is not content with the run of one with an earlier idea.
func TestSharedRunWithAnotherNow(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	m := r.open(t)
	r.put(t, group{visible: r.in(5), name: "a"})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			now := r.in(i % 2 * 10)
			if _, next, err := r.Promote(t.Context(), m, now); err != nil || next != 0 && next <= now {
				t.Error(next, err)
			}
		})
	}
	wg.Wait()
	if len(r.contents(t)) != 1 {
		t.Error("not promoted")
	}
}
