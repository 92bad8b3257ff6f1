package delay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// tester is the part of *testing.T that the rig needs; *rapid.T has it too.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// rig is a delay service on memory stores, with a clock that stands still unless it is moved.
type rig struct {
	*Service
	store *memmeta.Store
	// writer is what entries are put through: store unless told otherwise.
	writer meta.Store
	blobs  *memblob.Store
	meter  *meter.Meter

	mu  sync.Mutex // guards now
	now queue.Millis
}

const topicName = "orders"

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Time()
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *rig) millis() queue.Millis { return queue.MillisOf(r.clock()) }

func (r *rig) in(seconds int) queue.Millis {
	return r.millis().Add(time.Duration(seconds) * time.Second)
}

func newRig(t tester, cfg topics.Config) *rig {
	t.Helper()
	r := &rig{meter: meter.New(), now: 1_700_000_000_000}
	reporter, _ := t.(memblob.Reporter)
	r.store = memmeta.New(t)
	r.writer = r.store
	r.blobs = memblob.New(reporter, r.clock, memblob.Options{})
	r.Service = r.on(r.meter.Meta(r.store), r.meter.Blob(r.blobs))
	if _, _, err := r.Topics.Create(background(), topicName, cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

func delayedTopic(segments int) topics.Config {
	return topics.Config{DefaultDelay: time.Minute, MaxDelay: time.Hour, MinSegments: segments}
}

// on makes another process on stores.
func (r *rig) on(m meta.Store, b blob.Store) *Service {
	ids := queue.NewIDs(nil)
	return New(Deps{
		Meta: m, Blob: b, IDs: ids, Clock: r.clock, Hub: notify.NewHub(),
		Log:    segment.New(segment.Deps{Meta: m, Blob: b, IDs: ids, Clock: r.clock}),
		Topics: topics.New(topics.Deps{Meta: m, IDs: ids, Clock: r.clock}),
	})
}

// next is another process on the bare stores.
func (r *rig) next() *Service { return r.on(r.store, r.blobs) }

func (r *rig) open(t tester) *topics.Map {
	t.Helper()
	m, err := r.Topics.Reload(background(), topicName)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (r *rig) promote(t tester) (int, queue.Millis) {
	t.Helper()
	n, next, err := r.Promote(background(), r.open(t), r.millis())
	if err != nil {
		t.Fatalf("promote: %v", err)
	}
	return n, next
}

// group describes an entry to put.
type group struct {
	visible, expires queue.Millis
	// slots of the messages, ascending; bodies are "<name>-<index>".
	slots []queue.Slot
	name  string
	// noSizes leaves Sizes out.
	noSizes bool
}

func spread(n int) []queue.Slot {
	out := make([]queue.Slot, n)
	for i := range out {
		out[i] = queue.Slot(i * queue.Slots / n) // #nosec G115 -- below Slots
	}
	return out
}

// put puts an entry as pkg/produce does, and gives its messages' ids.
func (r *rig) put(t tester, g group) []queue.DelayedID {
	t.Helper()
	if g.slots == nil {
		g.slots = []queue.Slot{7}
	}
	m := r.open(t)
	enc := batch.NewEncoder(batch.Options{})
	d := &meta.Delayed{Topic: m.ID(), Visible: g.visible, ID: r.IDs.Entry(), Slots: g.slots}
	var ids []queue.DelayedID
	total := 0
	for i, slot := range g.slots {
		body := fmt.Sprintf("%s-%d", g.name, i)
		headers, _ := batch.MakeHeaders(map[string]string{"kind": "test"})
		rec := batch.Record{Slot: slot, Key: []byte(body), Body: []byte(body), Headers: headers}
		if g.expires != 0 {
			rec.TTL = g.expires.Sub(r.millis())
		}
		if err := enc.Add(&rec); err != nil {
			t.Fatal(err)
		}
		total += len(body)
		d.Sizes = append(d.Sizes, uint32(len(body)))
		ids = append(ids, queue.DelayedID{Visible: d.Visible, Entry: d.ID, Index: uint32(i)})
	}
	if g.noSizes {
		d.Sizes = nil
	}
	nonce := r.IDs.Nonce()
	data, err := enc.Finish(nil, nonce)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := batch.ParseHeader(data)
	key, err := r.blobs.Create(background(), blob.PrefixBatches, data)
	if err != nil {
		t.Fatal(err)
	}
	d.Ref = meta.Ref{
		Kind: meta.RefBatch, ID: nonce, Object: key, Len: int64(len(data)), Count: uint32(len(g.slots)),
		Prefix: uint32(h.PrefixLen()), CRC: h.CRC, HasCRC: true, Created: r.millis(), Visible: g.visible,
		MinExpires: g.expires, MaxExpires: g.expires, Bytes: int64(total),
	}
	r.putEntry(t, d)
	return ids
}

func (r *rig) putEntry(t tester, d *meta.Delayed) {
	t.Helper()
	_, err := r.writer.Apply(background(), meta.Put{Record: d, If: meta.Absent(), Version: meta.NewVersion(r.IDs)})
	if err != nil {
		t.Fatal(err)
	}
}

// promoted is a message in a segment.
type promotedMessage struct {
	body    string
	visible queue.Millis
	segment queue.SegmentID
	offset  queue.Offset
	slot    queue.Slot
	headers map[string]string
}

// contents reads all messages of the topic's segments, and holds refs and counters to their rules.
func (r *rig) contents(t tester) []promotedMessage {
	t.Helper()
	var out []promotedMessage
	s := r.next()
	for _, seg := range r.open(t).Segments {
		h, err := s.Log.Head(background(), seg.ID)
		if err != nil {
			t.Fatal(err)
		}
		next, bytes := queue.Offset(0), int64(0)
		for loc, err := range s.Log.Refs(background(), h, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if loc.Offset != next {
				t.Errorf("segment %s: a gap at %d", seg.ID, next)
			}
			next = loc.End()
			msgs := r.messages(t, s, seg, loc)
			sum := 0
			for _, m := range msgs {
				sum += len(m.body)
			}
			if int64(sum) != loc.Ref.Bytes {
				t.Errorf("a ref says %d bytes, its bodies have %d", loc.Ref.Bytes, sum)
			}
			bytes += int64(sum)
			out = append(out, msgs...)
		}
		counted := uint64(0)
		for _, n := range h.Load.Buckets {
			counted += n
		}
		if h.Next != next || counted != uint64(next) || h.Bytes != uint64(bytes) {
			t.Errorf("head of %s: next %d of %d, counted %d, bytes %d of %d", seg.ID, h.Next, next, counted, h.Bytes, bytes)
		}
	}
	return out
}

func (r *rig) messages(t tester, s *Service, seg *meta.Segment, loc segment.Located) []promotedMessage {
	t.Helper()
	if loc.Ref.Kind == meta.RefPayload {
		data, _, err := s.Log.Data(background(), loc.Ref, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		return []promotedMessage{{
			string(data), loc.Ref.VisibleAt(), seg.ID, loc.Offset, loc.Ref.Slot, batch.Headers(loc.Ref.Headers).Map(),
		}}
	}
	data, base, err := s.Log.Data(background(), loc.Ref, loc.Ref.First, loc.Ref.Count)
	if err != nil {
		t.Fatal(err)
	}
	rd, err := batch.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := rd.Seek(int(base), int(loc.Ref.Count)); err != nil {
		t.Fatal(err)
	}
	var out []promotedMessage
	var rec batch.Record
	for off := loc.Offset; rd.Next(&rec); off++ {
		if !seg.Range.Contains(rec.Slot) {
			t.Errorf("slot %d is in segment %s of %s", rec.Slot, seg.ID, seg.Range)
		}
		out = append(out, promotedMessage{string(rec.Body), loc.Ref.VisibleAt(), seg.ID, off, rec.Slot, rec.Headers.Map()})
	}
	return out
}

func bodies(msgs []promotedMessage) []string {
	var out []string
	for _, m := range msgs {
		out = append(out, m.body)
	}
	slices.Sort(out)
	return out
}

// waiting lists all messages of the index.
func (r *rig) waiting(t tester) []Message {
	t.Helper()
	var out []Message
	for cursor := ""; ; {
		page, next, err := r.List(background(), topicName, Listing{Cursor: cursor, Limit: 3, Bodies: true})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page...)
		if cursor = next; cursor == "" {
			break
		}
	}
	if !slices.IsSortedFunc(out, func(a, b Message) int { return cmp.Compare(a.Visible, b.Visible) }) {
		t.Errorf("not in order of visible time")
	}
	n, more, err := r.Count(background(), topicName, len(out)+1)
	if err != nil || n != len(out) || more {
		t.Errorf("Count = %d %v %v, listed %d", n, more, err, len(out))
	}
	return out
}

func bodiesOf(msgs []Message) []string {
	var out []string
	for _, m := range msgs {
		out = append(out, string(m.Body))
	}
	slices.Sort(out)
	return out
}

// records counts the records of a partition.
func (r *rig) records(t tester, pk string) int {
	t.Helper()
	page, err := r.store.Query(background(), meta.Range{PK: pk, Limit: meta.MaxQueryLimit})
	if err != nil || page.More {
		t.Fatalf("query %s: %v", pk, err)
	}
	return len(page.Items)
}

func (r *rig) forwards(t tester) int { return r.records(t, meta.ForwardPK(r.open(t).ID())) }

// index counts the entries of the index, husks too; entries those that hold a message.
func (r *rig) index(t tester) int { return r.records(t, meta.DelayedPK(r.open(t).ID(), shard)) }

func (r *rig) entries(t tester) (n int) {
	t.Helper()
	page, err := r.store.Query(background(), meta.Range{PK: meta.DelayedPK(r.open(t).ID(), shard), Limit: meta.MaxQueryLimit})
	if err != nil || page.More {
		t.Fatalf("query the index: %v", err)
	}
	for _, item := range page.Items {
		if d, ok := item.Record.(*meta.Delayed); ok && len(d.Gone) < len(d.Slots) {
			n++
		}
	}
	return n
}

func wantCode(t *testing.T, err error, code queue.Code) {
	t.Helper()
	if err == nil || queue.CodeOf(err) != code {
		t.Errorf("error %v, want code %s", err, code)
	}
}

func ptr[T any](v T) *T { return &v }

func background() context.Context { return context.Background() }
