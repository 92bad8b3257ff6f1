package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// notary signs with a running number, and takes back the signatures up to a number.
type notary struct {
	mu      sync.Mutex // guards what follows
	signed  int
	bodies  []string
	refused []Refusal
	again   bool
	err     error
}

func (n *notary) Sign(req *http.Request, body []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	n.signed++
	n.bodies = append(n.bodies, string(body))
	req.Header.Set("Authorization", "Signature "+strings.Repeat("x", n.signed))
	return nil
}

func (n *notary) Refused(r Refusal) (again bool, advice string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = append(n.refused, r)
	return n.again, "set the clock"
}

// TestSignedTries: each try is signed anew; what a gateway refuses is made once more if the signer says so,
// a call without a guard, too, as it changed nothing.
func TestSignedTries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// statuses are the gateway's answers, by turns; 200 is the server's.
		statuses []int
		again    bool
		signed   int
		code     queue.Code // of the error; empty for none
	}{
		"taken":                          {[]int{200}, true, 1, ""},
		"a retry":                        {[]int{429, 200}, false, 2, ""},
		"refused, then taken":            {[]int{403, 200}, true, 2, ""},
		"unauthorized, then taken":       {[]int{401, 200}, true, 2, ""},
		"refused twice":                  {[]int{403, 403, 200}, true, 2, queue.CodeForbidden},
		"refused, and the signer agrees": {[]int{403, 200}, false, 1, queue.CodeForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &notary{again: c.again}
			s := newFake(t)
			s.faults = func(_ string, n int) fault {
				if n < len(c.statuses) && c.statuses[n] != 200 {
					return fault{status: c.statuses[n], noBody: true}
				}
				return fault{}
			}
			client := s.client(Options{Signer: n})
			_, err := client.Produce(t.Context(), "orders", []Message{{Body: []byte("x")}}, Guard{})
			if (err == nil) != (c.code == "") || err != nil && queue.CodeOf(err) != c.code {
				t.Fatalf("error %v, want %q", err, c.code)
			}
			if c.code != "" && !strings.Contains(err.Error(), "set the clock") {
				t.Errorf("%v does not say what to do", err)
			}
			if n.signed != c.signed {
				t.Errorf("signed %d times, want %d", n.signed, c.signed)
			}
			for _, body := range n.bodies {
				if body == "" || body != n.bodies[0] {
					t.Errorf("bodies %q", n.bodies)
				}
			}
		})
	}
}

// TestTheServersOwnRefusal does not concern the signer.
func TestTheServersOwnRefusal(t *testing.T) {
	t.Parallel()
	n := &notary{again: true}
	s := newFake(t)
	s.faults = func(string, int) fault { return fault{status: 401, code: queue.CodeUnauthorized} }
	_, err := s.client(Options{Signer: n}).Produce(t.Context(), "orders", []Message{{Body: []byte("x")}}, Guard{})
	if !errors.Is(err, ErrUnauthorized) || n.signed != 1 || len(n.refused) != 0 {
		t.Errorf("%v, signed %d times, told of %v", err, n.signed, n.refused)
	}
}

func TestWhatCannotBeSigned(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		kind queue.Kind
	}{
		"no credentials":      {t.Context(), errors.New("none"), queue.KindDenied},
		"a kind of its own":   {t.Context(), queue.Invalid("region", nil, "is empty"), queue.KindInvalid},
		"the caller has left": {ended, errors.New("none"), queue.KindCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFake(t)
			_, err := s.client(Options{Signer: &notary{err: c.err}}).Produce(c.ctx, "orders", []Message{{Body: []byte("x")}}, Guard{})
			if !queue.Is(err, c.kind) || c.kind == queue.KindDenied && !errors.Is(err, c.err) {
				t.Errorf("%v, want kind %v", err, c.kind)
			}
			if s.count("messages") != 0 {
				t.Error("it was sent")
			}
		})
	}
}

// TestPresignedCallsSayNothing: neither upload nor download is signed or carries the token.
func TestPresignedCallsSayNothing(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"signer": {Signer: &notary{}}, "token": {Token: "secret"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFake(t)
			s.byRef = true
			var mu sync.Mutex // guards seen
			seen := map[string][]string{}
			c := s.client(o)
			c.http.Transport = roundTrip(func(req *http.Request) (*http.Response, error) {
				kind := "api"
				if strings.Contains(req.URL.Path, "objects/") {
					kind = "presigned"
				}
				mu.Lock()
				seen[kind] = append(seen[kind], req.Header.Get("Authorization")+req.Header.Get("X-Amz-Security-Token"))
				mu.Unlock()
				return s.RoundTrip(req)
			})
			object, err := c.UploadBytes(t.Context(), "orders", []byte("body"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Reference(t.Context(), "orders", []Reference{{Object: object}}, Guard{}); err != nil {
				t.Fatal(err)
			}
			got, err := c.Claim(t.Context(), "orders", "s", ClaimOptions{MaxMessages: 1, VisibilityTimeout: 30 * time.Second})
			if err != nil || len(got) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			if body, err := got[0].Bytes(t.Context()); err != nil || string(body) != "body" {
				t.Fatalf("%q, %v", body, err)
			}
			if len(seen["presigned"]) != 2 || strings.Join(seen["presigned"], "") != "" {
				t.Errorf("presigned calls carry %q", seen["presigned"])
			}
			for _, a := range seen["api"] {
				if a == "" {
					t.Error("a call of the API says nothing of who calls")
				}
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestNoRedirectIsFollowed, by a client that was brought along neither.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s came with %v", r.Method, r.URL, r.Header)
	}))
	defer elsewhere.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	for name, own := range map[string]*http.Client{"made": nil, "brought along": {}} {
		n := &notary{}
		c, err := New(s.URL, Options{HTTPClient: own, Signer: n, Retry: RetryPolicy{Attempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Produce(t.Context(), "orders", []Message{{Body: []byte("x")}}, Guard{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		c.Close()
	}
}

func TestSignerOptions(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]Options{
		"signer": {Signer: &notary{}, Token: "t"}, "max_request_bytes": {MaxRequestBytes: queue.MaxRequestBytes + 1},
	} {
		_, err := New("http://x", o)
		var e *queue.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestMaxRequestBytes: what is larger is refused, or goes by reference.
func TestMaxRequestBytes(t *testing.T) {
	t.Parallel()
	s := newFake(t)
	c := s.client(Options{MaxRequestBytes: 10_000})
	small, large := bytes.Repeat([]byte("s"), 9_000), bytes.Repeat([]byte("l"), 11_000)
	for body, ok := range map[*[]byte]bool{&small: true, &large: false} {
		_, err := c.Produce(t.Context(), "orders", []Message{{Body: *body}}, Guard{})
		if ok != (err == nil) || !ok && !errors.Is(err, ErrTooLarge) && !queue.Is(err, queue.KindTooLarge) {
			t.Errorf("%d bytes: %v", len(*body), err)
		}
	}
	p, err := NewProducer(c, "orders", ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := p.Send(t.Context(), Message{Body: large}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.count("messages") != 1 || s.count("put") == 0 || len(s.bodies()) != 4 {
		t.Errorf("%d calls with bodies, %d uploads, %d messages", s.count("messages"), s.count("put"), len(s.bodies()))
	}
}

// TestGatewayMessages: what is said before the server gets into the error, on one line, and not too long.
func TestGatewayMessages(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"message":"Forbidden"}`:             "Forbidden",
		`{"Message":" two\nlines\u001b[1m "}`: "two lines [1m",
		`{"message":7}`:                       "",
		`<html>no</html>`:                     "",
		``:                                    "",
		`{"message":"` + strings.Repeat("é", 400) + `"}`: strings.Repeat("é", 300),
	} {
		if got := gatewayMessage([]byte(body)); got != want {
			t.Errorf("%.60s: %q, want %q", body, got, want)
		}
	}
}
