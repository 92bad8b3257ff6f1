package topics

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// delayedSlack is how long after its longest delay an entry of a formerly delayed topic is still
// looked for by consumers: it covers producers that hold the old config (a cache's TTL, a commit) and
// messages that nobody has promoted yet. What is later than that the backstop finds.
const delayedSlack = time.Hour

// Update changes a topic's config. Errors: NotFound with CodeTopicNotFound; Invalid for what the
// patch would make of the config; Conflict if others keep changing it.
func (s *Service) Update(ctx context.Context, name string, patch Patch) (Status, error) {
	m, err := s.Reload(ctx, name)
	if err != nil {
		return Status{}, err
	}
	if patch.scales() {
		// First the watch, which the leader keeps for some minutes: were it put after the config, a process
		// that stops between the two would leave bounds that nobody acts on.
		if err := s.watch(ctx, m, true); err != nil {
			return Status{}, err
		}
	}
	_, err = swap(ctx, s, meta.TopicKey(m.ID()), func(old *meta.Topic) (*meta.Topic, error) {
		if old.State == meta.TopicDeleting {
			return nil, notFound("update topic", name, nil)
		}
		config, err := patch.apply(old.Config)
		if err != nil {
			return nil, err
		}
		topic := *old
		topic.Config, topic.Modified = config, s.clock.Millis()
		if old.Config.Delayed() != config.Delayed() {
			topic.Switched = topic.Modified
		}
		if old.Config.Delayed() {
			// Also where the topic stays delayed: its max_delay may shrink now, and its
			// default_delay become 0 later.
			topic.DelayedUntil = max(old.DelayedUntil, topic.Modified.Add(old.Config.MaxDelay+delayedSlack))
		}
		return &topic, nil
	})
	s.cache.drop(name)
	if err != nil {
		if queue.Is(err, queue.KindNotFound) {
			return Status{}, notFound("update topic", name, err)
		}
		return Status{}, err
	}
	if patch.scales() {
		s.wakeLeader()
	}
	return s.Status(ctx, name)
}

// swap replaces a record by what change makes of it, by compare-and-swap. change may be called again
// with a newer record; it must not modify the one it is given. After a lost answer the record's
// version tells whether ours was written. Ops beside, if any, go into the same transaction.
func swap[T meta.Record](ctx context.Context, s *Service, key meta.Key, change func(T) (T, error), beside ...meta.Op) (T, error) {
	var zero T
	var mine meta.Version
	var written T
	unknown := false
	for range maxTries {
		old, version, err := meta.Fetch[T](ctx, s.meta, key)
		if err != nil {
			return zero, queue.Unsure(err, unknown)
		}
		if mine != 0 && version == mine {
			return written, nil
		}
		next, err := change(old)
		if err != nil {
			return zero, err
		}
		mine, written = meta.NewVersion(s.ids), next
		put := meta.Put{Record: next, If: meta.At(version), Version: mine}
		if len(beside) == 0 {
			_, err = s.meta.Apply(ctx, put)
		} else {
			_, err = s.meta.Transact(ctx, append([]meta.Op{put}, beside...))
		}
		switch r, refused := meta.AsRefused(err); {
		case err == nil:
			return next, nil
		case refused && r.Current != nil && r.Current.Version == mine:
			// The store's client repeated a write that had succeeded.
			return next, nil
		case refused, queue.Is(err, queue.KindOutcomeUnknown):
			// Read again: the next round sees whose version stands.
			unknown = unknown || !refused
		default:
			return zero, queue.Unsure(err, unknown)
		}
	}
	return zero, tooBusy("update record", key.String(), unknown)
}

// Delete removes a topic: it marks it as deleting, seals its heads, and then removes the name. It may
// stop between any two of these steps: whoever deletes it again, or creates one of that name, goes on
// from there, and so does the compactor, for which the mark comes with a note (meta.Removal). When it
// returns nil no commit to the topic can succeed, and the name is free. What the topic held is removed
// by the compactor, a grace period later.
//
// Errors: NotFound with CodeTopicNotFound; the store's.
func (s *Service) Delete(ctx context.Context, name string) error {
	if err := queue.ValidateTopicName("topic", name); err != nil {
		return err
	}
	rec, version, err := meta.Fetch[*meta.Name](ctx, s.meta, meta.NameKey(name))
	if err != nil {
		if queue.Is(err, queue.KindNotFound) {
			return notFound("delete topic", name, err)
		}
		return err
	}
	note := &meta.Removal{Due: s.clock.Millis().Add(removalDelay), Topic: rec.Topic, Name: name}
	_, err = swap(ctx, s, meta.TopicKey(rec.Topic), func(old *meta.Topic) (*meta.Topic, error) {
		if old.State == meta.TopicDeleting {
			return nil, errDeleting
		}
		topic := *old
		topic.State, topic.Modified = meta.TopicDeleting, s.clock.Millis()
		return &topic, nil
	}, meta.PutRemoval(note, s.ids))
	s.cache.drop(name)
	if err != nil && !errors.Is(err, errDeleting) {
		return err
	}
	return s.finishDelete(ctx, rec, version)
}

// removalDelay is how long a deletion has before the compactor takes it up.
const removalDelay = time.Minute

// errDeleting says that the mark and its note are there already.
var errDeleting = errors.New("the topic is being deleted")

// finishDelete seals the heads of a topic in state deleting, then removes its name.
func (s *Service) finishDelete(ctx context.Context, name *meta.Name, version meta.Version) error {
	m, err := s.readPartition(ctx, name.Name, name.Topic)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(headReaders)
	for _, seg := range m.Segments {
		g.Go(func() error { return s.seal(gctx, seg) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	defer s.cache.drop(name.Name)
	op := meta.Delete{Key: name.Key(), If: meta.At(version), Kind: name.Kind()}
	unknown := false
	for range maxTries {
		_, err := s.meta.Apply(ctx, op)
		if _, refused := meta.AsRefused(err); refused {
			// Gone, or a new topic's: then another caller has finished this delete.
			return nil
		}
		if !queue.Is(err, queue.KindOutcomeUnknown) {
			return queue.Unsure(err, unknown)
		}
		unknown = true
	}
	return tooBusy("delete topic", name.Name, unknown)
}

func (s *Service) seal(ctx context.Context, seg *meta.Segment) error {
	for range maxTries {
		_, err := s.meta.Apply(ctx, meta.Seal{Segment: seg.ID, Epoch: seg.Epoch})
		if !queue.Is(err, queue.KindOutcomeUnknown) {
			return err
		}
	}
	return tooBusy("seal segment", string(seg.ID), true)
}
