package delay

import (
	"context"
	"fmt"

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
			// Others wait for this run, so it goes on when its first caller goes away.
			ctx := context.WithoutCancel(ctx)
			end, err := s.turns.Take(ctx, key)
			if err != nil {
				return outcome{}, err
			}
			defer end()
			s.flights.Forget(key)
			ctx, cancel := context.WithTimeout(ctx, promoteTimeout)
			defer cancel()
			p := promotion{service: s, m: m, now: now}
			err = p.run(ctx)
			if queue.Is(err, queue.KindCanceled) && ctx.Err() != nil {
				// The run's own time was up: whoever waits for it did not go away.
				err = &queue.Error{
					Op: "promote", Subject: m.Name, Kind: queue.KindUnavailable, Err: err,
					Message: fmt.Sprintf("the stores did not answer within %v", promoteTimeout),
				}
			}
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
