package compact

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// LeaseName is the lease under which a segment is compacted.
func LeaseName(id queue.SegmentID) string { return "compact/" + string(id) }

// pageItem is a page as it was read.
type pageItem struct {
	page    *meta.RefPage
	version meta.Version
}

// group is pages that follow each other and are replaced together.
type group struct {
	segment queue.SegmentID
	pages   []pageItem
	// bytes and runs are those of the refs that will be moved.
	bytes int64
	runs  int
}

func (g *group) end() queue.Offset { return g.pages[len(g.pages)-1].page.Next() }

// segment compacts the pages of a segment that make full groups. done is false if it has to be looked at
// again though no roll leaves a note: another holds the lease, or the time ran out.
func (s *Service) segment(ctx context.Context, id queue.SegmentID) (total Report, done bool, err error) {
	there := meta.Check{Key: meta.HeadKey(id), If: meta.Present(), Kind: meta.KindHead}
	held, err := s.Lease.Acquire(ctx, LeaseName(id), leaseTTL, there)
	switch {
	case queue.Is(err, queue.KindConflict):
		return total, false, nil
	case queue.Is(err, queue.KindNotFound):
		return total, true, nil // it is gone: the note that led here was late
	}
	if err != nil {
		return total, false, err
	}
	total, done, err = s.groups(ctx, held, id)
	if rerr := held.Release(ctx); err == nil && !queue.Is(rerr, queue.KindFenced) {
		err = rerr
	}
	return total, done, err
}

// groups replaces the full groups of a segment; done is false if another has taken over, or the time ran out.
func (s *Service) groups(ctx context.Context, held *lease.Held, id queue.SegmentID) (total Report, done bool, err error) {
	for held.Valid() && s.goOn(ctx) {
		g, full, err := s.group(ctx, id, queue.Offset(held.Value()))
		if err != nil {
			return total, false, err
		}
		if !full {
			return total, true, nil
		}
		r, err := s.replace(ctx, held, g)
		total.add(r)
		if queue.Is(err, queue.KindFenced) {
			return total, false, nil // another has taken over, and nothing was changed
		}
		if err != nil {
			return total, false, err
		}
	}
	return total, false, nil
}

// group takes pages from an offset on; full says that they make a full object, or are as many as one step
// takes.
func (s *Service) group(ctx context.Context, id queue.SegmentID, from queue.Offset) (g *group, full bool, err error) {
	g = &group{segment: id}
	old := s.Clock.Millis().Add(-s.Age)
	next := from
	for {
		found, err := s.Meta.Query(ctx, meta.PagesFrom(id, next, maxPages-len(g.pages)))
		if err != nil {
			return nil, false, err
		}
		for _, item := range found.Items {
			p, ok := item.Record.(*meta.RefPage)
			if !ok || p.First != next && len(g.pages) > 0 {
				return nil, false, &queue.Error{
					Op: "compact", Subject: item.Record.Key().String(), Kind: queue.KindCorrupt,
					Message: fmt.Sprintf("no page begins at offset %d, where the one before ends", next),
				}
			}
			if p.Rolled > old {
				return g, false, nil
			}
			g.pages = append(g.pages, pageItem{p, item.Version})
			next = p.Next()
			for i := range p.Refs {
				if s.moves(&p.Refs[i]) {
					g.bytes += p.Refs[i].Bytes
					g.runs++
				}
			}
			if g.bytes >= s.TargetBytes || g.runs >= maxRuns || len(g.pages) == maxPages {
				return g, true, nil
			}
		}
		if !found.More {
			return g, false, nil
		}
	}
}

// moves reports whether a ref's bytes are worth moving: a run of a batch that is small, or whose object
// others share. A payload by itself is never copied, nor what is large and alone already. What is not
// known to be owned could not be given back.
func (s *Service) moves(r *meta.Ref) bool {
	switch {
	case r.Kind != meta.RefBatch || r.Total == 0 || r.Bytes >= s.TargetBytes:
		return false
	case r.Count == r.Total && r.Len >= s.TargetBytes/2 && !r.Inline:
		return false
	}
	return true
}

// replace moves the bytes of a group's refs into one new object and puts new pages in the place of the
// old, in one transaction. What a crash leaves before it is an intent, after it a drop.
func (s *Service) replace(ctx context.Context, held *lease.Held, g *group) (Report, error) {
	m, err := s.merge(ctx, held, g)
	if err != nil {
		return Report{}, err
	}
	if len(m.dropped) == 0 {
		return Report{}, held.Commit(ctx, uint64(g.end()))
	}
	intent := meta.PutDrop(s.Clock.Millis(), s.IDs, meta.Run{Object: m.object, Count: m.total, Total: m.total})
	if d, ok := intent.Record.(*meta.Drop); ok {
		d.Intent = true
	}
	if _, err := s.Meta.Apply(ctx, intent); err != nil {
		return Report{}, fmt.Errorf("note the object to come: %w", err)
	}
	terms := blob.Terms{Size: int64(len(m.data)), CRC32C: blob.CRC32C(m.data), HasCRC32C: true}
	if _, err := s.Blob.Put(ctx, m.object, bytes.NewReader(m.data), terms); err != nil {
		return Report{}, fmt.Errorf("put merged object: %w", err)
	}
	m.ops = append(m.ops,
		meta.Delete{Key: intent.Target(), If: meta.At(intent.Version), Kind: meta.KindDrop},
		meta.PutDrop(s.Clock.Millis(), s.IDs, m.dropped...))
	if err := held.Commit(ctx, uint64(g.end()), m.ops...); err != nil {
		return Report{}, err
	}
	return Report{Pages: len(g.pages), NewPages: m.pages, Refs: len(m.dropped), Objects: 1}, nil
}

// merged is what becomes of a group.
type merged struct {
	object  string
	data    []byte
	total   uint32
	dropped []meta.Run
	ops     []meta.Op
	pages   int
}

// merge builds the object and the pages of a group in memory: at most the target and one batch.
func (s *Service) merge(ctx context.Context, held *lease.Held, g *group) (*merged, error) {
	m := &merged{object: fmt.Sprintf("%s%s/%08x-%s", blob.PrefixSegments, g.segment, uint64(held.Epoch()), s.IDs.ID())}
	var moved []*meta.Ref
	pages := make([]*meta.RefPage, len(g.pages))
	for i, item := range g.pages {
		p := *item.page
		p.Refs = append([]meta.Ref(nil), item.page.Refs...)
		pages[i] = &p
		for j := range p.Refs {
			r := &p.Refs[j]
			if !s.moves(r) {
				continue
			}
			was := r.Owned()
			ok, err := s.move(ctx, m, r)
			if err != nil {
				return nil, err
			}
			if ok {
				m.dropped = append(m.dropped, was)
				moved = append(moved, r)
				m.total += r.Count
			}
		}
	}
	for _, r := range moved {
		r.Total = m.total
	}
	m.join(g, pages, s.IDs)
	return m, nil
}

// move appends the run of a ref to the object and makes the ref point there. ok is false if it cannot be
// read and stays as it is.
func (s *Service) move(ctx context.Context, m *merged, r *meta.Ref) (ok bool, err error) {
	data, base, err := s.Log.Data(ctx, r, r.First, r.Count)
	pos := int64(len(m.data))
	var h batch.Header
	if err == nil {
		h, err = batch.ParseHeader(data)
	}
	if err == nil {
		if base == 0 && h.Records == int(r.Count) {
			m.data = append(m.data, data...)
		} else if m.data, err = batch.Slice(m.data, data, int(base), int(r.Count), s.IDs.Nonce()); err == nil {
			h, err = batch.ParseHeader(m.data[pos:])
		}
	}
	switch queue.KindOf(err) {
	case queue.KindNotFound, queue.KindCorrupt, queue.KindInvalid:
		if err != nil {
			s.Logger.LogAttrs(ctx, slog.LevelError, "batch cannot be read and stays where it is",
				slog.String("object", r.Object), slog.Any("error", err))
			m.data = m.data[:pos]
			return false, nil
		}
	}
	if err != nil {
		return false, err
	}
	r.Object, r.Inline, r.Hold = m.object, false, meta.RefID{}
	r.Pos, r.Len, r.First = pos, h.Len(), 0
	r.Prefix, r.CRC, r.HasCRC = uint32(h.PrefixLen()), h.CRC, true // #nosec G115 -- bounded by MaxBatchIndexBytes
	return true, nil
}

// join makes the ops that put as few pages as hold the refs in the place of the old ones. A new page
// begins where an old one did, so that the key of each page that is left over is simply deleted.
func (m *merged) join(g *group, pages []*meta.RefPage, ids *queue.IDs) {
	var buf []byte
	size := func(refs []meta.Ref) (n int) {
		for i := range refs {
			buf = meta.AppendRef(buf[:0], &refs[i])
			n += len(buf)
		}
		return n
	}
	for i := 0; i < len(pages); {
		p := *pages[i]
		bytes := size(p.Refs)
		put := meta.Put{Record: &p, If: meta.At(g.pages[i].version), Version: meta.NewVersion(ids)}
		j := i + 1
		for ; j < len(pages); j++ {
			more := size(pages[j].Refs)
			if len(p.Refs)+len(pages[j].Refs) > maxPageRefs || bytes+more > maxPageBytes {
				break
			}
			p.Refs = append(p.Refs, pages[j].Refs...)
			p.Rolled = max(p.Rolled, pages[j].Rolled)
			bytes += more
			m.ops = append(m.ops, meta.Delete{Key: pages[j].Key(), If: meta.At(g.pages[j].version), Kind: meta.KindPage})
		}
		m.ops = append(m.ops, put)
		m.pages++
		i = j
	}
}
