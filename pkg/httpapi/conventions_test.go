package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/docs"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestEveryErrorOfAUseCaseIsAnsweredWithItsCode(t *testing.T) {
	for _, row := range queue.Codes() {
		a := newAPI()
		a.err = &queue.Error{Op: "op", Subject: "orders", Kind: queue.KindInternal, Code: row.Code, Message: "secret cause", Err: errors.New("deeper")}
		got := a.do(t, "GET", "/v1/topics/orders", "")
		if got.StatusCode != row.Status || got.fault().Code != row.Code {
			t.Errorf("%s: %d %s", row.Code, got.StatusCode, got.body)
		}
		if row.Status == 500 && strings.Contains(string(got.body), "secret") || strings.Contains(string(got.body), "deeper") {
			t.Errorf("%s: the cause goes to the caller: %s", row.Code, got.body)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	a := newAPI()
	a.err = &queue.Error{Kind: queue.KindThrottled, Code: queue.CodeTooManyInFlight, RetryAfter: 2500 * time.Millisecond}
	got := a.do(t, "POST", "/v1/topics/orders/subscriptions/b/claims", "{}")
	if got.Header.Get("Retry-After") != "3" || got.fault().Details.RetryAfter != 2.5 {
		t.Errorf("%v %s", got.Header, got.body)
	}
}

func TestPlainContextErrorsAreCanceled(t *testing.T) {
	a := newAPI()
	a.err = context.DeadlineExceeded
	if got := a.do(t, "GET", "/v1/topics/orders", ""); got.fault().Code != queue.CodeCanceled {
		t.Errorf("%s", got.body)
	}
}

func TestRequestID(t *testing.T) {
	for given, kept := range map[string]bool{
		"abc-1": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false,
		"a b": false, "a\tb": false, "é": false, "": false,
	} {
		a := newAPI()
		r := httptest.NewRequest("GET", "/v1/topics", nil)
		if given != "" {
			r.Header["X-Request-Id"] = []string{given}
		}
		got := a.send(t, r, "").Header.Get("X-Request-Id")
		if (got == given) != kept || got == "" {
			t.Errorf("%q: %q", given, got)
		}
	}
}

func TestNoRoute(t *testing.T) {
	for _, target := range []string{
		"/", "/v1", "/v1/", "/v1/topics/", "/v1//topics", "/v1/topics/../topics", "/v1/topics/a/", "/v1/topics/a//messages",
		"/v1/topics/a/seal", "/v1/topics/a/truncate", "/v1/topics/a/rename", "/v1/topics/a/fork", "/v1/links/x", "/v1/topics/a/redrive",
		"/v1/topics/a/segments/0123456789abcdef/merge", "/v1/topics/a/segments/split", "/v1/objects", "/HEALTHZ", "/healthz/x", "/v2/topics",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "HEAD", "OPTIONS", "TRACE", "BREW"} {
			got := newAPI().do(t, method, target, "")
			if got.StatusCode != 404 || got.fault().Code != queue.CodeRouteNotFound {
				t.Errorf("%s %s: %d %s", method, target, got.StatusCode, got.body)
			}
		}
	}
}

func TestMethodNotAllowed(t *testing.T) {
	allowed := map[string][]string{}
	for _, r := range httpapi.Routes() {
		allowed[r.Pattern] = append(allowed[r.Pattern], r.Method)
	}
	for _, r := range httpapi.Routes() {
		target := fill(r.Pattern)
		got := newAPI().do(t, "BREW", target, "")
		if got.StatusCode != 405 || got.fault().Code != queue.CodeMethodNotAllowed {
			t.Errorf("%s: %d %s", target, got.StatusCode, got.body)
		}
		for _, m := range allowed[r.Pattern] {
			if !strings.Contains(got.Header.Get("Allow"), m) {
				t.Errorf("%s: Allow %q lacks %s", target, got.Header.Get("Allow"), m)
			}
		}
	}
}

// fill puts good names into a pattern.
func fill(pattern string) string {
	id := queue.MessageID{Segment: segmentA, Offset: 17}.String()
	if strings.Contains(pattern, "/delayed/") {
		id = delayedID().String()
	}
	return strings.NewReplacer("{topic}", "orders", "{subscription}", "billing", "{segment}", string(segmentA), "{id}", id).Replace(pattern)
}

func TestHead(t *testing.T) {
	for _, r := range httpapi.Routes() {
		if r.Method != "GET" {
			continue
		}
		if got := newAPI().do(t, "HEAD", fill(r.Pattern), ""); got.StatusCode != 200 {
			t.Errorf("%s: %d", r.Pattern, got.StatusCode)
		}
	}
}

func TestAround(t *testing.T) {
	a := newAPI(func(d *httpapi.Deps) { d.Spec = docs.OpenAPI })
	if got := a.do(t, "GET", "/v1/openapi.yaml", ""); !bytes.Equal(got.body, docs.OpenAPI) {
		t.Error("the spec is not served")
	}
	if got := a.do(t, "GET", "/metrics", ""); string(got.body) != "up 1\n" {
		t.Errorf("%s", got.body)
	}
	if got := a.do(t, "GET", "/v1/objects/uploads/a?sig=x", ""); string(got.body) != "/v1/objects/uploads/a" {
		t.Errorf("%s", got.body)
	}
	bare := newAPI(func(d *httpapi.Deps) {
		d.Metrics, d.Objects = nil, nil
		d.Ready = func(context.Context) error { return errors.New("starting") }
	})
	if got := bare.do(t, "GET", "/readyz", ""); got.StatusCode != 503 {
		t.Errorf("%d", got.StatusCode)
	}
	for _, target := range []string{"/metrics", "/v1/objects/a"} {
		if got := bare.do(t, "GET", target, ""); got.StatusCode != 404 {
			t.Errorf("%s: %d", target, got.StatusCode)
		}
	}
}

func TestAuth(t *testing.T) {
	a := newAPI(func(d *httpapi.Deps) { d.Token = "s3cret" })
	for _, target := range []string{"/healthz", "/v1/objects/uploads/a"} {
		if got := a.do(t, "GET", target, ""); got.StatusCode != 200 {
			t.Errorf("%s: %d", target, got.StatusCode)
		}
	}
	for _, c := range []struct {
		header string
		ok     bool
	}{
		{"", false},
		{"Bearer", false},
		{"Bearer ", false},
		{"Bearer s3cre", false},
		{"Bearer s3cret2", false},
		{"Basic s3cret", false},
		{"s3cret", false},
		{"Bearer s3cret", true},
		{"bearer s3cret", true},
	} {
		for _, target := range []string{"/v1/topics", "/readyz", "/metrics", "/v1/openapi.yaml"} {
			got := a.do(t, "GET", target, "", "Authorization", c.header)
			if (got.StatusCode == 200) != c.ok || !c.ok && (got.StatusCode != 401 || got.Header.Get("WWW-Authenticate") == "") {
				t.Errorf("%q %s: %d", c.header, target, got.StatusCode)
			}
		}
		// Who has no right to call learns not even which paths there are.
		if got := a.do(t, "GET", "/v1/nothing", "", "Authorization", c.header); !c.ok && got.StatusCode != 401 {
			t.Errorf("%q: %d", c.header, got.StatusCode)
		}
	}
	if got := a.do(t, "GET", "/v1/objects/%2e%2e/topics", ""); string(got.body) != "/v1/objects/../topics" {
		t.Errorf("an escaped path that only looks like an object's leaves the object handler: %s", got.body)
	}
	if got := a.do(t, "GET", "/v1/objects/../topics", ""); got.StatusCode != 404 {
		t.Errorf("a path that only looks like an object's: %d", got.StatusCode)
	}
}

func TestLogHasNoSecrets(t *testing.T) {
	var log bytes.Buffer
	var seen []httpapi.Observation
	a := newAPI(func(d *httpapi.Deps) {
		d.Token = "s3cret"
		d.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		d.Observe = func(o httpapi.Observation) { seen = append(seen, o) }
	})
	auth := []string{"Authorization", "Bearer s3cret", "X-Request-Id", "rid-1"}
	a.do(t, "POST", "/v1/topics/orders/messages", `{"messages":[{"body":"topsecret"}]}`, auth...)
	a.do(t, "POST", "/v1/topics/orders/messages", `{"messages":[{"body":"topsecret","ttl":-5}],"x":"topsecret"}`, auth...)
	a.do(t, "POST", "/v1/topics/orders/messages", `topsecret`, auth...)
	a.do(t, "GET", "/v1/objects/uploads/a?sig=topsecret", "")
	a.do(t, "GET", "/v1/topics?prefix=topsecret", "", auth...)
	for _, word := range []string{"secret", "s3cret", "Bearer"} {
		if strings.Contains(log.String(), word) {
			t.Errorf("%q is in the log:\n%s", word, log.String())
		}
	}
	if n := strings.Count(log.String(), `"request_id":"rid-1"`); n != 4 {
		t.Errorf("%d lines with the request id:\n%s", n, log.String())
	}
	if !strings.Contains(log.String(), `"level":"DEBUG"`) || len(seen) != 5 || seen[0].Route != "/v1/topics/{topic}/messages" || seen[0].Received == 0 || seen[0].Sent == 0 {
		t.Errorf("%+v\n%s", seen, log.String())
	}
}

func TestPanic(t *testing.T) {
	var log bytes.Buffer
	a := newAPI(func(d *httpapi.Deps) { d.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	a.onClaim = func(context.Context) { panic("boom in the engine room") }
	got := a.do(t, "POST", "/v1/topics/orders/subscriptions/b/claims", "{}")
	if got.StatusCode != 500 || got.fault().Code != queue.CodeInternal || strings.Contains(string(got.body), "boom") {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	if !strings.Contains(log.String(), "boom in the engine room") {
		t.Errorf("the panic is not in the log: %s", log.String())
	}
}

// TestPanicWithHalfAnAnswer: the connection is cut, so that no client takes the half for the whole.
func TestPanicWithHalfAnAnswer(t *testing.T) {
	d := new(fakes).deps()
	d.Objects = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic("late")
	})
	s := httptest.NewServer(httpapi.New(d))
	defer s.Close()
	resp, err := http.Get(s.URL + "/v1/objects/a")
	if err != nil {
		return // cut before the header was out
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := new(bytes.Buffer).ReadFrom(resp.Body); err == nil {
		t.Error("half an answer looks whole")
	}
}

// TestAnswerToABodyThatIsNotRead: of a caller that is still sending the connection is closed gently. A
// reset could overtake the answer, and the caller would see that alone.
func TestAnswerToABodyThatIsNotRead(t *testing.T) {
	d := new(fakes).deps()
	d.Objects = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	s := httptest.NewServer(httpapi.New(d))
	defer s.Close()
	for path, want := range map[string]int{"/v1/objects/a": 403, "/v1/topics/orders/messages": 413, "/nothing": 404} {
		t.Run(path, func(t *testing.T) { sendHalf(t, s.Listener.Addr().String(), path, want) })
	}
}

func sendHalf(t *testing.T, address, path string, want int) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// Without the end of a body the server must not wait for it either.
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, queue.MaxRequestBytes+1, make([]byte, 64<<10))
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != want {
		t.Fatalf("%v, want %d: %v", resp, want, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the answer: %v, want the end", err)
	}
}
