package consume

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// hold is a claim about to be made, or made, with what it delivers.
type hold struct {
	sub   queue.SubscriptionID
	seg   *meta.Segment
	claim meta.Claim
	runs  []run
	// back is what its messages become if they are given back uncounted; its range is unset.
	back meta.Retry
}

// plan works out what a claim call takes from one cursor. It writes nothing.
type plan struct {
	c    *call
	seg  *meta.Segment
	view *view
	cur  *meta.Cursor
	cut  cutter

	take  meta.Take
	holds []hold
	// messages is what is still wanted.
	messages int
	// room is how many more messages may be in flight.
	room int
	// isolated says that the answer has a piece of a run that was split before, firsts that it has
	// messages of a first delivery that expired. Which run a piece is of is not kept, and what was
	// extended of a first delivery may be of one that was split: so an answer has no two of the
	// former, and none along with the latter.
	isolated, firsts bool
	// capped says that messages were left because of a limit of the cursor.
	capped bool
	// next is when something more will be due.
	next queue.Millis
}

// newPlan starts from a cursor; nil if there is none yet.
func (c *call) newPlan(ctx context.Context, seg *meta.Segment, v *view, cur *meta.Cursor) (*plan, error) {
	p := &plan{c: c, seg: seg, view: v, cur: cur, messages: c.messages}
	p.take = meta.Take{Subscription: c.sub.ID, Segment: seg.ID}
	if cur == nil {
		if err := v.load(ctx); err != nil {
			return nil, err
		}
		from := max(c.sub.Cut[seg.ID], v.head.Start)
		p.cur = &meta.Cursor{Subscription: c.sub.ID, Segment: seg.ID, Floor: from, Next: from}
		p.take.Create = p.cur
	}
	p.cut = cutter{
		view: v, now: c.now, bytes: c.bytes, bounded: c.bounded, taken: c.taken,
		room: queue.MaxCursorEntries - p.cur.Entries(), refs: maxRefs,
	}
	p.room = c.sub.MaxInFlight - p.cur.InFlight()
	return p, nil
}

// begin gives what is due, and whether there is anything that was never claimed.
func (p *plan) begin(ctx context.Context) (list []due, fresh bool, err error) {
	list, p.next = dueOf(p.cur, p.c.now)
	p.take.From, p.take.To = p.cur.Next, p.cur.Next
	_, fresh, err = p.view.at(ctx, max(p.cur.Next, p.view.start))
	// A page that is gone, and truncated messages, are dealt with by the cut.
	if queue.Is(err, queue.KindCorrupt) {
		return list, true, nil
	}
	return list, fresh || p.cur.Next < p.view.start, err
}

// share is how many of the messages wanted may be such that were delivered before, where fresh ones wait.
func (p *plan) share() int {
	return max((p.messages+p.c.s.random(2))/2, p.messages-p.view.ahead(p.cur.Next))
}

// make fills the plan.
func (p *plan) make(ctx context.Context) error {
	list, fresh, err := p.begin(ctx)
	if err != nil {
		return err
	}
	share, reserve := p.messages, int64(0)
	if fresh && len(list) > 0 {
		share = p.share()
		reserve = p.cut.bytes / 2
	}
	p.cut.bytes -= reserve
	used, err := p.takeDue(ctx, list, share)
	if err != nil {
		return err
	}
	p.cut.bytes, p.cut.full = p.cut.bytes+reserve, false
	if fresh {
		if err := p.takeFresh(ctx); err != nil {
			return err
		}
	}
	_, err = p.takeDue(ctx, list[used:], p.messages)
	p.capped = p.capped || p.cut.crowded
	return err
}

// takeDue takes up to share messages of what is due, in order, and says how many entries of the list
// it has dealt with.
func (p *plan) takeDue(ctx context.Context, list []due, share int) (int, error) {
	for i := range list {
		d := &list[i]
		if p.cut.full || p.cut.tired || share <= 0 {
			return i, nil
		}
		if spent(p.c.sub, d.attempts) || p.kept(d) {
			continue
		}
		took, used, err := p.takeOne(ctx, d, min(share, p.messages))
		if err != nil || !used && p.cut.full {
			return i, err
		}
		share -= took
	}
	return len(list), nil
}

// kept reports whether d may only come in another answer.
func (p *plan) kept(d *due) bool {
	if d.alone() {
		return p.isolated || p.firsts
	}
	return d.claim != nil && p.isolated
}

// takeOne takes up to limit messages of d, under a claim of their own. used says that d is dealt with:
// messages were taken, or found expired.
func (p *plan) takeOne(ctx context.Context, d *due, limit int) (took int, used bool, err error) {
	room, piece := p.room, d.piece(p.c.sub)
	if d.claim != nil {
		room += d.count // they count as in flight already
	}
	limit = min(limit, piece, room)
	// Taken whole, d makes no more entries than it frees; in part, a few more. It may have them
	// where fresh messages may not, or a cursor that is full of failures would never be empty.
	spare := len(d.ranges) + queue.MaxCursorEntries
	if room <= 0 || p.cut.room+spare < 1 {
		p.capped = true
		return 0, false, nil
	}
	p.cut.room += spare
	cut, err := p.cut.cut(ctx, d.ranges, limit)
	p.cut.room -= queue.MaxCursorEntries
	if err != nil || len(cut.runs)+len(cut.gone) == 0 {
		p.cut.room -= len(d.ranges)
		return 0, false, err
	}
	d.use(&p.take, p.c.now)
	p.take.Done = append(p.take.Done, cut.gone...)
	rest := d.rest(cut.rest)
	p.take.AddRetries = append(p.take.AddRetries, rest...)
	p.cut.room -= len(rest)
	p.room = room - cut.count
	p.messages -= cut.count
	if cut.count > 0 {
		p.hold(cut.runs, d.attempts+1, d.back())
	}
	if cut.count > 0 {
		p.isolated = p.isolated || d.alone()
		p.firsts = p.firsts || d.claim != nil && !d.alone()
	}
	return cut.count, true, nil
}

// takeFresh takes messages that were never claimed, under one claim.
func (p *plan) takeFresh(ctx context.Context) error {
	limit := min(p.messages, p.room)
	if limit <= 0 || p.cut.room < 1 {
		p.capped = p.capped || p.messages > 0
		return nil
	}
	all := []meta.OffsetRange{{Lo: p.cur.Next, Hi: queue.MaxOffset}}
	cut, err := p.cut.cut(ctx, all, limit)
	if err != nil {
		return err
	}
	p.take.To = queue.MaxOffset
	if len(cut.rest) > 0 {
		p.take.To = cut.rest[0].Lo
	}
	p.take.Done = append(p.take.Done, cut.gone...)
	p.room -= cut.count
	p.messages -= cut.count
	if cut.count > 0 {
		p.hold(cut.runs, 1, meta.Retry{})
	}
	return nil
}

func (p *plan) hold(runs []run, attempt uint32, back meta.Retry) {
	claim := meta.Claim{ID: p.c.s.ids.Claim(), Attempt: attempt}
	expires := p.c.now.Add(p.c.hidden())
	for i := range runs {
		if n := len(claim.Parts); n > 0 && claim.Parts[n-1].Hi == runs[i].Lo {
			claim.Parts[n-1].Hi = runs[i].Hi
			continue
		}
		claim.Parts = append(claim.Parts, meta.Part{OffsetRange: runs[i].OffsetRange, Expires: expires})
	}
	p.take.Add = append(p.take.Add, claim)
	p.holds = append(p.holds, hold{sub: p.c.sub.ID, seg: p.seg, claim: claim, runs: runs, back: back})
}

// changes reports whether there is anything to write.
func (p *plan) changes() bool {
	return p.take.From != p.take.To || len(p.take.Drop)+len(p.take.DropRetries) > 0
}

// drained reports whether the segment has nothing more for the subscription, for good.
func (p *plan) drained() bool { return drained(p.view.head, p.cur) }

func drained(h *meta.Head, cur *meta.Cursor) bool {
	return h != nil && h.Sealed && cur != nil && cur.Floor >= h.Next && len(cur.Claims)+len(cur.Retries) == 0
}

// madeIn reports whether a cursor holds the plan's claims: then its take was carried out.
func (p *plan) madeIn(cur *meta.Cursor) bool {
	if cur == nil {
		return false
	}
	for i := range p.holds {
		if have, ok := cur.Claims[p.holds[i].claim.ID]; !ok || !have.Same(p.holds[i].claim) {
			return false
		}
	}
	return len(p.holds) > 0
}
