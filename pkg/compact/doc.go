// Package compact is the use case that keeps the object store in order: it merges the small batches
// behind a segment's pages into large objects, and deletes what no ref reaches any more.
//
// Vocabulary: a group is the pages that one step replaces; a drop is the note of refs that became
// unreachable; a run is what one ref owned; an intent is a drop written before its object, and taken
// back by the transaction that makes the object reachable; a hold keeps an object for refs that share it
// with its owners; the grace period is the time between the drop and the deletion.
//
// Invariants (docs/decisions/0007 has the reasons):
//   - Every record of an object has at most one owner. What is dropped is noted in the transaction that
//     drops it, so a crash loses nothing: any later run goes on from the notes.
//   - Pages change in one transaction, which is conditional on all of them and on the lease of the
//     segment. A run that lost its lease changes nothing.
//   - An object is deleted when all that own it were dropped a grace period ago and no hold is left. A
//     new ref to shared bytes is made only in a transaction that finds an owner in its place.
//   - Merging moves bytes and nothing else: offsets, ids, times and headers stay as they are.
//
// Work is found by an index (meta.WorkPK): an idle system costs one query a run.
//
// Non-goals, for now: retention, latest-per-key, Parquet, joining batches into one.
package compact

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

const (
	defaultTarget = 8 << 20
	// maxPages bounds the pages of one group: each is an op of the transaction.
	maxPages = 64
	// maxRuns bounds the refs that one group drops: they are noted in one record.
	maxRuns = 1500
	// maxPageRefs and maxPageBytes bound a page made of several.
	maxPageRefs  = 256
	maxPageBytes = 64 << 10
	// leaseTTL is how long a segment waits for a compactor that died.
	leaseTTL = 2 * time.Minute
	// lastStep is the time a run keeps back from its budget: about what one step takes.
	lastStep = 10 * time.Second
	// lookLimit is the number of small records or objects listed at once; workLimit that of work, as
	// the note of a large drop may take 200 KB.
	lookLimit = 100
	workLimit = 16
	// tombstone is how long it is remembered that an upload was removed.
	tombstone = 7 * 24 * time.Hour
)

// Deps are what a Service stands on. Meta, Blob, Log, Lease, IDs, Clock and Logger are required.
type Deps struct {
	Meta meta.Store
	Blob blob.Store
	// Log reads the batches that are merged; it should have a small cache of its own.
	Log    *segment.Log
	Lease  *lease.Keeper
	IDs    *queue.IDs
	Clock  queue.Clock
	Logger *slog.Logger
	Tuning
}

// Service compacts. Safe for concurrent use; any number may work on the same stores.
type Service struct {
	Deps
}

// New makes a Service.
func New(d Deps) *Service {
	d.Tuning = d.defaults()
	return &Service{d}
}

// Report says what a run has done.
type Report struct {
	// Pages and Refs were replaced by NewPages, whose bytes lie in Objects new objects.
	Pages, NewPages, Refs, Objects int
	// Deleted objects and payload records.
	Deleted int
	// Removed topics, and ids of subscriptions, of which nothing is left.
	Removed int
}

func (r *Report) add(o Report) {
	r.Pages += o.Pages
	r.NewPages += o.NewPages
	r.Refs += o.Refs
	r.Objects += o.Objects
	r.Deleted += o.Deleted
	r.Removed += o.Removed
}

// Run does what is due, until nothing is or the time of ctx is about to run out: then it stops cleanly,
// and the next run goes on. It goes on after a failure; the errors are joined.
func (s *Service) Run(ctx context.Context) (Report, error) {
	var total Report
	var errs []error
	due := s.horizon(s.Clock.Millis())
	q := meta.Range{PK: meta.WorkPK(0), To: meta.WorkSK(due+1, ""), Limit: workLimit}
	looked := make(map[queue.SegmentID]bool)
	for {
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return total, errors.Join(append(errs, err)...)
		}
		for i := range page.Items {
			if !s.goOn(ctx) {
				return total, errors.Join(errs...)
			}
			r, err := s.step(ctx, &page.Items[i], looked)
			total.add(r)
			if err != nil {
				errs = append(errs, err)
			}
			q.From = meta.After(page.Items[i].Record.Key().SK)
		}
		if !page.More {
			return total, errors.Join(errs...)
		}
	}
}

// goOn reports whether the budget has time for one more step.
func (s *Service) goOn(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	end, ok := ctx.Deadline()
	return !ok || time.Until(end) > lastStep
}

func (s *Service) step(ctx context.Context, item *meta.Item, looked map[queue.SegmentID]bool) (Report, error) {
	switch r := item.Record.(type) {
	case *meta.Work:
		done, known := looked[r.Segment]
		var report Report
		if !known {
			var err error
			if report, done, err = s.segment(ctx, r.Segment); err != nil {
				return report, err
			}
			looked[r.Segment] = done
		}
		if !done {
			return report, nil // another is at it, or the time ran out: the note stays
		}
		// A later roll leaves a note of its own, due later.
		_, err := s.Meta.Apply(ctx, meta.Delete{Key: r.Key(), Kind: r.Kind()})
		return report, err
	case *meta.Drop:
		n, err := s.drop(ctx, r, item.Version)
		return Report{Deleted: n}, err
	case *meta.Removal:
		n, err := s.removal(ctx, r, item.Version)
		return Report{Removed: n}, err
	}
	return Report{}, &queue.Error{
		Op: "compact", Subject: item.Record.Key().String(), Kind: queue.KindCorrupt,
		Message: "a record of another kind is in the work index",
	}
}
