package delay

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
	"github.com/spillway-mq/spillway/pkg/turn"
)

const (
	// shard is the one shard of each topic's index (queue.DelayShards).
	shard = queue.DelayShards - 1
	// firstLook is how many entries a promotion reads at first: mostly none is due, and then the
	// rest would have been read for nothing.
	firstLook = 4
	// fullLook is how many it reads once some were due.
	fullLook = 64
	// maxTries bounds how often one step starts anew: each has a reason of its own (tail full, map
	// changed, another was faster), and more of them in a row mean too much contention.
	maxTries = 16
	// promoteTimeout bounds a promotion that several callers share, and that therefore no caller's
	// context ends.
	promoteTimeout = queue.CommitTimeout
)

// Deps are what a Service stands on. All are required.
type Deps struct {
	Meta   meta.Store
	Blob   blob.Store
	Log    *segment.Log
	Topics *topics.Service
	IDs    *queue.IDs
	Clock  queue.Clock
	Hub    *notify.Hub
}

// Service works on the delayed indexes of all topics. Safe for concurrent use; it keeps no state that
// is not in the store.
type Service struct {
	Deps
	flights singleflight.Group
	turns   *turn.Turns[string]
}

// New makes a Service.
func New(d Deps) *Service {
	return &Service{Deps: d, turns: turn.New[string]()}
}

// PromoteAll is the backstop, for a ticker or schedule: it promotes what is due in every topic that
// ever was delayed, and removes tombstones that nobody needs any more. It goes on after a topic that
// fails; the errors are joined. next is the visible time of the first message that still waits
// anywhere, 0 if none does.
func (s *Service) PromoteAll(ctx context.Context) (promoted int, next queue.Millis, err error) {
	promoted, err = s.eachTopic(ctx, func(id queue.TopicID, name string) (int, error) {
		n, at, err := s.backstop(ctx, id, name)
		next = earlier(next, at)
		return n, err
	})
	return promoted, next, err
}

// eachTopic calls promote for every topic, adds up what it promoted and joins its errors.
func (s *Service) eachTopic(ctx context.Context, promote func(queue.TopicID, string) (int, error)) (promoted int, err error) {
	var errs []error
	cursor := ""
	for {
		page, more, err := s.Topics.List(ctx, "", cursor, queue.MaxPageSize)
		if err != nil {
			return promoted, errors.Join(append(errs, err)...)
		}
		for _, listed := range page {
			n, err := promote(listed.ID, listed.Name)
			promoted += n
			if err != nil {
				errs = append(errs, err)
			}
			if ctx.Err() != nil {
				return promoted, errors.Join(errs...)
			}
		}
		if more == "" {
			return promoted, errors.Join(errs...)
		}
		cursor = more
	}
}

// backstop promotes one topic; one that is gone, or whose name another has now, has nothing to promote.
func (s *Service) backstop(ctx context.Context, id queue.TopicID, name string) (int, queue.Millis, error) {
	m, err := s.Topics.Open(ctx, name)
	if err == nil && m.ID() != id {
		m, err = s.Topics.Reload(ctx, name)
	}
	if queue.Is(err, queue.KindNotFound) {
		return 0, 0, nil // deleted since it was listed
	}
	if err != nil || m.ID() != id || !m.Topic.EverDelayed() {
		return 0, 0, err
	}
	now := s.Clock.Millis()
	n, next, err := s.together(ctx, m, now)
	return n, next, errors.Join(err, s.sweep(ctx, m.ID(), now))
}

// sweep removes tombstones whose home's visible time has passed: from then on the id itself tells that
// its message is gone.
func (s *Service) sweep(ctx context.Context, topic queue.TopicID, now queue.Millis) error {
	q := meta.Range{PK: meta.ForwardPK(topic), To: meta.DelayedSK(now+1, ""), Limit: fullLook}
	for {
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			q.From = meta.After(item.Record.Key().SK)
			f, ok := item.Record.(*meta.Forward)
			if !ok || f.Entry != "" {
				continue
			}
			_, err := s.Meta.Apply(ctx, meta.Delete{Key: f.Key(), If: meta.At(item.Version), Kind: f.Kind()})
			if _, refused := meta.AsRefused(err); err != nil && !refused {
				// A lost answer too: the next sweep finds what is left.
				return err
			}
		}
		if !page.More {
			return nil
		}
	}
}

// earlier is the earlier of two times, of which 0 is none.
func earlier(a, b queue.Millis) queue.Millis {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func tooBusy(op, subject string, cause error) error {
	return &queue.Error{
		Op: op, Subject: subject, Kind: queue.KindConflict, Err: cause,
		Message: "others keep changing it; try again",
	}
}

// pause waits before try n+1 after a store's refusal to work.
func (s *Service) pause(ctx context.Context, n int) error {
	err := queue.Backoff{First: 5 * time.Millisecond, Last: 200 * time.Millisecond}.Wait(ctx, n, s.IDs.Jitter)
	if err != nil {
		return &queue.Error{Op: "wait", Kind: queue.KindCanceled, Err: err}
	}
	return nil
}
