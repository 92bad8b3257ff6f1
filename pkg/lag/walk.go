package lag

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// walk is where the walk over all places is.
type walk struct {
	// after is the last topic that it is through with, skip how many places of the next one.
	after string
	skip  int
	// began is when the walk under way began, ended when the last complete one had: that one saw all
	// that was appended before. 0 for none.
	began, ended queue.Millis
}

// run is one run of a Service.
type run struct {
	*Service
	// opened are the topics that this run has read; nil for one that is gone.
	opened map[string]*topics.Map
	// counted are the topics that count as looks of the walk.
	counted map[string]bool
	// seen are the places that it has looked at.
	seen map[place]bool
	errs []error
}

// maxErrors bounds what a run reports: what fails mostly fails everywhere, for one reason.
const maxErrors = 3

func (r *run) note(err error) {
	if err != nil && len(r.errs) < maxErrors {
		r.errs = append(r.errs, err)
	}
}

func (r *run) err() error { return errors.Join(r.errs...) }

// again looks at the places that are not settled: those first that wait longest, then those whose
// messages are in flight or to be tried again later.
func (r *run) again(ctx context.Context) {
	since := func(p place) queue.Millis {
		if at := r.open[p].oldest; at != 0 {
			return at
		}
		return math.MaxInt64
	}
	open := slices.SortedFunc(maps.Keys(r.open), func(a, b place) int {
		return cmp.Or(cmp.Compare(since(a), since(b)), cmp.Compare(r.open[a].looked, r.open[b].looked),
			cmp.Compare(a.seg, b.seg), cmp.Compare(a.sub, b.sub))
	})
	for _, p := range open[:min(len(open), maxLooks)] {
		if ctx.Err() != nil {
			return
		}
		st := r.open[p]
		m, err := r.topic(ctx, st.topic)
		if err != nil {
			r.note(err)
			continue
		}
		var sub *meta.Subscription
		var seg *meta.Segment
		if m != nil {
			sub, seg = m.Subscriptions[st.sub], m.Segment(p.seg)
		}
		if sub == nil || seg == nil || sub.ID != p.sub {
			r.forget(p) // gone, or moved by a seek: the walk finds what there is now
			continue
		}
		r.look(ctx, m, sub, seg)
	}
}

// goOn takes the walk on by up to looks places. One that it found under way it brings to its end, and then
// begins another, so that a run with looks enough comes by everywhere.
func (r *run) goOn(ctx context.Context, looks int, now queue.Millis) {
	w := &r.walk
	underWay := w.after != "" || w.skip != 0
	if !underWay {
		w.began = now
	}
	for looks > 0 {
		listed, more, err := r.Topics.List(ctx, "", w.after, min(looks, queue.MaxPageSize))
		if err != nil {
			r.note(err)
			return
		}
		for i := range listed {
			if !r.walkTopic(ctx, listed[i].Name, &looks) {
				return
			}
			w.after, w.skip = listed[i].Name, 0
		}
		if more != "" {
			continue
		}
		w.after, w.ended = "", w.began
		if !underWay {
			return
		}
		underWay, w.began = false, now
	}
}

// walkTopic looks at the places of a topic from walk.skip on; false if it did not come to their end. A
// topic that cannot be read is passed over, or the walk would never get past it.
func (r *run) walkTopic(ctx context.Context, name string, looks *int) bool {
	if *looks <= 0 || ctx.Err() != nil {
		return false
	}
	m, err := r.topic(ctx, name)
	if err != nil {
		r.note(err)
		return true
	}
	if m == nil {
		return true
	}
	if !r.counted[name] {
		r.counted[name] = true
		*looks-- // for opening it
	}
	names := slices.Sorted(maps.Keys(m.Subscriptions))
	for ; r.walk.skip < len(names)*len(m.Segments); r.walk.skip++ {
		if *looks <= 0 || ctx.Err() != nil {
			return false
		}
		sub := m.Subscriptions[names[r.walk.skip/len(m.Segments)]]
		if r.look(ctx, m, sub, m.Segments[r.walk.skip%len(m.Segments)]) {
			*looks--
		}
	}
	return true
}

// topic opens a topic once a run; nil if it is gone.
func (r *run) topic(ctx context.Context, name string) (*topics.Map, error) {
	if m, ok := r.opened[name]; ok {
		return m, nil
	}
	m, err := r.Topics.Open(ctx, name)
	if err != nil && !queue.Is(err, queue.KindNotFound) {
		return nil, err
	}
	r.opened[name] = m
	return m, nil
}

// look looks at a place, unless that was done in this run or would show nothing new; true if it did.
func (r *run) look(ctx context.Context, m *topics.Map, sub *meta.Subscription, seg *meta.Segment) bool {
	p := place{sub.ID, seg.ID}
	st := r.known[p]
	if r.seen[p] || st != nil && st.ended {
		return false
	}
	r.seen[p] = true
	if st == nil {
		st = &state{topic: m.Name, sub: sub.Name}
	}
	b, err := r.Backlogs.Backlog(ctx, sub, seg, st.settled)
	switch {
	case queue.Is(err, queue.KindNotFound):
		r.forget(p) // the topic was deleted meanwhile
		return true
	case err != nil:
		r.note(err)
		return true
	}
	if len(r.known) >= maxKnown {
		clear(r.known)
		clear(r.open)
	}
	st.settled, st.ended, st.oldest, st.looked = 0, b.Settled && b.Sealed, b.Oldest, r.runs
	if b.Settled {
		st.settled = b.End
	}
	r.known[p] = st
	if b.Settled {
		delete(r.open, p)
	} else {
		r.open[p] = st
	}
	return true
}

func (s *Service) forget(p place) {
	delete(s.known, p)
	delete(s.open, p)
}
