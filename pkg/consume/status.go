package consume

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Status counts the messages of a subscription, segment by segment, in the order of the topic's map.
// Segments are read one after another while messages move, so the sums are of about one time. The
// cost is two reads per segment, and one more where the oldest message lies in a page.
//
// Errors: NotFound with CodeTopicNotFound or CodeSubscriptionNotFound; the store's.
func (s *Service) Status(ctx context.Context, topic, subscription string) (Status, error) {
	m, sub, err := s.subscription(ctx, topic, subscription)
	if err != nil {
		return Status{}, err
	}
	now := s.clock.Millis()
	type part struct {
		st     SegmentStatus
		oldest queue.Millis
		err    error
	}
	parts := make([]part, len(m.Segments))
	each(len(parts), func(i int) {
		parts[i].st, parts[i].oldest, parts[i].err = s.segmentStatus(ctx, sub, m.Segments[i], now)
	})
	var out Status
	for i := range parts {
		p := &parts[i]
		if p.err != nil {
			return Status{}, p.err
		}
		out.Segments = append(out.Segments, p.st)
		out.Ready += p.st.Ready
		out.InFlight += p.st.InFlight
		out.Delayed += p.st.Delayed
		if p.oldest == 0 {
			continue
		}
		if age := ageOf(p.oldest, now); !out.HasOldest || age > out.OldestAge {
			out.OldestAge, out.HasOldest = age, true
		}
	}
	return out, nil
}

func (s *Service) segmentStatus(ctx context.Context, sub *meta.Subscription, seg *meta.Segment, now queue.Millis) (SegmentStatus, queue.Millis, error) {
	cur, err := s.cursor(ctx, sub.ID, seg.ID)
	if err != nil {
		return SegmentStatus{}, 0, err
	}
	v := s.view(seg.ID, now)
	// The head is read after the cursor, so that it is never behind it.
	if err := v.load(ctx); err != nil {
		return SegmentStatus{}, 0, err
	}
	if cur == nil {
		from := max(sub.Cut[seg.ID], v.head.Start)
		cur = &meta.Cursor{Floor: from, Next: from}
	}
	st := SegmentStatus{Segment: seg.ID, Floor: cur.Floor, Next: cur.Next, End: v.head.Next}
	list, _ := dueOf(cur, now)
	due := 0
	for i := range list {
		due += list[i].count
	}
	retries, expired := 0, 0
	for i := range cur.Retries {
		retries += cur.Retries[i].Len()
	}
	for i := range list {
		if list[i].claim != nil {
			expired += list[i].count
		}
	}
	fresh := v.head.Next - min(v.head.Next, max(cur.Next, v.start))
	st.Ready = uint64(fresh) + uint64(due)         // #nosec G115 -- counts
	st.InFlight = uint64(cur.InFlight() - expired) // #nosec G115 -- counts
	st.Delayed = uint64(retries - (due - expired)) // #nosec G115 -- counts
	if cur.Floor >= v.head.Next {
		return st, 0, nil
	}
	oldest, err := s.oldest(ctx, v, cur.Floor)
	return st, oldest, err
}
