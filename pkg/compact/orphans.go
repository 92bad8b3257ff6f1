package compact

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// maxCandidates bounds what one trace looks for.
	maxCandidates = 20_000
	// orphanAge is how old something is before it can be an orphan: no commit is tried that long after
	// its bytes were put, and no note of what was dropped is older than the trace by as much.
	orphanAge = 2 * queue.GracePeriod
	// fullEvery is how often everything is looked at, and not only what has come of age since the last
	// walk: then what a writer put under an old time is found, too.
	fullEvery = 7 * 24 * time.Hour
)

// orphanWalk is how far the walk over orphans is. Each payload record, object and held upload is judged
// once, when it comes of age: whose time is in [since, until). (Uploads come of age later by UploadAge,
// the time that they have to be submitted.)
type orphanWalk struct {
	since, until queue.Millis
	// full is when everything was looked at last.
	full queue.Millis
	// phase is the number of a shard of payload records, or one of the two below; after is where in it
	// to go on. phaseDone is between two walks.
	phase int
	after string
}

const (
	phaseBatches = meta.PayloadShards + iota
	phaseUploads
	phaseDone
)

func (w *orphanWalk) String() string {
	return fmt.Sprintf("%d/%d/%d/%d/%s", w.since, w.until, w.full, w.phase, w.after)
}

// begin reads where the last step has come to, or begins a new walk.
func (w *orphanWalk) begin(from string, now queue.Millis) {
	w.phase = phaseDone
	parts := strings.SplitN(from, "/", 5)
	if len(parts) == 5 {
		if _, err := fmt.Sscan(strings.Join(parts[:4], " "), &w.since, &w.until, &w.full, &w.phase); err != nil {
			*w = orphanWalk{phase: phaseDone}
		} else {
			w.after = parts[4]
		}
	}
	if w.phase != phaseDone {
		return
	}
	w.since, w.until, w.phase, w.after = w.until, now.Add(-orphanAge), 0, ""
	if now.Sub(w.full) >= fullEvery {
		w.since, w.full = 0, now
	}
}

// sweepOrphans takes one step of the walk: as many candidates as one trace looks for.
func (s *Service) sweepOrphans(ctx context.Context, p *meta.Progress) (int, bool, error) {
	var w orphanWalk
	w.begin(p.After, s.Clock.Millis())
	t := &trace{Service: s, left: make(map[object]*candidate), topics: make(map[queue.TopicID]bool)}
	for w.phase < phaseDone && len(t.left) < maxCandidates {
		if !s.goOn(ctx) {
			return 0, false, outOfTime()
		}
		next, err := s.candidates(ctx, &w, t)
		if err != nil {
			return 0, false, err
		}
		if w.after = next; next == "" {
			w.phase++
		}
	}
	n := 0
	if len(t.left) > 0 {
		if err := t.all(ctx); err != nil {
			return 0, false, err
		}
		var err error
		if n, err = t.judge(ctx); err != nil {
			return n, false, err
		}
	}
	p.After = w.String()
	return n, w.phase < phaseDone, nil
}

func outOfTime() error {
	return &queue.Error{Op: "look for orphans", Kind: queue.KindCanceled, Message: "the time ran out; the next run goes on"}
}

// candidates lists one page of what has come of age; next is "" at the end of the phase.
func (s *Service) candidates(ctx context.Context, w *orphanWalk, t *trace) (next string, err error) {
	if w.phase < phaseBatches {
		q := meta.PayloadsOf(w.phase, w.since, w.until, meta.MaxQueryLimit)
		if w.after != "" {
			q.From = meta.After(w.after)
		}
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return "", err
		}
		for _, item := range page.Items {
			next = item.Record.Key().SK
			if at, ok := meta.PayloadTime(next); ok {
				t.add(object{next, true}, at)
			}
		}
		if !page.More {
			next = ""
		}
		return next, nil
	}
	prefix, later := blob.PrefixBatches, time.Duration(0)
	if w.phase == phaseUploads {
		prefix, later = blob.PrefixUploads, s.UploadAge
	}
	page, err := s.Blob.List(ctx, prefix, w.after, queue.MaxPageSize)
	if err != nil {
		return "", err
	}
	for _, info := range page.Objects {
		next = info.Key
		if at := queue.MillisOf(info.Modified); at.Add(later) >= w.since && at.Add(later) < w.until {
			t.add(object{key: info.Key}, at)
		}
	}
	if !page.More {
		next = ""
	}
	return next, nil
}

// judge deletes those candidates that nobody owns, and takes back what of the others nobody owns either:
// a call that died between two segments leaves bytes that have fewer owners than their refs say.
func (t *trace) judge(ctx context.Context) (deleted int, err error) {
	var orphans []object
	var missing []meta.Run
	flush := func() error {
		if len(missing) == 0 {
			return nil
		}
		_, err := t.Meta.Apply(ctx, meta.PutDrop(t.Clock.Millis(), t.IDs, missing...))
		missing = nil
		return err
	}
	for _, o := range slices.SortedFunc(maps.Keys(t.left), object.compare) {
		c := t.left[o]
		if c.complete() && !o.upload() {
			continue // and most are
		}
		n, err := t.notes(ctx, o)
		if err != nil {
			return 0, err
		}
		for _, f := range n.freed {
			c.meet(&f.Run)
		}
		switch {
		case o.upload():
			missing = append(missing, c.holdsWithout(o, n, t.Clock.Millis().Add(-orphanAge))...)
		case c.owners[""] == nil && len(n.holds) == 0:
			orphans = append(orphans, o)
		default:
			missing = append(missing, c.without(o, "", 0)...)
		}
		if len(missing) >= maxRuns/2 {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	if err := flush(); err != nil {
		return 0, err
	}
	return t.discard(ctx, orphans)
}

// candidate is something that may be an orphan, and what is known to be owned of it.
type candidate struct {
	owners map[string]*account
}

// account is what refs own of an object, under one hold or under none.
type account struct {
	total uint32
	// unknown: a ref does not say what it owns.
	unknown bool
	// runs are the records that have owners, by the position of their batch: ascending, disjoint.
	runs map[int64][]span
}

type span struct{ lo, hi uint32 }

// meet takes note of a run that has an owner, or had one that gave it up.
func (c *candidate) meet(r *meta.Run) {
	a := c.owners[r.Hold]
	if a == nil {
		a = &account{runs: make(map[int64][]span)}
		c.owners[r.Hold] = a
	}
	a.total = max(a.total, r.Total)
	a.unknown = a.unknown || r.Total == 0
	a.runs[r.Pos] = join(a.runs[r.Pos], span{r.First, r.First + r.Count})
}

// join adds a span to others; what overlaps becomes one.
func join(spans []span, s span) []span {
	out := spans[:0:0]
	for _, o := range spans {
		switch {
		case o.hi < s.lo, o.lo > s.hi:
			out = append(out, o)
		default:
			s.lo, s.hi = min(s.lo, o.lo), max(s.hi, o.hi)
		}
	}
	return append(out, s)
}

func (a *account) count() (n uint32) {
	for _, spans := range a.runs {
		for _, s := range spans {
			n += s.hi - s.lo
		}
	}
	return n
}

// complete reports whether all owners that a candidate should have are known.
func (c *candidate) complete() bool {
	a := c.owners[""]
	return a != nil && (a.unknown || a.count() >= a.total)
}

// lostPos is the position of the runs that stand for records whose owners never came to be.
const lostPos = -1

// without gives a run for the records that should have owners under a hold and have none. total is what
// the hold says, 0 if only the refs do.
func (c *candidate) without(o object, hold string, total uint32) []meta.Run {
	a := c.owners[hold]
	if a == nil {
		a = &account{}
	}
	total = max(total, a.total)
	if a.unknown || a.count() >= total {
		return nil
	}
	first := uint32(0)
	for _, s := range a.runs[lostPos] {
		first = max(first, s.hi)
	}
	return []meta.Run{{Object: o.key, Inline: o.inline, Hold: hold, Pos: lostPos, First: first, Count: total - a.count(), Total: total}}
}

// holdsWithout does so for each hold on an upload that is older than old.
func (c *candidate) holdsWithout(o object, n *notes, old queue.Millis) (out []meta.Run) {
	for _, id := range slices.Sorted(maps.Keys(n.holds)) {
		if h := n.holds[id]; h.Created < old {
			out = append(out, c.without(o, id, h.Total)...)
		}
	}
	return out
}
