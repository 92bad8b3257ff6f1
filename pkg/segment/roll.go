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

// rollLater rolls a head that a commit has made long. The messages are committed: a roll that fails is not this
// caller's failure, and if the writer dies before it, whoever finds the tail as long again rolls, or full.
func (l *Log) rollLater(ctx context.Context, head *meta.Head) {
	if l.later == nil {
		_ = l.Roll(ctx, head)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rolling[head.Segment] != nil {
		return // one is under way
	}
	done := make(chan struct{})
	l.rolling[head.Segment] = done
	l.later(func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.rolling, head.Segment)
			close(done)
		}()
		_ = l.Roll(ctx, head)
	})
}

// AnyRolling reports whether a roll that was begun for an earlier commit is under way.
func (l *Log) AnyRolling() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rolling) > 0
}

// Rolling is closed when the roll of the segment that this Log began for an earlier commit has ended; nil if there is
// none. A commit that does not wait for it is refused by a store whose transactions hold their records, and has to be
// tried again.
func (l *Log) Rolling(id queue.SegmentID) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rolling[id]
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
