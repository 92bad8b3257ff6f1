package produce

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// maxEntriesPerWrite leaves room in a transaction for the attempt record of a guarded call.
	maxEntriesPerWrite = meta.MaxTransactOps - 1
)

// putDelayed puts parts in the delayed index: one entry for each run of messages with one visible
// and one expiry time. A guarded call puts all its entries and the note that it did so in one
// transaction, which is what makes it safe to repeat: an entry may be promoted and gone by the time
// of the retry, so its absence says nothing. More entries than a transaction takes go in several, each
// with its note.
func (c *call) putDelayed(ctx context.Context, parts []part) error {
	if c.Clock.Millis() > c.deadline {
		// We have stalled since the object was put; it may have been swept.
		return &queue.Error{Op: "produce", Subject: c.topic.Name, Kind: queue.KindUnavailable, Message: "the call took too long and is void"}
	}
	room, err := c.room()
	if err != nil {
		return err
	}
	if c.guard != nil && (len(parts) > room || c.guard.inSteps()) {
		return c.guard.putMany(ctx, c, parts)
	}
	if c.guard != nil && c.guard.delayedDone(c, parts) {
		return nil
	}
	var entries []meta.Op
	for i, p := range parts {
		entries = append(entries, c.entry(i, p))
	}
	if c.guard != nil {
		return c.guard.putEntries(ctx, c, entries)
	}
	for len(entries) > 0 {
		n := min(len(entries), maxEntriesPerWrite)
		if err := c.putEntries(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// entry makes the entry of the n-th part and notes its messages' ids.
func (c *call) entry(n int, p part) meta.Op {
	recs := p.records()
	d := &meta.Delayed{
		Topic: c.topic.ID(), Visible: recs[0].visible, ID: c.entryID(n), Ref: p.ref(),
		Slots: make([]queue.Slot, len(recs)),
	}
	d.Ref.Visible = d.Visible
	d.Sizes = make([]uint32, len(recs))
	for i, rec := range recs {
		d.Slots[i] = rec.slot
		d.Sizes[i] = uint32(min(rec.size, int64(^uint32(0))))                                            // #nosec G115 -- clamped
		c.results[rec.pos].delayed = &queue.DelayedID{Visible: d.Visible, Entry: d.ID, Index: uint32(i)} // #nosec G115 -- bounded by MaxBatchRecords
	}
	return meta.Put{Record: d, If: meta.Absent(), Version: meta.NewVersion(c.IDs)}
}

// entryID is random, or, for a guarded call, the same in each try.
func (c *call) entryID(n int) queue.EntryID {
	if c.guard == nil {
		return c.IDs.Entry()
	}
	return queue.EntryIDOf(c.unitID(n))
}

// putEntries puts entries that are not guarded. An unknown outcome is read back; if the entry is not
// there, it cannot be told whether it never was or has been promoted already, and the caller hears
// so.
func (c *call) putEntries(ctx context.Context, entries []meta.Op) error {
	var err error
	if len(entries) == 1 {
		_, err = c.Meta.Apply(ctx, entries[0])
	} else {
		_, err = c.Meta.Transact(ctx, entries)
	}
	if meta.IsRefused(err, meta.ReasonExists) {
		return nil // ids are random: the store's client sent our own put twice
	}
	if !queue.Is(err, queue.KindOutcomeUnknown) {
		return err
	}
	if _, rerr := c.Meta.Get(ctx, entries[0].Target()); rerr == nil {
		return nil
	}
	return err
}
