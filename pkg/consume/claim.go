package consume

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// call is one claim call under way.
type call struct {
	s           *Service
	m           *topics.Map
	sub         *meta.Subscription
	visibility  time.Duration // as asked for; 0 takes the subscription's
	byReference bool

	// now is the time of the look under way.
	now queue.Millis
	// messages and bytes are what is still wanted; bytes counts if bounded. taken says that
	// something was claimed.
	messages int
	bytes    int64
	bounded  bool
	taken    bool
	holds    []hold

	// capped: a cursor's limit left messages unclaimed; full: it was MaxInFlight. behind: the map does not
	// know what a head or a segment tells, that a segment is sealed or which there are. err is the first
	// failure of a segment.
	capped bool
	full   bool
	behind bool
	err    error
	// drained are segments found to have nothing more for the subscription, for good.
	drained []queue.SegmentID
	// next is when something will be due; 0 if nothing is known of.
	next queue.Millis
}

func (s *Service) newCall(req *ClaimRequest) (*call, error) {
	c := &call{s: s, messages: req.MaxMessages, bytes: req.MaxBytes, visibility: req.Visibility, byReference: req.ByReference}
	if c.messages == 0 {
		c.messages = queue.DefaultClaimMessages
	}
	// Bodies that do not travel in the answer are bounded only if the caller asks for it.
	c.bounded = !c.byReference || c.bytes != 0
	if c.bytes == 0 {
		c.bytes = queue.DefaultClaimBytes
	}
	switch {
	case c.messages < 1 || c.messages > queue.MaxClaimMessages:
		return nil, queue.Invalid("max_messages", queue.MaxClaimMessages, "must be 1 to %d, not %d", queue.MaxClaimMessages, c.messages)
	case c.bytes < 1 || c.bytes > queue.MaxClaimBytes:
		return nil, queue.Invalid("max_bytes", queue.MaxClaimBytes, "must be 1 to %d, not %d", queue.MaxClaimBytes, c.bytes)
	case req.Wait < 0 || req.Wait > queue.MaxWait:
		return nil, queue.Invalid("wait", queue.MaxWait.Seconds(), "must be 0 to %s seconds", queue.Plain(queue.MaxWait.Seconds()))
	case c.visibility != 0:
		if err := checkVisibility(c.visibility); err != nil {
			return nil, err
		}
	}
	if !c.byReference {
		c.bytes = min(c.bytes, s.maxInline)
	}
	return c, nil
}

func checkVisibility(d time.Duration) error {
	if d < queue.MinVisibilityTimeout || d > queue.MaxVisibilityTimeout {
		return queue.Invalid("visibility_timeout", queue.MaxVisibilityTimeout.Seconds(), "must be %s to %s seconds",
			queue.Plain(queue.MinVisibilityTimeout.Seconds()), queue.Plain(queue.MaxVisibilityTimeout.Seconds()))
	}
	return nil
}

// Claim takes messages of a subscription and holds them for the visibility timeout. It visits the
// topic's segments from a random one on, until it has what was asked for. If there is nothing it waits
// up to Wait for a first message and answers with what it then finds; nothing at all is no error.
//
// A payload that cannot be read (gone, damaged) costs its message one delivery and a pause, and no
// other message anything: it comes to the dead-letter topic in the end. If there was nothing else the
// answer is as if there had been nothing.
//
// Errors: NotFound with CodeTopicNotFound or CodeSubscriptionNotFound; Invalid for a field out of
// range; Throttled with CodeTooManyInFlight if messages are there and the limit of messages in flight
// alone keeps them back; Canceled if ctx ends, and then nothing stays claimed; the store's, if a store
// failed and nothing could be claimed elsewhere.
func (s *Service) Claim(ctx context.Context, req ClaimRequest) (Claimed, error) {
	c, err := s.newCall(&req)
	if err != nil {
		return Claimed{}, err
	}
	end := s.end(ctx, req.Wait)
	rest := pollFirst
	for {
		if c.m, c.sub, err = s.subscription(ctx, req.Topic, req.Subscription); err != nil {
			return Claimed{}, err
		}
		signal, leave := s.hub.Wait(c.m.ID())
		out, err := s.look(ctx, c)
		if err != nil || len(out) > 0 || s.over(end) {
			leave()
			return Claimed{Deliveries: out}, err
		}
		heard := s.await(ctx, signal, s.wake(c.next, end, rest))
		leave()
		if ctx.Err() != nil {
			return Claimed{}, canceled(ctx, "claim")
		}
		if rest = longer(rest, len(c.m.Open)); heard {
			rest = pollFirst
		}
	}
}

// end is when a wait ends: after wait, or a little before the caller's own time is up, so that a call with
// a budget is answered and not cut off.
func (s *Service) end(ctx context.Context, wait time.Duration) time.Time {
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(0, min(wait, time.Until(deadline)-answerTime))
	}
	return s.clock().Add(wait)
}

// over says whether a wait is at its end: its time is up, or the server stops.
func (s *Service) over(end time.Time) bool {
	select {
	case <-s.hub.Closed():
		return true
	default:
		return !s.clock().Before(end)
	}
}

// wake is how long a long poll may sleep: until its end, until what is known to become due, and no
// longer than rest, because other processes signal nothing.
func (s *Service) wake(next queue.Millis, end time.Time, rest time.Duration) time.Duration {
	now := s.clock()
	rest = min(rest, end.Sub(now))
	if next != 0 {
		// What is due already and was not claimed waits for something else than time.
		if until := next.Time().Sub(now); until > 0 {
			rest = min(rest, until)
		}
	}
	return rest
}

// longer is the pause of a long poll after one of rest, where a look reads so many segments.
func longer(rest time.Duration, segments int) time.Duration {
	return min(2*rest, time.Duration(max(1, segments))*pollShare, pollMax)
}

// await sleeps, and says whether a signal ended it.
func (s *Service) await(ctx context.Context, signal <-chan struct{}, rest time.Duration) bool {
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-signal:
		return true
	case <-t.C:
	case <-s.hub.Closed():
	case <-ctx.Done():
	}
	return false
}

// look goes once through the topic's segments, and once more if all that it found was unreadable.
func (s *Service) look(ctx context.Context, c *call) ([]Delivery, error) {
	want := *c
	for range 2 {
		*c = want
		c.now = s.clock.Millis()
		s.visit(ctx, c)
		if c.behind && len(c.holds) == 0 {
			// The segments that succeed it are unknown here.
			if m, err := s.topics.Reload(ctx, c.m.Name); err == nil && m.ID() == c.m.ID() {
				c.m = m
				s.visit(ctx, c)
			}
		}
		if len(c.holds) == 0 {
			break
		}
		out, err := s.deliver(ctx, c)
		if len(out) > 0 || err != nil {
			return out, err
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, canceled(ctx, "claim")
	case c.err != nil:
		return nil, c.err
	case c.capped && len(c.holds) == 0:
		if c.full {
			return nil, tooMany(c.sub)
		}
		return nil, scattered(c.sub, nil)
	}
	return nil, nil
}

func tooMany(sub *meta.Subscription) error {
	return &queue.Error{
		Op: "claim", Subject: sub.Name, Kind: queue.KindThrottled, Code: queue.CodeTooManyInFlight,
		Limit: sub.MaxInFlight, RetryAfter: time.Second,
		Message: "too many messages are in flight; ack or release some first",
	}
}

// scattered is about the cursor's own bound: far fewer messages than MaxInFlight fill it if what is done
// and what is in flight take turns.
func scattered(sub *meta.Subscription, cause error) error {
	return &queue.Error{
		Op: "claim", Subject: sub.Name, Kind: queue.KindThrottled, Code: queue.CodeTooManyInFlight,
		Limit: queue.MaxCursorEntries, RetryAfter: time.Second, Err: cause,
		Message: "the messages in flight lie in too many separate pieces; ack or release the oldest first",
	}
}

// visit claims from the topic's segments.
func (s *Service) visit(ctx context.Context, c *call) {
	if c.m.Topic.Promotes(c.now) {
		s.promote(ctx, c)
	}
	s.known.adopt(c.sub)
	if c.sub.Keyed() {
		s.visitInOrder(ctx, c)
	} else {
		s.sweep(ctx, c, c.m.Segments)
	}
	s.noteDrained(ctx, c)
}

// sweep claims from segment after segment. A segment that fails does not keep others from being claimed
// from. It reports whether there is more to be claimed.
func (s *Service) sweep(ctx context.Context, c *call, segs []*meta.Segment) bool {
	first, width := s.random(len(segs)), 1
	for i := 0; i < len(segs); {
		var wave []*glance
		for ; i < len(segs) && len(wave) < width; i++ {
			seg := segs[(first+i)%len(segs)]
			if !s.known.isDrained(cursorID{c.sub.ID, seg.ID}) {
				wave = append(wave, &glance{seg: seg})
			}
		}
		if len(wave) > 1 {
			each(len(wave), func(j int) { wave[j].err = s.glance(ctx, c, wave[j]) })
		}
		before := len(c.holds)
		for _, g := range wave {
			if c.messages <= 0 || c.bounded && c.taken && c.bytes <= 0 || ctx.Err() != nil {
				return false
			}
			c.fail(s.claimFrom(ctx, c, g))
		}
		// Many segments without messages must not take many times as long, and reads that turn
		// out needless must be few.
		if width = min(2*width, workers); len(c.holds) > before {
			width = 1
		}
	}
	return true
}

// glance is what was read of a segment ahead of claiming from it.
type glance struct {
	seg  *meta.Segment
	cur  *meta.Cursor
	view *view // nil if nothing was read
	err  error
}

// glance reads what claimFrom needs.
func (s *Service) glance(ctx context.Context, c *call, g *glance) (err error) {
	if g.cur, err = s.cursor(ctx, c.sub.ID, g.seg.ID); err != nil {
		return err
	}
	g.view = s.view(g.seg.ID, c.now)
	if g.cur == nil {
		return g.view.load(ctx)
	}
	// A page that is gone is dealt with by the cut.
	if _, _, err = g.view.at(ctx, max(g.cur.Next, g.view.start)); queue.Is(err, queue.KindCorrupt) {
		return nil
	}
	return err
}

// promote lets delayed messages that are due be claimed. An entry that cannot be promoted must not fail
// every claim of the topic; a store that does not answer is the caller's to know.
func (s *Service) promote(ctx context.Context, c *call) {
	_, next, err := s.delay.Promote(ctx, c.m, c.now)
	c.wakeAt(next)
	switch {
	case err == nil:
	case queue.Is(err, queue.KindUnavailable), queue.Is(err, queue.KindThrottled), queue.Is(err, queue.KindCanceled):
		c.fail(err)
	default:
		s.logger.LogAttrs(ctx, slog.LevelWarn, "delayed messages were not promoted",
			slog.String("topic", c.m.Name), slog.Any("error", err))
	}
}

func (c *call) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *call) wakeAt(at queue.Millis) {
	if at > c.now && (c.next == 0 || at < c.next) {
		c.next = at
	}
}

// hidden is how long the claims of the call hold.
func (c *call) hidden() time.Duration {
	if c.visibility != 0 {
		return c.visibility
	}
	return c.sub.VisibilityTimeout
}

// claimFrom claims from one segment.
func (s *Service) claimFrom(ctx context.Context, c *call, g *glance) error {
	if g.err != nil {
		return g.err
	}
	id := cursorID{c.sub.ID, g.seg.ID}
	done, err := s.cursors.Take(ctx, id)
	if err != nil {
		return canceled(ctx, "claim")
	}
	defer done()
	if g.view == nil {
		if err := s.glance(ctx, c, g); err != nil {
			return err
		}
	}
	seg, v, cur := g.seg, g.view, g.cur
	if cur, err = s.bury(ctx, c, seg, v, cur); err != nil {
		c.fail(err) // what cannot be buried now stays where it is; others go on
	}
	isolated, firsts := false, false
	for try := range maxTries {
		p, err := c.newPlan(ctx, seg, v, cur)
		if err != nil {
			return err
		}
		p.isolated, p.firsts = isolated, firsts
		if c.sub.Keyed() {
			err = p.makeKeyed(ctx)
		} else {
			err = p.make(ctx)
		}
		if err != nil {
			return err
		}
		if !p.changes() {
			c.learn(p)
			return nil
		}
		var made bool
		if cur, made, err = s.write(ctx, p); err != nil {
			return err
		}
		if made {
			c.accept(p)
			if c.sub.Keyed() && drained(v.head, cur) {
				c.drain(seg.ID) // all of the rest had expired
			}
			isolated, firsts = p.isolated, p.firsts
			if !p.cut.tired || c.messages <= 0 {
				c.learn(p)
				return nil
			}
			continue
		}
		if try > 2 && !pause(ctx, try-2) {
			return canceled(ctx, "claim")
		}
	}
	return &queue.Error{
		Op: "claim", Subject: string(seg.ID), Kind: queue.KindThrottled,
		Message: "too many consumers at once",
	}
}

// learn notes what a plan has found out.
func (c *call) learn(p *plan) {
	c.wakeAt(p.next)
	c.capped = c.capped || p.capped
	c.full = c.full || p.capped && p.room <= 0
	if h := p.view.head; h != nil && h.Sealed && p.seg.Sealed == 0 {
		c.behind = true
	}
	if !p.changes() && p.drained() {
		c.drain(p.seg.ID)
	}
}

func (c *call) drain(id queue.SegmentID) {
	if c.s.known.drain(cursorID{c.sub.ID, id}) {
		c.drained = append(c.drained, id)
	}
}

// accept takes over what a plan claimed.
func (c *call) accept(p *plan) {
	c.holds = append(c.holds, p.holds...)
	c.messages, c.bytes, c.taken = p.messages, p.cut.bytes, p.cut.taken
	c.wakeAt(p.next)
}

// write carries out a plan's take. made is false if it was refused: then cur is the cursor to plan
// from anew.
func (s *Service) write(ctx context.Context, p *plan) (cur *meta.Cursor, made bool, err error) {
	res, err := s.meta.Apply(ctx, p.take)
	if err == nil {
		cur, _ = res.Item.Record.(*meta.Cursor)
		return cur, true, nil
	}
	if refused, ok := meta.AsRefused(err); ok {
		// An earlier try of ours may have been carried out by the store's client.
		cur = cursorIn(refused)
		return cur, p.madeIn(cur), nil
	}
	switch queue.KindOf(err) {
	case queue.KindTooLarge:
		return nil, false, scattered(p.c.sub, err) // the record is full: as good as the limit of entries
	case queue.KindOutcomeUnknown, queue.KindCanceled:
		return s.resolve(ctx, p, err)
	default:
		return nil, false, err
	}
}

// resolve finds out whether a take whose answer was lost was carried out. If it was, but the caller
// has gone away, what it claimed is given back.
func (s *Service) resolve(ctx context.Context, p *plan, cause error) (*meta.Cursor, bool, error) {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	cur, err := s.reread(clean, p.take.Subscription, p.take.Segment)
	switch {
	case err != nil:
		// Nobody has the receipts, so what may be claimed comes back by itself.
		return nil, false, cause
	case ctx.Err() == nil && !queue.Is(cause, queue.KindCanceled):
		return cur, p.madeIn(cur), nil
	case p.madeIn(cur):
		s.giveBack(ctx, p.holds)
	}
	return nil, false, canceled(ctx, "claim")
}

// reread reads a cursor after a lost answer, and tries again where the store fails once more.
func (s *Service) reread(ctx context.Context, sub queue.SubscriptionID, seg queue.SegmentID) (*meta.Cursor, error) {
	for try := 0; ; try++ {
		cur, err := s.cursor(ctx, sub, seg)
		if err == nil || !queue.Retryable(err) || try == maxTries || !pause(ctx, try) {
			return cur, err
		}
	}
}
