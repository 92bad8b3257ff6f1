package s3blob_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/s3blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestPresignedForm pins what a client has to send.
func TestPresignedForm(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 999, time.UTC)
	e := endpoint{url: "http://s3.test", key: "key", secret: "secret"}
	s := newStore(t, e.client(nil), "bucket", s3blob.Options{Clock: func() time.Time { return now }})
	ctx := context.Background()
	cases := []struct {
		name    string
		terms   blob.Terms
		headers map[string]string
		signed  string
	}{
		{
			"with a checksum",
			blob.Terms{Size: 9, CRC32C: 0xe3069283, HasCRC32C: true},
			map[string]string{"Content-Length": "9", "If-None-Match": "*", "X-Amz-Checksum-Crc32c": "4waSgw=="},
			"X-Amz-SignedHeaders=content-length%3Bhost%3Bif-none-match%3Bx-amz-checksum-crc32c",
		},
		{
			"without one",
			blob.Terms{Size: 9},
			map[string]string{"Content-Length": "9", "If-None-Match": "*"},
			"X-Amz-SignedHeaders=content-length%3Bhost%3Bif-none-match&",
		},
		{
			"of nothing, whose length cannot be signed",
			blob.Terms{},
			map[string]string{"If-None-Match": "*", "X-Amz-Checksum-Crc32c": "AAAAAA=="},
			"X-Amz-SignedHeaders=host%3Bif-none-match%3Bx-amz-checksum-crc32c",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			req, err := s.PresignPut(ctx, "uploads/a.b", c.terms, now.Add(90*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if req.Method != http.MethodPut || len(req.Headers) != len(c.headers) {
				t.Errorf("%+v", req)
			}
			for name, value := range c.headers {
				if req.Headers[name] != value {
					t.Errorf("header %s is %q, want %q", name, req.Headers[name], value)
				}
			}
			for _, part := range []string{"http://s3.test/bucket/uploads/a.b?", "X-Amz-Date=20261130T120000Z", "X-Amz-Expires=90&", c.signed} {
				if !strings.Contains(req.URL, part) {
					t.Errorf("%q is not in %s", part, req.URL)
				}
			}
			if strings.Contains(req.URL, "crc32=") {
				t.Errorf("the SDK added a checksum of nothing: %s", req.URL)
			}
		})
	}
	req, err := s.PresignGet(ctx, "uploads/a.b", now.Add(time.Minute))
	if err != nil || req.Method != http.MethodGet || len(req.Headers) != 0 || !strings.Contains(req.URL, "X-Amz-SignedHeaders=host&") {
		t.Fatalf("%+v, %v", req, err)
	}
	for name, expires := range map[string]time.Time{"past": now.Add(-time.Second), "now": now, "far": now.Add(8 * 24 * time.Hour)} {
		if _, err = s.PresignGet(ctx, "uploads/a", expires); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err = s.PresignPut(ctx, "../a", blob.Terms{}, now.Add(time.Minute)); !queue.Is(err, queue.KindInvalid) {
		t.Error(err)
	}
	if _, err = s.PresignPut(ctx, "a", blob.Terms{Size: queue.MaxUploadBytes + 1}, now.Add(time.Minute)); !queue.Is(err, queue.KindTooLarge) {
		t.Error(err)
	}
}

// call makes a presigned request. A server may answer a put that it refuses before it has read the body, and
// hang up; whether the client then sees the answer or the broken connection is a race, so what broke is
// tried again.
func call(t *testing.T, req blob.Request, body []byte) (status int, answer []byte, head http.Header) {
	t.Helper()
	const tries = 20
	var err error
	for range tries {
		if status, answer, head, err = callOnce(req, body); err == nil {
			return status, answer, head
		}
	}
	t.Fatal(err)
	return 0, nil, nil
}

func callOnce(req blob.Request, body []byte) (status int, answer []byte, head http.Header, err error) {
	r, err := http.NewRequestWithContext(context.Background(), req.Method, req.URL, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	for name, value := range req.Headers {
		if name != "Content-Length" { // net/http writes that of the body
			r.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, resp.Header, err
}

// TestPresigned uses URLs as they are meant to be used.
func TestPresigned(t *testing.T) { eachLane(t, presigned) }

func presigned(t *testing.T, e endpoint) {
	ctx := context.Background()
	s := newStore(t, e.client(nil), newBucket(t, e), s3blob.Options{})
	expires := time.Now().Add(time.Minute)
	for key, data := range map[string][]byte{"uploads/a": []byte("0123456789"), "uploads/deep/er.b": randomBytes(1 << 20), "uploads/none": nil} {
		for _, hasSum := range []bool{true, false} {
			if !hasSum {
				key += "-free"
			}
			terms := blob.Terms{Size: int64(len(data)), CRC32C: blob.CRC32C(data), HasCRC32C: hasSum}
			req, err := s.PresignPut(ctx, key, terms, expires)
			if err != nil {
				t.Fatal(err)
			}
			if status, answer, _ := call(t, req, data); status != http.StatusOK {
				t.Fatalf("put %s: %d %s", key, status, answer)
			}
			info, err := s.Head(ctx, key)
			if err != nil || info.Size != terms.Size || info.CRC32C != terms.CRC32C {
				t.Fatalf("head %s: %+v, %v", key, info, err)
			}
			if status, answer, _ := call(t, req, data); status != http.StatusPreconditionFailed {
				t.Fatalf("put %s again: %d %s", key, status, answer)
			}
			get, err := s.PresignGet(ctx, key, expires)
			if err != nil {
				t.Fatal(err)
			}
			status, answer, head := call(t, get, nil)
			if status != http.StatusOK || !bytes.Equal(answer, data) {
				t.Fatalf("get %s: %d, %d bytes", key, status, len(answer))
			}
			if head.Get("Content-Type") != "application/octet-stream" || head.Get("Content-Disposition") != "attachment" {
				t.Errorf("a browser may run it: %v", head)
			}
			if len(data) == 0 {
				continue
			}
			get.Headers = map[string]string{"Range": "bytes=3-5"}
			if status, answer, _ = call(t, get, nil); status != http.StatusPartialContent || !bytes.Equal(answer, data[3:6]) {
				t.Fatalf("get a range of %s: %d %q", key, status, answer)
			}
		}
	}
}

// TestTamperedURLs sends what differs from what was signed to a store that looks: versitygw, for
// gofakes3 does not.
func TestTamperedURLs(t *testing.T) {
	e, ok := startStrict(t)
	if !ok {
		return
	}
	ctx := context.Background()
	client := e.client(nil)
	bucket := newBucket(t, e)
	s := newStore(t, client, bucket, s3blob.Options{})
	past := newStore(t, client, bucket, s3blob.Options{Clock: func() time.Time { return time.Now().Add(-time.Hour) }})
	data := []byte("123456789")
	other := []byte("987654321")
	terms := blob.Terms{Size: 9, CRC32C: blob.CRC32C(data), HasCRC32C: true}
	expires := time.Now().Add(time.Minute)
	key, err := s.Create(ctx, blob.PrefixBatches, data)
	if err != nil {
		t.Fatal(err)
	}
	put := func(s *s3blob.Store, terms blob.Terms, expires time.Time) blob.Request {
		req, err := s.PresignPut(ctx, "uploads/a", terms, expires)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	get := func(s *s3blob.Store, expires time.Time) blob.Request {
		req, err := s.PresignGet(ctx, key, expires)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	without := func(req blob.Request, header string) blob.Request { delete(req.Headers, header); return req }
	header := func(req blob.Request, name, value string) blob.Request { req.Headers[name] = value; return req }
	url := func(req blob.Request, from, to string) blob.Request {
		if !strings.Contains(req.URL, from) {
			t.Fatalf("%q is not in %s", from, req.URL)
		}
		req.URL = strings.Replace(req.URL, from, to, 1)
		return req
	}
	method := func(req blob.Request, method string) blob.Request { req.Method = method; return req }
	free := blob.Terms{Size: 9}
	cases := []struct {
		name string
		req  blob.Request
		body []byte
		want int
	}{
		{"put: another key", url(put(s, terms, expires), "uploads", "batches"), data, 403},
		{"put: signature", url(put(s, terms, expires), "X-Amz-Signature=", "X-Amz-Signature=0"), data, 403},
		{"put: later expiry", url(put(s, terms, expires), "X-Amz-Expires=", "X-Amz-Expires=1"), data, 403},
		{"put: expired", put(past, terms, time.Now().Add(-time.Minute)), data, 403},
		{"put: longer", put(s, free, expires), append([]byte("more"), data...), 403},
		{"put: shorter", put(s, free, expires), data[:8], 403},
		{"put: empty", put(s, free, expires), nil, 403},
		{"put: more than nothing", put(s, blob.Terms{}, expires), data, 400},
		{"put: other bytes", put(s, terms, expires), other, 400},
		{"put: other bytes and their checksum", header(put(s, terms, expires), checksumHeader, sumOf(other)), other, 403},
		{"put: no checksum", without(put(s, terms, expires), checksumHeader), other, 403},
		{"put: no condition", without(put(s, terms, expires), "If-None-Match"), data, 403},
		{"put: as a get", method(put(s, terms, expires), http.MethodGet), nil, 403},
		{"put: as a delete", method(put(s, terms, expires), http.MethodDelete), nil, 403},
		{"get: another key", url(get(s, expires), "batches", "segments"), nil, 403},
		{"get: signature", url(get(s, expires), "X-Amz-Signature=", "X-Amz-Signature=0"), nil, 403},
		{"get: later expiry", url(get(s, expires), "X-Amz-Expires=", "X-Amz-Expires=1"), nil, 403},
		{"get: expired", get(past, time.Now().Add(-time.Minute)), nil, 403},
		{"get: as a put", method(get(s, expires), http.MethodPut), data, 403},
		{"get: as a delete", method(get(s, expires), http.MethodDelete), nil, 403},
		{"get: to run in a browser", url(get(s, expires), "application%2Foctet-stream", "text%2Fhtml"), nil, 403},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			status, answer, _ := call(t, c.req, c.body)
			if status != c.want {
				t.Errorf("answered %d, want %d: %s", status, c.want, answer)
			}
			if bytes.Equal(answer, data) {
				t.Error("gave the object away")
			}
			if _, err := s.Head(ctx, "uploads/a"); !queue.Is(err, queue.KindNotFound) {
				t.Fatalf("head: %v", err)
			}
		})
	}
	if got, err := s.Get(ctx, key, blob.Span{}, nil); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the object became %q, %v", got, err)
	}
	// The test itself would fail if all were refused.
	if status, answer, _ := call(t, put(s, terms, expires), data); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
}
