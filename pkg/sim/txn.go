package sim

import (
	"slices"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// txn is what one request changed, while it is judged.
type txn struct {
	m   *model
	now queue.Millis
	// appended are new messages of heads.
	appended []appendedMsg
	cursors  []*change
	pages    []*meta.RefPage
	// replaced are pages that were changed or removed.
	replaced []*meta.RefPage
	// left and entered are messages that left or entered entries of the delayed index.
	left, entered []waitingMsg
	// finished are offsets that became done.
	finished []finishedMsg
}

type appendedMsg struct {
	log *segmentLog
	at  queue.MessageID
	ref *meta.Ref
	msg logged
}

type waitingMsg struct {
	topic   queue.TopicID
	entry   *meta.Delayed
	msg     logged
	expires queue.Millis
}

type finishedMsg struct {
	cursor *meta.Cursor
	off    queue.Offset
	claim  queue.ClaimID // zero if no claim held it
	// expired: it may leave by itself.
	expired bool
}

func (t *txn) find(rule, format string, args ...any) { t.m.w.find(rule, format, args...) }

// head judges a change of a head, and takes over what was appended.
func (t *txn) head(c *change) {
	after, ok := c.after.(*meta.Head)
	if !ok {
		if gone, _ := c.before.(*meta.Head); gone == nil || !t.m.mayRemove(t.m.log(gone.Segment)) {
			t.find("log", "the head of %s is gone", c.key)
		}
		return
	}
	if err := after.Check(); err != nil {
		t.find("records", "%v", err)
	}
	log := t.m.log(after.Segment)
	before, ok := c.before.(*meta.Head)
	if !ok {
		if after.Next != 0 || len(log.msgs) > 0 {
			t.find("log", "a new head for %s, which holds messages", after.Segment)
		}
		return
	}
	switch {
	case after.Next < before.Next:
		t.find("log", "%s goes back from %d to %d", after.Segment, before.Next, after.Next)
		return
	case after.Epoch < before.Epoch || before.Sealed && !after.Sealed:
		t.find("fencing", "%s goes back to an older epoch or is opened again", after.Segment)
	case before.Sealed && after.Next != before.Next:
		t.find("fencing", "%s takes a commit after it was sealed", after.Segment)
	}
	t.m.lastAppend = before.LastAppend
	t.appendedTo(log, before, after)
	if after.TailFirst != before.TailFirst {
		if t.m.paged(log.id, before.TailFirst) == nil && t.m.mayRemove(log) {
			t.m.released(before.Tail)
			return
		}
		t.m.pages(log, before.TailFirst, after.TailFirst)
	}
	t.m.tail(log, after)
}

// appendedTo takes over the refs that before does not have.
func (t *txn) appendedTo(log *segmentLog, before, after *meta.Head) {
	n := uint64(after.Next - before.Next)
	i := len(after.Tail)
	for n > 0 && i > 0 && uint64(after.Tail[i-1].Count) <= n {
		i--
		n -= uint64(after.Tail[i].Count)
	}
	if n > 0 {
		t.find("log", "%s counts %d messages more than its refs", log.id, n)
		return
	}
	off := before.Next
	for ; i < len(after.Tail); i++ {
		ref := &after.Tail[i]
		msgs, what := t.m.read(ref)
		if what != "" {
			t.find("durable", "%s-%d was committed and %s", log.id, off, what)
			msgs = make([]logged, ref.Count)
		}
		log.refs = append(log.refs, placedRef{*ref, off})
		for _, msg := range msgs {
			at := queue.MessageID{Segment: log.id, Offset: off}
			log.msgs = append(log.msgs, msg)
			if what == "" {
				t.appended = append(t.appended, appendedMsg{log, at, ref, msg})
			}
			off++
		}
	}
}

// entry judges a change of an entry of the delayed index.
func (t *txn) entry(c *change) {
	live := func(r meta.Record) map[string]waitingMsg {
		out := make(map[string]waitingMsg)
		d, ok := r.(*meta.Delayed)
		if !ok || len(d.Waiting()) == 0 {
			return out // of a husk the bytes may be gone
		}
		msgs, what := t.m.read(&d.Ref)
		if what != "" {
			t.find("durable", "a delayed entry %s was put and %s", d.Key(), what)
			return out
		}
		for i, msg := range msgs {
			if !slices.Contains(d.Gone, uint32(i)) { // #nosec G115 -- small
				out[msg.uid] = waitingMsg{d.Topic, d, msg, d.Ref.MinExpires}
			}
		}
		return out
	}
	if d, ok := c.before.(*meta.Delayed); ok {
		t.m.released(d.Waiting())
	}
	before, after := live(c.before), live(c.after)
	for _, uid := range sortedKeys(before) {
		if _, ok := after[uid]; !ok {
			t.left = append(t.left, before[uid])
		}
	}
	for _, uid := range sortedKeys(after) {
		if old, ok := before[uid]; !ok || old.msg.edit != after[uid].msg.edit {
			t.entered = append(t.entered, after[uid])
		}
	}
}

// settle judges the parts of the change together.
func (t *txn) settle() {
	t.m.repaged(t.replaced)
	for _, page := range t.pages {
		head, _, err := meta.Fetch[*meta.Head](t.m.w.background(), t.m.w.truth, meta.HeadKey(page.Segment))
		if err != nil || head.TailFirst < page.Next() {
			t.find("log", "page %s holds what its head still holds", page.Key())
		}
	}
	entered := make(map[string]bool)
	for i := range t.entered {
		entered[t.entered[i].msg.uid] = true
		t.enter(&t.entered[i])
	}
	appended := make(map[string]bool)
	if len(t.cursors) > 0 {
		t.letters()
	} else {
		for i := range t.appended {
			a := &t.appended[i]
			appended[a.msg.uid] = true
			t.place(a)
		}
	}
	for i := range t.left {
		l := &t.left[i]
		s := t.m.state(l.msg.uid, l.topic)
		switch {
		case entered[l.msg.uid]:
		case appended[l.msg.uid]:
			s.waiting = false
		case l.expires != 0 && l.expires <= t.now:
			s.waiting, s.expired = false, true
		case t.m.w.load.cancelling(l.msg.uid):
			s.waiting, s.cancelled = false, true
		case t.m.dead(l.topic):
			s.waiting, s.removed = false, true
		default:
			t.find("delayed", "%s left the delayed index and went nowhere", l.msg.uid)
		}
	}
}

// enter judges a message that is put in the delayed index, or moved within it.
func (t *txn) enter(e *waitingMsg) {
	s := t.m.state(e.msg.uid, e.topic)
	if s.over() {
		t.find(t.m.twice(e.msg.uid, s), "%s is in the delayed index again, after it was %s (by %s, late: %v)", e.msg.uid, s, t.m.cause.label, t.m.cause.late)
	}
	if s.waiting && !slices.ContainsFunc(t.left, func(l waitingMsg) bool { return l.msg.uid == e.msg.uid }) && s.entry != e.entry.ID {
		t.find("delayed twice", "%s is in the delayed index twice", e.msg.uid)
	}
	s.waiting, s.entry = true, e.entry.ID
	t.m.taken(e.msg.uid)
	t.m.edited(&e.msg)
}

func (s *state) String() string {
	switch {
	case s.placed:
		return "placed at " + s.at.String()
	case s.cancelled:
		return "cancelled"
	case s.expired:
		return "expired"
	case s.removed:
		return "removed with its topic"
	case s.waiting:
		return "waiting"
	}
	return "nowhere"
}

// place judges a message that is appended, but for dead letters.
func (t *txn) place(a *appendedMsg) {
	s := t.m.state(a.msg.uid, a.log.topic)
	left := slices.ContainsFunc(t.left, func(l waitingMsg) bool { return l.msg.uid == a.msg.uid })
	switch {
	case s.placed:
		t.find(t.m.twice(a.msg.uid, s), "%s is at %s and now at %s, too (by %s, late: %v)", a.msg.uid, s.at, a.at, t.m.cause.label, t.m.cause.late)
	case s.cancelled:
		t.find("delayed", "%s was cancelled and is now at %s", a.msg.uid, a.at)
	case s.waiting && !left:
		rule := "delayed"
		if r := t.m.twice(a.msg.uid, s); r == ruleSwitched {
			rule = r
		}
		t.find(rule, "%s is at %s and still in the delayed index", a.msg.uid, a.at)
	}
	if left && a.ref.VisibleAt() > t.now {
		t.find("early", "%s is promoted %s before its time", a.msg.uid, a.ref.VisibleAt().Sub(t.now))
	}
	s.placed, s.at = true, a.at
	t.m.taken(a.msg.uid)
	t.m.edited(&a.msg)
	t.m.routed(a)
}

// letters judges a transaction of a cursor and appends: every letter belongs to one message that became
// done, and the other way round.
func (t *txn) letters() {
	moved := make(map[queue.MessageID]*appendedMsg)
	for i := range t.appended {
		a := &t.appended[i]
		source, _ := batch.Headers(a.ref.Headers).Get(consume.HeaderSourceID)
		id, err := queue.ParseMessageID(source)
		if err != nil || moved[id] != nil {
			t.find("dead letter", "%s at %s names no source of its own: %q", a.msg.uid, a.at, source)
			continue
		}
		moved[id] = a
		a.log.msgs[a.at.Offset].letter = true
	}
	for _, f := range t.finished {
		id := queue.MessageID{Segment: f.cursor.Segment, Offset: f.off}
		if a := moved[id]; a != nil {
			if want := t.m.logs[id.Segment].msgs[id.Offset].uid; a.msg.uid != want {
				t.find("dead letter", "%s moved as %s, but is %s", id, a.msg.uid, want)
			}
			delete(moved, id)
			t.m.give(f.cursor.Key(), f.off)
			continue
		}
		if !f.expired && !t.m.acked[f.claim][f.off] {
			t.find("left", "%s left subscription %s, and nobody acked it (claim %s)", id, f.cursor.Subscription, f.claim)
		}
	}
	for i := range t.appended {
		for id, a := range moved {
			if a == &t.appended[i] {
				t.find("dead letter", "%s was moved to %s and is not done", id, a.at)
			}
		}
	}
}
