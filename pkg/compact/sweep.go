package compact

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The walks over the object store, by the names of their progress.
const (
	walkUploads = "uploads"
	walkBatches = "batches"
)

const (
	// maxCandidates bounds the objects that one trace looks for.
	maxCandidates = 20_000
	// orphanAge is how old an object is before it can be an orphan: no commit is tried that long after
	// its object was put, and no note of what was dropped is older than the trace by as much.
	orphanAge = 2 * queue.GracePeriod
	// maxRescans bounds how often a segment is read again because a compactor was at it.
	maxRescans = 5
)

// Sweep removes what has no owner and no note: uploads that nobody has submitted for Deps.UploadAge, and
// objects that crashed calls left. It goes on where the last call stopped, ends when it is through or the
// time of ctx is about to run out, and begins anew a quarter of UploadAge later. While nothing is due it
// costs two reads.
func (s *Service) Sweep(ctx context.Context) (deleted int, err error) {
	n, err := s.walk(ctx, walkUploads, func(p *meta.Progress) (int, bool, error) { return s.sweepUploads(ctx, p) })
	m, merr := s.walk(ctx, walkBatches, func(p *meta.Progress) (int, bool, error) { return s.sweepBatches(ctx, p) })
	return n + m, errors.Join(err, merr)
}

// walk takes steps until one says that it was the last.
func (s *Service) walk(ctx context.Context, name string, step func(*meta.Progress) (int, bool, error)) (deleted int, err error) {
	p, _, err := meta.Fetch[*meta.Progress](ctx, s.Meta, meta.ProgressKey(name))
	switch {
	case queue.Is(err, queue.KindNotFound):
		p = new(meta.Progress)
	case err != nil:
		return 0, err
	}
	now := s.Clock.Millis()
	if p.Again > now {
		return 0, nil
	}
	next := &meta.Progress{Name: name, After: p.After}
	for s.goOn(ctx) {
		n, more, err := step(next)
		deleted += n
		if err != nil {
			return deleted, err
		}
		if !more {
			next.After, next.Again = "", now.Add(s.UploadAge/4)
		}
		saved := *next
		if _, err := s.Meta.Apply(ctx, meta.Put{Record: &saved, Version: meta.NewVersion(s.IDs)}); err != nil || !more {
			return deleted, err
		}
	}
	return deleted, nil
}

// sweepUploads deletes those of one page of uploads that are old and held by nobody.
func (s *Service) sweepUploads(ctx context.Context, p *meta.Progress) (int, bool, error) {
	page, err := s.Blob.List(ctx, blob.PrefixUploads, p.After, lookLimit)
	if err != nil {
		return 0, false, err
	}
	now := s.Clock.Millis()
	var old []object
	for _, info := range page.Objects {
		p.After = info.Key
		if queue.MillisOf(info.Modified).Add(s.UploadAge) <= now {
			old = append(old, object{key: info.Key})
		}
	}
	n, err := s.discard(ctx, old)
	return n, page.More, err
}

// discard deletes those of some objects that nobody holds.
func (s *Service) discard(ctx context.Context, some []object) (int, error) {
	var gone []object
	for _, o := range some {
		n, err := s.notes(ctx, o)
		if err != nil {
			return 0, err
		}
		if len(n.holds) > 0 {
			continue
		}
		ok, err := s.condemn(ctx, o)
		if err != nil {
			return 0, err
		}
		if ok {
			gone = append(gone, o)
		}
	}
	return len(gone), s.remove(ctx, gone, gone)
}

// sweepBatches deletes those of some objects that no ref reaches. Refs move while they are looked for, so
// the trace goes the way that they go: delayed entries, the places that edits moved them to, heads, pages,
// and the notes of what was dropped. A ref that moves on in front of the trace is met later.
func (s *Service) sweepBatches(ctx context.Context, p *meta.Progress) (int, bool, error) {
	t := &trace{Service: s, left: make(map[string]bool), topics: make(map[queue.TopicID]bool)}
	old := s.Clock.Millis().Add(-orphanAge)
	more := true
	for more && len(t.left) < maxCandidates {
		page, err := s.Blob.List(ctx, blob.PrefixBatches, p.After, queue.MaxPageSize)
		if err != nil {
			return 0, false, err
		}
		for _, info := range page.Objects {
			p.After = info.Key
			if queue.MillisOf(info.Modified) <= old {
				t.left[info.Key] = true
			}
		}
		more = page.More
	}
	if err := t.all(ctx); err != nil {
		return 0, false, err
	}
	some := make([]object, 0, len(t.left))
	for key := range t.left {
		some = append(some, object{key: key})
	}
	n, err := s.discard(ctx, some)
	return n, more, err
}

// trace looks for refs to objects; those that it meets are taken out of left.
type trace struct {
	*Service
	left   map[string]bool
	topics map[queue.TopicID]bool
}

func (t *trace) meet(refs ...meta.Ref) {
	for i := range refs {
		if !refs[i].Inline {
			delete(t.left, refs[i].Object)
		}
	}
}

// all goes through all topics. Names may change meanwhile, so they are listed until no topic is new.
func (t *trace) all(ctx context.Context) error {
	for found := true; found && len(t.left) > 0; {
		found = false
		names, err := t.query(ctx, meta.Range{PK: meta.NamespacePK})
		if err != nil {
			return err
		}
		for _, item := range names {
			name, ok := item.Record.(*meta.Name)
			if !ok || name.Topic == "" || t.topics[name.Topic] {
				continue
			}
			if !t.goOn(ctx) {
				return &queue.Error{Op: "trace objects", Kind: queue.KindCanceled, Message: "the time ran out; nothing was deleted"}
			}
			t.topics[name.Topic], found = true, true
			if err := t.topic(ctx, name.Topic); err != nil {
				return err
			}
		}
	}
	if len(t.left) == 0 {
		return nil
	}
	work, err := t.query(ctx, meta.Range{PK: meta.WorkPK(0)})
	for _, item := range work {
		if d, ok := item.Record.(*meta.Drop); ok {
			for _, r := range d.Runs {
				delete(t.left, r.Object)
			}
		}
	}
	return err
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
				t.meet(d.Ref)
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
				t.meet(d.Ref)
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

// segment meets the refs of a head and then those of its pages. A compactor joins pages to ones that the
// trace may have passed already, so it is read until the lease has not changed meanwhile.
func (t *trace) segment(ctx context.Context, id queue.SegmentID) error {
	head, _, err := meta.Fetch[*meta.Head](ctx, t.Meta, meta.HeadKey(id))
	if queue.Is(err, queue.KindNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	t.meet(head.Tail...)
	for range maxRescans {
		before, err := t.leaseOf(ctx, id)
		if err != nil {
			return err
		}
		q := meta.PagesFrom(id, 0, lookLimit)
		for {
			page, err := t.Meta.Query(ctx, q)
			if err != nil {
				return err
			}
			for _, item := range page.Items {
				q.From = meta.After(item.Record.Key().SK)
				if p, ok := item.Record.(*meta.RefPage); ok {
					t.meet(p.Refs...)
				}
			}
			if !page.More {
				break
			}
		}
		if after, err := t.leaseOf(ctx, id); err != nil || after == before {
			return err
		}
	}
	return &queue.Error{Op: "trace objects", Subject: string(id), Kind: queue.KindConflict, Message: "the segment is being compacted"}
}

func (t *trace) leaseOf(ctx context.Context, id queue.SegmentID) (meta.Version, error) {
	_, version, err := meta.Fetch[*meta.Lease](ctx, t.Meta, meta.LeaseKey(LeaseName(id)))
	if queue.Is(err, queue.KindNotFound) {
		return 0, nil
	}
	return version, err
}

// query reads a range to its end.
func (t *trace) query(ctx context.Context, q meta.Range) (out []meta.Item, err error) {
	q.Limit = queue.MaxPageSize
	for {
		page, err := t.Meta.Query(ctx, q)
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
