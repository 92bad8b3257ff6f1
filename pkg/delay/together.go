package delay

import (
	"context"
	"sync"

	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

type outcome struct {
	promoted int
	next     queue.Millis
}

// together promotes a topic, with all callers of this process that want the same: one at a time works
// on a topic, and those who come meanwhile share the next run. They never share one that has begun:
// its query may have been before what they know of was put.
func (s *Service) together(ctx context.Context, m *topics.Map, now queue.Millis) (int, queue.Millis, error) {
	key := string(m.ID())
	total := 0
	for ctx.Err() == nil {
		done := s.flights.DoChan(key, func() (any, error) {
			defer s.turns.take(key)()
			s.flights.Forget(key)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), promoteTimeout)
			defer cancel()
			p := promotion{service: s, m: m, now: now}
			err := p.run(ctx)
			return p.outcome, err
		})
		select {
		case res := <-done:
			got, _ := res.Val.(outcome)
			total += got.promoted
			if res.Err == nil && got.next != 0 && got.next <= now {
				// Who began the run had an earlier idea of now.
				continue
			}
			return total, got.next, res.Err
		case <-ctx.Done():
		}
	}
	return total, 0, &queue.Error{Op: "promote", Subject: m.Name, Kind: queue.KindCanceled, Err: context.Cause(ctx)}
}

// turns lets one at a time pass for each name.
type turns struct {
	mu   sync.Mutex // guards held
	held map[string]*turn
}

type turn struct {
	// taken holds one token while it is somebody's turn. A channel and no mutex: store calls are made
	// within a turn, and only waits on channels let a test's clock go on meanwhile (testing/synctest).
	taken chan struct{}
	count int // holder and waiters; guarded by turns.mu
}

// take waits for its turn; the function it returns ends it.
func (t *turns) take(name string) func() {
	t.mu.Lock()
	one := t.held[name]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		t.held[name] = one
	}
	one.count++
	t.mu.Unlock()
	one.taken <- struct{}{}
	return func() {
		<-one.taken
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.count--; one.count == 0 {
			delete(t.held, name)
		}
	}
}
