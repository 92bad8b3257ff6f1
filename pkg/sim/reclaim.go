package sim

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/compact/compacttest"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// reclaim is what the model knows of what is on its way out.
type reclaim struct {
	// deleting is since when a topic is, by the scheduler's clock.
	deleting map[queue.TopicID]queue.Millis
	// let is when bytes last lost a ref.
	let map[object]queue.Millis
	// gone are cursors that were removed.
	gone map[meta.Key]bool

	mu sync.Mutex // guards urls, which ops write
	// urls is until when a presigned URL leads to an object.
	urls map[string]queue.Millis
}

type object struct {
	key    string
	inline bool
}

func newReclaim() reclaim {
	return reclaim{
		deleting: make(map[queue.TopicID]queue.Millis), let: make(map[object]queue.Millis),
		gone: make(map[meta.Key]bool), urls: make(map[string]queue.Millis),
	}
}

// compactor is an instance's: with a target so small that a few pages are enough.
func (w *world) compactor(i *instance, clock queue.Clock) *compact.Service {
	store, objects, ids := &metaNet{w.net, i}, &blobNet{w.net, i}, w.ids.ids()
	i.log = segment.New(segment.Deps{Meta: store, Blob: objects, IDs: ids, Clock: clock, CacheBytes: 1 << 16})
	return compact.New(compact.Deps{
		Meta: store, Blob: objects, IDs: ids, Clock: clock, Lease: lease.New(store, ids, clock), Logger: slog.New(slog.DiscardHandler),
		Log: i.log, Tuning: compact.Tuning{TargetBytes: 100},
	})
}

func (l *workload) compact() bool {
	inst := l.instance()
	var got compact.Report
	var swept int
	var err error
	sweeps := l.w.rng.IntN(3) == 0
	roll := func(context.Context) {}
	if len(l.w.model.order) > 0 {
		id := pick(l, l.w.model.order)
		l.w.worth(id)
		if l.w.rng.IntN(2) == 0 {
			roll = func(ctx context.Context) { rollNow(ctx, inst, id) }
		}
	}
	l.w.begin(inst, "compact", func(ctx context.Context) {
		roll(ctx)
		if got, err = inst.system.Compact.Run(ctx); err == nil && sweeps {
			swept, err = inst.system.Compact.Sweep(ctx)
		}
	}, func(o *op) {
		if l.said(o, err); o.killed || err != nil {
			return
		}
		o.said = fmt.Sprintf("%+v, %d swept", got, swept)
		if got.Pages > 0 {
			l.w.count("compactions")
		}
	})
	return true
}

// rollNow rolls a tail however short it is: pages are rare in runs of this length.
func rollNow(ctx context.Context, inst *instance, id queue.SegmentID) {
	if head, err := inst.log.Head(ctx, id); err == nil {
		_ = inst.log.Roll(ctx, head) // a failure leaves the tail as it is
	}
}

// worth notes that a segment is worth a look, as one roll in some does.
func (w *world) worth(id queue.SegmentID) {
	work := &meta.Work{Due: w.clients.now().Add(-tolerance), Segment: id}
	if _, err := w.truth.Apply(w.background(), meta.Put{Record: work, Version: 1}); err != nil {
		w.find("store rules", "a note of work: %v", err)
	}
}

func (m *model) noteState(t *meta.Topic) {
	if _, known := m.deleting[t.ID]; !known && t.State == meta.TopicDeleting {
		m.deleting[t.ID] = m.w.clients.now()
	}
}

// dead reports whether a topic was deleted so long ago that what it held may go.
func (m *model) dead(id queue.TopicID) bool {
	at, deleting := m.deleting[id]
	return deleting && m.w.clients.now().Sub(at) >= queue.GracePeriod-tolerance
}

// mayRemove reports whether a segment may go, and notes that it does.
func (m *model) mayRemove(log *segmentLog) bool {
	log.removed = log.removed || m.dead(log.topic)
	return log.removed
}

// liveSub reports whether a cursor is of a subscription that is there.
func (m *model) liveSub(c *meta.Cursor) bool {
	sub := m.subs[c.Subscription]
	if sub == nil {
		return false
	}
	have, _, err := meta.Fetch[*meta.Subscription](m.w.background(), m.w.truth, sub.Key())
	return err == nil && have.ID == c.Subscription && !m.dead(sub.Topic)
}

// page judges a change of a page: a roll makes one; a compactor replaces some, or takes them away with
// their topic.
func (t *txn) page(c *change) {
	if p, ok := c.after.(*meta.RefPage); ok {
		t.pages = append(t.pages, p)
	}
	if p, ok := c.before.(*meta.RefPage); ok {
		t.replaced = append(t.replaced, p)
		t.m.released(p.Refs)
	}
}

// released notes that refs left the place where they were.
func (m *model) released(refs []meta.Ref) {
	for i := range refs {
		m.let[object{refs[i].Object, refs[i].Inline}] = m.w.clients.now()
	}
}

// paged is the page that holds an offset in the truth; nil if none does.
func (m *model) paged(id queue.SegmentID, off queue.Offset) *meta.RefPage {
	found, err := m.w.truth.Query(m.w.background(), meta.PageAt(id, off))
	if err != nil || len(found.Items) != 1 {
		return nil
	}
	page, _ := found.Items[0].Record.(*meta.RefPage)
	if page == nil || page.First > off || page.Next() <= off {
		return nil
	}
	return page
}

// repaged holds what stands in the place of replaced pages against the log: the same messages at the same
// offsets, whose bytes may have moved.
func (m *model) repaged(replaced []*meta.RefPage) {
	for _, old := range replaced {
		log := m.log(old.Segment)
		for off := old.First; off < old.Next(); {
			page := m.paged(old.Segment, off)
			if page == nil {
				if !m.mayRemove(log) {
					m.w.find("log", "%s-%d was rolled, and its page was taken away", log.id, off)
				}
				break
			}
			m.moved(log, page)
			off = page.Next()
		}
	}
}

// moved takes over where the bytes of a page's messages are now.
func (m *model) moved(log *segmentLog, page *meta.RefPage) {
	i, off := 0, page.First
	for j := range page.Refs {
		ref := &page.Refs[j]
		for i < len(log.refs) && log.refs[i].off < off {
			i++
		}
		if i == len(log.refs) || log.refs[i].off != off || log.refs[i].ref.Count != ref.Count {
			m.w.find("log", "%s-%d does not hold what was committed there", log.id, off)
			return
		}
		if was := &log.refs[i].ref; !was.Same(ref) {
			msgs, what := m.read(ref)
			for k := range msgs {
				have := log.msgs[int(off)+k]
				have.letter = false
				if msgs[k] != have {
					what = fmt.Sprintf("it holds %+v in place of %+v", msgs[k], have)
				}
			}
			if what != "" || ref.ID != was.ID || ref.Created != was.Created || !bytes.Equal(ref.Headers, was.Headers) {
				m.w.find("log", "%s-%d was moved to %s: %s", log.id, off, ref.Object, what)
			}
			log.refs[i].ref = *ref
		}
		off += queue.Offset(ref.Count)
	}
}

// presigned notes that an object can be read by a URL.
func (m *model) presigned(key string, until queue.Millis) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.urls[key] = max(m.urls[key], until)
}

// deleted judges the deletion of an object or payload record.
func (m *model) deleted(key string, inline bool) {
	now := m.w.clients.now()
	at, let := m.let[object{key, inline}]
	// The note of a drop counts from when it was written, and may have been on its way since.
	if left := queue.GracePeriod - maxTravel - tolerance - now.Sub(at); let && left > 0 {
		m.w.find("grace", "%s is deleted %s before its grace period ends", key, left)
	}
	m.mu.Lock()
	until := m.urls[key]
	m.mu.Unlock()
	if !inline && until > now.Add(tolerance) {
		m.w.find("grace", "%s is deleted while a URL leads to it for %s more", key, until.Sub(now))
	}
	m.w.count("deletions")
}

// watchedObjects tells the model of what is deleted.
type watchedObjects struct {
	blob.Store
	model *model
}

// Delete implements blob.Store.
func (s *watchedObjects) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if _, err := s.Head(ctx, key); err == nil {
			s.model.deleted(key, false)
		}
	}
	return s.Store.Delete(ctx, keys...)
}

// collect lets all grace periods pass while compactors run, and then holds the stores to exactly what can be
// reached. Some topics are deleted before, the one that dead letters go to last and not always.
func (w *world) collect() {
	for _, t := range w.load.topics {
		if w.rng.IntN(3) > 0 {
			continue
		}
		var err error
		inst := w.instances[0]
		w.begin(inst, "delete-topic "+t.name, func(ctx context.Context) {
			err = inst.system.Topics.Delete(ctx, t.name)
		}, func(o *op) { w.load.said(o, err) })
		w.idle()
	}
	inst := w.instances[0]
	w.begin(inst, "roll all", func(ctx context.Context) {
		for _, id := range w.model.order {
			rollNow(ctx, inst, id)
		}
	}, func(*op) {})
	w.idle()
	const rounds = 12
	for round := range rounds {
		time.Sleep(queue.GracePeriod + time.Minute)
		for _, id := range w.model.order {
			if round == 0 && !w.model.logs[id].removed {
				w.worth(id)
			}
		}
		if round == 3 {
			time.Sleep(36 * time.Hour) // past the age of uploads, and of what is judged once
		}
		w.tidy()
		if w.result.Finding != nil {
			return
		}
		if w.rested() && round > 5 {
			break
		}
	}
	var keys []string
	for after := ""; ; {
		page, err := w.bodies.List(w.background(), "", after, queue.MaxPageSize)
		if err != nil {
			w.find("collect", "the objects cannot be listed: %v", err)
			return
		}
		for _, info := range page.Objects {
			keys = append(keys, info.Key)
			after = info.Key
		}
		if !page.More {
			break
		}
	}
	found := compacttest.Audit(w.truth.All(), keys, w.clients.now())
	for _, what := range found.Lost {
		w.find("lost", "%s", what)
	}
	for _, what := range found.Leaked {
		w.find("leaked", "%s", what)
	}
}

// tidy runs a compactor and a sweep.
func (w *world) tidy() {
	inst := w.instances[0]
	var err error
	var got compact.Report
	w.begin(inst, "compact at last", func(ctx context.Context) {
		if got, err = inst.system.Compact.Run(ctx); err == nil {
			_, err = inst.system.Compact.Sweep(ctx)
		}
	}, func(o *op) { w.load.said(o, err) })
	w.idle()
	if got.Pages > 0 {
		w.count("compactions at last")
	}
	if err != nil {
		w.find("collect", "nothing fails any more, and the compactor does: %v", err)
	}
}

// rested reports whether no work is left.
func (w *world) rested() bool {
	page, err := w.truth.Query(w.background(), meta.Range{PK: meta.WorkPK(0), Limit: 1})
	return err == nil && len(page.Items) == 0
}
