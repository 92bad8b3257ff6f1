package segment

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Roll moves a head's tail, as far as head shows it, into a page: one transaction that puts the page, if
// absent, and trims the head, if it still starts there. Of any number that race one wins, and the
// others find that done: no error. Those of one Log that would do the same roll share one call. head is
// as it was last read; one that is older than the store's makes Roll do nothing.
func (l *Log) Roll(ctx context.Context, head *meta.Head) error {
	if len(head.Tail) == 0 {
		return nil
	}
	// The call goes on if the caller that began it goes away: others wait for it.
	_, err, _ := l.rolls.Do(meta.PageKey(head.Segment, head.TailFirst).String(), func() (any, error) {
		return nil, l.roll(context.WithoutCancel(ctx), head)
	})
	return err
}

func (l *Log) roll(ctx context.Context, head *meta.Head) error {
	n := len(head.Tail)
	page := &meta.RefPage{Segment: head.Segment, First: head.TailFirst, Refs: head.Tail[:n:n], Rolled: head.LastAppend}
	now := l.clock.Millis()
	ops := []meta.Op{
		meta.Put{Record: page, If: meta.Absent(), Version: meta.NewVersion(l.ids)},
		meta.Trim{
			Segment: head.Segment, First: head.TailFirst, Count: n,
			Forget: now.Add(-queue.ProducerWindow), Seen: head,
		},
	}
	if notes(head.TailFirst) {
		work := &meta.Work{Due: now.Add(queue.CompactAge + queue.ClockSlack), Segment: head.Segment}
		ops = append(ops, meta.Put{Record: work, Version: meta.NewVersion(l.ids)})
	}
	_, err := l.meta.Transact(ctx, ops)
	if meta.IsRefused(err, meta.ReasonTrim) || meta.IsRefused(err, meta.ReasonExists) {
		return nil
	}
	return err
}

// notes reports whether the roll of the tail that starts at first leaves a note for the compactor: one
// in queue.WorkRolls does, by a hash of the offset, so that no commit pays for a counter in the head.
func notes(first queue.Offset) bool {
	// SplitMix64: first's low bits alone are alike for tails of one length.
	x := uint64(first) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return x%queue.WorkRolls == 0
}

// Appended does after a transaction what Append does after a commit: it rolls the heads among the results
// that have grown long or heavy. A roll that fails is left to the next writer.
func (l *Log) Appended(ctx context.Context, results []meta.Result) {
	for i := range results {
		head, ok := results[i].Item.Record.(*meta.Head)
		if ok && (len(head.Tail) >= queue.RollRefs || results[i].Item.Size >= queue.RollBytes) {
			_ = l.Roll(ctx, head)
		}
	}
}
