package sim

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func (w *world) background() context.Context { return context.Background() }

// taken hears that a message is in the system for good.
func (m *model) taken(uid string) {
	l := m.letters[uid]
	if l == nil || l.call == nil {
		return
	}
	if l.call.refusedFor(l.pos) {
		m.w.find("refused", "%s was refused, nothing was to be taken, and now it is there (late: %v)", uid, m.cause.late)
	}
}

// The rules of findings that are known and open.
const (
	// ruleSwitched: a topic's default_delay changed from or to 0 between two tries of a guarded
	// call, of which one is for the segments and one for the delayed index.
	ruleSwitched = "append once: default_delay changed between tries"
	// ruleRolled: an append arrived a second time within its deadline, after the first was rolled
	// off the tail.
	ruleRolled = "append once: again after a roll"
)

// Open are the rules of findings that are known and not fixed yet.
func Open() []string { return nil }

// twice says which rule is broken by a message that comes to a second place.
func (m *model) twice(uid string, s *state) string {
	l := m.letters[uid]
	switch {
	case l == nil || l.call == nil:
	case m.w.load.switched[l.call.p.topic.name]:
		return ruleSwitched
	case m.cause.late && s.placed && m.inTime():
		head, _, err := meta.Fetch[*meta.Head](m.w.background(), m.w.truth, meta.HeadKey(s.at.Segment))
		if err == nil && s.at.Offset < head.TailFirst {
			return ruleRolled
		}
	}
	return "append once"
}

// inTime reports whether the append under judgement came within its deadline, and had not looked before.
func (m *model) inTime() bool {
	a, ok := m.cause.op.(meta.Append)
	return ok && a.SeenFrom == nil && m.lastAppend <= a.Deadline
}

// edited holds the edit that a message carries against what was acknowledged.
func (m *model) edited(msg *logged) {
	if l := m.letters[msg.uid]; l != nil && msg.edit < l.edit {
		m.w.find("edit", "%s carries edit %d, and edit %d was acknowledged", msg.uid, msg.edit, l.edit)
	}
}

// routed holds a message against the slot range of its segment.
func (m *model) routed(a *appendedMsg) {
	if a.msg.key == "" {
		return
	}
	head, _, err := meta.Fetch[*meta.Head](m.w.background(), m.w.truth, meta.HeadKey(a.log.id))
	if err == nil && !head.Range.Contains(queue.SlotOf([]byte(a.msg.key))) {
		m.w.find("routing", "%s with key %q does not belong to %s of %s", a.msg.uid, a.msg.key, a.log.id, head.Range)
	}
}

// tail holds a head's tail against the log.
func (m *model) tail(log *segmentLog, h *meta.Head) {
	m.same(log, h.TailFirst, h.Tail)
}

// same holds refs at an offset against the log.
func (m *model) same(log *segmentLog, off queue.Offset, refs []meta.Ref) {
	i := len(log.refs)
	for i > 0 && log.refs[i-1].off >= off {
		i--
	}
	for j := range refs {
		if i+j >= len(log.refs) || log.refs[i+j].off != off || !log.refs[i+j].ref.Same(&refs[j]) {
			m.w.find("log", "%s-%d does not hold what was committed there", log.id, off)
			return
		}
		off += queue.Offset(refs[j].Count)
	}
}

// pages holds the pages of [from, to) against the log.
func (m *model) pages(log *segmentLog, from, to queue.Offset) {
	for from < to {
		page := m.paged(log.id, from)
		if page == nil {
			m.w.find("log", "%s-%d was rolled, and no page holds it", log.id, from)
			return
		}
		m.same(log, page.First, page.Refs)
		from = page.Next()
	}
	if from != to {
		m.w.find("log", "pages of %s reach to %d, not %d", log.id, from, to)
	}
}

// audit checks all that the truth holds against the model.
func (m *model) audit() {
	ctx := m.w.background()
	m.w.count("audits")
	for _, id := range m.order {
		log := m.logs[id]
		if log.removed {
			continue
		}
		h, _, err := meta.Fetch[*meta.Head](ctx, m.w.truth, meta.HeadKey(id))
		if err != nil {
			if len(log.msgs) > 0 {
				m.w.find("log", "the head of %s is gone: %v", id, err)
			}
			continue
		}
		if int(h.Next) != len(log.msgs) {
			m.w.find("log", "%s ends at %d, and %d messages were committed", id, h.Next, len(log.msgs))
		}
		m.pages(log, h.Start, h.TailFirst)
		m.tail(log, h)
		for i := range log.refs {
			if _, what := m.bytes(&log.refs[i].ref); what != "" {
				m.w.find("durable", "%s-%d: %s", id, log.refs[i].off, what)
			}
		}
	}
	for _, id := range sortedKeys(m.topics) {
		if m.topics[id].State == meta.TopicOpen {
			m.ring(id)
		}
	}
}
