package scale

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Report is what a run has done.
type Report struct {
	// Led: there was something to look at, and this process was the leader.
	Led bool
	// Topics is how many topics were looked at, Splits and Merges the changes made, Hot the findings.
	Topics, Splits, Merges, Hot int
	// Watched is how many topics are still watched, HotSegments how many of their segments are hot now.
	Watched, HotSegments int
}

// Run looks once at every topic that is watched and changes what its load asks for. Where nothing is watched
// it costs one query. Any number of processes may run it at once: one leads, the others report Led false. It
// stops between two changes when ctx ends; the next run goes on.
//
// Errors are joined: a topic that fails does not keep others from being looked at. Fenced if another took
// the lease.
func (s *Service) Run(ctx context.Context) (Report, error) {
	var rep Report
	watches, err := s.watches(ctx)
	if err != nil || len(watches) == 0 {
		return rep, err
	}
	held, err := s.lead(ctx)
	if err != nil {
		if queue.Is(err, queue.KindConflict) {
			return rep, nil
		}
		return rep, err
	}
	rep.Led = true
	l := &leader{Service: s, held: held, rep: &rep, events: held.Value()}
	var errs []error
	for _, w := range watches {
		if ctx.Err() != nil || !l.holds(ctx) {
			break
		}
		rep.Topics++
		if err := l.look(ctx, w); err != nil {
			errs = append(errs, err)
		}
	}
	if err := l.trim(ctx); err != nil {
		errs = append(errs, err)
	}
	if err := held.Release(ctx); err != nil && !queue.Is(err, queue.KindFenced) && !errors.Is(err, context.Canceled) {
		errs = append(errs, err)
	}
	return rep, errors.Join(errs...)
}

type watch struct {
	*meta.Watch
	version meta.Version
}

func (s *Service) watches(ctx context.Context) ([]watch, error) {
	var out []watch
	q := meta.Range{PK: meta.WatchPK, Limit: meta.MaxQueryLimit}
	for {
		page, err := s.Meta.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			if w, ok := item.Record.(*meta.Watch); ok {
				out = append(out, watch{w, item.Version})
			}
			q.From = meta.After(item.Record.Key().SK)
		}
		if !page.More {
			return out, nil
		}
	}
}

// lead takes the leader's lease. A process that has just begun cannot know whether the holder still lives.
func (s *Service) lead(ctx context.Context) (*lease.Held, error) {
	end := s.Clock().Add(s.Patience)
	for {
		held, err := s.Lease.Acquire(ctx, leaderLease, LeaderTTL)
		var e *queue.Error
		if err == nil || !queue.Is(err, queue.KindConflict) || !errors.As(err, &e) || !s.Clock().Before(end) {
			return held, err
		}
		const look = 500 * time.Millisecond
		t := time.NewTimer(min(max(e.RetryAfter, 10*time.Millisecond), look))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, err
		case <-t.C:
		}
	}
}

// leader is one run under the lease.
type leader struct {
	*Service
	held *lease.Held
	rep  *Report
	// events counts the events put since the oldest were last removed.
	events uint64
}

// holds renews the lease where it has grown old, and says whether it is held.
func (l *leader) holds(ctx context.Context) bool {
	return l.held.Valid() || l.held.Commit(ctx, l.events) == nil
}

// write makes a transaction under the lease.
func (l *leader) write(ctx context.Context, ops []meta.Op) error {
	err := l.held.Commit(ctx, l.events+1, ops...)
	if err == nil {
		l.events++
	}
	return err
}

// look measures a topic, changes what is to be changed, and keeps what it has found out.
func (l *leader) look(ctx context.Context, w watch) error {
	m, err := l.Topics.OpenID(ctx, w.Name, w.Topic)
	if queue.Is(err, queue.KindNotFound) {
		return l.dismiss(ctx, w, nil)
	}
	if err != nil {
		l.rep.Watched++
		return err
	}
	b, err := l.open(ctx, m)
	if err != nil {
		l.rep.Watched++
		return err
	}
	st := State{Policy: l.Topics.Policy(m), Open: b.measures, Now: b.now}
	if b.now.Sub(w.Pressed) < pressedFor {
		st.Pressed = w.Pressed
	}
	decisions := Decide(st)
	b.cool(st)
	if len(decisions) == 0 && calm(st) && b.now.Sub(w.Put) >= watchFor {
		return l.dismiss(ctx, w, b)
	}
	l.rep.Watched++
	var failed error
	for _, d := range decisions {
		if ctx.Err() != nil || !l.holds(ctx) {
			break
		}
		if m, err = l.carryOut(ctx, m, b, d); err != nil {
			failed = err
			break // what is left was worked out from a map that may be old; the next run looks again
		}
	}
	l.rep.HotSegments += b.countHot()
	return errors.Join(failed, l.keep(ctx, b))
}

// carryOut makes one decision come true, and gives the map after it.
func (l *leader) carryOut(ctx context.Context, m *topics.Map, b *board, d Decision) (*topics.Map, error) {
	event := &meta.Event{Action: d.Action, By: l.held.Epoch(), Reason: d.Reason}
	parents := make([]*meta.Segment, len(d.Segments))
	for i := range d.Segments {
		parents[i] = d.Segments[i].Segment
	}
	if d.Action == meta.ActionHot {
		l.rep.Hot++
		err := l.note(ctx, m, event, parents)
		if err == nil {
			b.hot(parents[0].ID)
		}
		return m, err
	}
	c := l.newChange(m, event, parents, d.Ranges)
	after, err := l.commit(ctx, c, l.write)
	if err != nil {
		return m, err
	}
	b.replace(d.Segments, c.children)
	if d.Action == meta.ActionSplit {
		l.rep.Splits++
	} else {
		l.rep.Merges++
	}
	return after, nil
}

// dismiss ends the watch on a topic: unless it was put anew since it was read.
func (l *leader) dismiss(ctx context.Context, w watch, b *board) error {
	if b != nil {
		if err := l.clear(ctx, b); err != nil {
			return err
		}
	}
	_, err := l.Meta.Apply(ctx, meta.Delete{Key: w.Key(), If: meta.At(w.version), Kind: meta.KindWatch})
	if _, refused := meta.AsRefused(err); refused {
		return nil
	}
	return err
}
