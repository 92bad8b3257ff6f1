package consume

import (
	"context"
	"log/slog"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// Backlog is what waits in one segment for one subscription.
type Backlog struct {
	// Oldest is since when the first message that may be claimed now, and is not, has been visible;
	// 0 if there is none. What is in flight does not count, nor what was released for later.
	Oldest queue.Millis
	// End is the segment's end.
	End queue.Offset
	// Settled: all messages below End are done. Sealed: none will come.
	Settled, Sealed bool
}

// Backlog looks at a subscription in one segment. settled is the End of an earlier Backlog of it that was
// Settled, or 0: if the segment still ends there it costs one read, otherwise two, and one more for each page that is
// needed to find the oldest message, mostly none. Head and cursor are read one after the other, while messages move.
//
// Errors: NotFound if the segment is gone; the store's.
func (s *Service) Backlog(ctx context.Context, sub *meta.Subscription, seg *meta.Segment, settled queue.Offset) (Backlog, error) {
	now := s.clock.Millis()
	v := s.view(seg.ID, now)
	if err := v.load(ctx); err != nil {
		return Backlog{}, err
	}
	b := Backlog{End: v.head.Next, Sealed: v.head.Sealed}
	if start := max(sub.Cut[seg.ID], v.start); settled == b.End || start >= b.End {
		b.Settled = true
		return b, nil
	}
	cur, err := s.cursor(ctx, sub.ID, seg.ID)
	if err != nil {
		return Backlog{}, err
	}
	if cur == nil {
		from := max(sub.Cut[seg.ID], v.head.Start)
		cur = &meta.Cursor{Floor: from, Next: from}
	}
	b.Settled = max(cur.Floor, v.start) >= b.End
	first := b.End
	if next := max(cur.Next, v.start); next < b.End {
		first = next
	}
	list, _ := dueOf(cur, now)
	for i := range list {
		first = min(first, list[i].ranges[0].Lo)
	}
	if first >= b.End {
		return b, nil
	}
	b.Oldest, err = s.waitingSince(ctx, v, first)
	return b, err
}

// maxExpired bounds how many refs of expired messages are passed over to find one that waits.
const maxExpired = 64

// waitingSince is when the first message at or after first that has not expired became visible; 0 if all
// have. Past maxExpired refs it is content with one that has.
func (s *Service) waitingSince(ctx context.Context, v *view, first queue.Offset) (queue.Millis, error) {
	newest, ok, err := s.refAt(ctx, v, v.head.Next-1)
	if err != nil || ok && newest.Ref.Expired(v.now) {
		return 0, err // messages expire in the order in which they came, or nearly so
	}
	for n := 0; ; n++ {
		loc, ok, err := s.refAt(ctx, v, first)
		if err != nil || !ok {
			return 0, err
		}
		if !loc.Ref.Expired(v.now) || n == maxExpired {
			return loc.Ref.VisibleAt(), nil
		}
		first = loc.End()
	}
}

// refAt is view.at, but that what cannot be read is not there.
func (s *Service) refAt(ctx context.Context, v *view, off queue.Offset) (segment.Located, bool, error) {
	loc, ok, err := v.at(ctx, max(off, v.start))
	if unreadable(err) {
		s.logger.LogAttrs(ctx, slog.LevelWarn, "a page of refs cannot be read", slog.Any("error", err))
		return segment.Located{}, false, nil
	}
	return loc, ok, err
}
