package topics

import (
	"context"
	"fmt"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Create makes a topic. If there is one of that name and the same config already, that is answered
// with created false.
//
// The name, the topic and its segments appear in one transaction. A topic of more segments than a
// transaction holds gets its descriptors and heads first, in chunks, under its new id: until the
// last transaction puts name and topic nothing points to them, so a crash leaves records that nobody
// can reach, and never a topic that lacks a part. A note comes before them and goes with the last
// transaction: by it the compactor removes what a crash leaves.
//
// Errors: Exists with CodeTopicExists if the name's topic has another config; Invalid for config and
// name (field "topic"); the store's. After OutcomeUnknown the same call again finds out.
func (s *Service) Create(ctx context.Context, name string, cfg Config) (Status, bool, error) {
	if err := queue.ValidateTopicName("topic", name); err != nil {
		return Status{}, false, err
	}
	config, err := cfg.record()
	if err != nil {
		return Status{}, false, err
	}
	for range maxTries {
		found, err := s.existing(ctx, name)
		if err != nil {
			return Status{}, false, err
		}
		if found != nil {
			if !sameConfig(found.Config, config) {
				return Status{}, false, &queue.Error{
					Op: "create topic", Subject: name, Kind: queue.KindExists, Code: queue.CodeTopicExists,
					Message: "the topic exists with another config; PATCH changes it",
				}
			}
			status, err := s.Status(ctx, name)
			if queue.Is(err, queue.KindNotFound) {
				continue // deleted since
			}
			return status, false, err
		}
		status, again, err := s.create(ctx, name, config)
		if !again {
			return status, err == nil, err
		}
	}
	return Status{}, false, tooBusy("create topic", name, false)
}

// existing finds the topic of a name; nil if there is none. A delete that stopped half-way is
// finished first.
func (s *Service) existing(ctx context.Context, name string) (*meta.Topic, error) {
	rec, version, err := meta.Fetch[*meta.Name](ctx, s.meta, meta.NameKey(name))
	if queue.Is(err, queue.KindNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	topic, _, err := meta.Fetch[*meta.Topic](ctx, s.meta, meta.TopicKey(rec.Topic))
	if err != nil {
		return nil, fmt.Errorf("topic of name %q: %w", name, err)
	}
	if topic.State == meta.TopicDeleting {
		return nil, s.finishDelete(ctx, rec, version)
	}
	return topic, nil
}

// create makes one attempt; again means that somebody else has taken the name meanwhile.
func (s *Service) create(ctx context.Context, name string, config meta.TopicConfig) (_ Status, again bool, _ error) {
	now := s.clock.Millis()
	m := &Map{Name: name, Topic: &meta.Topic{
		ID: s.ids.Topic(), State: meta.TopicOpen, Epoch: 1, Config: config, Created: now, Modified: now,
	}}
	var ops []meta.Op
	for _, r := range queue.Tile(config.MinSegments) {
		seg := &meta.Segment{Topic: m.Topic.ID, ID: s.ids.Segment(), Range: r, Epoch: 1, Created: now}
		m.Segments = append(m.Segments, seg)
		ops = append(ops, s.putNew(seg), s.putNew(&meta.Head{Segment: seg.ID, Epoch: seg.Epoch, Range: r}))
	}
	last := []meta.Op{
		s.putNew(&meta.Name{Name: name, Topic: m.Topic.ID, Created: now}),
		s.putNew(m.Topic),
	}
	if len(ops)+len(last) > meta.MaxTransactOps {
		note := meta.PutRemoval(&meta.Removal{Due: now.Add(queue.GracePeriod), Topic: m.Topic.ID, Intent: true}, s.ids)
		note.If = meta.Absent()
		if err := s.putAll(ctx, []meta.Op{note}); err != nil {
			return Status{}, false, err
		}
		last = append(last, meta.Delete{Key: note.Target(), If: meta.At(note.Version), Kind: meta.KindRemoval})
	}
	for len(ops)+len(last) > meta.MaxTransactOps {
		n := min(len(ops), meta.MaxTransactOps)
		if err := s.putAll(ctx, ops[:n]); err != nil {
			return Status{}, false, err
		}
		ops = ops[n:]
	}
	err := s.putAll(ctx, append(last, ops...))
	s.cache.drop(name)
	if meta.IsRefused(err, meta.ReasonExists) {
		return Status{}, true, nil
	}
	if err != nil {
		return Status{}, false, err
	}
	heads := make([]*meta.Head, len(m.Segments))
	for i, seg := range m.Segments {
		heads[i] = &meta.Head{Segment: seg.ID, Epoch: seg.Epoch, Range: seg.Range}
	}
	return s.statusOf(m, heads), false, nil
}

func (s *Service) putNew(r meta.Record) meta.Put {
	return meta.Put{Record: r, If: meta.Absent(), Version: meta.NewVersion(s.ids)}
}

// putAll puts new records, all or none. A lost answer is resolved by looking for the first one: all
// ids are new and random, so if it is there, ours is what put it. Were the puts unconditional, a
// request that the store carries out late could put an empty head over one that has messages. What is to be put
// once (meta.Once) is not tried again: the first request could arrive when the second one's record is used up.
func (s *Service) putAll(ctx context.Context, ops []meta.Op) error {
	unknown := false
	for range maxTries {
		_, err := s.meta.Transact(ctx, ops)
		if !queue.Is(err, queue.KindOutcomeUnknown) {
			if r, ok := meta.AsRefused(err); ok && isOwn(ops[r.Index], r.Current) {
				return nil
			}
			return queue.Unsure(err, unknown)
		}
		unknown = true
		item, rerr := s.meta.Get(ctx, ops[0].Target())
		if rerr == nil && isOwn(ops[0], &item) {
			return nil
		}
		if rerr != nil && !queue.Is(rerr, queue.KindNotFound) || meta.Once(ops[0]) {
			return err
		}
	}
	return tooBusy("put records", ops[0].Target().String(), unknown)
}

// isOwn reports whether a record was written by this very put.
func isOwn(op meta.Op, found *meta.Item) bool {
	put, ok := op.(meta.Put)
	return ok && found != nil && found.Version == put.Version
}
