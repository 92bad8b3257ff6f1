package produce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// world is a whole produce side on memory stores.
type world struct {
	t     *testing.T
	meta  meta.Store
	blob  blob.Store
	meter *meter.Meter
	ids   *queue.IDs
	now   time.Time
	// later is as in segment.Deps, of processes made after it is set.
	later func(func())
	*produce.Service
	topics *topics.Service
	log    *segment.Log
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, meta: memmeta.New(t), meter: meter.New(), ids: queue.NewIDs(rand.NewChaCha8([32]byte{1})),
		now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
	}
	w.blob = memblob.New(t, w.clock, memblob.Options{})
	w.Service = w.process(w.meter.Meta(w.meta), w.meter.Blob(w.blob))
	return w
}

func (w *world) clock() time.Time { return w.now }

// process makes a service as one process would: with caches of its own.
func (w *world) process(m meta.Store, b blob.Store) *produce.Service {
	w.log = segment.New(segment.Deps{Meta: m, Blob: b, IDs: w.ids, Clock: w.clock, Later: w.later})
	w.topics = topics.New(topics.Deps{Meta: m, IDs: w.ids, Clock: w.clock})
	return produce.New(produce.Deps{
		Meta: m, Blob: b, Presigner: presigner{}, Log: w.log, Topics: w.topics, Hub: notify.NewHub(),
		IDs: w.ids, Clock: w.clock,
	})
}

type presigner struct{}

func (presigner) PresignPut(_ context.Context, key string, _ blob.Terms, _ time.Time) (blob.Request, error) {
	return blob.Request{Method: "PUT", URL: "/" + key}, nil
}

func (presigner) PresignGet(_ context.Context, key string, _ time.Time) (blob.Request, error) {
	return blob.Request{Method: "GET", URL: "/" + key}, nil
}

func (w *world) topic(name string, cfg topics.Config) {
	w.t.Helper()
	if _, _, err := w.topics.Create(context.Background(), name, cfg); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.topics.Open(context.Background(), name); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) produce(req produce.Request) produce.Answer {
	w.t.Helper()
	a, err := w.Produce(context.Background(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// bodies reads a topic's segments back: the body of each message by id.
func (w *world) bodies(topic string) map[string]string {
	w.t.Helper()
	ctx := context.Background()
	m, err := w.topics.Reload(ctx, topic)
	if err != nil {
		w.t.Fatal(err)
	}
	got := make(map[string]string)
	for _, seg := range m.Segments {
		head, err := w.log.Head(ctx, seg.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		for loc, err := range w.log.Refs(ctx, head, 0) {
			if err != nil {
				w.t.Fatal(err)
			}
			data, base, err := w.log.Data(ctx, loc.Ref, loc.Ref.First, loc.Ref.Count)
			if err != nil {
				w.t.Fatal(err)
			}
			if loc.Ref.Kind == meta.RefPayload {
				got[queue.MessageID{Segment: seg.ID, Offset: loc.Offset}.String()] = string(data)
				continue
			}
			r, err := batch.Open(data)
			if err != nil {
				w.t.Fatal(err)
			}
			if err := r.Seek(int(base), int(loc.Ref.Count)); err != nil {
				w.t.Fatal(err)
			}
			var rec batch.Record
			for off := loc.Offset; r.Next(&rec); off++ {
				if !seg.Range.Contains(rec.Slot) {
					w.t.Errorf("slot %d is in segment %v", rec.Slot, seg.Range)
				}
				got[queue.MessageID{Segment: seg.ID, Offset: off}.String()] = string(rec.Body)
			}
			if r.Err() != nil {
				w.t.Fatal(r.Err())
			}
		}
	}
	return got
}

func (w *world) entries(topic string) []*meta.Delayed {
	w.t.Helper()
	m, _ := w.topics.Open(context.Background(), topic)
	page, err := w.meta.Query(context.Background(), meta.Range{PK: meta.DelayedPK(m.ID(), 0), To: meta.DelayedEnd, Limit: meta.MaxQueryLimit})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []*meta.Delayed
	for _, it := range page.Items {
		out = append(out, it.Record.(*meta.Delayed))
	}
	return out
}

// ids lists what each message of a call was answered with.
func ids(a produce.Answer) (out []string) {
	for _, r := range a.Runs {
		for i := range r.Count {
			switch {
			case r.Err != nil:
				out = append(out, "error "+string(queue.CodeOf(r.Err)))
			case r.Delayed != nil:
				id := *r.Delayed
				id.Index += uint32(i)
				out = append(out, "delayed "+id.String())
			default:
				id := r.ID
				id.Offset += queue.Offset(i)
				out = append(out, id.String())
			}
		}
	}
	return out
}

func messages(n int, body string, keys int) []produce.Message {
	out := make([]produce.Message, n)
	for i := range out {
		out[i].Body = fmt.Appendf(nil, "%s %d", body, i)
		if keys > 0 {
			out[i].Key = fmt.Appendf(nil, "key %d", i%keys)
		}
	}
	return out
}

func TestProduceRoutesAndAnswersInOrder(t *testing.T) {
	for _, segments := range []int{1, 7, 64} {
		for name, size := range map[string]string{"inline": "x", "object": strings.Repeat("x", 1000)} {
			t.Run(fmt.Sprintf("%d segments, %s", segments, name), func(t *testing.T) {
				w := newWorld(t)
				w.topic("t", topics.Config{MinSegments: segments})
				req := produce.Request{Topic: "t", Messages: messages(50, size, 20)}
				got := ids(w.produce(req))
				have := w.bodies("t")
				if len(got) != 50 || len(have) != 50 {
					t.Fatalf("%d answers, %d messages, want 50", len(got), len(have))
				}
				for i, id := range got {
					if have[id] != string(req.Messages[i].Body) {
						t.Errorf("message %d is answered %s, where %q stands", i, id, have[id])
					}
				}
			})
		}
	}
}

// TestCost holds the price of a produce call: one payload put and one head update per segment
// touched, and not one store call more.
func TestCost(t *testing.T) {
	big := strings.Repeat("x", 1000)
	for _, tc := range []struct {
		name     string
		segments int
		body     string
		keys     int
		want     map[string]int64
	}{
		{"one small message", 1, "x", 0, map[string]int64{"put payload": 1, "append": 1}},
		{"a batch to one segment", 1, big, 50, map[string]int64{"create object": 1, "append": 1}},
		{"a batch without keys", 16, big, 0, map[string]int64{"create object": 1, "append": 1}},
		{"a batch over 4 segments", 4, big, 100, map[string]int64{"create object": 1, "append": 4}},
		{"a small batch over 4 segments", 4, "x", 100, map[string]int64{"put payload": 1, "append": 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.topic("t", topics.Config{MinSegments: tc.segments})
			before := w.meter.Snapshot()
			n := 100
			if strings.HasPrefix(tc.name, "one") {
				n = 1
			}
			w.produce(produce.Request{Topic: "t", Messages: messages(n, tc.body, tc.keys)})
			cost := w.meter.Snapshot().Sub(before)
			var total int64
			for op, want := range tc.want {
				if cost.Ops(op) != want {
					t.Errorf("%d of %q, want %d", cost.Ops(op), op, want)
				}
				total += want
			}
			if cost.Total().Ops != total {
				t.Errorf("%d store calls, want %d:\n%s", cost.Total().Ops, total, cost)
			}
		})
	}
}

func TestPerEntryErrors(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{MaxMessageBytes: 100})
	req := produce.Request{Topic: "t", Messages: messages(6, "x", 0)}
	req.Messages[1].Body = bytes.Repeat([]byte("x"), 101)
	req.Messages[2].Key = bytes.Repeat([]byte("k"), queue.MaxKeyBytes+1)
	req.Messages[3].Headers = map[string]string{"": "x"}
	req.Messages[4].TTL = -1
	a := w.produce(req)
	got := ids(a)
	want := []string{"", "too_large", "too_large", "invalid_argument", "invalid_argument", ""}
	for i, code := range want {
		if (code == "") == strings.HasPrefix(got[i], "error") || !strings.HasSuffix(got[i], code) {
			t.Errorf("message %d is answered %q, want %q", i, got[i], code)
		}
	}
	var e *queue.Error
	for _, r := range a.Runs {
		if r.First == 1 {
			if !errors.As(r.Err, &e) {
				t.Fatal(r.Err)
			}
		}
	}
	if e.Field != "messages[1].body" || e.Limit != int64(100) {
		t.Errorf("the error names %q and %v", e.Field, e.Limit)
	}
	if n := len(w.bodies("t")); n != 2 {
		t.Errorf("%d messages taken, want 2", n)
	}
}

func TestDelayOnNormalTopic(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{})
	cost := func(m produce.Message) (meter.Snapshot, produce.Answer) {
		before := w.meter.Snapshot()
		a := w.produce(produce.Request{Topic: "t", Messages: []produce.Message{m}})
		return w.meter.Snapshot().Sub(before), a
	}
	plain, _ := cost(produce.Message{Body: []byte("x")})
	delayed, a := cost(produce.Message{Body: []byte("x"), Delay: time.Minute, HasDelay: true})
	if !slices.Equal(a.Runs[0].Warnings, []produce.Warning{produce.WarnDelayIgnored}) || a.Runs[0].Delayed != nil {
		t.Errorf("answered %+v, want a message with a warning", a.Runs[0])
	}
	if plain.Total().Ops != 2 || delayed.Total().Ops != 2 {
		t.Errorf("%d and %d store calls, want one put and one append for each", plain.Total().Ops, delayed.Total().Ops)
	}
}

func TestDedupIDIsNotSilentlyIgnored(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{})
	a := w.produce(produce.Request{Topic: "t", Messages: []produce.Message{{Body: []byte("x"), DedupID: "d"}, {Body: []byte("y")}}})
	if len(a.Runs) != 2 || !slices.Equal(a.Runs[0].Warnings, []produce.Warning{produce.WarnDedupIgnored}) || a.Runs[1].Warnings != nil {
		t.Errorf("answered %+v", a.Runs)
	}
}

func TestDelayedTopic(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{DefaultDelay: 10 * time.Second, MinSegments: 4})
	req := produce.Request{Topic: "t", Messages: messages(10, "x", 10)}
	req.Messages[3].HasDelay = true // 0 wins over the default
	req.Messages[4].HasDelay, req.Messages[4].Delay = true, time.Minute
	req.Messages[5].TTL = 5 * time.Second
	req.Messages[6].HasDelay, req.Messages[6].Delay = true, time.Hour
	a := w.produce(req)
	at := queue.MillisOf(w.now)
	for _, r := range a.Runs {
		wantDelayed, wantVisible := true, at.Add(10*time.Second)
		var warn []produce.Warning
		switch r.First {
		case 3:
			wantDelayed, wantVisible = false, at
		case 4:
			wantVisible = at.Add(time.Minute)
		case 5:
			warn = []produce.Warning{produce.WarnExpiresBeforeVisible}
		case 6:
			if queue.CodeOf(r.Err) != queue.CodeInvalidArgument {
				t.Errorf("a delay over max_delay: %v", r.Err)
			}
			continue
		}
		if (r.Delayed != nil) != wantDelayed || r.Visible != wantVisible || !slices.Equal(r.Warnings, warn) {
			t.Errorf("message %d is answered %+v", r.First, r)
		}
	}
	n := 0
	for _, d := range w.entries("t") {
		n += len(d.Slots)
		if !slices.IsSorted(d.Slots) || len(d.Slots) != int(d.Ref.Count) || len(d.Sizes) != len(d.Slots) {
			t.Errorf("entry %+v", d)
		}
	}
	if len(w.entries("t")) != 3 || n != 8 {
		t.Errorf("%d entries of %d messages, want 3 of 8", len(w.entries("t")), n)
	}
	if len(w.bodies("t")) != 1 {
		t.Error("a delayed message is in a segment")
	}
}

func TestBatch(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{MinSegments: 4, MaxMessageBytes: 50})
	enc := batch.NewEncoder(batch.Options{Codec: batch.CodecZstd})
	for i := range 40 {
		key := fmt.Appendf(nil, "k%d", i)
		rec := batch.Record{Key: key, Slot: queue.SlotOf(key), Body: key}
		if i == 7 {
			rec.Slot++
		}
		if i == 9 {
			rec.Body = make([]byte, 51)
		}
		if err := enc.Add(&rec); err != nil {
			t.Fatal(err)
		}
	}
	data, err := enc.Finish(nil, w.ids.Nonce())
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.ProduceBatch(t.Context(), produce.BatchRequest{Topic: "t", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	got, have := ids(a), w.bodies("t")
	for i, k := range enc.Order() {
		switch want := fmt.Sprintf("k%d", k); k {
		case 7:
			if got[i] != "error invalid_argument" {
				t.Errorf("a slot that is not its key's: %s", got[i])
			}
		case 9:
			if got[i] != "error too_large" {
				t.Errorf("a body over the limit: %s", got[i])
			}
		default:
			if have[got[i]] != want {
				t.Errorf("record %d is answered %s, where %q stands", k, got[i], have[got[i]])
			}
		}
	}
	if len(have) != 38 {
		t.Errorf("%d messages, want 38", len(have))
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x40
		if _, err := w.ProduceBatch(t.Context(), produce.BatchRequest{Topic: "t", Data: bad}); queue.CodeOf(err) != queue.CodeInvalidArgument {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
}

func TestBatchUnderPartitionKeyRule(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{MinSegments: 8, PartitionKey: "$.id"})
	enc := batch.NewEncoder(batch.Options{})
	if err := enc.Add(&batch.Record{Slot: 9, Body: []byte(`{"id":"c42"}`)}); err != nil {
		t.Fatal(err)
	}
	data, err := enc.Finish(nil, w.ids.Nonce())
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.ProduceBatch(t.Context(), produce.BatchRequest{Topic: "t", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := w.topics.Open(t.Context(), "t")
	if want := m.Route(queue.SlotOf([]byte("c42"))).ID; a.Runs[0].ID.Segment != want {
		t.Errorf("routed to %s, want the segment of the rule's key", a.Runs[0].ID.Segment)
	}
}

func TestReferences(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{MinSegments: 4})
	w.topic("other", topics.Config{})
	ctx := t.Context()
	put := func(topic string, data []byte) string {
		up, err := w.Uploads(ctx, topic, []blob.Terms{{Size: int64(len(data))}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.blob.Put(ctx, up[0].Object, bytes.NewReader(data), blob.Terms{Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		return up[0].Object
	}
	payload := put("t", []byte("a large payload"))
	enc := batch.NewEncoder(batch.Options{})
	for i := range 20 {
		key := fmt.Appendf(nil, "k%d", i)
		_ = enc.Add(&batch.Record{Key: key, Slot: queue.SlotOf(key), Body: key})
	}
	data, _ := enc.Finish(nil, w.ids.Nonce())
	file := put("t", data)
	refs := []produce.Reference{
		{Object: payload, Key: []byte("k"), Headers: map[string]string{"a": "b"}},
		{Object: file, Batch: true},
		{Object: "uploads/absent"},
		{Object: put("other", []byte("x"))},
		{Object: "../../etc/passwd"},
		{Object: payload, Checked: true, Terms: blob.Terms{Size: 3}},
		{Object: payload, Checked: true, Terms: blob.Terms{Size: 15, CRC32C: 1, HasCRC32C: true}},
		{Object: payload, Batch: true},
		{Object: put("t", append(slices.Clone(data), 0)), Batch: true},
	}
	before := w.meter.Snapshot()
	a, err := w.References(ctx, produce.ReferencesRequest{Topic: "t", References: refs})
	if err != nil {
		t.Fatal(err)
	}
	cost := w.meter.Snapshot().Sub(before)
	if b := cost.Row("get object"); b.Bytes > 2*int64(len(data)) {
		t.Errorf("%d bytes of objects were read: payloads are not to be", b.Bytes)
	}
	got, have := ids(a), w.bodies("t")
	if len(got) != 28 || have[got[0]] != "a large payload" || len(have) != 21 {
		t.Fatalf("answered %v with %d messages", got, len(have))
	}
	for i, k := range enc.Order() {
		if have[got[1+i]] != fmt.Sprintf("k%d", k) {
			t.Errorf("record %d is answered %s", k, got[1+i])
		}
	}
	want := []string{"object_not_found", "object_not_found", "invalid_argument", "object_invalid", "object_invalid", "object_invalid", "object_invalid"}
	for i, code := range want {
		if got[21+i] != "error "+code {
			t.Errorf("reference %d is answered %q, want %s", 2+i, got[21+i], code)
		}
	}
}

func TestUnknownTopic(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Produce(t.Context(), produce.Request{Topic: "t", Messages: messages(1, "x", 0)}); queue.CodeOf(err) != queue.CodeTopicNotFound {
		t.Error(err)
	}
	w.topic("t", topics.Config{})
	if _, err := w.Produce(t.Context(), produce.Request{Topic: "t"}); queue.CodeOf(err) != queue.CodeInvalidArgument {
		t.Errorf("no messages: %v", err)
	}
	stale := w.process(w.meta, w.blob)
	if _, err := stale.Produce(t.Context(), produce.Request{Topic: "t", Messages: messages(1, "x", 0)}); err != nil {
		t.Fatal(err)
	}
	other := topics.New(topics.Deps{Meta: w.meta, IDs: w.ids, Clock: w.clock})
	if err := other.Delete(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	a, err := stale.Produce(t.Context(), produce.Request{Topic: "t", Messages: messages(1, "x", 0)})
	if err != nil || queue.CodeOf(a.Runs[0].Err) != queue.CodeTopicNotFound {
		t.Errorf("a process that has not heard of the deletion: %+v, %v", a, err)
	}
}

// TestHeavyRefs: references carry their keys and headers in the head. As many and as large as the
// limits allow, they must not fill its record so that the segment takes no more.
func TestHeavyRefs(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{})
	ctx := t.Context()
	up, err := w.Uploads(ctx, "t", []blob.Terms{{Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.blob.Put(ctx, up[0].Object, strings.NewReader("x"), blob.Terms{Size: 1}); err != nil {
		t.Fatal(err)
	}
	ref := produce.Reference{
		Object: up[0].Object, Key: bytes.Repeat([]byte("k"), queue.MaxKeyBytes),
		Headers: map[string]string{"h": strings.Repeat("v", queue.MaxHeadersBytes-1)},
	}
	for range 3 {
		req := produce.ReferencesRequest{Topic: "t", References: slices.Repeat([]produce.Reference{ref}, queue.MaxReferences)}
		a, err := w.References(ctx, req)
		if err != nil || a.Runs[0].Err != nil || len(a.Runs) != 1 {
			t.Fatalf("answered %d runs, the first %+v, %v", len(a.Runs), a.Runs[0].Err, err)
		}
	}
	if n := len(w.bodies("t")); n != 3*queue.MaxReferences {
		t.Errorf("%d messages, want %d", n, 3*queue.MaxReferences)
	}
}
