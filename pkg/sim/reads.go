package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// waitingLetter is a delayed message whose id a client knows.
type waitingLetter struct {
	topic string
	id    queue.DelayedID
	uid   string
	edits int
	busy  bool
}

func (l *workload) pickWaiting() *waitingLetter {
	if len(l.waiting) > 20 {
		l.waiting = l.waiting[len(l.waiting)-20:]
	}
	if len(l.waiting) == 0 {
		return nil
	}
	if w := pick(l, l.waiting); !w.busy {
		return w
	}
	return nil
}

func (l *workload) edit() bool {
	m := l.pickWaiting()
	if m == nil {
		return false
	}
	rng := l.w.rng
	var e delay.Edit
	if rng.IntN(2) == 0 {
		m.edits++
		body := fmt.Appendf(nil, "%s~%d|edited", m.uid, m.edits)
		e.Body = &body
	}
	if e.Body == nil || rng.IntN(2) == 0 {
		d := time.Duration(rng.IntN(30)) * time.Second
		e.Delay = &d
	}
	number := 0
	if e.Body != nil {
		number = m.edits
	}
	m.busy = true
	var err error
	inst := l.instance()
	what := fmt.Sprintf("edit %s %s of %s, edit %d, delay %v", m.uid, m.id, m.topic, number, e.Delay != nil)
	l.w.begin(inst, what, func(ctx context.Context) {
		_, err = inst.system.Delay.Edit(ctx, m.topic, m.id, e)
	}, func(o *op) {
		m.busy = false
		if l.said(o, err); o.killed || err != nil {
			return
		}
		if number > 0 {
			l.w.model.letters[m.uid].edit = number
		}
	})
	return true
}

// cancelling reports whether a client has asked to cancel a message.
func (l *workload) cancelling(uid string) bool { return l.cancels[uid] > 0 }

func (l *workload) cancelOne() bool {
	m := l.pickWaiting()
	if m == nil {
		return false
	}
	l.cancels[m.uid]++
	m.busy = true
	var err error
	inst := l.instance()
	l.w.begin(inst, fmt.Sprintf("cancel %s %s of %s", m.uid, m.id, m.topic), func(ctx context.Context) {
		err = inst.system.Delay.Cancel(ctx, m.topic, m.id)
	}, func(o *op) {
		m.busy = false
		if l.said(o, err); o.killed || err != nil {
			return
		}
		for _, topic := range sortedKeys(l.w.model.letters[m.uid].states) {
			s := l.w.model.letters[m.uid].states[topic]
			if name := l.topicID(m.topic); topic == name && !s.cancelled && !s.expired {
				l.w.find("delayed", "%s cancelled %s, and it is %s", o.label, m.uid, s)
			}
		}
	})
	return true
}

func (l *workload) list() bool {
	t := pick(l, l.topics)
	var err error
	inst := l.instance()
	l.w.begin(inst, "list "+t.name, func(ctx context.Context) {
		_, _, err = inst.system.Delay.List(ctx, t.name, delay.Listing{Limit: 50, Bodies: true})
	}, func(o *op) { l.said(o, err) })
	return true
}

func (l *workload) peek() bool {
	t := pick(l, l.topics)
	var got consume.Peeked
	var err error
	inst := l.instance()
	began := l.w.rec.now()
	l.w.begin(inst, "peek "+t.name, func(ctx context.Context) {
		got, err = inst.system.Consume.Peek(ctx, consume.PeekRequest{Topic: t.name, Limit: 30})
	}, func(o *op) {
		if l.said(o, err); o.killed || err != nil {
			return
		}
		l.read(o, got.Deliveries)
		l.w.rec.show(o, began, history.Read{Topic: t.name}, got.Deliveries)
	})
	return true
}

// read holds what was read of segments against the truth.
func (l *workload) read(o *op, all []consume.Delivery) {
	n := 0
	for i := range all {
		d := &all[i]
		log := l.w.model.logs[d.Segment]
		for j, got := range l.contents(o, d) {
			at := int(d.Offset) + j
			if log == nil || at >= len(log.msgs) || log.msgs[at].uid != got.uid || log.msgs[at].edit != got.edit {
				l.w.find("read", "%s reads %q at %s-%d", o.label, got.uid, d.Segment, at)
			}
			n++
		}
	}
	o.said = fmt.Sprintf("%d messages", n)
}

// records reads a segment from somewhere on and checks that nothing is left out.
func (l *workload) records() bool {
	t := pick(l, l.topics)
	id := l.topicID(t.name)
	var segs []*segmentLog
	for _, s := range l.w.model.order {
		if log := l.w.model.logs[s]; log.topic == id && id != "" {
			segs = append(segs, log)
		}
	}
	if len(segs) == 0 {
		return false
	}
	log := pick(l, segs)
	from := queue.Offset(l.w.rng.IntN(len(log.msgs) + 1)) // #nosec G115 -- small
	l.recordsFrom(t, log, from, nil)
	return true
}

// recordsFrom reads a segment from an offset on. failed, if not nil, is told of an error.
func (l *workload) recordsFrom(t *topicSpec, log *segmentLog, from queue.Offset, failed func(error)) {
	var got consume.Records
	var err error
	inst := l.instance()
	began := l.w.rec.now()
	l.w.begin(inst, fmt.Sprintf("records %s %s-%d", t.name, log.id, from), func(ctx context.Context) {
		got, err = inst.system.Consume.Records(ctx, consume.RecordsRequest{Topic: t.name, Segment: log.id, Offset: from, Limit: pageRecords})
	}, func(o *op) {
		l.said(o, err)
		if err != nil && failed != nil {
			failed(err)
		}
		if o.killed || err != nil {
			return
		}
		l.read(o, got.Deliveries)
		seen := make(map[queue.Offset]bool)
		for i := range got.Deliveries {
			for j := range got.Deliveries[i].Count {
				seen[got.Deliveries[i].Offset+queue.Offset(j)] = true // #nosec G115 -- small
			}
		}
		for off := from; off < got.Next; off++ {
			if e := log.msgs[off].expires; !seen[off] && (e == 0 || e > inst.now()) {
				l.w.find("read", "%s passes over %s-%d", o.label, log.id, off)
			}
		}
		// What ends a page before its limit is the end of the log.
		l.w.rec.show(o, began, history.Read{
			Topic: t.name, Segment: log.id, From: from, Next: got.Next, AtEnd: len(seen) < pageRecords/2, Sealed: got.End,
		}, got.Deliveries)
	})
}

// pageRecords is the limit of a read of records.
const pageRecords = 40

// message reads a message by the id it has.
func (l *workload) message() bool {
	if len(l.w.model.order) == 0 {
		return false
	}
	log := l.w.model.logs[pick(l, l.w.model.order)]
	if len(log.msgs) == 0 {
		return false
	}
	off := l.w.rng.IntN(len(log.msgs))
	at := slices.IndexFunc(l.topics, func(t *topicSpec) bool { return l.topicID(t.name) == log.topic })
	if at < 0 {
		return false
	}
	name := l.topics[at].name
	id := queue.MessageID{Segment: log.id, Offset: queue.Offset(off)} // #nosec G115 -- small
	var got consume.Delivery
	var err error
	inst := l.instance()
	began := l.w.rec.now()
	l.w.begin(inst, fmt.Sprintf("message %s %s", name, id), func(ctx context.Context) {
		got, err = inst.system.Consume.Message(ctx, name, id)
	}, func(o *op) {
		if l.said(o, err); o.killed {
			return
		}
		if e := log.msgs[off].expires; queue.CodeOf(err) == queue.CodeMessageNotFound && err != nil &&
			l.topicID(name) == log.topic && (e == 0 || e > inst.now()) {
			l.w.find("read", "%s does not find %s", o.label, id)
		}
		if err == nil {
			l.read(o, []consume.Delivery{got})
			l.w.rec.show(o, began, history.Read{Topic: name}, []consume.Delivery{got})
		}
	})
	return true
}
