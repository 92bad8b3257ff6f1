package client

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for endpoint, ok := range map[string]bool{
		"http://127.0.0.1:8080": true, "https://x.example/prefix/": true,
		"": false, "127.0.0.1:8080": false, "ftp://x": false, "http://": false, "http://x?y": false, "http://u:p@x": false, "http://%": false,
	} {
		c, err := New(endpoint, Options{})
		if ok != (err == nil) || err != nil && !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%q: %v", endpoint, err)
		}
		if ok && strings.HasSuffix(c.base, "/") {
			t.Errorf("%q: base %q", endpoint, c.base)
		}
	}
	if _, err := New("http://x", Options{Retry: RetryPolicy{Attempts: -1}}); !queue.Is(err, queue.KindInvalid) {
		t.Errorf("negative attempts: %v", err)
	}
}

// TestRetries: which calls are made again after which faults.
func TestRetries(t *testing.T) {
	t.Parallel()
	read := func(ctx context.Context, c *Client) error {
		_, err := c.GetSubscription(ctx, "orders", "billing")
		return err
	}
	bare := func(ctx context.Context, c *Client) error {
		_, err := c.Produce(ctx, "orders", []Message{{Body: []byte("x")}}, Guard{})
		return err
	}
	guarded := func(ctx context.Context, c *Client) error {
		_, err := c.Produce(ctx, "orders", []Message{{Body: []byte("x")}}, Guard{ProducerID: "p", Sequence: 1})
		return err
	}
	for name, row := range map[string]struct {
		call  func(context.Context, *Client) error
		fault fault
		calls int
		kind  queue.Kind // of the error; 255 for none
	}{
		"read, lost":                  {read, fault{lostAfter: true}, 3, 255},
		"read, gateway":               {read, fault{status: 502, noBody: true}, 3, 255},
		"read, cut":                   {read, fault{cut: 5}, 3, 255},
		"bare produce, lost":          {bare, fault{lostAfter: true}, 1, queue.KindOutcomeUnknown},
		"bare produce, cut":           {bare, fault{cut: 5}, 1, queue.KindOutcomeUnknown},
		"bare produce, gateway":       {bare, fault{status: 502, noBody: true}, 1, queue.KindOutcomeUnknown},
		"bare produce, unknown":       {bare, fault{status: 503, code: queue.CodeOutcomeUnknown}, 1, queue.KindOutcomeUnknown},
		"bare produce, unavailable":   {bare, fault{status: 503, code: queue.CodeUnavailable}, 3, 255},
		"bare produce, throttled":     {bare, fault{status: 429, code: queue.CodeThrottled}, 3, 255},
		"guarded produce, lost":       {guarded, fault{lostAfter: true}, 3, 255},
		"guarded produce, gateway":    {guarded, fault{status: 504, noBody: true}, 3, 255},
		"guarded produce, refused":    {guarded, fault{status: 400, code: queue.CodeInvalidArgument}, 1, queue.KindInvalid},
		"guarded produce, their bug":  {guarded, fault{status: 500, code: queue.CodeInternal}, 1, queue.KindInternal},
		"guarded produce, not an API": {guarded, fault{status: 418, noBody: true}, 1, queue.KindInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t)
				total := 0
				s.faults = func(_ string, n int) fault {
					total = n + 1
					if n < 2 {
						return row.fault
					}
					return fault{}
				}
				err := row.call(t.Context(), s.client(Options{}))
				if total != row.calls {
					t.Errorf("%d calls, want %d", total, row.calls)
				}
				if row.kind == 255 && err != nil || row.kind != 255 && !queue.Is(err, row.kind) {
					t.Errorf("error %v, want kind %v", err, row.kind)
				}
				if len(s.log) > 1 {
					t.Errorf("%d messages are stored", len(s.log))
				}
			})
		})
	}
}

func TestRetryAfterAndBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t)
		s.faults = func(_ string, n int) fault {
			switch n {
			case 0:
				return fault{status: 429, code: queue.CodeThrottled, retryAfter: "7"}
			case 1:
				return fault{status: 503, code: queue.CodeUnavailable, retryAfter: time.Now().Add(9 * time.Second).UTC().Format(http.TimeFormat)}
			}
			return fault{}
		}
		c := s.client(Options{})
		began := time.Now()
		if _, err := c.GetSubscription(t.Context(), "orders", "billing"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 15*time.Second || took > 17*time.Second {
			t.Errorf("took %v, want 7 s and 9 s of pauses", took)
		}

		// A pause that is longer than the caller's time is not begun.
		s.faults = func(string, int) fault {
			return fault{status: 429, code: queue.CodeThrottled, retryAfter: "60"}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began = time.Now()
		_, err := c.GetSubscription(ctx, "orders", "billing")
		var api *APIError
		if !errors.As(err, &api) || api.RetryAfter != time.Minute || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	c := newFake(t).client(Options{Retry: RetryPolicy{MinDelay: 10 * time.Millisecond, MaxDelay: time.Second}})
	for failed, most := range map[int]time.Duration{1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 5: 160 * time.Millisecond, 10: time.Second, 100: time.Second} {
		for range 50 {
			if d := c.pause(failed, nil); d < most/2 || d > most {
				t.Errorf("pause after %d failures is %v, want %v to %v", failed, d, most/2, most)
			}
		}
	}
}

// TestDeleteAfterLostAnswer: what is gone at the second try was deleted by the first.
func TestDeleteAfterLostAnswer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		first fault
		want  error
	}{
		"answer lost":  {fault{lostBefore: true}, nil},
		"not there":    {fault{status: 404, code: queue.CodeTopicNotFound}, ErrTopicNotFound},
		"turned away":  {fault{status: 503, code: queue.CodeUnavailable}, ErrTopicNotFound},
		"gateway lost": {fault{status: 502, noBody: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFake(t)
			s.faults = func(_ string, n int) fault {
				if n == 0 {
					return row.first
				}
				return fault{status: 404, code: queue.CodeTopicNotFound}
			}
			if err := s.client(Options{}).DeleteTopic(t.Context(), "orders"); !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
		})
	}
}

func TestErrorsOfTransport(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	_ = listener.Close()
	c, err := New(url, Options{Retry: RetryPolicy{Attempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Produce(t.Context(), "orders", []Message{{}}, Guard{}); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("nobody listens: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.GetTopic(ctx, "orders"); !queue.Is(err, queue.KindCanceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	for _, name := range []string{"", "a/b", "..", "a b"} {
		if _, err := c.GetTopic(t.Context(), name); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("topic %q: %v", name, err)
		}
	}
}

// TestConnections: over a real network, connections are used again, one that is reset in the middle
// costs a retry, and nothing is left behind.
func TestConnections(t *testing.T) {
	t.Parallel()
	s := newFake(t)
	var calls, opened atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1)%10 == 0 {
			panic(http.ErrAbortHandler) // resets the connection
		}
		resp, err := s.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	c, err := New(srv.URL, Options{Retry: RetryPolicy{MinDelay: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := NewProducer(c, "orders", ProducerOptions{MaxBatchMessages: 10, Linger: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := p.Send(t.Context(), Message{Key: []byte("k"), Body: []byte("body")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(s.bodies()); n != 1000 {
		t.Errorf("%d messages stored, want 1000", n)
	}
	if n := opened.Load(); n > 16 {
		t.Errorf("%d connections for one lane and %d calls with a reset in ten", n, calls.Load())
	}
}

func TestUploads(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789"), 1000)
	for name, row := range map[string]struct {
		reader io.Reader
		size   int64
		hashed bool
		ok     bool
	}{
		"seeker":         {bytes.NewReader(data), int64(len(data)), true, true},
		"part":           {bytes.NewReader(data), 100, true, true},
		"stream":         {io.MultiReader(bytes.NewReader(data)), int64(len(data)), false, false}, // its one try is lost
		"empty":          {bytes.NewReader(nil), 0, true, true},
		"too short":      {bytes.NewReader(data), int64(len(data)) + 1, true, false},
		"negative":       {bytes.NewReader(data), -1, true, false},
		"over the limit": {bytes.NewReader(data), queue.MaxUploadBytes + 1, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFake(t)
			s.faults = func(verb string, n int) fault { return fault{lostBefore: verb == "put" && n == 0} }
			o, err := s.client(Options{Token: "secret"}).Upload(t.Context(), "orders", row.reader, row.size)
			if row.ok != (err == nil) {
				t.Fatalf("%+v, %v", o, err)
			}
			if !row.ok {
				return
			}
			stored := s.objects[o.Name]
			if int64(len(stored)) != row.size || o.HasCRC != row.hashed || o.CRC32C != crc32.Checksum(stored, castagnoli()) {
				t.Errorf("%d bytes stored as %+v", len(stored), o)
			}
		})
	}
}

// TestUploadURLTooOld: a URL that was too old when it came is no reason to give up, but one that stays forbidden is; a
// caller that may not upload at all is told so at once.
func TestUploadURLTooOld(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		verb  string
		times int
		calls int // of uploads
		ok    bool
	}{
		"once":        {"put", 1, 2, true},
		"always":      {"put", 99, 5, false},
		"not allowed": {"uploads", 99, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFake(t)
			s.faults = func(verb string, n int) (f fault) {
				if verb == row.verb && n < row.times {
					f.status, f.code = http.StatusForbidden, queue.CodeForbidden
				}
				return f
			}
			_, err := s.client(Options{}).UploadBytes(t.Context(), "orders", []byte("x"))
			if row.ok != (err == nil) || !row.ok && !errors.Is(err, ErrForbidden) || s.count("uploads") != row.calls {
				t.Errorf("%v after %d calls", err, s.count("uploads"))
			}
		})
	}
}

// TestOpenVerifies: a stream ends well only if every byte is right.
func TestOpenVerifies(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("spillway"), 1000)
	for name, row := range map[string]struct {
		stored []byte
		sum    uint32
		fault  fault
		want   queue.Kind // 255 for none
	}{
		"right":   {body, crc32.Checksum(body, castagnoli()), fault{}, 255},
		"changed": {body, 1, fault{}, queue.KindCorrupt},
		"cut":     {body, crc32.Checksum(body, castagnoli()), fault{cut: 500}, 254},
		"missing": {nil, 0, fault{}, queue.KindNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFake(t)
			if row.stored != nil {
				s.objects["/objects/o"] = row.stored
			}
			s.faults = func(string, int) fault { return row.fault }
			m := &Received{Size: int64(len(body)), crc: row.sum, hasCRC: true}
			m.source = &source{client: s.client(Options{Token: "secret"}), url: "http://fake/objects/o", size: m.Size, lock: make(chan struct{}, 1)}
			r, err := m.Open(t.Context())
			var got []byte
			if err == nil {
				got, err = io.ReadAll(r)
				_ = r.Close()
			}
			switch row.want {
			case 255:
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			case 254:
				if err == nil {
					t.Error("a cut stream ended well")
				}
			default:
				if !queue.Is(err, row.want) {
					t.Errorf("%v, want kind %v", err, row.want)
				}
			}
		})
	}
}

func TestCutUTF8(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"short": "short", "a\x00b\nc": "a b c", "bad\xff": "bad?", "12345678ü": "12345678", "1234567üü": "1234567ü",
	} {
		if got := cutUTF8(in, 9); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}
