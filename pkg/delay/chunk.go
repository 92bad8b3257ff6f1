package delay

import (
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

const (
	// maxAppendRefs is what a head takes at once if it was rolled when it should be.
	maxAppendRefs = queue.MaxCommitRefs
	// maxAppendBytes bounds the keys and headers of one append's refs, which payload refs carry:
	// a head is one record.
	maxAppendBytes = 64 << 10
)

// maxDropped bounds the runs that a chunk notes as expired: a record holds no more. Of an entry that has
// been cut to pieces by thousands of cancellations the bytes are kept for ever.
const maxDropped = 2000

// waiting is an entry that is due, as it was read.
type waiting struct {
	entry   *meta.Delayed
	version meta.Version
}

// chunk is one transaction: marks, the ops on entries and forwards, and then the appends. Marks come
// first, because a refusal names the first op: if an entry was changed, that is the reason that
// counts.
type chunk struct {
	ops   []meta.Op
	marks int
	// entries is how many of the due entries it takes; rest is the last of them as it will be, if
	// only a part of its messages fits.
	entries int
	rest    *waiting
	// messages is how many are appended.
	messages int
	// dropped are those that have expired instead.
	dropped []meta.Run

	appends map[queue.SegmentID]*draft
	order   []*draft
}

// draft is the append to one segment.
type draft struct {
	op    meta.Append
	bytes int
}

// run is a part of an entry that goes to one segment as one ref.
type run struct {
	first, count int
	segment      *meta.Segment
}

// plan makes a chunk of as many due entries as fit, at least a part of the first. Entries that fit no
// chunk as a whole, because they span more segments than a transaction may touch, go in parts.
func (p *promotion) plan(due []*waiting) *chunk {
	c := &chunk{appends: make(map[queue.SegmentID]*draft)}
	for _, w := range due {
		runs := runsOf(w.entry, p.m)
		expired := []run(nil)
		if w.entry.Ref.Expired(p.now) {
			expired, runs = runs, nil
		}
		marks := 1
		if w.entry.Home != nil {
			marks = 2
		}
		fit := c.fitting(w.entry, runs, marks)
		if fit < len(runs) && c.entries > 0 || c.size()+marks > meta.MaxTransactOps {
			break
		}
		for _, r := range runs[:fit] {
			c.add(w.entry, r, p.now)
		}
		c.entries++
		if fit < len(runs) {
			c.leave(w, runs[:fit], p.service)
			break
		}
		c.finish(w, p)
		for _, r := range expired[:min(len(expired), maxDropped-len(c.dropped))] {
			ref := refOf(w.entry, r.first, r.count)
			c.dropped = append(c.dropped, ref.Owned())
		}
	}
	c.marks = len(c.ops)
	for _, d := range c.order {
		c.ops = append(c.ops, d.op)
	}
	if len(c.dropped) > 0 {
		c.ops = append(c.ops, meta.PutDrop(p.now, p.service.IDs, c.dropped...))
	}
	return c
}

// size is the number of ops so far, with room for the note of what has expired.
func (c *chunk) size() int { return len(c.ops) + len(c.order) + 1 }

// fitting says how many of an entry's runs the chunk has room for.
func (c *chunk) fitting(e *meta.Delayed, runs []run, marks int) int {
	room := meta.MaxTransactOps - c.size() - marks
	refs := make(map[queue.SegmentID]int)
	bytes := len(e.Ref.Key) + len(e.Ref.Headers)
	for i, r := range runs {
		have, taken := 0, 0
		if d := c.appends[r.segment.ID]; d != nil {
			have, taken = len(d.op.Refs), d.bytes
		}
		n := refs[r.segment.ID]
		if have+n == 0 {
			room--
		}
		if room < 0 || have+n >= maxAppendRefs || have+n > 0 && taken+(n+1)*bytes > maxAppendBytes {
			return i
		}
		refs[r.segment.ID] = n + 1
	}
	return len(runs)
}

func (c *chunk) add(e *meta.Delayed, r run, now queue.Millis) {
	d := c.appends[r.segment.ID]
	if d == nil {
		d = &draft{op: meta.Append{Segment: r.segment.ID, Epoch: r.segment.Epoch, At: now}}
		c.appends[r.segment.ID] = d
		c.order = append(c.order, d)
	}
	d.op.Refs = append(d.op.Refs, refOf(e, r.first, r.count))
	d.bytes += len(e.Ref.Key) + len(e.Ref.Headers)
	for _, slot := range e.Slots[r.first : r.first+r.count] {
		d.op.Buckets[r.segment.Range.LoadBucket(slot)]++
	}
	c.messages += r.count
}

// finish takes an entry out of the index.
func (c *chunk) finish(w *waiting, p *promotion) {
	c.ops = append(c.ops, meta.Delete{Key: w.entry.Key(), If: meta.At(w.version), Kind: w.entry.Kind()})
	if w.entry.Home != nil {
		c.ops = append(c.ops, forwardAfter(w.entry, p.now, p.service))
	}
}

// leave marks the promoted part of an entry as gone.
func (c *chunk) leave(w *waiting, runs []run, s *Service) {
	rest := *w.entry
	rest.Gone = slices.Clone(rest.Gone)
	for _, r := range runs {
		for i := range r.count {
			rest.Gone = append(rest.Gone, uint32(r.first+i)) // #nosec G115 -- bounded by MaxBatchRecords
		}
	}
	slices.Sort(rest.Gone)
	version := meta.NewVersion(s.IDs)
	c.ops = append(c.ops, meta.Put{Record: &rest, If: meta.At(w.version), Version: version})
	c.rest = &waiting{entry: &rest, version: version}
}

// forwardAfter is what becomes of the forward to an entry that is promoted or has expired. It asks
// nothing of the forward: whoever changes that changes the entry in the same transaction.
func forwardAfter(e *meta.Delayed, now queue.Millis, s *Service) meta.Op {
	f := &meta.Forward{Topic: e.Topic, Home: *e.Home}
	if e.Home.Visible <= now {
		return meta.Delete{Key: f.Key(), Kind: f.Kind()}
	}
	return meta.Put{Record: f, Version: meta.NewVersion(s.IDs)}
}

// runsOf cuts an entry where messages are gone and where its slots pass from one segment to another.
// Slots ascend, so a segment's part is in one piece but for the gaps.
func runsOf(e *meta.Delayed, m *topics.Map) []run {
	var out []run
	gone := e.Gone
	for i := 0; i < len(e.Slots); {
		if len(gone) > 0 && int(gone[0]) == i {
			gone = gone[1:]
			i++
			continue
		}
		end := len(e.Slots)
		if len(gone) > 0 {
			end = min(end, int(gone[0]))
		}
		seg := m.Route(e.Slots[i])
		n := 1
		for i+n < end && seg.Range.Contains(e.Slots[i+n]) {
			n++
		}
		out = append(out, run{i, n, seg})
		i += n
	}
	return out
}

// refOf is the ref of the messages [first, first+count) of an entry.
func refOf(e *meta.Delayed, first, count int) meta.Ref {
	r := e.Ref
	r.First += uint32(first) // #nosec G115 -- bounded by MaxBatchRecords
	r.Count = uint32(count)  // #nosec G115 -- bounded by MaxBatchRecords
	r.Visible = e.Visible
	r.Bytes = bytesOf(e, first, count)
	return r
}

// bytesOf is the length of the bodies of a run. Shares are differences of rounded sums, so that those
// of all runs add up to the whole.
func bytesOf(e *meta.Delayed, first, count int) int64 {
	if len(e.Sizes) == len(e.Slots) {
		total := int64(0)
		for _, n := range e.Sizes[first : first+count] {
			total += int64(n)
		}
		return total
	}
	n := int64(len(e.Slots))
	upTo := func(i int) int64 { return e.Ref.Bytes/n*int64(i) + e.Ref.Bytes%n*int64(i)/n }
	return upTo(first+count) - upTo(first)
}

// withGone adds one message to those that are gone; the old list stays as it is.
func withGone(gone []uint32, i uint32) []uint32 {
	at, found := slices.BinarySearch(gone, i)
	if found {
		return gone
	}
	return slices.Insert(slices.Clone(gone), at, i)
}
