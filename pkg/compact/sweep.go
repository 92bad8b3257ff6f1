package compact

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The walks, by the names of their progress.
const (
	walkUploads = "uploads"
	walkOrphans = "orphans"
)

// Sweep removes what has no owner and no note: uploads that nobody has submitted for Deps.UploadAge, and
// what crashed calls left: objects, payload records, and holds on uploads. It goes on where the last call
// stopped, ends when it is through or the time of ctx is about to run out, and begins anew a quarter of
// UploadAge later. While nothing is due it costs one read.
func (s *Service) Sweep(ctx context.Context) (deleted int, err error) {
	found, err := s.Meta.Query(ctx, meta.Range{PK: meta.ProgressPK, Limit: lookLimit})
	if err != nil {
		return 0, err
	}
	have := make(map[string]*meta.Progress)
	for _, item := range found.Items {
		if p, ok := item.Record.(*meta.Progress); ok {
			have[p.Name] = p
		}
	}
	n, err := s.walk(ctx, walkUploads, have, s.sweepUploads)
	m, merr := s.walk(ctx, walkOrphans, have, s.sweepOrphans)
	return n + m, errors.Join(err, merr)
}

// walk takes steps until one says that it was the last. A step moves After on; what the last one leaves
// there is what the next walk begins with.
func (s *Service) walk(ctx context.Context, name string, have map[string]*meta.Progress, step func(context.Context, *meta.Progress) (int, bool, error)) (deleted int, err error) {
	next := &meta.Progress{Name: name}
	now := s.Clock.Millis()
	if p := have[name]; p != nil {
		if p.Again > now {
			return 0, nil
		}
		next.After = p.After
	}
	for s.goOn(ctx) {
		n, more, err := step(ctx, next)
		deleted += n
		if err != nil {
			return deleted, err
		}
		if !more {
			next.Again = now.Add(s.UploadAge / 4)
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
	if !page.More {
		p.After = ""
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
