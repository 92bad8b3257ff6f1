package consume

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Peek shows visible messages that have not expired, whatever subscriptions have done with them.
// Segments come in the order of the topic's map, a segment's messages in the order of their offsets. A
// message whose payload cannot be read is passed over and logged. Nothing is written.
//
// Errors: NotFound with CodeTopicNotFound or CodeSegmentNotFound; Invalid for limit or cursor.
func (s *Service) Peek(ctx context.Context, req PeekRequest) (Peeked, error) {
	limit, err := pageLimit(req.Limit)
	if err != nil {
		return Peeked{}, err
	}
	m, err := s.topics.Open(ctx, req.Topic)
	if err != nil {
		return Peeked{}, err
	}
	segs, at, err := s.peekFrom(ctx, m, &req)
	if err != nil {
		return Peeked{}, err
	}
	k := cutter{now: s.clock.Millis(), bytes: min(queue.DefaultClaimBytes, s.maxInline), bounded: true, room: limit * 2, refs: maxRefs}
	var out Peeked
	for i, seg := range segs {
		v := s.view(seg.ID, k.now)
		k.view = v
		if err := v.load(ctx); err != nil {
			return Peeked{}, err
		}
		from := max(v.start, at)
		if at == 0 && req.From != 0 {
			if from, err = s.firstVisible(ctx, v, req.From); err != nil {
				return Peeked{}, err
			}
		}
		at = 0
		got, next, err := s.readFrom(ctx, &k, from, limit)
		if err != nil {
			return Peeked{}, err
		}
		out.Deliveries = append(out.Deliveries, got.out...)
		limit -= got.count
		if next < v.head.Next {
			out.Next = queue.MessageID{Segment: seg.ID, Offset: next}.String()
			return out, nil
		}
		if limit <= 0 && i+1 < len(segs) {
			out.Next = queue.MessageID{Segment: segs[i+1].ID}.String()
			return out, nil
		}
	}
	return out, nil
}

// peekFrom says which segments a peek reads, and from which offset on the first of them.
func (s *Service) peekFrom(ctx context.Context, m *topics.Map, req *PeekRequest) ([]*meta.Segment, queue.Offset, error) {
	segs, at := m.Segments, queue.Offset(0)
	if req.Segment != "" {
		seg, err := s.segment(ctx, m, req.Segment)
		if err != nil {
			return nil, 0, err
		}
		if seg == nil {
			return nil, 0, noSegment(req.Segment)
		}
		segs, at = []*meta.Segment{seg}, req.Offset
	}
	if req.Cursor == "" {
		return segs, at, nil
	}
	id, err := queue.ParseMessageID(req.Cursor)
	if err != nil {
		return nil, 0, queue.Invalid("cursor", nil, "is not one that this call has given")
	}
	for i, seg := range segs {
		if seg.ID == id.Segment {
			return segs[i:], id.Offset, nil
		}
	}
	return nil, 0, queue.Invalid("cursor", nil, "leads to a segment that the topic does not have")
}

func noSegment(id queue.SegmentID) error {
	return &queue.Error{
		Op: "open segment", Subject: string(id), Kind: queue.KindNotFound, Code: queue.CodeSegmentNotFound,
		Message: "the topic has no such segment",
	}
}

func pageLimit(limit int) (int, error) {
	switch {
	case limit == 0:
		return queue.DefaultPageSize, nil
	case limit < 1 || limit > queue.MaxPageSize:
		return 0, queue.Invalid("limit", queue.MaxPageSize, "must be 1 to %d, not %d", queue.MaxPageSize, limit)
	}
	return limit, nil
}

// got is what was read.
type got struct {
	out   []Delivery
	count int
	// bad is the first offset whose payload cannot be read, with isBad.
	bad   queue.Offset
	isBad bool
}

// readFrom reads up to limit messages from an offset on, and says where to read on: past what has
// expired, and no further than the end of the segment.
func (s *Service) readFrom(ctx context.Context, k *cutter, from queue.Offset, limit int) (got, queue.Offset, error) {
	end := k.view.head.Next
	if from >= end || limit <= 0 {
		return got{}, from, nil
	}
	cut, err := k.cut(ctx, []meta.OffsetRange{{Lo: from, Hi: end}}, limit)
	if err != nil {
		return got{}, from, err
	}
	next := end
	if len(cut.rest) > 0 {
		next = cut.rest[0].Lo
	}
	all := make([]*fetched, len(cut.runs))
	for i := range all {
		all[i] = &fetched{run: &cut.runs[i]}
	}
	s.fetchAll(ctx, all, false)
	g := got{count: cut.count}
	for i := range all {
		if all[i].err != nil {
			return got{}, from, all[i].err
		}
		if len(all[i].bad) > 0 && !g.isBad {
			g.bad, g.isBad = all[i].bad[0].Lo, true
		}
		for _, d := range all[i].out {
			d.Segment = k.view.id
			g.out = append(g.out, d)
		}
	}
	return g, next, nil
}

// firstVisible finds the first ref that became visible at or after t. A segment's refs are appended
// about in the order in which they become visible, so pages are found by halving.
func (s *Service) firstVisible(ctx context.Context, v *view, t queue.Millis) (queue.Offset, error) {
	lo, hi := v.start, v.head.TailFirst
	for lo < hi {
		refs, err := s.log.PageRefs(ctx, v.id, lo+(hi-lo)/2)
		if err != nil {
			return 0, err
		}
		last := refs[len(refs)-1]
		if last.Ref.VisibleAt() < t {
			lo = last.End()
			continue
		}
		if first := refs[0]; first.Ref.VisibleAt() >= t {
			hi = min(hi-1, first.Offset)
			continue
		}
		for _, loc := range refs {
			if loc.Ref.VisibleAt() >= t {
				return loc.Offset, nil
			}
		}
	}
	for off := max(lo, v.start); ; {
		loc, ok, err := v.at(ctx, off)
		if err != nil || !ok || loc.Ref.VisibleAt() >= t {
			return off, err
		}
		off = loc.End()
	}
}

// Message reads one message of a topic.
//
// Errors: NotFound with CodeTopicNotFound, or CodeMessageNotFound if there is no such message or it
// has expired or been truncated; Corrupt if its bytes are damaged or gone.
func (s *Service) Message(ctx context.Context, topic string, id queue.MessageID) (Delivery, error) {
	m, err := s.topics.Open(ctx, topic)
	if err != nil {
		return Delivery{}, err
	}
	seg, err := s.segment(ctx, m, id.Segment)
	if err != nil {
		return Delivery{}, err
	}
	absent := &queue.Error{
		Op: "read message", Subject: id.String(), Kind: queue.KindNotFound, Code: queue.CodeMessageNotFound,
		Message: "there is no such message, or it has expired or been truncated",
	}
	if seg == nil {
		return Delivery{}, absent
	}
	v := s.view(id.Segment, s.clock.Millis())
	if err := v.load(ctx); err != nil {
		return Delivery{}, err
	}
	if id.Offset < v.start || id.Offset >= v.head.Next {
		return Delivery{}, absent
	}
	k := cutter{view: v, now: v.now, bytes: min(queue.DefaultClaimBytes, s.maxInline), bounded: true, room: 2, refs: maxRefs}
	g, next, err := s.readFrom(ctx, &k, id.Offset, 1)
	switch {
	case err != nil:
		return Delivery{}, err
	case g.isBad:
		return Delivery{}, damaged(id)
	case len(g.out) != 1 || g.out[0].Offset != id.Offset || next <= id.Offset:
		return Delivery{}, absent
	}
	return g.out[0], nil
}

func damaged(id queue.MessageID) error {
	return &queue.Error{
		Op: "read message", Subject: id.String(), Kind: queue.KindCorrupt,
		Message: "the message's bytes are damaged or gone",
	}
}

// Records reads a segment as a log, from an offset on. At the end of the log it waits for a first
// message; at the end of a sealed segment it says so, and which segments follow. It gives what lies
// before a damaged message, and for the damaged one itself an error, so that a reader can step over.
//
// Errors: NotFound with CodeTopicNotFound or CodeSegmentNotFound; Invalid for an offset past the end;
// Corrupt; Canceled.
func (s *Service) Records(ctx context.Context, req RecordsRequest) (Records, error) {
	limit, err := pageLimit(req.Limit)
	if err != nil {
		return Records{}, err
	}
	if req.Wait < 0 || req.Wait > queue.MaxWait {
		return Records{}, queue.Invalid("wait", queue.MaxWait.Seconds(), "must be 0 to %s seconds", queue.Plain(queue.MaxWait.Seconds()))
	}
	end := s.end(ctx, req.Wait)
	for rest := pollFirst; ; rest = longer(rest, 1) {
		m, err := s.topics.Open(ctx, req.Topic)
		if err != nil {
			return Records{}, err
		}
		signal, leave := s.hub.Wait(m.ID())
		out, err := s.records(ctx, m, &req, limit)
		if err != nil || len(out.Deliveries) > 0 || out.End || out.Next > req.Offset || s.over(end) {
			leave()
			return out, err
		}
		s.await(ctx, signal, s.wake(0, end, rest))
		leave()
		if ctx.Err() != nil {
			return Records{}, canceled(ctx, "read records")
		}
	}
}

func (s *Service) records(ctx context.Context, m *topics.Map, req *RecordsRequest, limit int) (Records, error) {
	seg, err := s.segment(ctx, m, req.Segment)
	if err != nil {
		return Records{}, err
	}
	if seg == nil {
		return Records{}, noSegment(req.Segment)
	}
	v := s.view(seg.ID, s.clock.Millis())
	if err := v.load(ctx); err != nil {
		return Records{}, err
	}
	if req.Offset > v.head.Next {
		return Records{}, queue.Invalid("offset", uint64(v.head.Next), "is past the end of the segment, %d", v.head.Next)
	}
	k := cutter{view: v, now: v.now, bytes: min(queue.DefaultClaimBytes, s.maxInline), bounded: true, room: limit * 2, refs: maxRefs}
	g, next, err := s.readFrom(ctx, &k, max(req.Offset, v.start), limit)
	if err != nil {
		return Records{}, err
	}
	if g.isBad {
		if g.out = before(g.out, g.bad); len(g.out) == 0 {
			return Records{}, damaged(queue.MessageID{Segment: seg.ID, Offset: g.bad})
		}
		next = g.bad
	}
	out := Records{Deliveries: g.out, Next: next, End: v.head.Sealed && next >= v.head.Next}
	if out.End {
		if out.Successors, err = s.successors(ctx, m, seg); err != nil {
			return Records{}, err
		}
	}
	return out, nil
}

// before keeps deliveries that lie below off.
func before(all []Delivery, off queue.Offset) []Delivery {
	for i := range all {
		if all[i].Offset >= off {
			return all[:i]
		}
	}
	return all
}

// successors are those of a sealed segment. A map that does not know of the sealing is old.
func (s *Service) successors(ctx context.Context, m *topics.Map, seg *meta.Segment) ([]queue.SegmentID, error) {
	if seg.Sealed != 0 {
		return seg.Successors, nil
	}
	m, err := s.topics.Reload(ctx, m.Name)
	if err != nil {
		return nil, err
	}
	if seg = m.Segment(seg.ID); seg == nil {
		return nil, nil
	}
	return seg.Successors, nil
}

// oldest is when the message at off became visible; 0 if that cannot be told.
func (s *Service) oldest(ctx context.Context, v *view, off queue.Offset) (queue.Millis, error) {
	loc, ok, err := s.refAt(ctx, v, off)
	if err != nil || !ok {
		return 0, err
	}
	return loc.Ref.VisibleAt(), nil
}

func ageOf(at, now queue.Millis) time.Duration { return max(0, now.Sub(at)) }
