package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// The ops that change segments: by hand, and as the leader, of which any number may run at once.

// scaling draws a topic's policy: targets so low that the leader acts within a short run.
func (l *workload) scaling(c *topics.Config) {
	rng := l.w.rng
	if l.w.off("scaling") || rng.IntN(2) == 0 {
		return
	}
	c.TargetMessages = int64(1 + rng.IntN(3))
	if rng.IntN(2) == 0 {
		c.MaxSegments = c.MinSegments + rng.IntN(6)
	}
}

// openOf are the open segments of the topic that a name leads to in the truth, by slot range.
func (l *workload) openOf(name string) []*meta.Segment { return l.w.model.open(l.topicID(name)) }

func (l *workload) split() bool {
	t := pick(l, l.topics)
	open := l.openOf(t.name)
	if len(open) == 0 {
		return false
	}
	rng := l.w.rng
	seg := pick(l, open)
	req := scale.SplitRequest{Topic: t.name, Segment: seg.ID}
	switch n := int(seg.Range.Len()); {
	case n > 1 && rng.IntN(3) == 0:
		req.At = []queue.Slot{queue.Slot(seg.Range.Lo + 1 + uint32(rng.IntN(n-1)))} // #nosec G115 -- within the range
	case rng.IntN(2) == 0:
		req.Into = 2 + rng.IntN(3)
	}
	l.byHand(fmt.Sprintf("split %s %s %v into %d at %v", t.name, seg.ID, seg.Range, req.Into, req.At),
		func(ctx context.Context, inst *instance) (scale.Planned, error) {
			return inst.system.Scale.Split(ctx, req)
		})
	return true
}

func (l *workload) merge() bool {
	t := pick(l, l.topics)
	open := l.openOf(t.name)
	if len(open) < 2 {
		return false
	}
	rng := l.w.rng
	n := 2 + rng.IntN(min(len(open), 4)-1)
	i := rng.IntN(len(open) - n + 1)
	req := scale.MergeRequest{Topic: t.name}
	for _, seg := range open[i : i+n] {
		req.Segments = append(req.Segments, seg.ID)
	}
	l.byHand(fmt.Sprintf("merge %s %v", t.name, req.Segments), func(ctx context.Context, inst *instance) (scale.Planned, error) {
		return inst.system.Scale.Merge(ctx, req)
	})
	return true
}

// byHand makes a change as an operator, and holds the answer against the truth.
func (l *workload) byHand(what string, do func(context.Context, *instance) (scale.Planned, error)) {
	inst := l.instance()
	var p scale.Planned
	var err error
	l.w.begin(inst, what, func(ctx context.Context) {
		p, err = do(ctx, inst)
	}, func(o *op) {
		l.said(o, err)
		if err != nil || o.killed {
			return
		}
		o.said = fmt.Sprintf("made %v of %v", p.Made, p.Ranges)
		for i, id := range p.Made {
			if seg := l.w.model.segments[id]; seg == nil || seg.Range != p.Ranges[i] {
				l.w.find("change", "%s says that it made %s of %v, and it did not", o.label, id, p.Ranges[i])
			}
		}
	})
}

// lead runs the leader once, in whatever process.
func (l *workload) lead() bool {
	inst := l.instance()
	var rep scale.Report
	var err error
	l.w.begin(inst, "lead", func(ctx context.Context) {
		rep, err = inst.system.Scale.Run(ctx)
	}, func(o *op) {
		if l.said(o, err); o.killed {
			return
		}
		o.said += fmt.Sprintf(" %+v", rep)
		for what, n := range map[string]int{"leader splits": rep.Splits, "leader merges": rep.Merges, "leader finds hot": rep.Hot} {
			if n > 0 {
				l.w.result.Counts[what] += n
			}
		}
	})
	return true
}

// rescale changes a topic's bounds, which the leader then acts on.
func (l *workload) rescale() bool {
	t := pick(l, l.topics)
	least := 1 + l.w.rng.IntN(3)
	most := least + l.w.rng.IntN(5)
	target := int64(1 + l.w.rng.IntN(5))
	patch := topics.Patch{MinSegments: &least, MaxSegments: &most, TargetMessages: &target}
	inst := l.instance()
	var err error
	l.w.begin(inst, fmt.Sprintf("rescale %s %d to %d, target %d", t.name, least, most, target), func(ctx context.Context) {
		_, err = inst.system.Topics.Update(ctx, t.name, patch)
	}, func(o *op) { l.said(o, err) })
	return true
}

// unhurt holds that no call fails because of a change of segments, however many it meets.
func (l *workload) unhurt(o *op, err error) {
	if err == nil || o.killed || l.w.result.Counts["delete-topic"] > 0 {
		return
	}
	switch queue.KindOf(err) {
	case queue.KindSealed, queue.KindFenced:
	default:
		text := err.Error()
		if !strings.Contains(text, "change faster than the call can follow") && !strings.Contains(text, "segment map keeps changing") {
			return
		}
	}
	l.w.find("hurt by a change", "%s (%s) fails with %v", o.label, o.what, err)
}

// follows reports whether b comes after a in the order of a slot's log: the segments that own a slot one
// after another have epochs that rise.
func (m *model) follows(b, a queue.MessageID) bool {
	before, after := m.segments[a.Segment], m.segments[b.Segment]
	if a.Segment == b.Segment || before == nil || after == nil {
		return a.Segment == b.Segment && b.Offset > a.Offset
	}
	return after.Epoch > before.Epoch
}

// settled is longer than a new segment is kept from being merged.
const settled = 11 * time.Minute

// leadOn lets the leader run until it finds nothing more to do, all faults healed.
func (w *world) leadOn() {
	const enough = 40
	inst := w.instances[0]
	for range enough {
		var rep scale.Report
		var err error
		w.begin(inst, "lead", func(ctx context.Context) { rep, err = inst.system.Scale.Run(ctx) }, func(o *op) {
			w.load.said(o, err)
			o.said += fmt.Sprintf(" %+v", rep)
		})
		w.idle()
		if err != nil {
			w.find("leader", "nothing fails any more, and the leader does: %v", err)
		}
		if w.result.Finding != nil {
			return
		}
		// A run may also have found another's lease, which nobody has seen for long enough.
		left, err := w.truth.Query(w.background(), meta.Range{PK: meta.WatchPK, Limit: 1})
		if err == nil && len(left.Items) == 0 {
			w.bounded()
			return
		}
		time.Sleep(settled)
	}
	w.find("leader", "the leader does not come to an end")
}

// bounded holds that the leader has brought every topic that it watched within its bounds.
func (w *world) bounded() {
	for _, t := range w.load.topics {
		id := w.load.topicID(t.name)
		topic, _, err := meta.Fetch[*meta.Topic](w.background(), w.truth, meta.TopicKey(id))
		if id == "" || err != nil || topic.State != meta.TopicOpen {
			continue
		}
		least, most := bounds(topic)
		if n := len(w.model.open(id)); n < least || n > most {
			w.find("leader", "%s has %d segments in the end, not %d to %d", t.name, n, least, most)
		}
	}
}
