package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func frames(t testing.TB, body []byte) (out []*wire.Frame) {
	t.Helper()
	for r := wire.NewFrameReader(bytes.NewReader(body)); ; {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
}

// noise is n bytes that do not compress.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestBinaryClaim(t *testing.T) {
	for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecZstd} {
		a := newAPI()
		var records []batch.Record
		for i := range 100 {
			records = append(records, batch.Record{Slot: queue.Slot(i), Key: []byte("k" + strconv.Itoa(i)), Body: noise(2000)})
		}
		data := encoded(t, codec, records...)
		whole, part := deliver(data, 100), deliver(data, 10)
		part.First, part.Offset = 40, 140
		payload := consume.Delivery{
			Segment: segmentB, Offset: 3, Count: 1, Claim: queue.ClaimID{7}, Attempt: 2, ClaimExpires: now + 1,
			Ref:  &meta.Ref{Kind: meta.RefPayload, Count: 1, Created: now, CRC: blob.CRC32C([]byte("body")), HasCRC: true, Key: []byte("pk"), MinExpires: now + 5, MaxExpires: now + 5},
			Data: []byte("body"),
		}
		a.deliveries = []consume.Delivery{whole, part, payload}
		got := a.do(t, "POST", claims, `{"max_messages":200}`, "Accept", "text/plain, "+wire.MediaTypeBatch+";q=0.9")
		fs := frames(t, got.body)
		if len(fs) != 3 || got.Header.Get("Content-Length") != strconv.Itoa(len(got.body)) {
			t.Fatalf("%v: %d frames, %v", codec, len(fs), got.Header)
		}
		if !bytes.Equal(fs[0].Payload, data) {
			t.Errorf("%v: the whole batch is not sent as it is", codec)
		}
		if len(fs[1].Payload) > len(data)/2 || fs[1].First != 0 {
			t.Errorf("%v: a tenth of the batch is sent in %d of %d bytes", codec, len(fs[1].Payload), len(data))
		}
		i := 40
		for d, err := range fs[1].Messages() {
			if err != nil || string(d.Key) != "k"+strconv.Itoa(i) || !bytes.Equal(d.Body, noise(2000)) || d.ID.Offset != queue.Offset(100+i) {
				t.Errorf("%v: message %d: %v %v", codec, i, d.ID, err)
			}
			i++
		}
		for d, err := range fs[2].Messages() {
			if err != nil || string(d.Body) != "body" || d.Attempt != 2 || d.Expires != now+5 || string(d.Key) != "pk" || d.Receipt.Claim != (queue.ClaimID{7}) {
				t.Errorf("%v: payload: %+v %v", codec, d, err)
			}
		}
	}
}

// TestBothFormsSayTheSame renders the same deliveries as JSON and as frames.
func TestBothFormsSayTheSame(t *testing.T) {
	headers, err := batch.MakeHeaders(map[string]string{"a": "1", "b": "2"})
	if err != nil {
		t.Fatal(err)
	}
	over, err := batch.MakeHeaders(map[string]string{"b": "3", "reason": "late"})
	if err != nil {
		t.Fatal(err)
	}
	d := deliver(encoded(t, batch.CodecZstd,
		batch.Record{Slot: 1, Body: []byte("one"), Headers: headers, CreatedDelta: time.Second, DedupID: []byte("d")},
		batch.Record{Slot: 2, Body: []byte("two"), TTL: time.Hour}), 2)
	d.Ref.Headers, d.Ref.DefaultTTL = over, 60_000
	a := newAPI()
	a.deliveries = []consume.Delivery{d}
	var list wire.MessageList
	a.do(t, "POST", claims, "").into(t, &list)
	fs := frames(t, a.do(t, "POST", claims, "", "Accept", wire.MediaTypeBatch).body)
	i := 0
	for got, err := range fs[0].Messages() {
		m := list.Messages[i]
		if err != nil || m.ID != got.ID.String() || *m.Body != string(got.Body) || m.Receipt != got.Receipt.String() ||
			!reflect.DeepEqual(m.Headers, got.Headers.Map()) || m.CreatedAt.Millis() != got.Created || m.ExpiresAt.Millis() != got.Expires ||
			m.VisibleAt.Millis() != got.Visible || m.DedupID != string(got.DedupID) || m.Attempt != got.Attempt {
			t.Errorf("JSON %+v\nframe %+v %v", m, got, err)
		}
		i++
	}
	if i != 2 || list.Messages[0].Headers["b"] != "3" || list.Messages[0].Headers["a"] != "1" || list.Messages[0].ExpiresAt != wire.Time(now+61_000) {
		t.Errorf("%+v", list.Messages)
	}
}

func TestReferences(t *testing.T) {
	plain := encoded(t, batch.CodecNone, batch.Record{Slot: 1, Body: []byte("first")}, batch.Record{Slot: 2, Body: []byte("second")})
	packed := encoded(t, batch.CodecZstd, batch.Record{Slot: 1, Body: []byte("first")}, batch.Record{Slot: 2, Body: []byte("second")})
	deliveryOf := func(data []byte, url string) consume.Delivery {
		d := deliver(nil, 2)
		index, err := batch.OpenIndex(data)
		if err != nil {
			t.Fatal(err)
		}
		d.Index, d.Ref.Pos, d.Ref.Len = data[:index.Header().PrefixLen()], 1000, int64(len(data))
		d.Presigned, d.PresignedExpires = &blob.Request{Method: "GET", URL: url, Headers: map[string]string{"x-h": "1"}}, now+900_000
		return d
	}
	payload := deliver(nil, 1)
	payload.Ref = &meta.Ref{Kind: meta.RefPayload, Count: 1, Len: 7 << 20, CRC: 0xabc, HasCRC: true, Created: now}
	payload.Presigned, payload.PresignedExpires = &blob.Request{Method: "GET", URL: "/v1/objects/p?sig=1"}, now+900_000
	a := newAPI()
	a.deliveries = []consume.Delivery{deliveryOf(plain, "/v1/objects/b?sig=1"), deliveryOf(packed, "https://s3.test/b?sig=1"), payload}
	var out wire.MessageList
	a.do(t, "POST", claims, `{"deliver":"reference"}`).into(t, &out)
	if !a.claimed.ByReference || a.claimed.MaxBytes != 0 || len(out.Messages) != 5 {
		t.Fatalf("%+v %+v", a.claimed, out)
	}
	second := out.Messages[1].Reference
	at := second.Offset - 1000
	if string(plain[at:at+second.Length]) != "second" || second.Checksum != blob.FormatChecksum(blob.CRC32C([]byte("second"))) ||
		second.Format != "payload" || second.Record != nil || second.URL != "http://queue.test/v1/objects/b?sig=1" || second.Headers["x-h"] != "1" {
		t.Errorf("a body in a plain batch: %+v", second)
	}
	if r := out.Messages[3].Reference; r.Format != "batch" || *r.Record != 1 || r.Offset != 1000 || r.Length != int64(len(packed)) || r.Checksum != "" || r.URL != "https://s3.test/b?sig=1" {
		t.Errorf("a body in a compressed batch: %+v", r)
	}
	if r := out.Messages[4].Reference; r.Offset != 0 || r.Length != 7<<20 || r.Checksum != "crc32c:00000abc" || r.Format != "payload" {
		t.Errorf("a payload: %+v", r)
	}
	fs := frames(t, a.do(t, "POST", claims, `{"deliver":"reference"}`, "Accept", wire.MediaTypeBatch).body)
	if len(fs) != 3 || fs[0].Reference.URL != "http://queue.test/v1/objects/b?sig=1" || fs[1].Reference.Pos != 1000 || len(fs[2].Payload) != 0 {
		t.Errorf("%+v", fs)
	}
}

func TestAddressOfPresignedURLs(t *testing.T) {
	ask := func(host, base string, secure bool) string {
		a := newAPI(func(d *httpapi.Deps) { d.BaseURL = base })
		target := "http://x.test/v1/topics/orders/uploads"
		if secure {
			target = "https://x.test/v1/topics/orders/uploads"
		}
		r := httptest.NewRequest("POST", target, strings.NewReader(`{"objects":[{"size":1}]}`))
		r.Host = host
		var out wire.UploadsAnswer
		a.send(t, r, "").into(t, &out)
		return strings.TrimSuffix(out.Uploads[0].URL, "/v1/objects/uploads/t/1?sig=s")
	}
	for _, c := range []struct {
		host, base string
		secure     bool
		want       string
	}{
		{"127.0.0.1:8080", "", false, "http://127.0.0.1:8080"},
		{"[::1]:8080", "", true, "https://[::1]:8080"},
		{"h", "https://public.test/", false, "https://public.test"},
		{"evil.test/x?", "", false, ""},
		{"", "", false, ""},
	} {
		if got := ask(c.host, c.base, c.secure); got != c.want {
			t.Errorf("%q: %q, want %q", c.host, got, c.want)
		}
	}
}

// TestDamagedMessages: what cannot be read is told of in its place; its neighbours are whole.
func TestDamagedMessages(t *testing.T) {
	data := encoded(t, batch.CodecNone, batch.Record{Slot: 1, Body: []byte("first")}, batch.Record{Slot: 2, Body: []byte("second")})
	data[bytes.Index(data, []byte("first"))] ^= 1
	lost := deliver([]byte("not a batch"), 2)
	a := newAPI()
	a.deliveries = []consume.Delivery{deliver(data, 2), lost}
	var out wire.MessageList
	a.do(t, "POST", claims, "").into(t, &out)
	if len(out.Messages) != 4 {
		t.Fatalf("%+v", out)
	}
	for i, m := range out.Messages {
		if damaged := i != 1; damaged != (m.Error != nil && m.Error.Code == queue.CodeCorrupt && m.Body == nil) || m.ID == "" || m.Receipt == "" || m.Attempt != 1 {
			t.Errorf("message %d: %+v", i, m)
		}
	}
}

// TestCallerGoneDuringLongPoll: the claim was made, but nobody is there to work on it.
func TestCallerGoneDuringLongPoll(t *testing.T) {
	f := &fakes{released: make(chan []queue.Receipt, 1)}
	polling := make(chan struct{})
	f.onClaim = func(ctx context.Context) {
		close(polling)
		<-ctx.Done()
	}
	f.deliveries = []consume.Delivery{deliver(encoded(t, batch.CodecNone, batch.Record{Body: []byte("x")}), 1)}
	s := httptest.NewServer(httpapi.New(f.deps()))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-polling
		cancel()
	}()
	r, err := http.NewRequestWithContext(ctx, "POST", s.URL+claims, strings.NewReader(`{"wait":20}`))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close()
		t.Fatal("answered")
	}
	select {
	case got := <-f.released:
		if len(got) != 1 || got[0].Lo != 17 || got[0].Hi != 18 || got[0].Claim != (queue.ClaimID{1, 2, 3}) {
			t.Errorf("%+v", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the claim was not given back")
	}
}

// brokenWriter fails after some bytes, as a connection does.
type brokenWriter struct {
	http.ResponseWriter
	left int
}

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return w.ResponseWriter.Write(b)
}

func TestCallerGoneDuringAnswer(t *testing.T) {
	for _, accept := range []string{"", wire.MediaTypeBatch} {
		f := &fakes{released: make(chan []queue.Receipt, 1)}
		f.deliveries = []consume.Delivery{deliver(encoded(t, batch.CodecNone, batch.Record{Body: noise(1 << 20)}), 1)}
		r := httptest.NewRequest("POST", claims, nil)
		r.Header.Set("Accept", accept)
		httpapi.New(f.deps()).ServeHTTP(&brokenWriter{httptest.NewRecorder(), 100}, r)
		select {
		case <-f.released:
		default:
			t.Errorf("%q: the claim was not given back", accept)
		}
	}
}

// TestDeliveredStaysClaimed: a caller that closes its connection after the last byte has its messages.
func TestDeliveredStaysClaimed(t *testing.T) {
	f := &fakes{released: make(chan []queue.Receipt, 1)}
	f.deliveries = []consume.Delivery{deliver(encoded(t, batch.CodecNone, batch.Record{Body: []byte("x")}), 1)}
	ctx, cancel := context.WithCancel(t.Context())
	w := &closingWriter{httptest.NewRecorder(), cancel}
	httpapi.New(f.deps()).ServeHTTP(w, httptest.NewRequest("POST", claims, nil).WithContext(ctx))
	select {
	case <-f.released:
		t.Error("given back, though it was delivered")
	default:
	}
}

type closingWriter struct {
	http.ResponseWriter
	gone context.CancelFunc
}

func (w *closingWriter) Write(b []byte) (int, error) {
	w.gone()
	return w.ResponseWriter.Write(b)
}

func TestRecords(t *testing.T) {
	a := newAPI()
	d := deliver(encoded(t, batch.CodecNone, batch.Record{Body: []byte("x")}), 1)
	d.Claim, d.Attempt, d.ClaimExpires = queue.ClaimID{}, 0, 0
	a.deliveries = []consume.Delivery{d}
	target := "/v1/topics/orders/segments/" + string(segmentA) + "/records?offset=5&limit=10&wait=1.5"
	var out wire.RecordList
	a.do(t, "GET", target, "").into(t, &out)
	if len(out.Records) != 1 || out.Records[0].Receipt != "" || out.NextOffset != 7 || !out.EndOfSegment || !reflect.DeepEqual(out.Successors, []queue.SegmentID{segmentB}) {
		t.Errorf("%+v", out)
	}
	if a.records != (consume.RecordsRequest{Topic: "orders", Segment: segmentA, Offset: 5, Limit: 10, Wait: 1500 * time.Millisecond}) {
		t.Errorf("%+v", a.records)
	}
	got := a.do(t, "GET", target, "", "Accept", wire.MediaTypeBatch)
	if h := got.Header; h.Get(wire.HeaderNextOffset) != "7" || h.Get(wire.HeaderEndOfSegment) != "true" || h.Get(wire.HeaderSuccessors) != string(segmentB) {
		t.Errorf("%v", h)
	}
	if fs := frames(t, got.body); len(fs) != 1 || fs[0].Claimed {
		t.Errorf("%+v", fs)
	}
}

// TestPeekWithDelayed walks from the visible messages into those that wait, by the cursors alone.
func TestPeekWithDelayed(t *testing.T) {
	a := newAPI()
	d := deliver(encoded(t, batch.CodecNone, batch.Record{Body: []byte("x")}), 1)
	d.Claim = queue.ClaimID{}
	a.deliveries = []consume.Delivery{d}
	target := "/v1/topics/orders/messages?include_delayed=true&limit="
	var out wire.MessageList
	step := func(rest string) {
		t.Helper()
		out = wire.MessageList{}
		a.do(t, "GET", target+rest, "").into(t, &out)
	}
	step("1")
	if len(out.Messages) != 1 || out.Messages[0].ID == "" || out.NextCursor == "" {
		t.Fatalf("a page full of visible ones: %+v", out)
	}
	step("1&cursor=" + out.NextCursor)
	if len(out.Messages) != 1 || out.Messages[0].DelayedID == "" || out.NextCursor == "" || a.listing.Cursor != "" {
		t.Fatalf("a page of only delayed ones: %+v", out)
	}
	a.delayed = []delay.Message{}
	step("1&cursor=" + out.NextCursor)
	if len(out.Messages) != 0 || out.NextCursor != "" || a.listing.Cursor != delayedID().String() {
		t.Errorf("the end: %+v %+v", out, a.listing)
	}
	a.delayed = nil
	step("2")
	if len(out.Messages) != 2 || a.listing.Limit != 1 {
		t.Errorf("a mixed page: %+v %+v", out, a.listing)
	}
	a.next = "0123456789abcdef-9"
	step("5&from=2026-01-31T12:00:00Z")
	if len(out.Messages) != 1 || out.NextCursor == "" || a.peeked.From == 0 {
		t.Errorf("more visible ones: %+v %+v", out, a.peeked)
	}
	a.next = ""
	step("5&from=2999-01-31T12:00:00Z")
	if len(out.Messages) != 1 {
		t.Errorf("a delayed message that is due before: %+v", out)
	}
	a.do(t, "GET", "/v1/topics/orders/messages?offset=3&segment="+string(segmentA), "")
	if a.peeked.Segment != segmentA || a.peeked.Offset != 3 || a.peeked.Limit != queue.DefaultPageSize {
		t.Errorf("%+v", a.peeked)
	}
	var one wire.Message
	a.do(t, "GET", "/v1/topics/orders/messages/"+string(segmentA)+"-17", "").into(t, &one)
	if one.ID != string(segmentA)+"-17" || *one.Body != "x" {
		t.Errorf("%+v", one)
	}
}

func BenchmarkBinaryClaim(b *testing.B) {
	f := new(fakes)
	var records []batch.Record
	for range 1000 {
		records = append(records, batch.Record{Body: noise(1000)})
	}
	f.deliveries = []consume.Delivery{deliver(encoded(b, batch.CodecNone, records...), 1000)}
	h := httpapi.New(f.deps())
	for b.Loop() {
		r := httptest.NewRequest("POST", claims, nil)
		r.Header.Set("Accept", wire.MediaTypeBatch)
		h.ServeHTTP(discard{http.Header{}}, r)
	}
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// TestRefusedMediaType: a quality of 0 says "not this one", with decimals, too.
func TestRefusedMediaType(t *testing.T) {
	for quality, want := range map[string]string{
		"": wire.MediaTypeBatch, ";q=1": wire.MediaTypeBatch, ";q=0.001": wire.MediaTypeBatch,
		";q=0": wire.MediaTypeJSON, ";q=0.0": wire.MediaTypeJSON, ";q=0.000": wire.MediaTypeJSON,
	} {
		got := newAPI().do(t, "POST", claims, `{}`, "Accept", wire.MediaTypeBatch+quality)
		if media := got.Header.Get("Content-Type"); media != want {
			t.Errorf("%q: %s", quality, media)
		}
	}
}
