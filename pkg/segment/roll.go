package segment

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Roll moves the older half of a head's tail into a page: one transaction that puts the page, if
// absent, and trims the head, if it still starts there. Of any number that race one wins, and the
// others find that done: no error. head is as it was last read; one that is older than the store's
// makes Roll do nothing.
func (l *Log) Roll(ctx context.Context, head *meta.Head) error {
	n := min(queue.RollRefs, len(head.Tail))
	if n == 0 {
		return nil
	}
	page := &meta.RefPage{Segment: head.Segment, First: head.TailFirst, Refs: head.Tail[:n:n], Rolled: head.LastAppend}
	_, err := l.meta.Transact(ctx, []meta.Op{
		meta.Put{Record: page, If: meta.Absent(), Version: meta.NewVersion(l.ids)},
		meta.Trim{
			Segment: head.Segment, First: head.TailFirst, Count: n,
			Forget: l.clock.Millis().Add(-queue.ProducerWindow),
		},
	})
	if meta.IsRefused(err, meta.ReasonTrim) || meta.IsRefused(err, meta.ReasonExists) {
		return nil
	}
	return err
}
