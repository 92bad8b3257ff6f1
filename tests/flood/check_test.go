package flood_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// check reads the log through all segments, each after those that it succeeds, and holds that it has every
// message that was acknowledged, once and in the order of its key. It gives the number of messages.
func (r *run) check() (total int) {
	t, ctx := r.t, context.Background()
	m, err := topics.New(topics.Deps{Meta: r.store.Store, IDs: queue.NewIDs(nil), Clock: time.Now}).Reload(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	// Of segments that own one slot the later has the greater epoch.
	segs := slices.Clone(m.Segments)
	slices.SortStableFunc(segs, func(a, b *meta.Segment) int { return cmp.Compare(a.Epoch, b.Epoch) })
	last := make(map[uint32]uint32)
	for _, seg := range segs {
		for _, ref := range r.refs(ctx, seg.ID) {
			for _, body := range r.messages(&ref) {
				key, n := uint32(body>>40), uint32(body>>8) // #nosec G115 -- key and number
				if n != last[key]+1 {
					t.Fatalf("%s has message %d of key %d after message %d", seg.ID, n, key, last[key])
				}
				last[key] = n
				total++
			}
		}
	}
	for key, n := range r.acked {
		if last[key] < n {
			t.Errorf("key %d: message %d was acknowledged, and the log ends at %d", key, n, last[key])
		}
	}
	return total
}

// refs are all refs of a segment in order.
func (r *run) refs(ctx context.Context, id queue.SegmentID) (out []meta.Ref) {
	head, _, err := meta.Fetch[*meta.Head](ctx, r.store.Store, meta.HeadKey(id))
	if err != nil {
		r.t.Fatal(err)
	}
	for off := queue.Offset(0); off < head.TailFirst; {
		found, err := r.store.Store.Query(ctx, meta.PageAt(id, off))
		if err != nil || len(found.Items) != 1 {
			r.t.Fatalf("%s has no page at %d: %v", id, off, err)
		}
		page, ok := found.Items[0].Record.(*meta.RefPage)
		if !ok || page.First != off {
			r.t.Fatalf("%s has at %d the page %+v", id, off, page)
		}
		out, off = append(out, page.Refs...), page.Next()
	}
	return append(out, head.Tail...)
}

// messages are the bodies that a ref stands for.
func (r *run) messages(ref *meta.Ref) []uint64 {
	held := r.store.notes.held[ref.Object]
	if len(held) == 1 && held[0]&alike == alike {
		first := held[0]
		held = nil
		for i := range uint64(ref.First + ref.Count) {
			held = append(held, first+i<<8)
		}
	}
	return held[ref.First : ref.First+ref.Count]
}
