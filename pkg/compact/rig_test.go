package compact_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/compact/compacttest"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// rig is whole systems on one pair of memory stores, under a clock that only the test moves.
type rig struct {
	t    *testing.T
	meta *memmeta.Store
	blob *memblob.Store
	ids  *queue.IDs
	now  atomic.Int64
	sys  *assembly.System
	// target is the compactors' TargetBytes.
	target int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, ids: queue.NewIDs(nil), target: 60_000}
	r.now.Store(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMilli())
	r.meta = memmeta.New(t)
	r.blob = memblob.New(t, r.clock, memblob.Options{})
	r.sys = r.system(r.meta, r.blob, r.clock)
	return r
}

// clock moves on with each look, so that what comes later has a later time.
func (r *rig) clock() time.Time     { return time.UnixMilli(r.now.Add(1)) }
func (r *rig) pass(d time.Duration) { r.now.Add(d.Milliseconds()) }

func (r *rig) system(m meta.Store, b blob.Store, clock queue.Clock) *assembly.System {
	return assembly.New(assembly.Deps{Meta: m, Blob: b, Presigner: signer{}, IDs: r.ids, Clock: clock})
}

type signer struct{}

func (signer) PresignPut(_ context.Context, key string, _ blob.Terms, _ time.Time) (blob.Request, error) {
	return blob.Request{Method: "PUT", URL: "/" + key}, nil
}

func (signer) PresignGet(_ context.Context, key string, _ time.Time) (blob.Request, error) {
	return blob.Request{Method: "GET", URL: "/" + key}, nil
}

func (r *rig) compactor(m meta.Store, b blob.Store) *compact.Service {
	return r.tuned(m, b, compact.Tuning{TargetBytes: r.target})
}

// hasty is a compactor with ages and grace of a minute.
func (r *rig) hasty() *compact.Service {
	return r.tuned(r.meta, r.blob, compact.Tuning{TargetBytes: r.target, Age: time.Minute, Grace: time.Minute})
}

func (r *rig) tuned(m meta.Store, b blob.Store, tuning compact.Tuning) *compact.Service {
	return compact.New(compact.Deps{
		Meta: m, Blob: b, Lease: lease.New(m, r.ids, r.clock), IDs: r.ids, Clock: r.clock, Logger: slog.New(slog.DiscardHandler),
		Log:    segment.New(segment.Deps{Meta: m, Blob: b, IDs: r.ids, Clock: r.clock, CacheBytes: 1 << 20}),
		Tuning: tuning,
	})
}

func (r *rig) create(name string, cfg topics.Config) *topics.Map {
	r.t.Helper()
	if _, _, err := r.sys.Topics.Create(r.t.Context(), name, cfg); err != nil {
		r.t.Fatal(err)
	}
	m, err := r.sys.Topics.Open(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// fill makes calls of all sizes: some go inline, some to one object for several segments, with keys,
// headers and ttls. Each moves the clock a little.
func (r *rig) fill(topic string, calls, seed int) {
	r.t.Helper()
	for i := range calls {
		n := i + seed
		var msgs []produce.Message
		for j := range n%4 + 1 {
			msg := produce.Message{Key: fmt.Appendf(nil, "k%d", (n+j)%16), Body: fmt.Appendf(nil, "%s %d/%d", topic, n, j)}
			if n%3 == 0 {
				msg.Headers = map[string]string{"n": fmt.Sprint(n)}
			}
			if n%5 == 0 {
				msg.TTL = 1000 * time.Hour
			}
			if n%8 == 7 { // an object
				msg.Body = append(msg.Body, bytes.Repeat([]byte{'x'}, 2200)...)
			}
			msgs = append(msgs, msg)
		}
		r.send(topic, msgs...)
		r.pass(200 * time.Millisecond)
	}
}

func (r *rig) send(topic string, msgs ...produce.Message) {
	r.t.Helper()
	got, err := r.sys.Produce.Produce(r.t.Context(), produce.Request{Topic: topic, Messages: msgs})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, run := range got.Runs {
		if run.Err != nil {
			r.t.Fatal(run.Err)
		}
	}
}

// note asks for all segments of a topic to be compacted.
func (r *rig) note(topic string) {
	r.t.Helper()
	m, err := r.sys.Topics.Reload(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, seg := range m.Open {
		_, err := r.meta.Apply(r.t.Context(), meta.Put{Record: &meta.Work{Due: queue.MillisOf(r.clock()), Segment: seg.ID}, Version: 1})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// run runs a compactor until nothing is left to do now.
func (r *rig) run() compact.Report {
	r.t.Helper()
	got, err := r.compactor(r.meta, r.blob).Run(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// settle lets all grace periods pass and runs compactors until all is done.
func (r *rig) settle() {
	r.t.Helper()
	s := r.compactor(r.meta, r.blob)
	for range 4 {
		if _, err := s.Run(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		r.pass(queue.GracePeriod + time.Minute)
	}
	if _, err := s.Run(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// seen is all that a reader learns of a message.
type seen struct {
	key, body, headers        string
	created, visible, expires queue.Millis
	slot                      queue.Slot
}

// read gives every message of a topic as a reader without caches sees it.
func (r *rig) read(topic string) map[queue.MessageID]seen {
	r.t.Helper()
	return r.readBy(r.system(r.meta, r.blob, r.clock), topic)
}

func (r *rig) readBy(sys *assembly.System, topic string) map[queue.MessageID]seen {
	r.t.Helper()
	out := make(map[queue.MessageID]seen)
	m, err := sys.Topics.Open(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, seg := range m.Segments {
		for off := queue.Offset(0); ; {
			got, err := sys.Consume.Records(r.t.Context(), consume.RecordsRequest{Topic: topic, Segment: seg.ID, Offset: off, Limit: 1000})
			if err != nil {
				r.t.Fatal(err)
			}
			for _, d := range got.Deliveries {
				r.decode(d, out)
			}
			if got.Next == off {
				break
			}
			off = got.Next
		}
	}
	return out
}

func (r *rig) decode(d consume.Delivery, out map[queue.MessageID]seen) {
	r.t.Helper()
	id := queue.MessageID{Segment: d.Segment, Offset: d.Offset}
	if d.Ref.Kind == meta.RefPayload {
		out[id] = seen{string(d.Ref.Key), string(d.Data), string(d.Ref.Headers), d.Ref.Created, d.Ref.VisibleAt(), d.Ref.MinExpires, d.Ref.Slot}
		return
	}
	rd, err := batch.Open(d.Data)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := rd.Seek(int(d.First), d.Count); err != nil {
		r.t.Fatal(err)
	}
	var rec batch.Record
	for rd.Next(&rec) {
		headers := rec.Headers.Merge(batch.Headers(d.Ref.Headers).Map())
		out[id] = seen{
			string(rec.Key), string(rec.Body), string(headers), d.Ref.Created.Add(rec.CreatedDelta), d.Ref.VisibleAt(),
			segment.ExpiryOf(d.Ref, &rec), rec.Slot,
		}
		id.Offset++
	}
	if err := rd.Err(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) same(what string, got, want map[queue.MessageID]seen) {
	r.t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for id, w := range want {
		if g, ok := got[id]; !ok || g != w {
			r.t.Errorf("%s: message %s is %+v (there: %t), want %+v", what, id, g, ok, w)
			break
		}
	}
	r.t.Errorf("%s: %d messages, want %d", what, len(got), len(want))
}

func (r *rig) query(pk string) (out []meta.Item) {
	r.t.Helper()
	q := meta.Range{PK: pk, Limit: 1000}
	for {
		page, err := r.meta.Query(r.t.Context(), q)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, page.Items...)
		if !page.More {
			return out
		}
		q.From = meta.After(page.Items[len(page.Items)-1].Record.Key().SK)
	}
}

// objects are the keys of all objects.
func (r *rig) objects() (out []string) {
	r.t.Helper()
	after := ""
	for {
		page, err := r.blob.List(r.t.Context(), "", after, 1000)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, o := range page.Objects {
			out = append(out, o.Key)
			after = o.Key
		}
		if !page.More {
			return out
		}
	}
}

// stored counts the objects and payload records.
func (r *rig) stored() int {
	r.t.Helper()
	n := len(r.objects())
	for _, item := range r.meta.All() {
		if item.Record.Kind() == meta.KindPayload {
			n++
		}
	}
	return n
}

// audit holds that what can be reached is there and nothing else is, records of every kind included.
func (r *rig) audit() {
	r.t.Helper()
	found := compacttest.Audit(r.meta.All(), r.objects(), queue.MillisOf(r.clock()))
	for _, o := range found.Lost {
		r.t.Errorf("lost: %s", o)
	}
	for _, o := range found.Leaked {
		r.t.Errorf("leaked: %s", o)
	}
}
