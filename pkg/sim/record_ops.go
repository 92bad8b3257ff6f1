package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// recordedActions are ops of recorded runs alone: the history of any other stays as its seed made it.
var recordedActions = []action{
	{"tail", 10, false, (*workload).tail},
	{"name", 12, false, (*workload).nameOp},
	{"name-subscription", 16, false, (*workload).subscriptionName},
	{"hold", 6, false, (*workload).hold},
}

// tail reads a segment's end: what a client knows least of.
func (l *workload) tail() bool {
	t := pick(l, l.topics)
	id := l.topicID(t.name)
	var logs []*segmentLog
	for _, s := range l.w.model.order {
		if log := l.w.model.logs[s]; log.topic == id && id != "" {
			logs = append(logs, log)
		}
	}
	if len(logs) == 0 {
		return false
	}
	log := pick(l, logs)
	from := max(0, len(log.msgs)-l.w.rng.IntN(pageRecords/4))
	l.recordsFrom(t, log, queue.Offset(from), nil) // #nosec G115 -- small
	return true
}

// readOn reads all segments of all topics, each to its end. Nothing fails any more: a read that does is a finding, as without it
// the history would be shorter.
func (w *world) readOn() {
	for _, t := range w.load.topics {
		id := w.load.topicID(t.name)
		for _, s := range w.model.order {
			log := w.model.logs[s]
			for from := 0; log.topic == id && id != "" && from <= len(log.msgs); from += pageRecords / 4 {
				w.load.recordsFrom(t, log, queue.Offset(from), func(err error) { // #nosec G115 -- small
					w.find("read", "nothing fails any more, and a read of %s from %d does: %v", log.id, from, err)
				})
				w.idle()
			}
		}
	}
}

// hold takes a lease, commits under it now and then, trusts in it meanwhile, and gives it up or forgets it.
func (l *workload) hold() bool {
	rng := l.w.rng
	inst := l.instance()
	if inst.keeper == nil {
		inst.keeper = lease.New(&metaNet{l.w.net, inst}, l.w.ids.ids(), l.w.clock(inst.skew))
	}
	s := &stint{
		rec: l.w.rec.rec, yield: l.w.yield, keeper: inst.keeper, client: inst.number,
		name: fmt.Sprintf("l%d", rng.IntN(2)), ttl: time.Duration(4+rng.IntN(16)) * time.Second,
		tries: 1 + rng.IntN(4), commits: rng.IntN(4), pause: time.Duration(rng.IntN(6000)) * time.Millisecond, forgets: rng.IntN(2) == 0,
		value: uint64(l.w.opCount) * 10, // #nosec G115 -- not negative
	}
	l.w.begin(inst, fmt.Sprintf("hold %s for %s, %d commits", s.name, s.ttl, s.commits), s.run, func(o *op) { o.said = s.said })
	return true
}

// stint is one time that a keeper holds a lease.
type stint struct {
	rec *history.Recorder
	// yield waits for the baton: the times of what is recorded must not depend on who runs first.
	yield  func()
	keeper *lease.Keeper
	client int
	name   string
	ttl    time.Duration
	// tries is how often it asks at most, waiting as it is told; commits and pause are what it does then.
	tries, commits int
	pause          time.Duration
	forgets        bool
	value          uint64
	said           string
}

func (s *stint) run(ctx context.Context) {
	step := history.Lease{Span: history.Span{Client: s.client}, Name: s.name, Kind: history.Acquire, TTL: s.ttl}
	var held *lease.Held
	for range s.tries {
		p := s.begin(step)
		var err error
		held, err = s.keeper.Acquire(ctx, s.name, s.ttl)
		s.end(p, func(op *history.Lease) {
			if op.Answer = answered(err, queue.CodeConflict); err == nil {
				op.Epoch, op.Value = uint64(held.Epoch()), held.Value()
			}
		})
		var e *queue.Error
		if err == nil || !errors.As(err, &e) || e.RetryAfter == 0 {
			break
		}
		pause(ctx, e.RetryAfter)
	}
	if s.said = "not taken"; held == nil {
		return
	}
	step.Epoch, s.said = uint64(held.Epoch()), fmt.Sprintf("epoch %d", held.Epoch())
	for i := range s.commits + 1 {
		s.trust(held, step)
		if i == s.commits {
			break
		}
		step.Kind, step.Value = history.Commit, s.value+uint64(i) // #nosec G115 -- small
		p := s.begin(step)
		err := held.Commit(ctx, step.Value)
		s.end(p, func(op *history.Lease) { op.Answer = answered(err, queue.CodeFenced) })
		if err != nil && !queue.Retryable(err) || uncertain(err) {
			return // it is not to be used any more
		}
		pause(ctx, s.pause)
	}
	if s.forgets {
		return
	}
	step.Kind = history.GiveUp
	p := s.begin(step)
	err := held.Release(ctx)
	s.end(p, func(op *history.Lease) { op.Answer = answered(err, queue.CodeFenced) })
}

func (s *stint) begin(step history.Lease) *history.Pending[history.Lease] {
	s.yield()
	return s.rec.Lease(step)
}

func (s *stint) end(p *history.Pending[history.Lease], fill func(*history.Lease)) {
	s.yield()
	p.End(fill)
}

// pause lets time pass for an op that may be cancelled.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// trust takes down that a holder trusts in its lease, if it does.
func (s *stint) trust(held *lease.Held, step history.Lease) {
	step.Kind = history.Trust
	p := s.begin(step)
	trusts := held.Valid()
	s.end(p, func(op *history.Lease) {
		if op.Answer = history.Void; trusts {
			op.Answer = history.OK
		}
	})
}
