package topics

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// load reads a topic by name: the name, then all of the topic's partition.
func (s *Service) load(ctx context.Context, name string) (*Map, error) {
	rec, _, err := meta.Fetch[*meta.Name](ctx, s.meta, meta.NameKey(name))
	if err != nil {
		if queue.Is(err, queue.KindNotFound) {
			return nil, notFound("open topic", name, err)
		}
		return nil, err
	}
	return s.loadID(ctx, name, rec.Topic)
}

// OpenID reads a topic by its id, past the cache. name is what the Map is to call it. Errors as Open.
func (s *Service) OpenID(ctx context.Context, name string, id queue.TopicID) (*Map, error) {
	return s.loadID(ctx, name, id)
}

// Forget drops a topic from the cache: its segments were changed.
func (s *Service) Forget(name string) { s.cache.drop(name) }

// loadID reads a topic's partition. Its pages are not read at one instant: a change of the segment
// map between two of them shows as a ring with gaps or overlaps, and is read again.
func (s *Service) loadID(ctx context.Context, name string, id queue.TopicID) (*Map, error) {
	for range maxTries {
		m, err := s.readPartition(ctx, name, id)
		if err != nil {
			return nil, err
		}
		if m.Topic == nil || m.Topic.State == meta.TopicDeleting {
			return nil, notFound("open topic", name, nil)
		}
		if m.current() || m.Topic.State == meta.TopicSealed {
			return m, nil
		}
	}
	return nil, &queue.Error{
		Op: "open topic", Subject: name, Kind: queue.KindUnavailable,
		Message: "the segment map keeps changing, or does not cover the ring",
	}
}

func (s *Service) readPartition(ctx context.Context, name string, id queue.TopicID) (*Map, error) {
	m := &Map{
		Name: name, Subscriptions: make(map[string]*meta.Subscription),
		versions: make(map[queue.SegmentID]meta.Version),
	}
	q := meta.Range{PK: meta.TopicPK(id), Limit: meta.MaxQueryLimit}
	for {
		page, err := s.meta.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			switch r := item.Record.(type) {
			case *meta.Topic:
				m.Topic, m.Version = r, item.Version
			case *meta.Segment:
				m.Segments = append(m.Segments, r)
				m.versions[r.ID] = item.Version
			case *meta.Subscription:
				m.Subscriptions[r.Name] = r
			}
			q.From = meta.After(item.Record.Key().SK)
		}
		if !page.More {
			break
		}
	}
	return m.index()
}

// index orders what was read and makes it fast to look up.
func (m *Map) index() (*Map, error) {
	slices.SortFunc(m.Segments, func(a, b *meta.Segment) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
	})
	m.byID = make(map[queue.SegmentID]*meta.Segment, len(m.Segments))
	for _, seg := range m.Segments {
		m.byID[seg.ID] = seg
		if seg.Sealed == 0 {
			m.Open = append(m.Open, seg)
		}
	}
	slices.SortFunc(m.Open, func(a, b *meta.Segment) int { return cmp.Compare(a.Range.Lo, b.Range.Lo) })
	if m.Topic == nil {
		return m, nil
	}
	rule, err := ParseRule("partition_key", m.Topic.Config.PartitionKey)
	if err != nil {
		return nil, &queue.Error{Op: "open topic", Subject: m.Name, Kind: queue.KindCorrupt, Err: err}
	}
	m.Rule = rule
	return m, nil
}

// Heads reads the heads of segments, a hundred in one call, in the order of segs. Errors: Corrupt if one
// is not there; the store's.
func (s *Service) Heads(ctx context.Context, segs []*meta.Segment) ([]*meta.Head, error) {
	out := make([]*meta.Head, len(segs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(headReaders)
	for base := 0; base < len(segs); base += meta.MaxGetKeys {
		some := segs[base:min(len(segs), base+meta.MaxGetKeys)]
		g.Go(func() error {
			keys := make([]meta.Key, len(some))
			for i, seg := range some {
				keys[i] = meta.HeadKey(seg.ID)
			}
			items, err := s.meta.GetAll(ctx, keys)
			if err != nil {
				return err
			}
			for i := range items {
				head, ok := items[i].Record.(*meta.Head)
				if !ok {
					return &queue.Error{Op: "read heads", Subject: keys[i].String(), Kind: queue.KindCorrupt, Message: "a segment has no head"}
				}
				out[base+i] = head
			}
			return nil
		})
	}
	return out, g.Wait()
}
