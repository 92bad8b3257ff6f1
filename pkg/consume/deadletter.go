package consume

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// The headers that a dead letter carries besides its own.
const (
	// HeaderReason is what the consumer gave as reason when it released the message the last
	// time, or one of the Reason constants.
	HeaderReason = "spillway-dead-letter-reason"
	// HeaderSourceTopic and HeaderSourceID are the topic that the message was in, and its id there.
	HeaderSourceTopic = "spillway-dead-letter-source-topic"
	HeaderSourceID    = "spillway-dead-letter-source-id"
	// HeaderSubscription is the subscription that failed on it, HeaderAttempts how often it was
	// delivered there.
	HeaderSubscription = "spillway-dead-letter-subscription"
	HeaderAttempts     = "spillway-dead-letter-attempts"
	// HeaderMoved is when it was moved, in queue.TimeLayout.
	HeaderMoved = "spillway-dead-letter-moved-at"
)

// The reasons of dead letters for which the consumer gave none.
const (
	ReasonMaxDeliveries = "max_deliveries"
	ReasonRejected      = "rejected"
)

const (
	// maxLetters bounds the messages that one transaction moves: all may go to one segment, and
	// a tail has room for this many once it was rolled.
	maxLetters = queue.MaxCommitRefs
	// maxBurials bounds the transactions that one claim makes per cursor before it goes on.
	maxBurials = 4
	// parkPause is how long a message stays hidden that could not be moved.
	parkPause = time.Minute
)

// letter is a message on its way to the dead-letter topic.
type letter struct {
	loc      segment.Located
	off      queue.Offset
	attempts uint32
	reason   string
}

// mail is where letters come from.
type mail struct {
	m    *topics.Map
	sub  *meta.Subscription
	seg  *meta.Segment
	view *view
}

// bury moves what is due and was delivered too often to the dead-letter topic. It gives the cursor
// after it; on an error that is the newest one seen, and what it holds too often delivered stays.
func (s *Service) bury(ctx context.Context, c *call, seg *meta.Segment, v *view, cur *meta.Cursor) (*meta.Cursor, error) {
	if cur == nil || !buries(c.sub) {
		return cur, nil
	}
	from := mail{c.m, c.sub, seg, v}
	most := maxLetters
	for range maxBurials {
		take, letters, err := s.gather(ctx, c, v, cur, most)
		if err != nil || take == nil {
			return cur, err
		}
		next, err := s.post(ctx, from, *take, letters)
		if errors.Is(err, errMoved) {
			continue
		}
		if refused, ok := meta.AsRefused(err); ok {
			if cur = cursorIn(refused); cur == nil {
				return nil, nil
			}
			continue
		}
		switch {
		case err == nil:
			cur = next
		case queue.Is(err, queue.KindTooLarge) && most > 1:
			most = 1 // their headers are too large to stand together in a head
		case queue.Is(err, queue.KindNotFound), queue.Is(err, queue.KindSealed), queue.Is(err, queue.KindTooLarge):
			return s.park(ctx, c, cur, err)
		default:
			return cur, err
		}
	}
	return cur, nil
}

// gather makes a take that ends up to most messages that were delivered too often; nil if there are
// none. Those that have expired meanwhile are done without being moved.
func (s *Service) gather(ctx context.Context, c *call, v *view, cur *meta.Cursor, most int) (*meta.Take, []letter, error) {
	take := &meta.Take{Subscription: cur.Subscription, Segment: cur.Segment, From: cur.Next, To: cur.Next}
	k := cutter{view: v, now: c.now, room: 2 * queue.MaxCursorEntries, refs: maxRefs}
	var letters []letter
	list, _ := dueOf(cur, c.now)
	for i := range list {
		d := &list[i]
		if !spent(c.sub, d.attempts) {
			continue
		}
		cut, err := k.cut(ctx, d.ranges, most-len(letters))
		if err != nil {
			return nil, nil, err
		}
		if len(cut.runs)+len(cut.gone) == 0 {
			break
		}
		d.use(take, c.now)
		take.Done = append(take.Done, cut.gone...)
		take.AddRetries = append(take.AddRetries, d.rest(cut.rest)...)
		reason := d.back().Reason
		if reason == "" {
			reason = ReasonMaxDeliveries
		}
		for j := range cut.runs {
			take.Done = append(take.Done, cut.runs[j].OffsetRange)
			letters = appendLetters(letters, &cut.runs[j], d.attempts, reason)
		}
	}
	if len(take.Drop)+len(take.DropRetries) == 0 {
		return nil, nil, nil
	}
	return take, letters, nil
}

func appendLetters(letters []letter, r *run, attempts uint32, reason string) []letter {
	for off := r.Lo; off < r.Hi; off++ {
		letters = append(letters, letter{r.loc, off, attempts, reason})
	}
	return letters
}

// park hides what cannot be buried for a while, so that it is neither lost nor looked at with every
// poll.
func (s *Service) park(ctx context.Context, c *call, cur *meta.Cursor, cause error) (*meta.Cursor, error) {
	take := meta.Take{Subscription: cur.Subscription, Segment: cur.Segment, From: cur.Next, To: cur.Next}
	list, _ := dueOf(cur, c.now)
	parked := 0
	for i := range list {
		d := &list[i]
		if !spent(c.sub, d.attempts) {
			continue
		}
		d.use(&take, c.now)
		for _, r := range d.ranges {
			back := d.back()
			back.OffsetRange, back.NotBefore = r, c.now.Add(parkPause)
			take.AddRetries = append(take.AddRetries, back)
		}
		parked += d.count
	}
	res, err := s.meta.Apply(ctx, take)
	if refused, ok := meta.AsRefused(err); ok {
		if now := cursorIn(refused); now != nil {
			return now, nil
		}
	}
	if err != nil {
		return cur, err
	}
	s.logger.LogAttrs(ctx, slog.LevelWarn, "dead letters cannot be moved and are kept back",
		slog.String("topic", c.m.Name), slog.String("subscription", c.sub.Name),
		slog.String("dead_letter_topic", c.sub.DeadLetterTopic), slog.Int("messages", parked), slog.Any("error", cause))
	next, _ := res.Item.Record.(*meta.Cursor)
	return next, nil
}

// post appends letters to the dead-letter topic and carries out end, which ends their hold, in one
// transaction; without letters end alone. It gives the cursor after it.
//
// end comes first, so that its refusal (*meta.Refused) is what is told if the letters were moved
// already: by an earlier try whose answer was lost, or by someone else. It also makes the move happen
// once: whichever try is carried out first, end's condition holds for none after it.
func (s *Service) post(ctx context.Context, from mail, end meta.Op, letters []letter) (*meta.Cursor, error) {
	if len(letters) == 0 {
		res, err := s.meta.Apply(ctx, end)
		cur, _ := res.Item.Record.(*meta.Cursor)
		return cur, err
	}
	dead, err := s.deadTopic(ctx, from.sub.DeadLetterTopic, s.topics.Open)
	if err != nil {
		return nil, err
	}
	refs, slots, err := s.letterRefs(ctx, from, letters, dead)
	if err != nil {
		return nil, err
	}
	at := s.clock.Millis()
	unknown := false // an earlier try may have moved them
	for try := range maxTries {
		var results []meta.Result
		ops := append([]meta.Op{end}, addressed(dead, refs, slots, at)...)
		appends := len(ops)
		ops = append(ops, s.holds(letters, refs, ops)...)
		if results, err = s.meta.Transact(ctx, ops); err == nil {
			s.posted(ctx, dead, results[1:appends])
			cur, _ := results[0].Item.Record.(*meta.Cursor)
			return cur, nil
		}
		if refused, ok := meta.AsRefused(err); ok {
			if refused.Index == 0 {
				// Only who holds messages can end them, so it was an earlier try of ours, or one
				// that the store's client made.
				if cur := cursorIn(refused); cur != nil && allDone(cur, letters) {
					s.hub.Signal(dead.ID())
					return cur, nil
				}
				return nil, err
			}
			if refused.Index >= appends {
				return nil, s.moved(from, letters, refused)
			}
			if dead, at, err = s.readdress(ctx, dead, refused, at); err != nil {
				return nil, err
			}
			for i := range refs {
				setHeader(&refs[i], HeaderMoved, at.String())
			}
			continue
		}
		if queue.Is(err, queue.KindOutcomeUnknown) {
			unknown = true
			cur, rerr := s.reread(ctx, from.sub.ID, from.seg.ID)
			if rerr == nil && cur != nil && allDone(cur, letters) {
				s.hub.Signal(dead.ID())
				return cur, nil
			}
		}
		if !queue.Retryable(err) || queue.Is(err, queue.KindCanceled) || !pause(ctx, try) {
			return nil, queue.Unsure(err, unknown)
		}
	}
	return nil, queue.Unsure(err, unknown)
}

// errMoved says that the bytes of letters are no longer where they were read: the refs are read again.
var errMoved = errors.New("the messages were moved by a compactor")

// holds takes hold of the objects that letters share with their source, one hold for all that share one
// object, and sees to it that the source still owns them at that instant (docs/decisions/0007). A check
// of a head to which the same transaction appends is left out: the append goes by what that head is.
func (s *Service) holds(letters []letter, refs []meta.Ref, ops []meta.Op) []meta.Op {
	type object struct {
		key    string
		inline bool
	}
	taken := make(map[object]*meta.Hold)
	sources := make(map[meta.Key]bool)
	for _, op := range ops {
		sources[op.Target()] = true
	}
	var out []meta.Op
	for i := range refs {
		at := object{refs[i].Object, refs[i].Inline}
		h := taken[at]
		if h == nil {
			h = &meta.Hold{Object: at.key, Inline: at.inline, ID: refs[i].Hold.String(), Created: s.clock.Millis()}
			taken[at] = h
			out = append(out, meta.Put{Record: h, If: meta.Absent(), Version: meta.NewVersion(s.ids)})
		}
		h.Total++
		if check := letters[i].loc.Check(); !sources[check.Target()] {
			sources[check.Target()] = true
			out = append(out, check)
		}
	}
	return out
}

// moved drops what was read of the letters' places.
func (s *Service) moved(from mail, letters []letter, r *meta.Refused) error {
	for i := range letters {
		s.log.Forget(from.seg.ID, letters[i].off)
	}
	from.view.reset()
	return &queue.Error{
		Op: "move dead letter", Subject: string(from.seg.ID), Kind: queue.KindUnavailable,
		Message: r.Error(), Err: errMoved,
	}
}

// deadTopic finds the dead-letter topic; Sealed if it takes no messages.
func (s *Service) deadTopic(ctx context.Context, name string, open func(context.Context, string) (*topics.Map, error)) (*topics.Map, error) {
	m, err := open(ctx, name)
	if err != nil {
		return nil, err
	}
	if m.Topic.State != meta.TopicOpen || len(m.Open) == 0 {
		return nil, &queue.Error{Op: "move dead letter", Subject: name, Kind: queue.KindSealed, Message: "the dead-letter topic is sealed"}
	}
	return m, nil
}

// readdress deals with an append that was refused, and says what to try again with.
func (s *Service) readdress(ctx context.Context, dead *topics.Map, r *meta.Refused, at queue.Millis) (*topics.Map, queue.Millis, error) {
	switch r.Reason {
	case meta.ReasonTailFull:
		if head, ok := r.Current.Record.(*meta.Head); ok {
			if err := s.log.Roll(ctx, head); err != nil && !queue.Retryable(err) {
				return dead, at, err
			}
		}
		return dead, at, nil
	case meta.ReasonSealed, meta.ReasonEpoch, meta.ReasonAbsent:
		next, err := s.deadTopic(ctx, dead.Name, s.topics.Reload)
		return next, at, err
	case meta.ReasonDuplicate:
		// The hold was there, so this is no echo of ours: the same message was moved under the
		// same headers before, in the same millisecond. Its subscription has been moved back.
		return dead, at + 1, nil
	default:
		return dead, at, r
	}
}

// posted cares for the heads that letters were appended to, as a commit does, and wakes who waits.
func (s *Service) posted(ctx context.Context, dead *topics.Map, results []meta.Result) {
	s.log.Appended(ctx, results)
	s.hub.Signal(dead.ID())
}

func allDone(cur *meta.Cursor, letters []letter) bool {
	for i := range letters {
		if !cur.IsDone(letters[i].off) {
			return false
		}
	}
	return true
}

// letterRefs makes a ref for each letter: the same bytes under more headers.
func (s *Service) letterRefs(ctx context.Context, from mail, letters []letter, dead *topics.Map) ([]meta.Ref, []queue.Slot, error) {
	now := s.clock.Millis()
	refs, slots := make([]meta.Ref, len(letters)), make([]queue.Slot, len(letters))
	for i := range letters {
		l := &letters[i]
		one := meta.OffsetRange{Lo: l.off, Hi: l.off + 1}
		recs, err := from.view.records(ctx, l.loc, one)
		if err != nil {
			return nil, nil, err
		}
		r := *l.loc.Ref
		r.First += uint32(l.off - l.loc.Offset) // #nosec G115 -- within the ref's count
		r.Bytes /= int64(r.Count)
		r.Count = 1
		// The slot of a message whose batch is unreadable is not known, but its segment's are.
		slots[i] = queue.Slot(from.seg.Range.Lo) // #nosec G115 -- a segment's range is not empty
		if recs != nil {
			slots[i], r.Bytes = recs[0].slot, recs[0].bytes
		}
		// It became visible in its new topic now, and lives by that topic's rule: with Min and
		// Max equal, a record's own ttl no longer counts.
		r.Visible, r.DefaultTTL, r.MinExpires, r.MaxExpires = now, 0, 0, 0
		if ttl := dead.Topic.Config.DefaultTTL; ttl > 0 {
			r.MinExpires, r.MaxExpires = now.Add(ttl), now.Add(ttl)
		}
		r.Headers = batch.Headers(r.Headers).Merge(map[string]string{
			HeaderReason:       l.reason,
			HeaderSourceTopic:  from.m.Name,
			HeaderSourceID:     queue.MessageID{Segment: from.seg.ID, Offset: l.off}.String(),
			HeaderSubscription: from.sub.Name,
			HeaderAttempts:     strconv.FormatUint(uint64(l.attempts), 10),
			HeaderMoved:        now.String(),
		})
		refs[i] = r
	}
	share(refs, s.ids)
	return refs, slots, nil
}

// share gives refs to one object one hold together.
func share(refs []meta.Ref, ids *queue.IDs) {
	type object struct {
		key    string
		inline bool
	}
	count := make(map[object]uint32)
	hold := make(map[object]meta.RefID)
	for i := range refs {
		at := object{refs[i].Object, refs[i].Inline}
		if count[at]++; count[at] == 1 {
			hold[at] = ids.Nonce()
		}
	}
	for i := range refs {
		at := object{refs[i].Object, refs[i].Inline}
		refs[i].Hold, refs[i].Total = hold[at], count[at]
	}
}

func setHeader(r *meta.Ref, name, value string) {
	r.Headers = batch.Headers(r.Headers).Merge(map[string]string{name: value})
}

// addressed makes one append for each segment that the letters go to.
func addressed(dead *topics.Map, refs []meta.Ref, slots []queue.Slot, at queue.Millis) []meta.Op {
	var ops []meta.Op
	index := make(map[queue.SegmentID]int)
	for i := range refs {
		seg := dead.Route(slots[i])
		j, ok := index[seg.ID]
		if !ok {
			j = len(ops)
			index[seg.ID] = j
			ops = append(ops, meta.Append{Segment: seg.ID, Epoch: seg.Epoch, At: at})
		}
		a, _ := ops[j].(meta.Append)
		a.Refs = append(a.Refs, refs[i])
		a.Buckets[seg.Range.LoadBucket(slots[i])]++
		ops[j] = a
	}
	return ops
}
