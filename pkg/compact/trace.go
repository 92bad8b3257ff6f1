package compact

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// trace looks for refs to candidates. Refs move while they are looked for, so it goes the way that they
// go: delayed entries, the places that edits moved them to, heads, pages from the newest down, and the
// notes of what was dropped. A ref that moves on in front of the trace is met later, one that was met is met
// again at worst.
type trace struct {
	*Service
	left   map[object]*candidate
	topics map[queue.TopicID]bool
	// oldest is the least time of the candidates: what was appended long before refers to none.
	oldest queue.Millis
}

func (t *trace) add(o object, at queue.Millis) {
	if len(t.left) == 0 || at < t.oldest {
		t.oldest = at
	}
	t.left[o] = &candidate{owners: make(map[string]*account)}
}

func (t *trace) meet(refs ...meta.Ref) {
	for i := range refs {
		if c := t.left[object{refs[i].Object, refs[i].Inline}]; c != nil {
			run := refs[i].Owned()
			c.meet(&run)
		}
	}
}

// all goes through all topics, those that are being removed after those that have names: what leaves the
// one is in the other. Both change meanwhile, so they are listed until no topic is new.
func (t *trace) all(ctx context.Context) error {
	for found := true; found; {
		found = false
		for _, list := range []func(context.Context) ([]queue.TopicID, error){t.named, t.removed} {
			ids, err := list(ctx)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if t.topics[id] {
					continue
				}
				if !t.goOn(ctx) {
					return outOfTime()
				}
				t.topics[id], found = true, true
				if err := t.topic(ctx, id); err != nil {
					return err
				}
			}
		}
	}
	work, err := t.query(ctx, meta.Range{PK: meta.WorkPK(0)})
	for _, item := range work {
		d, ok := item.Record.(*meta.Drop)
		for i := 0; ok && !d.Again && i < len(d.Runs); i++ {
			if c := t.left[object{d.Runs[i].Object, d.Runs[i].Inline}]; c != nil {
				c.meet(&d.Runs[i])
			}
		}
	}
	return err
}

func (t *trace) named(ctx context.Context) (ids []queue.TopicID, err error) {
	items, err := t.query(ctx, meta.Range{PK: meta.NamespacePK})
	for _, item := range items {
		if name, ok := item.Record.(*meta.Name); ok && name.Topic != "" {
			ids = append(ids, name.Topic)
		}
	}
	return ids, err
}

func (t *trace) removed(ctx context.Context) (ids []queue.TopicID, err error) {
	items, err := t.query(ctx, meta.Range{PK: meta.WorkPK(0)})
	for _, item := range items {
		if r, ok := item.Record.(*meta.Removal); ok && r.Subscription == "" {
			ids = append(ids, r.Topic)
		}
	}
	return ids, err
}

func (t *trace) topic(ctx context.Context, id queue.TopicID) error {
	// A commit that is still on its way, of a writer that stalled after its put, is void from here on.
	now := t.Clock.Millis()
	err := t.segments(ctx, id, func(seg *meta.Segment) error {
		if seg.Sealed != 0 {
			return nil
		}
		_, err := t.Meta.Apply(ctx, meta.Touch{Segment: seg.ID, At: now})
		if meta.IsRefused(err, meta.ReasonAbsent) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for shard := range queue.DelayShards {
		entries, err := t.query(ctx, meta.Range{PK: meta.DelayedPK(id, shard), To: meta.DelayedEnd})
		if err != nil {
			return err
		}
		for _, item := range entries {
			if d, ok := item.Record.(*meta.Delayed); ok {
				t.meet(d.Waiting()...)
			}
		}
	}
	if err := t.edited(ctx, id); err != nil {
		return err
	}
	return t.segments(ctx, id, func(seg *meta.Segment) error { return t.segment(ctx, seg.ID) })
}

func (t *trace) segments(ctx context.Context, id queue.TopicID, f func(*meta.Segment) error) error {
	items, err := t.query(ctx, meta.Range{PK: meta.TopicPK(id), From: meta.SegmentPrefix, To: meta.SegmentPrefixEnd})
	if err != nil {
		return err
	}
	for _, item := range items {
		if seg, ok := item.Record.(*meta.Segment); ok {
			if err := f(seg); err != nil {
				return err
			}
		}
	}
	return nil
}

// edited meets the entries that edits have moved. They may move again behind the trace's back, but their
// forwards stay where they are.
func (t *trace) edited(ctx context.Context, id queue.TopicID) error {
	forwards, err := t.query(ctx, meta.Range{PK: meta.ForwardPK(id)})
	if err != nil {
		return err
	}
	for _, item := range forwards {
		f, ok := item.Record.(*meta.Forward)
		for ok && f.Entry != "" {
			d, _, err := meta.Fetch[*meta.Delayed](ctx, t.Meta, meta.DelayedKey(id, 0, f.Visible, f.Entry))
			if err == nil {
				t.meet(d.Waiting()...)
				break
			}
			if !queue.Is(err, queue.KindNotFound) {
				return err
			}
			was := f.Entry
			f, _, err = meta.Fetch[*meta.Forward](ctx, t.Meta, f.Key())
			if queue.Is(err, queue.KindNotFound) || err == nil && f.Entry == was {
				break // promoted or cancelled
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// segment meets the refs of a head and then those of its pages, as far back as any can be of a candidate.
// Compactors move refs to pages of lower offsets, which come later here.
func (t *trace) segment(ctx context.Context, id queue.SegmentID) error {
	head, _, err := meta.Fetch[*meta.Head](ctx, t.Meta, meta.HeadKey(id))
	switch {
	case queue.Is(err, queue.KindNotFound): // being removed, its pages first
	case err != nil:
		return err
	default:
		t.meet(head.Tail...)
	}
	// A page's time is that of its last commit, which may lie before its bytes were put.
	edge := t.oldest.Add(-queue.GracePeriod)
	q := meta.PagesFrom(id, 0, lookLimit)
	for q.Reverse = true; ; {
		page, err := t.Meta.Query(ctx, q)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			p, ok := item.Record.(*meta.RefPage)
			if !ok {
				continue
			}
			if p.Rolled < edge {
				return nil
			}
			t.meet(p.Refs...)
			q.To = p.Key().SK
		}
		if !page.More || len(page.Items) == 0 {
			return nil
		}
		if !t.goOn(ctx) {
			return outOfTime()
		}
	}
}

// query reads a range to its end.
func (s *Service) query(ctx context.Context, q meta.Range) (out []meta.Item, err error) {
	q.Limit = queue.MaxPageSize
	for {
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if !page.More {
			return out, nil
		}
		q.From = meta.After(page.Items[len(page.Items)-1].Record.Key().SK)
	}
}
