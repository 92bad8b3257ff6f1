package compact

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxRemovals bounds the records that one transaction removes; a drop goes with them.
const maxRemovals = meta.MaxTransactOps - 1

// removing is one look at what a removal is of.
type removing struct {
	*Service
	note    *meta.Removal
	version meta.Version
	// found: something was removed, or was not yet ready to be.
	found bool
}

// removal carries on with a removal. Its first step ends what may still change the topic; then, a grace
// period later, come looks, each of which removes what it finds, until one finds nothing. Each step is
// conditional or idempotent, so any number of processes may be at it, and stop anywhere.
func (s *Service) removal(ctx context.Context, note *meta.Removal, version meta.Version) (removed int, err error) {
	r := &removing{Service: s, note: note, version: version}
	if note.Intent {
		// From here on the transaction that would make the topic is refused.
		next := *note
		next.Intent = false
		if went, err := r.save(ctx, &next); err != nil || !went {
			return 0, err // it was made, or another is at it
		}
	}
	if r.note.Subscription == "" && !r.note.Dead {
		return 0, r.end(ctx)
	}
	through, err := r.look(ctx)
	switch {
	case err != nil:
		return 0, err
	case !through:
		_, err = r.save(ctx, r.note) // the time ran out; the next run goes on from there
		return 0, err
	case r.note.Found || r.found:
		_, err = r.again(ctx)
		return 0, err
	}
	return 1, r.finish(ctx)
}

// save replaces the note in its place; went is false if another has changed it.
func (r *removing) save(ctx context.Context, next *meta.Removal) (went bool, err error) {
	put := meta.Put{Record: next, If: meta.At(r.version), Version: meta.NewVersion(r.IDs)}
	if _, err := r.Meta.Apply(ctx, put); err != nil {
		return false, passed(err)
	}
	r.note, r.version = next, put.Version
	return true, nil
}

// passed makes nothing of a refusal: another is at the same work.
func passed(err error) error {
	if _, refused := meta.AsRefused(err); refused {
		return nil
	}
	return err
}

// again puts the note off by a grace period, for another look.
func (r *removing) again(ctx context.Context) (went bool, err error) {
	next := &meta.Removal{
		Due: r.Clock.Millis().Add(queue.GracePeriod), Topic: r.note.Topic, Name: r.note.Name,
		Subscription: r.note.Subscription, Dead: true,
	}
	_, err = r.Meta.Transact(ctx, []meta.Op{
		meta.Delete{Key: r.note.Key(), If: meta.At(r.version), Kind: meta.KindRemoval},
		meta.PutRemoval(next, r.IDs),
	})
	return err == nil, passed(err)
}

// end finishes a deletion whose caller may have died: no head takes commits, and the name is free.
func (r *removing) end(ctx context.Context) error {
	segments, _, err := r.topic(ctx)
	if err != nil {
		return err
	}
	for _, id := range segments {
		head, _, err := meta.Fetch[*meta.Head](ctx, r.Meta, meta.HeadKey(id))
		if queue.Is(err, queue.KindNotFound) {
			continue
		}
		if err == nil {
			err = r.seal(ctx, head)
		}
		if err != nil {
			return err
		}
	}
	if r.note.Name != "" {
		name, version, err := meta.Fetch[*meta.Name](ctx, r.Meta, meta.NameKey(r.note.Name))
		if err == nil && name.Topic == r.note.Topic {
			_, err = r.Meta.Apply(ctx, meta.Delete{Key: name.Key(), If: meta.At(version), Kind: meta.KindName})
			err = passed(err)
		}
		if err != nil && !queue.Is(err, queue.KindNotFound) {
			return err
		}
	}
	_, err = r.again(ctx)
	return err
}

func (r *removing) seal(ctx context.Context, head *meta.Head) error {
	if head.Sealed {
		return nil
	}
	_, err := r.Meta.Apply(ctx, meta.Seal{Segment: head.Segment, Epoch: head.Epoch})
	return err
}

// topic lists the topic's segments, in order of their ids, and subscriptions.
func (r *removing) topic(ctx context.Context) (segments []queue.SegmentID, subs []*meta.Subscription, err error) {
	items, err := r.query(ctx, meta.Range{PK: meta.TopicPK(r.note.Topic)})
	for _, item := range items {
		switch rec := item.Record.(type) {
		case *meta.Segment:
			segments = append(segments, rec.ID)
		case *meta.Subscription:
			subs = append(subs, rec)
		}
	}
	return segments, subs, err
}

// look removes what it finds; through is false if the time ran out before the end.
func (r *removing) look(ctx context.Context) (through bool, err error) {
	segments, subs, err := r.topic(ctx)
	if err != nil {
		return false, err
	}
	ids := []queue.SubscriptionID{r.note.Subscription}
	if whole := r.note.Subscription == ""; whole {
		ids = ids[:0]
		for _, sub := range subs {
			ids = append(ids, sub.ID)
		}
	}
	for _, id := range segments {
		if id <= r.note.After {
			continue
		}
		if !r.goOn(ctx) {
			return false, nil
		}
		if r.note.Subscription == "" {
			if err := r.segment(ctx, id); err != nil {
				return false, err
			}
		}
		if err := r.cursors(ctx, ids, id); err != nil {
			return false, err
		}
		next := *r.note
		next.After, next.Found = id, next.Found || r.found
		r.note = &next
	}
	if r.note.Subscription != "" {
		return true, nil
	}
	if err := r.delayed(ctx); err != nil {
		return false, err
	}
	var ops []meta.Op
	for _, sub := range subs {
		ops = append(ops, meta.Delete{Key: sub.Key(), Kind: meta.KindSubscription})
	}
	return true, r.remove(ctx, ops)
}

// remove removes records that stand for no bytes.
func (r *removing) remove(ctx context.Context, ops []meta.Op) error {
	for len(ops) > 0 {
		n := min(len(ops), maxRemovals)
		if _, err := r.Meta.Transact(ctx, ops[:n]); err != nil {
			return err
		}
		r.found = true
		ops = ops[n:]
	}
	return nil
}

// drop removes records and notes what their refs owned, in one transaction.
func (r *removing) drop(ctx context.Context, ops []meta.Op, runs []meta.Run) error {
	r.found = true
	if len(runs) > 0 {
		ops = append(ops, meta.PutDrop(r.Clock.Millis(), r.IDs, runs...))
	}
	_, err := r.Meta.Transact(ctx, ops)
	return passed(err) // what another has changed is found again
}

// segment empties a segment: first the tail, so that no roll makes another page, then the pages.
func (r *removing) segment(ctx context.Context, id queue.SegmentID) error {
	head, _, err := meta.Fetch[*meta.Head](ctx, r.Meta, meta.HeadKey(id))
	switch {
	case queue.Is(err, queue.KindNotFound):
	case err != nil:
		return err
	case !head.Sealed:
		r.found = true // its grace period begins now
		return r.seal(ctx, head)
	case len(head.Tail) > 0:
		trim := meta.Trim{Segment: id, First: head.TailFirst, Count: len(head.Tail), Seen: head}
		if err := r.drop(ctx, []meta.Op{trim}, runsOf(nil, head.Tail)); err != nil {
			return err
		}
	}
	for q := meta.PagesFrom(id, 0, maxPages); ; {
		found, err := r.Meta.Query(ctx, q)
		if err != nil {
			return err
		}
		var ops []meta.Op
		var runs []meta.Run
		more := found.More
		for _, item := range found.Items {
			p, ok := item.Record.(*meta.RefPage)
			if !ok {
				continue
			}
			if more = len(ops) > 0 && len(runs)+len(p.Refs) > maxRuns; more {
				break
			}
			more = found.More
			ops = append(ops, meta.Delete{Key: p.Key(), If: meta.At(item.Version), Kind: meta.KindPage})
			runs = runsOf(runs, p.Refs)
			q.From = meta.After(p.Key().SK)
		}
		if len(ops) > 0 {
			err = r.drop(ctx, ops, runs)
		}
		if err != nil || !more || len(ops) == 0 {
			return err
		}
	}
}

func runsOf(runs []meta.Run, refs []meta.Ref) []meta.Run {
	for i := range refs {
		runs = append(runs, refs[i].Owned())
	}
	return runs
}

// cursors removes those of some subscriptions in a segment.
func (r *removing) cursors(ctx context.Context, subs []queue.SubscriptionID, id queue.SegmentID) error {
	var ops []meta.Op
	for _, sub := range subs {
		key := meta.CursorKey(sub, id)
		_, err := r.Meta.Get(ctx, key)
		if queue.Is(err, queue.KindNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		ops = append(ops, meta.Delete{Key: key, Kind: meta.KindCursor})
	}
	return r.remove(ctx, ops)
}

// delayed empties the delayed index.
func (r *removing) delayed(ctx context.Context) error {
	for shard := range queue.DelayShards {
		q := meta.Range{PK: meta.DelayedPK(r.note.Topic, shard), To: meta.DelayedEnd, Limit: lookLimit}
		for {
			page, err := r.Meta.Query(ctx, q)
			if err != nil {
				return err
			}
			if err := r.entries(ctx, page.Items); err != nil {
				return err
			}
			if !page.More {
				break
			}
			q.From = meta.After(page.Items[len(page.Items)-1].Record.Key().SK)
		}
	}
	forwards, err := r.query(ctx, meta.Range{PK: meta.ForwardPK(r.note.Topic)})
	if err != nil {
		return err
	}
	gauges, err := r.query(ctx, meta.Range{PK: meta.GaugePK(r.note.Topic)})
	if err != nil {
		return err
	}
	var ops []meta.Op
	for _, item := range append(forwards, gauges...) {
		ops = append(ops, meta.Delete{Key: item.Record.Key(), Kind: item.Record.Kind()})
	}
	return r.remove(ctx, ops)
}

// entries removes entries of the delayed index, as many at once as the note of what they owned has room for.
func (r *removing) entries(ctx context.Context, items []meta.Item) error {
	var ops []meta.Op
	var runs []meta.Run
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		err := r.drop(ctx, ops, runs)
		ops, runs = nil, nil
		return err
	}
	for _, item := range items {
		d, ok := item.Record.(*meta.Delayed)
		if !ok {
			continue
		}
		waiting := d.Waiting()
		if len(ops) == maxRemovals || len(runs)+len(waiting) > maxRuns {
			if err := flush(); err != nil {
				return err
			}
		}
		op := meta.Op(meta.Delete{Key: d.Key(), If: meta.At(item.Version), Kind: meta.KindDelayed})
		if len(waiting) > maxRuns {
			// An entry that was cut to pieces goes in several: the next look finds the rest.
			op, waiting = r.shorten(d, item.Version, waiting[:maxRuns]), waiting[:maxRuns]
		}
		ops = append(ops, op)
		runs = runsOf(runs, waiting)
	}
	return flush()
}

// shorten marks some refs of an entry as gone.
func (r *removing) shorten(d *meta.Delayed, version meta.Version, refs []meta.Ref) meta.Op {
	last := refs[len(refs)-1]
	upTo := last.First + last.Count - d.Ref.First
	rest := *d
	rest.Gone = make([]uint32, 0, len(d.Slots))
	for i := range upTo {
		rest.Gone = append(rest.Gone, i)
	}
	for _, i := range d.Gone {
		if i >= upTo {
			rest.Gone = append(rest.Gone, i)
		}
	}
	return meta.Put{Record: &rest, If: meta.At(version), Version: meta.NewVersion(r.IDs)}
}

// finish removes what everything else is found by, and the note at the very end.
func (r *removing) finish(ctx context.Context) error {
	if r.note.Subscription == "" {
		segments, _, err := r.topic(ctx)
		if err != nil {
			return err
		}
		for _, id := range segments {
			seg := &meta.Segment{Topic: r.note.Topic, ID: id}
			err := r.remove(ctx, []meta.Op{
				meta.Delete{Key: meta.HeadKey(id), Kind: meta.KindHead},
				meta.Delete{Key: meta.LeaseKey(LeaseName(id)), Kind: meta.KindLease},
				meta.Delete{Key: seg.Key(), Kind: meta.KindSegment},
			})
			if err != nil {
				return err
			}
		}
		if err := r.forget(ctx, &meta.Topic{ID: r.note.Topic}); err != nil {
			return err
		}
	}
	_, err := r.Meta.Apply(ctx, meta.Delete{Key: r.note.Key(), If: meta.At(r.version), Kind: meta.KindRemoval})
	return passed(err)
}
