package sim

import (
	"cmp"
	"maps"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// holding is where an offset of a cursor is, apart from done and fresh.
type holding struct {
	claim   *meta.Claim
	expires queue.Millis
	retry   *meta.Retry
}

func holdings(c *meta.Cursor) map[queue.Offset]holding {
	out := make(map[queue.Offset]holding)
	for _, cl := range c.Claims {
		for _, p := range cl.Parts {
			for off := p.Lo; off < p.Hi; off++ {
				out[off] = holding{claim: &cl, expires: p.Expires}
			}
		}
	}
	for i := range c.Retries {
		for off := c.Retries[i].Lo; off < c.Retries[i].Hi; off++ {
			out[off] = holding{retry: &c.Retries[i]}
		}
	}
	return out
}

// cursor judges a change of a cursor: what became claimed, and what became done.
func (t *txn) cursor(c *change) {
	after, ok := c.after.(*meta.Cursor)
	if !ok {
		gone, _ := c.before.(*meta.Cursor)
		if gone == nil || t.m.liveSub(gone) {
			t.find("left", "the cursor %s is gone", c.key)
		}
		t.m.gone[c.key] = true
		return
	}
	if err := after.Check(); err != nil {
		t.find("records", "%v", err)
	}
	before, ok := c.before.(*meta.Cursor)
	if !ok {
		before = t.m.freshCursor(after)
	}
	log := t.m.logs[after.Segment]
	if log == nil || after.Next > queue.Offset(len(log.msgs)) {
		t.find("claim", "cursor %s is past the end of its segment", c.key)
		return
	}
	if after.Floor < before.Floor || after.Next < before.Next {
		t.find("claim", "cursor %s goes back", c.key)
	}
	was, is := holdings(before), holdings(after)
	for _, off := range sortedKeys(is) {
		h := is[off]
		if h.claim != nil && (was[off].claim == nil || was[off].claim.ID != h.claim.ID) {
			t.claimed(after, off, was[off], h)
		}
		if h.retry != nil {
			t.returned(after, off, was[off], h.retry)
		}
		if _, held := was[off]; !held && off < before.Next {
			t.find("claim", "%s-%d was done and is claimable again", after.Segment, off)
		}
	}
	for off := before.Floor; off < after.Next; off++ {
		if _, still := is[off]; still || before.IsDone(off) {
			continue
		}
		e := log.msgs[off].expires
		f := finishedMsg{cursor: after, off: off, expired: e != 0 && e <= t.now}
		if cl := was[off].claim; cl != nil {
			f.claim = cl.ID
		}
		t.finished = append(t.finished, f)
	}
}

// freshCursor is the cursor that a subscription starts with in a segment.
func (m *model) freshCursor(c *meta.Cursor) *meta.Cursor {
	from := queue.Offset(0)
	if sub := m.subs[c.Subscription]; sub != nil {
		from = sub.Cut[c.Segment]
	}
	return &meta.Cursor{Subscription: c.Subscription, Segment: c.Segment, Floor: from, Next: from}
}

// claimed judges a new hold on one offset.
func (t *txn) claimed(c *meta.Cursor, off queue.Offset, was, is holding) {
	id := queue.MessageID{Segment: c.Segment, Offset: off}
	attempts := uint32(0)
	switch {
	case was.claim != nil:
		attempts = was.claim.Attempt
		if was.expires > t.now {
			t.find("two claims", "%s is claimed anew %s before its claim ends", id, was.expires.Sub(t.now))
		}
	case was.retry != nil:
		attempts = was.retry.Attempts
		if was.retry.NotBefore > t.now {
			t.find("claim", "%s is claimed %s before its pause ends", id, was.retry.NotBefore.Sub(t.now))
		}
	}
	if is.claim.Attempt != attempts+1 {
		t.find("claim", "%s was delivered %d times, and its claim says %d", id, attempts, is.claim.Attempt)
	}
	if before, known := t.m.claims[is.claim.ID]; known && before.cursor != c.Key() {
		t.find("claim", "claim %s is in two cursors", is.claim.ID)
	}
	t.m.claims[is.claim.ID] = made{c.Key(), t.now}
	sub := t.m.subs[c.Subscription]
	if sub != nil && sub.MaxDeliveries > 0 && int(is.claim.Attempt) > sub.MaxDeliveries {
		t.find("claim", "%s is delivered %d times, more than %d", id, is.claim.Attempt, sub.MaxDeliveries)
	}
}

// returned judges one offset that is a retry: it was delivered as often as it says, or once less if it
// was given back uncounted.
func (t *txn) returned(c *meta.Cursor, off queue.Offset, was holding, is *meta.Retry) {
	switch {
	case was.retry != nil && was.retry.Attempts == is.Attempts:
	case was.claim != nil && (is.Attempts == was.claim.Attempt || is.Attempts+1 == was.claim.Attempt):
	default:
		t.find("claim", "%s-%d is given back as delivered %d times", c.Segment, off, is.Attempts)
	}
}

func (m *model) give(cursor meta.Key, off queue.Offset) {
	if m.given[cursor] == nil {
		m.given[cursor] = make(map[queue.Offset]bool)
	}
	if m.given[cursor][off] {
		m.w.find("dead letter", "offset %d of %s was moved twice", off, cursor)
	}
	m.given[cursor][off] = true
}

// done reports whether a claim's offset is done in the truth; held whether the claim still holds it.
func (m *model) done(claim queue.ClaimID, off queue.Offset) (done, held bool) {
	by, ok := m.claims[claim]
	if !ok {
		return false, false
	}
	item, err := m.w.truth.Get(m.w.background(), by.cursor)
	if err != nil {
		return m.gone[by.cursor], false
	}
	cur, ok := item.Record.(*meta.Cursor)
	if !ok {
		return false, false
	}
	return cur.IsDone(off), cur.Claims[claim].Holds(off)
}
