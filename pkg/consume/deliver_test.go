package consume_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// spoiled serves some objects damaged, or not at all.
type spoiled struct {
	blob.Store
	damage map[string]func([]byte) ([]byte, error)
}

func (s *spoiled) Get(ctx context.Context, key string, span blob.Span, dst []byte) ([]byte, error) {
	data, err := s.Store.Get(ctx, key, span, dst)
	if f := s.damage[key]; err == nil && f != nil {
		return f(data)
	}
	return data, err
}

// withSpoiled makes an env whose service reads objects through damage.
func withSpoiled(t *testing.T) (*env, map[string]func([]byte) ([]byte, error)) {
	damage := make(map[string]func([]byte) ([]byte, error))
	e := newEnv(t, options{})
	clock := queue.Clock(func() time.Time { return time.UnixMilli(e.now.Load()) })
	e.svc = consume.New(consume.Deps{
		Meta: e.meta, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids, Clock: clock,
		Log: segment.New(segment.Deps{Meta: e.meta, Blob: &spoiled{e.blob, damage}, IDs: e.ids, Clock: clock}),
	})
	return e, damage
}

func gone([]byte) ([]byte, error) {
	return nil, &queue.Error{Op: "get object", Kind: queue.KindNotFound}
}

// objectOf is the object of the ref at an offset.
func (e *env) objectOf(seg *meta.Segment, off queue.Offset) string {
	e.t.Helper()
	h, err := e.log.Head(context.Background(), seg.ID)
	if err != nil {
		e.t.Fatal(err)
	}
	for loc, err := range e.log.Refs(context.Background(), h, off) {
		if err != nil {
			e.t.Fatal(err)
		}
		return loc.Ref.Object
	}
	e.t.Fatal("no such ref")
	return ""
}

func TestUnreadablePayload(t *testing.T) {
	flip := func(i int) func([]byte) ([]byte, error) {
		return func(b []byte) ([]byte, error) {
			b = slices.Clone(b)
			b[len(b)-i] ^= 1
			return b, nil
		}
	}
	large := strings.Repeat("x", 300<<10)
	for _, tc := range []struct {
		name   string
		recs   []rec
		damage func([]byte) ([]byte, error)
		want   []queue.Offset // of the batch at 2, after 0 and 1 and before one more
	}{
		{"object is gone", bodies("a", "b", "c"), gone, nil},
		{"index is damaged", bodies("a", "b", "c"), func(b []byte) ([]byte, error) {
			b = slices.Clone(b)
			b[batch.HeaderSize] ^= 1
			return b, nil
		}, nil},
		{"a body is damaged", bodies("a", "b", "c"), flip(2), []queue.Offset{2, 4}},
		{"the last body is damaged", bodies("a", "b", "c"), flip(1), []queue.Offset{2, 3}},
		{"all bodies are damaged", bodies("a", "b"), func(b []byte) ([]byte, error) {
			b = slices.Clone(b)
			b[len(b)-1] ^= 1
			b[len(b)-2] ^= 1
			return b, nil
		}, nil},
		{"object is cut off", bodies("a", "b", "c"), func(b []byte) ([]byte, error) { return b[:len(b)-1], nil }, nil},
		{"a body in a large batch is damaged", bodies(large, large, large, large, "z"), func(b []byte) ([]byte, error) {
			b = slices.Clone(b)
			if b[len(b)-1] == 'z' {
				b[len(b)-1] ^= 1
			}
			return b, nil
		}, []queue.Offset{2, 3, 4, 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, damage := withSpoiled(t)
			dead := e.topic("dead", 1, nil)
			m := e.topic("a", 1, func(_ *meta.Topic, s *meta.Subscription) { s.MaxDeliveries, s.DeadLetterTopic = 3, "dead" })
			seg := m.Open[0]
			e.add(seg, false, bodies("before", "before")...)
			e.add(seg, true, tc.recs...)
			last := e.add(seg, false, bodies("after")...)
			damage[e.objectOf(seg, 2)] = tc.damage
			got := e.claimWith(consume.ClaimRequest{Topic: "a", MaxMessages: 100})
			wantOffsets(t, "claim", got, append(append([]queue.Offset{0, 1}, tc.want...), last)...)
			e.ack("a", got)
			wantOps(t, "poll right afterwards", e.spent(func() { e.claim("a", 100) }), "get cursor 1, get head 1")
			bad := len(tc.recs) - len(tc.want)
			for range 10 {
				e.pass(time.Minute)
				wantOffsets(t, "later", e.claim("a", 100))
			}
			h, err := e.log.Head(t.Context(), dead.Open[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			if int(h.Next) != bad {
				t.Errorf("%d dead letters, want %d", h.Next, bad)
			}
			if reason, _ := batch.Headers(h.Tail[0].Headers).Get(consume.HeaderReason); reason != "payload_unreadable" {
				t.Errorf("reason is %q", reason)
			}
			if cur := e.cursor(m, seg); cur.Floor != last+1 {
				t.Errorf("cursor is %+v", cur)
			}
		})
	}
}

func TestPayloadStoreFails(t *testing.T) {
	e, damage := withSpoiled(t)
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	e.add(seg, true, numbered(3)...)
	down := func([]byte) ([]byte, error) {
		return nil, &queue.Error{Op: "get object", Kind: queue.KindUnavailable}
	}
	object := e.objectOf(seg, 0)
	damage[object] = down
	_, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
	wantCode(t, err, queue.CodeUnavailable)
	e.add(seg, false, numbered(1)...)
	wantOffsets(t, "what can be read", e.claim("a", 10), 3)
	delete(damage, object)
	got := e.claim("a", 10)
	wantOffsets(t, "once it is back", got, 0, 1, 2)
	if got[0].attempt != 1 {
		t.Errorf("a delivery that nobody saw was counted: attempt %d", got[0].attempt)
	}
}

func TestDeliverByReference(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	e.addPayload(seg, "a payload")
	e.add(seg, true, numbered(3)...)
	e.add(seg, false, numbered(2)...)
	got, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxMessages: 100, ByReference: true})
	if err != nil {
		t.Fatal(err)
	}
	ds := got.Deliveries
	if len(ds) != 3 {
		t.Fatalf("%d deliveries", len(ds))
	}
	slices.SortFunc(ds, func(a, b consume.Delivery) int { return int(a.Offset) - int(b.Offset) })
	for i, want := range []struct{ url, index, data bool }{{true, false, false}, {true, true, false}, {false, false, true}} {
		d := &ds[i]
		if (d.Presigned != nil) != want.url || (d.Index != nil) != want.index || (d.Data != nil) != want.data {
			t.Errorf("delivery %d: url %v, index %d bytes, data %d bytes", i, d.Presigned, len(d.Index), len(d.Data))
		}
		if want.url && (!strings.Contains(d.Presigned.URL, d.Ref.Object) || d.PresignedExpires != e.clock().Add(queue.PresignTTL)) {
			t.Errorf("delivery %d: %+v until %v", i, d.Presigned, d.PresignedExpires)
		}
	}
	if idx, err := batch.OpenIndex(ds[1].Index); err != nil || idx.Count() != 3 {
		t.Errorf("index: %v", err)
	}
}

func TestLargePayloadGoesByReference(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	ref := meta.Ref{Kind: meta.RefPayload, ID: meta.RefID(e.ids.Nonce()), Object: "uploads/x", Len: 1 << 30, Count: 1, Bytes: 1 << 30, Created: e.clock()}
	if _, err := e.log.Append(t.Context(), segment.Commit{Segment: seg, At: e.clock(), Refs: []meta.Ref{ref}}); err != nil {
		t.Fatal(err)
	}
	got, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Deliveries) != 1 || got.Deliveries[0].Presigned == nil {
		t.Errorf("got %+v", got)
	}
}

// leaver cancels a context when a call of some name is made, and lets the call be carried out or not.
type leaver struct {
	meta.Store
	at      string
	applied bool
	cancel  context.CancelFunc
}

func (l *leaver) leave(name string) bool {
	if l.cancel == nil || name != l.at {
		return false
	}
	l.cancel()
	l.cancel = nil
	return true
}

func (l *leaver) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	what := strings.TrimSuffix(key.SK, "0")
	if strings.HasPrefix(key.PK, "p/") {
		what = "payload"
	}
	if l.leave(what) {
		return meta.Item{}, meta.Canceled(ctx, "get record")
	}
	return l.Store.Get(ctx, key)
}

func (l *leaver) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if !l.leave(op.Name()) {
		return l.Store.Apply(ctx, op)
	}
	if l.applied {
		if _, err := l.Store.Apply(context.WithoutCancel(ctx), op); err != nil {
			return meta.Result{}, err
		}
	}
	return meta.Result{}, &queue.Error{Op: op.Name(), Kind: queue.KindOutcomeUnknown, Err: ctx.Err()}
}

// TestCanceled: a caller who goes away leaves nothing claimed, and no delivery counted.
func TestCanceled(t *testing.T) {
	for _, tc := range []struct {
		at      string
		applied bool
	}{{"cursor", false}, {"head", false}, {"take", false}, {"take", true}, {"payload", false}} {
		t.Run(tc.at, func(t *testing.T) {
			e := newEnv(t, options{})
			l := &leaver{Store: e.meta, at: tc.at, applied: tc.applied}
			clock := queue.Clock(func() time.Time { return time.UnixMilli(e.now.Load()) })
			e.svc = consume.New(consume.Deps{
				Meta: l, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids, Clock: clock,
				Log: segment.New(segment.Deps{Meta: l, Blob: e.blob, IDs: e.ids, Clock: clock}),
			})
			m := e.topic("a", 1, nil)
			e.add(m.Open[0], false, numbered(2)...)
			e.add(m.Open[0], true, numbered(2)...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l.cancel = cancel
			_, err := e.svc.Claim(ctx, consume.ClaimRequest{Topic: "a", Subscription: "sub"})
			wantCode(t, err, queue.CodeCanceled)
			got := e.claim("a", 10)
			wantOffsets(t, "after it", got, 0, 1, 2, 3)
			for _, g := range got {
				if g.attempt != 1 {
					t.Errorf("attempt of %d is %d", g.off, g.attempt)
				}
			}
		})
	}
}

// TestOneBatchIsReadOnce: however many runs of it a claim delivers.
func TestOneBatchIsReadOnce(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], true, numbered(20)...)
	got := e.claimWith(consume.ClaimRequest{Topic: "a", MaxMessages: 20, ByReference: true})
	for i := 0; i < len(got); i += 2 {
		e.release("a", got[i:i+1], consume.Release{})
	}
	fresh := newEnvOn(e)
	s := e.spent(func() { wantOffsets(t, "claim", fresh.claim("a", 20), 0, 2, 4, 6, 8, 10, 12, 14, 16, 18) })
	wantOps(t, "claim", s, "get cursor 1, get head 1, get object 1, take 1")
}

// newEnvOn is e with a process whose caches are empty.
func newEnvOn(e *env) *env {
	clock := queue.Clock(func() time.Time { return time.UnixMilli(e.now.Load()) })
	e.svc = consume.New(consume.Deps{
		Meta: e.meta, Presigner: signer{}, Topics: e.names, Delay: e.delay, Hub: e.hub, IDs: e.ids, Clock: clock,
		Log: segment.New(segment.Deps{Meta: e.meta, Blob: e.blob, IDs: e.ids, Clock: clock}),
	})
	return e
}
