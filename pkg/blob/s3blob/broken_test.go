package s3blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/s3blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// success stands where a kind of error does, for none.
const success = queue.Kind(255)

func wantKind(t testing.TB, err error, kind queue.Kind) {
	t.Helper()
	if kind == success {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if !queue.Is(err, kind) {
		t.Fatalf("got %v, want an error of kind %q", err, kind)
	}
}

func TestPutUnderFaults(t *testing.T) {
	type on struct {
		op string
		n  int
		do fault
	}
	cases := []struct {
		name string
		on   []on
		// before stores another object under the key.
		before bool
		want   queue.Kind
		stored bool
		// ops are the requests made.
		ops string
	}{
		{name: "no fault", want: success, stored: true, ops: "put head"},
		{name: "the answer is lost, and the retry meets its own first write", on: []on{{"put", 1, lost}}, want: success, stored: true, ops: "put put head"},
		{name: "all answers are lost", on: []on{{"put", 0, lost}}, want: success, stored: true, ops: "put put put head"},
		{
			name: "the answer is lost, and so are those that would settle it", on: []on{{"put", 1, lost}, {"head", 0, lost}},
			want: queue.KindOutcomeUnknown, stored: true, ops: "put put head head head",
		},
		{name: "cut off once", on: []on{{"put", 1, cutOff}}, want: success, stored: true, ops: "put put head"},
		{name: "cut off each time", on: []on{{"put", 0, cutOff}}, want: queue.KindOutcomeUnknown, ops: "put put put head"},
		{name: "nobody listens", on: []on{{"put", 0, down}}, want: queue.KindUnavailable, ops: "put put put"},
		{name: "cut off, then nobody listens", on: []on{{"put", 0, sequence(cutOff, down)}}, want: queue.KindOutcomeUnknown, ops: "put put put head"},
		{name: "carried out, then nobody listens", on: []on{{"put", 0, sequence(lost, down)}}, want: success, stored: true, ops: "put put put head"},
		{name: "throttled once", on: []on{{"put", 1, says(503, "SlowDown")}}, want: success, stored: true, ops: "put put head"},
		{name: "throttled each time", on: []on{{"put", 0, says(503, "SlowDown")}}, want: queue.KindThrottled, ops: "put put put"},
		{name: "carried out, then throttled", on: []on{{"put", 0, sequence(lost, says(503, "SlowDown"))}}, want: success, stored: true, ops: "put put put head"},
		{name: "cut off, then throttled", on: []on{{"put", 0, sequence(cutOff, says(503, "SlowDown"))}}, want: queue.KindOutcomeUnknown, ops: "put put put head"},
		{name: "500 once", on: []on{{"put", 1, says(500, "InternalError")}}, want: success, stored: true, ops: "put put head"},
		{name: "500 each time", on: []on{{"put", 0, says(500, "InternalError")}}, want: queue.KindOutcomeUnknown, ops: "put put put head"},
		{name: "500 though carried out", on: []on{{"put", 0, sequence(lost, says(500, "InternalError"))}}, want: success, stored: true, ops: "put put put head"},
		{name: "503 without a code", on: []on{{"put", 0, answer(503, "")}}, want: queue.KindOutcomeUnknown, ops: "put put put head"},
		{name: "a race once", on: []on{{"put", 1, says(409, "ConditionalRequestConflict")}}, want: success, stored: true, ops: "put put head"},
		{name: "a race each time", on: []on{{"put", 0, says(409, "ConditionalRequestConflict")}}, want: queue.KindUnavailable, ops: "put put put head"},
		{name: "a race lost", before: true, on: []on{{"put", 0, says(409, "ConditionalRequestConflict")}}, want: queue.KindExists, ops: "put put put head"},
		{name: "taken", before: true, want: queue.KindExists, ops: "put head"},
		{name: "taken, and nobody says by whom", before: true, on: []on{{"head", 0, cutOff}}, want: queue.KindExists, ops: "put head head head"},
		{name: "taken, after a doubt", before: true, on: []on{{"put", 1, cutOff}}, want: queue.KindExists, ops: "put put head"},
		{name: "taken, all in doubt", before: true, on: []on{{"put", 0, cutOff}}, want: queue.KindExists, ops: "put put put head"},
		{name: "stored, and the head fails", on: []on{{"head", 0, cutOff}}, want: success, stored: true, ops: "put head head head"},
		{name: "bytes changed on their way", on: []on{{"put", 0, says(400, "BadDigest")}}, want: queue.KindUnavailable, ops: "put"},
		{name: "access denied", on: []on{{"put", 0, says(403, "AccessDenied")}}, want: queue.KindInternal, ops: "put"},
		{name: "credentials expired", on: []on{{"put", 0, says(400, "ExpiredToken")}}, want: queue.KindInternal, ops: "put"},
		{name: "no such bucket", on: []on{{"put", 0, says(404, "NoSuchBucket")}}, want: queue.KindInternal, ops: "put"},
		{name: "full", on: []on{{"put", 0, says(507, "InsufficientStorage")}}, want: queue.KindFull, ops: "put"},
		{name: "a 200 that is not S3's", on: []on{{"put", 0, answer(200, "<html>sign in</html>")}}, want: queue.KindOutcomeUnknown, ops: "put head"},
		{name: "a 200 that is not S3's, though carried out", on: []on{{"put", 0, sequence(lost, answer(200, ""))}}, want: success, stored: true, ops: "put put head"},
	}
	data := []byte("the bytes")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			ctx := context.Background()
			const key = "uploads/a"
			if c.before {
				if _, err := w.Put(ctx, key, strings.NewReader("another"), blob.Terms{Size: 7}); err != nil {
					t.Fatal(err)
				}
			}
			w.faults.heal()
			for _, each := range c.on {
				w.faults.on(each.op, each.n, each.do)
			}
			info, err := w.Put(ctx, key, bytes.NewReader(data), blob.Terms{Size: int64(len(data))})
			wantKind(t, err, c.want)
			if got := w.faults.ops(); c.ops != "" && got != c.ops {
				t.Errorf("requests %q, want %q", got, c.ops)
			}
			if err == nil && (info.Key != key || info.Size != int64(len(data)) || info.CRC32C != blob.CRC32C(data) || info.Modified.IsZero()) {
				t.Errorf("info %+v", info)
			}
			w.faults.heal()
			got, err := w.Get(ctx, key, blob.Span{}, nil)
			switch {
			case c.stored && (err != nil || !bytes.Equal(got, data)):
				t.Errorf("stored %q, %v", got, err)
			case c.before && string(got) != "another":
				t.Errorf("the object became %q, %v", got, err)
			case !c.stored && !c.before && !queue.Is(err, queue.KindNotFound):
				t.Errorf("found %q, %v", got, err)
			}
		})
	}
}

// sequence meets the first requests one by one; the last fault stays.
func sequence(each ...fault) fault {
	next := 0
	return func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		do := each[min(next, len(each)-1)]
		next++
		return do(r, send)
	}
}

// TestCreateUnderFaults: each call that succeeds left one object, each that was refused none.
func TestCreateUnderFaults(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	w.faults.on("put", 0, lost)
	key, err := w.Create(ctx, blob.PrefixBatches, []byte("x"))
	wantKind(t, err, success)
	w.faults.heal()
	w.faults.on("put", 0, says(503, "SlowDown"))
	_, err = w.Create(ctx, blob.PrefixBatches, []byte("y"))
	wantKind(t, err, queue.KindThrottled)
	w.faults.heal()
	page, err := w.List(ctx, "", "", 10)
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != key {
		t.Fatalf("%+v, %v", page, err)
	}
}

func TestReadsUnderFaults(t *testing.T) {
	data := randomBytes(100_000)
	cases := []struct {
		name string
		n    int
		do   fault
		// get, span and open are what ends Get of all, Get of a span, and Open read to the end.
		get, span, open queue.Kind
	}{
		{"breaks off once", 1, breakOff(), success, success, queue.KindUnavailable},
		{"breaks off each time", 0, breakOff(), queue.KindUnavailable, queue.KindUnavailable, queue.KindUnavailable},
		{"ends early", 0, endEarly(), queue.KindUnavailable, queue.KindUnavailable, queue.KindUnavailable},
		{"a wrong bit", 0, flip(), queue.KindCorrupt, success, queue.KindCorrupt},
		{"throttled once", 1, says(503, "SlowDown"), success, success, success},
		{"throttled", 0, says(503, "SlowDown"), queue.KindThrottled, queue.KindThrottled, queue.KindThrottled},
		{"500", 0, says(500, "InternalError"), queue.KindUnavailable, queue.KindUnavailable, queue.KindUnavailable},
		{"the answer is lost once", 1, lost, success, success, success},
		{"the answer is lost", 0, lost, queue.KindUnavailable, queue.KindUnavailable, queue.KindUnavailable},
		{"nobody listens", 0, down, queue.KindUnavailable, queue.KindUnavailable, queue.KindUnavailable},
		{"no such key", 0, says(404, "NoSuchKey"), queue.KindNotFound, queue.KindNotFound, queue.KindNotFound},
		{"no such bucket", 0, says(404, "NoSuchBucket"), queue.KindInternal, queue.KindInternal, queue.KindInternal},
		{"access denied", 0, says(403, "AccessDenied"), queue.KindInternal, queue.KindInternal, queue.KindInternal},
		{"ranges ignored", 0, answer(200, string(data)), success, queue.KindUnavailable, success},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			ctx := context.Background()
			key, err := w.Create(ctx, blob.PrefixBatches, data)
			wantKind(t, err, success)
			w.faults.on("get", c.n, c.do)
			got, err := w.Get(ctx, key, blob.Span{}, []byte("dst"))
			wantKind(t, err, c.get)
			if want := len("dst") + len(data); err == nil && len(got) != want || err != nil && string(got) != "dst" {
				t.Fatalf("get gave %d bytes, %v", len(got), err)
			}
			w.faults.heal()
			w.faults.on("get", c.n, c.do)
			_, err = w.Get(ctx, key, blob.Span{Pos: 10, Len: 50_000}, nil)
			wantKind(t, err, c.span)
			w.faults.heal()
			w.faults.on("get", c.n, c.do)
			r, _, err := w.Open(ctx, key, blob.Span{})
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				_ = r.Close()
			}
			wantKind(t, err, c.open)
		})
	}
}

func TestPartsUnderFaults(t *testing.T) {
	const size = 2*s3blob.MinPartBytes + 100
	data := randomBytes(size)
	cases := []struct {
		name   string
		op     string
		n      int
		do     fault
		source io.Reader // nil means data
		want   queue.Kind
		stored bool
		ops    string
	}{
		{name: "no fault", want: success, stored: true, ops: "start part part part complete head"},
		{name: "start is lost once", op: "start", n: 1, do: lost, want: success, stored: true, ops: "start start part part part complete head"},
		{name: "start is lost", op: "start", do: lost, want: queue.KindUnavailable, ops: "start start start"},
		{name: "a part is lost once", op: "part", n: 1, do: lost, want: success, stored: true, ops: "start part part part part complete head"},
		{name: "parts are lost", op: "part", do: lost, want: queue.KindUnavailable, ops: "start part part part abort"},
		{name: "parts are throttled", op: "part", do: says(503, "SlowDown"), want: queue.KindThrottled, ops: "start part part part abort"},
		{name: "completion is lost once", op: "complete", n: 1, do: lost, want: success, stored: true},
		{name: "completion is lost", op: "complete", do: lost, want: success, stored: true},
		{name: "completion is cut off", op: "complete", do: cutOff, want: queue.KindOutcomeUnknown, ops: "start part part part complete complete complete head abort"},
		{name: "completion fails behind a 200", op: "complete", n: 1, do: says(200, "InternalError"), want: success, stored: true},
		{name: "completion fails behind each 200", op: "complete", do: says(200, "InternalError"), want: queue.KindOutcomeUnknown},
		{name: "completion is refused", op: "complete", do: says(400, "InvalidPart"), want: queue.KindInternal, ops: "start part part part complete abort"},
		{name: "the upload is gone", op: "complete", do: says(404, "NoSuchUpload"), want: queue.KindUnavailable, ops: "start part part part complete head abort"},
		{name: "the source fails", source: io.MultiReader(bytes.NewReader(data[:size-200]), iotest.ErrReader(errors.New("reset"))), want: queue.KindUnavailable, ops: "start part abort"},
		{name: "the source is short", source: bytes.NewReader(data[:size-1]), want: queue.KindCorrupt, ops: "start part part abort"},
		{name: "the source is short of a part", source: bytes.NewReader(data[:100]), want: queue.KindCorrupt, ops: ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			ctx := context.Background()
			if c.do != nil {
				w.faults.on(c.op, c.n, c.do)
			}
			if c.source == nil {
				c.source = bytes.NewReader(data)
			}
			_, err := w.Put(ctx, "uploads/a", c.source, blob.Terms{Size: size})
			wantKind(t, err, c.want)
			if got := w.faults.ops(); c.ops != "" && got != c.ops {
				t.Errorf("requests %q, want %q", got, c.ops)
			}
			w.faults.heal()
			got, err := w.Get(ctx, "uploads/a", blob.Span{}, nil)
			if c.stored && (err != nil || !bytes.Equal(got, data)) {
				t.Errorf("stored %d bytes, %v", len(got), err)
			}
			if !c.stored && !queue.Is(err, queue.KindNotFound) {
				t.Errorf("found %d bytes, %v", len(got), err)
			}
			if c.name != "start is lost" && c.name != "start is lost once" {
				// A start whose answer was lost has an id that nobody knows: the lifecycle
				// rule is for those.
				wantNoUploads(t, w.client, w.bucket)
			}
		})
	}
}

// TestCanceledParts: the parts are removed though the caller has gone.
func TestCanceledParts(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	w.faults.on("part", 0, func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		cancel()
		return lost(r, send)
	})
	_, err := w.Put(ctx, "uploads/a", bytes.NewReader(randomBytes(s3blob.MinPartBytes+1)), blob.Terms{Size: s3blob.MinPartBytes + 1})
	wantKind(t, err, queue.KindCanceled)
	if got := w.faults.ops(); got != "start part abort" {
		t.Errorf("requests %q", got)
	}
	wantNoUploads(t, w.client, w.bucket)
}

// TestSlow: calls end with their context, whatever S3 does.
func TestSlow(t *testing.T) {
	w := newWorld(t)
	key, err := w.Create(context.Background(), blob.PrefixBatches, []byte("x"))
	wantKind(t, err, success)
	for _, op := range []string{"put", "get", "head", "list", "delete", "start"} {
		w.faults.on(op, 0, slow)
	}
	calls := map[string]func(ctx context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := w.Create(ctx, blob.PrefixBatches, []byte("x"))
			return err
		},
		"put": func(ctx context.Context) error {
			_, err := w.Put(ctx, "uploads/a", strings.NewReader("x"), blob.Terms{Size: 1})
			return err
		},
		"put parts": func(ctx context.Context) error {
			_, err := w.Put(ctx, "uploads/a", bytes.NewReader(make([]byte, s3blob.MinPartBytes+1)), blob.Terms{Size: s3blob.MinPartBytes + 1})
			return err
		},
		"get":    func(ctx context.Context) error { _, err := w.Get(ctx, key, blob.Span{}, nil); return err },
		"head":   func(ctx context.Context) error { _, err := w.Head(ctx, key); return err },
		"open":   func(ctx context.Context) error { _, _, err := w.Open(ctx, key, blob.Span{}); return err },
		"list":   func(ctx context.Context) error { _, err := w.List(ctx, "", "", 1); return err },
		"delete": func(ctx context.Context) error { return w.Delete(ctx, key) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			err := call(ctx)
			wantKind(t, err, queue.KindCanceled)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v does not say that the time ran out", err)
			}
		})
	}
}

func TestDeleteUnderFaults(t *testing.T) {
	result := func(code string) fault {
		return answer(200, `<?xml version="1.0" encoding="UTF-8"?><DeleteResult><Error><Key>uploads/b</Key><Code>`+code+`</Code></Error></DeleteResult>`)
	}
	cases := []struct {
		name string
		do   fault
		want queue.Kind
	}{
		{"one key fails", result("InternalError"), queue.KindOutcomeUnknown},
		{"one key is throttled", result("SlowDown"), queue.KindThrottled},
		{"one key is denied", result("AccessDenied"), queue.KindInternal},
		{"one key is not there", result("NoSuchKey"), success},
		{"the answer is lost", lost, queue.KindOutcomeUnknown},
		{"throttled", says(503, "SlowDown"), queue.KindThrottled},
		{"nobody listens", down, queue.KindUnavailable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.faults.on("delete", 0, c.do)
			err := w.Delete(context.Background(), "uploads/a", "uploads/b")
			wantKind(t, err, c.want)
			var e *queue.Error
			if errors.As(err, &e) && strings.HasPrefix(c.name, "one key") && e.Subject != "uploads/b" {
				t.Errorf("the error is about %q", e.Subject)
			}
		})
	}
}

// TestRequests holds the table of costs in the package comment against what is sent.
func TestRequests(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	data := []byte("0123456789")
	key, err := w.Create(ctx, blob.PrefixBatches, data)
	wantKind(t, err, success)
	many := make([]string, 2001)
	for i := range many {
		many[i] = fmt.Sprintf("uploads/%d", i)
	}
	open := func(span blob.Span) error {
		r, _, err := w.Open(ctx, key, span)
		if err == nil {
			err = r.Close()
		}
		return err
	}
	cases := []struct {
		name string
		call func() error
		ops  string
	}{
		{"create", func() error { _, err := w.Create(ctx, blob.PrefixBatches, data); return err }, "put"},
		{"put", func() error {
			_, err := w.Put(ctx, "uploads/a", bytes.NewReader(data), blob.Terms{Size: 10})
			return err
		}, "put head"},
		{"get", func() error { _, err := w.Get(ctx, key, blob.Span{}, nil); return err }, "get"},
		{"get a span", func() error { _, err := w.Get(ctx, key, blob.Span{Pos: 3, Len: 2}, nil); return err }, "get"},
		{"get no bytes", func() error { _, err := w.Get(ctx, key, blob.Span{Pos: 3}, nil); return err }, "head"},
		{"open", func() error { return open(blob.Span{}) }, "get"},
		{"open a span", func() error { return open(blob.Span{Pos: 3, Len: 2}) }, "head get"},
		{"head", func() error { _, err := w.Head(ctx, key); return err }, "head"},
		{"list", func() error { _, err := w.List(ctx, "", "", 10); return err }, "list"},
		{"delete", func() error { return w.Delete(ctx, many...) }, "delete delete delete"},
		{"delete nothing", func() error { return w.Delete(ctx) }, ""},
		{"presign", func() error {
			_, err := w.PresignPut(ctx, "uploads/b", blob.Terms{Size: 1}, time.Now().Add(time.Minute))
			return err
		}, ""},
	}
	for _, c := range cases {
		w.faults.heal()
		wantKind(t, c.call(), success)
		if got := w.faults.ops(); got != c.ops {
			t.Errorf("%s sends %q, want %q", c.name, got, c.ops)
		}
	}
}
