package consume_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// env is a service on memory drivers. Its clock stands still unless it is moved, or is the bubble's.
type env struct {
	t    testing.TB
	bare meta.Store
	meta meta.Store
	blob blob.Store
	// bareBlob is blob without faults and counts.
	bareBlob blob.Store
	meter    *meter.Meter
	log      *segment.Log
	hub      *notify.Hub
	ids      *queue.IDs
	delay    *promoter
	names    *registry
	svc      *consume.Service
	now      atomic.Int64
}

type options struct {
	// plan fails the service's calls; appends of the test are made on the bare store.
	plan *fault.Plan
	// bubble takes the time of a synctest bubble.
	bubble bool
	// ids are random unless given.
	ids    *queue.IDs
	change func(*consume.Deps)
}

func newEnv(t testing.TB, o options) *env {
	t.Helper()
	e := &env{t: t, meter: meter.New(), hub: notify.NewHub(), ids: queue.NewIDs(nil), delay: &promoter{}}
	if o.ids != nil {
		e.ids = o.ids
	}
	e.now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	clock := queue.Clock(func() time.Time { return time.UnixMilli(e.now.Load()) })
	if o.bubble {
		clock = time.Now
	}
	e.bare = memmeta.New(t)
	objects := memblob.New(t, clock, memblob.Options{IDs: e.ids})
	e.meta, e.blob, e.bareBlob = e.bare, objects, objects
	if o.plan != nil {
		e.meta, e.blob = fault.Meta(e.meta, o.plan), fault.Blob(e.blob, o.plan)
	}
	e.meta, e.blob = e.meter.Meta(e.meta), e.meter.Blob(e.blob)
	e.names = &registry{maps: make(map[string]*topics.Map)}
	e.log = segment.New(segment.Deps{Meta: e.bare, Blob: objects, IDs: e.ids, Clock: clock})
	d := consume.Deps{
		Meta: e.meta, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids, Clock: clock,
		Log: segment.New(segment.Deps{Meta: e.meta, Blob: e.blob, IDs: e.ids, Clock: clock}),
	}
	if o.change != nil {
		o.change(&d)
	}
	e.svc = consume.New(d)
	return e
}

func (e *env) clock() queue.Millis { return queue.Millis(e.now.Load()) }

func (e *env) pass(d time.Duration) { e.now.Add(d.Milliseconds()) }

// promoter is the delay service of topics that are not delayed, or says what it is told to.
type promoter struct {
	calls   atomic.Int64
	promote func(now queue.Millis) (int, queue.Millis, error)
}

func (p *promoter) Promote(_ context.Context, _ *topics.Map, now queue.Millis) (int, queue.Millis, error) {
	p.calls.Add(1)
	if p.promote == nil {
		return 0, 0, nil
	}
	return p.promote(now)
}

type signer struct{}

func (signer) PresignPut(context.Context, string, blob.Terms, time.Time) (blob.Request, error) {
	return blob.Request{}, fmt.Errorf("not asked for")
}

func (signer) PresignGet(_ context.Context, key string, expires time.Time) (blob.Request, error) {
	return blob.Request{Method: "GET", URL: "/objects/" + key + "?" + fmt.Sprint(expires.UnixMilli())}, nil
}

// registry finds topics without a store call.
type registry struct {
	mu   sync.Mutex
	maps map[string]*topics.Map
	// reloads counts; onReload may change the maps first.
	reloads  int
	onReload func()
}

func (r *registry) Open(ctx context.Context, name string) (*topics.Map, error) {
	if err := ctx.Err(); err != nil {
		return nil, &queue.Error{Op: "open topic", Kind: queue.KindCanceled, Err: err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.maps[name]; m != nil {
		return m, nil
	}
	return nil, &queue.Error{Op: "open topic", Subject: name, Kind: queue.KindNotFound, Code: queue.CodeTopicNotFound}
}

func (r *registry) Reload(ctx context.Context, name string) (*topics.Map, error) {
	r.mu.Lock()
	r.reloads++
	if r.onReload != nil {
		r.onReload()
	}
	r.mu.Unlock()
	return r.Open(ctx, name)
}

func (r *registry) drop(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.maps, name)
}

// topic makes a topic of n segments, and a subscription "sub" that change may change.
func (e *env) topic(name string, n int, change func(*meta.Topic, *meta.Subscription)) *topics.Map {
	e.t.Helper()
	m := &topics.Map{Name: name, Topic: &meta.Topic{ID: e.ids.Topic(), State: meta.TopicOpen}}
	for _, r := range queue.Tile(n) {
		seg := &meta.Segment{Topic: m.ID(), ID: e.ids.Segment(), Range: r, Epoch: 1}
		e.put(&meta.Head{Segment: seg.ID, Epoch: 1, Range: r})
		m.Segments = append(m.Segments, seg)
	}
	m.Open = m.Segments
	sub := &meta.Subscription{
		Topic: m.ID(), Name: "sub", ID: e.ids.Subscription(), VisibilityTimeout: 30 * time.Second,
		MaxInFlight: queue.DefaultMaxInFlight,
	}
	if change != nil {
		change(m.Topic, sub)
	}
	m.Subscriptions = map[string]*meta.Subscription{"sub": sub}
	e.names.mu.Lock()
	defer e.names.mu.Unlock()
	e.names.maps[name] = m
	return m
}

func (e *env) put(r meta.Record) {
	e.t.Helper()
	if _, err := e.bare.Apply(context.Background(), meta.Put{Record: r, Version: meta.NewVersion(e.ids)}); err != nil {
		e.t.Fatal(err)
	}
}

// rec is a message to append.
type rec struct {
	body string
	ttl  time.Duration
}

func bodies(list ...string) []rec {
	out := make([]rec, len(list))
	for i, b := range list {
		out[i].body = b
	}
	return out
}

func numbered(n int) []rec {
	out := make([]rec, n)
	for i := range out {
		out[i].body = fmt.Sprintf("m%d", i)
	}
	return out
}

// add appends one batch to a segment: inline, unless large or asked to be an object.
func (e *env) add(seg *meta.Segment, object bool, recs ...rec) queue.Offset {
	e.t.Helper()
	list := make([]batch.Record, len(recs))
	for i, r := range recs {
		list[i] = batch.Record{Slot: queue.Slot(seg.Range.Lo), Body: []byte(r.body), TTL: r.ttl}
	}
	return e.addRecords(seg, object, list)
}

func (e *env) addRecords(seg *meta.Segment, object bool, recs []batch.Record) queue.Offset {
	e.t.Helper()
	enc := batch.NewEncoder(batch.Options{})
	now := e.clock()
	ref := meta.Ref{Kind: meta.RefBatch, ID: meta.RefID(e.ids.Nonce()), Count: uint32(len(recs)), Created: now}
	never := false
	for i := range recs {
		r := &recs[i]
		if err := enc.Add(r); err != nil {
			e.t.Fatal(err)
		}
		ref.Bytes += int64(len(r.Body))
		if r.TTL == 0 {
			never = true
			continue
		}
		at := now.Add(r.TTL)
		if ref.MinExpires == 0 || at < ref.MinExpires {
			ref.MinExpires = at
		}
		ref.MaxExpires = max(ref.MaxExpires, at)
	}
	if never {
		ref.MaxExpires = 0
	}
	data, err := enc.Finish(nil, ref.ID)
	if err != nil {
		e.t.Fatal(err)
	}
	h, err := batch.ParseHeader(data)
	if err != nil {
		e.t.Fatal(err)
	}
	ref.Len, ref.Prefix = int64(len(data)), uint32(h.PrefixLen())
	c := segment.Commit{Segment: seg, At: now}
	if object || len(data) > queue.InlinePayloadBytes {
		if ref.Object, err = e.bareBlob.Create(context.Background(), blob.PrefixBatches, data); err != nil {
			e.t.Fatal(err)
		}
	} else {
		ref.Inline, ref.Object = true, e.ids.ID()
		c.Payload = &meta.Payload{ID: ref.Object, Data: data}
	}
	c.Refs = []meta.Ref{ref}
	done, err := e.log.Append(context.Background(), c)
	if err != nil {
		e.t.Fatal(err)
	}
	return done.Offset
}

// addPayload appends one message whose body is an object of its own.
func (e *env) addPayload(seg *meta.Segment, body string) string {
	e.t.Helper()
	key, err := e.bareBlob.Create(context.Background(), blob.PrefixUploads, []byte(body))
	if err != nil {
		e.t.Fatal(err)
	}
	headers, err := batch.MakeHeaders(map[string]string{"kind": "payload"})
	if err != nil {
		e.t.Fatal(err)
	}
	ref := meta.Ref{
		Kind: meta.RefPayload, ID: meta.RefID(e.ids.Nonce()), Object: key, Len: int64(len(body)), Count: 1,
		Bytes: int64(len(body)), Created: e.clock(), Slot: queue.Slot(seg.Range.Lo), Headers: headers,
		CRC: blob.CRC32C([]byte(body)), HasCRC: true,
	}
	e.addRef(seg, ref)
	return key
}

// msg is a claimed message.
type msg struct {
	seg     queue.SegmentID
	off     queue.Offset
	body    string
	attempt uint32
	claim   queue.ClaimID
	headers map[string]string
}

func (m msg) receipt() queue.Receipt {
	return queue.Receipt{Segment: m.seg, Claim: m.claim, Lo: m.off, Hi: m.off + 1}
}

func messages(t testing.TB, ds []consume.Delivery) []msg {
	t.Helper()
	var out []msg
	for i := range ds {
		d := &ds[i]
		one := msg{seg: d.Segment, attempt: d.Attempt, claim: d.Claim}
		if d.Ref.Kind == meta.RefPayload {
			one.off, one.body, one.headers = d.Offset, string(d.Data), batch.Headers(d.Ref.Headers).Map()
			out = append(out, one)
			continue
		}
		var rd *batch.Reader
		if d.Presigned == nil {
			var err error
			if rd, err = batch.Open(d.Data); err != nil {
				t.Fatal(err)
			}
			if err := rd.Seek(int(d.First), d.Count); err != nil {
				t.Fatal(err)
			}
		}
		var rec batch.Record
		for j := range d.Count {
			one.off = d.Offset + queue.Offset(j)
			if rd != nil {
				if !rd.Next(&rec) {
					t.Fatal(rd.Err())
				}
				one.body = string(rec.Body)
				one.headers = rec.Headers.Merge(batch.Headers(d.Ref.Headers).Map()).Map()
			}
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b msg) int {
		if a.seg != b.seg {
			return strings.Compare(string(a.seg), string(b.seg))
		}
		return int(a.off) - int(b.off)
	})
	return out
}

func (e *env) claim(topic string, n int) []msg {
	e.t.Helper()
	return e.claimWith(consume.ClaimRequest{Topic: topic, Subscription: "sub", MaxMessages: n})
}

func (e *env) claimWith(req consume.ClaimRequest) []msg {
	e.t.Helper()
	if req.Subscription == "" {
		req.Subscription = "sub"
	}
	got, err := e.svc.Claim(context.Background(), req)
	if err != nil {
		e.t.Fatalf("claim: %v", err)
	}
	return messages(e.t, got.Deliveries)
}

func receipts(ms []msg) []queue.Receipt {
	out := make([]queue.Receipt, len(ms))
	for i := range ms {
		out[i] = ms[i].receipt()
	}
	return out
}

func (e *env) ack(topic string, ms []msg) {
	e.t.Helper()
	errs, err := e.svc.Ack(context.Background(), topic, "sub", receipts(ms))
	e.noErrors("ack", errs, err)
}

func (e *env) release(topic string, ms []msg, how consume.Release) {
	e.t.Helper()
	errs, err := e.svc.Release(context.Background(), topic, "sub", receipts(ms), how)
	e.noErrors("release", errs, err)
}

func (e *env) noErrors(what string, errs []error, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%s: %v", what, err)
	}
	for i, err := range errs {
		if err != nil {
			e.t.Fatalf("%s: receipt %d: %v", what, i, err)
		}
	}
}

// cursor reads the cursor of "sub"; nil if there is none.
func (e *env) cursor(m *topics.Map, seg *meta.Segment) *meta.Cursor {
	e.t.Helper()
	cur, _, err := meta.Fetch[*meta.Cursor](context.Background(), e.bare, meta.CursorKey(m.Subscriptions["sub"].ID, seg.ID))
	if queue.Is(err, queue.KindNotFound) {
		return nil
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return cur
}

func offsets(ms []msg) []queue.Offset {
	out := make([]queue.Offset, len(ms))
	for i := range ms {
		out[i] = ms[i].off
	}
	return out
}

func span(lo, hi queue.Offset) []queue.Offset {
	var out []queue.Offset
	for ; lo < hi; lo++ {
		out = append(out, lo)
	}
	return out
}

func wantOffsets(t testing.TB, what string, ms []msg, want ...queue.Offset) {
	t.Helper()
	if got := offsets(ms); !slices.Equal(got, want) {
		t.Fatalf("%s: got offsets %v, want %v", what, got, want)
	}
}

func wantCode(t testing.TB, err error, code queue.Code) {
	t.Helper()
	if err == nil || queue.CodeOf(err) != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
}

// spent is what the service asked of the stores while f ran.
func (e *env) spent(f func()) meter.Snapshot {
	before := e.meter.Snapshot()
	f()
	return e.meter.Snapshot().Sub(before)
}

// wantOps checks that exactly these ops were made: "get cursor 1, take 1".
func wantOps(t testing.TB, what string, s meter.Snapshot, want string) {
	t.Helper()
	var got []string
	for _, r := range s.Rows {
		got = append(got, fmt.Sprintf("%s %d", r.Op, r.Ops))
	}
	if g := strings.Join(got, ", "); g != want {
		t.Errorf("%s: made %q, want %q", what, g, want)
	}
}

func (e *env) addRef(seg *meta.Segment, ref meta.Ref) {
	e.t.Helper()
	if _, err := e.log.Append(context.Background(), segment.Commit{Segment: seg, At: e.clock(), Refs: []meta.Ref{ref}}); err != nil {
		e.t.Fatal(err)
	}
}

// freshLog is the log of a process that has just begun, on the stores that count.
func (e *env) freshLog() *segment.Log {
	return segment.New(segment.Deps{Meta: e.meta, Blob: e.blob, IDs: e.ids, Clock: func() time.Time { return e.clock().Time() }})
}

// fresh gives e the service of a process that has just begun, on the stores that count.
func (e *env) fresh() {
	e.svc = consume.New(consume.Deps{
		Meta: e.meta, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids,
		Clock: func() time.Time { return e.clock().Time() }, Log: e.freshLog(),
	})
}
