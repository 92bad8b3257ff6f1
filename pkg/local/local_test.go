package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/local"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func start(t *testing.T, o local.Options) *local.Server {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := local.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *local.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// call makes one API call and decodes its answer into out, if that is not nil.
func call(t *testing.T, s *local.Server, method, path string, in, out any) int {
	t.Helper()
	status, data := raw(t, s, method, path, in)
	if out != nil {
		if status >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, status, data)
		}
		if err := json.Unmarshal(data, out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
	return status
}

func raw(t *testing.T, s *local.Server, method, path string, in any) (int, []byte) {
	t.Helper()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequest(method, s.URL()+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, data
}

// TestJourney is a message's whole life over HTTP, and over a restart.
func TestJourney(t *testing.T) {
	dir := t.TempDir()
	s := start(t, local.Options{Dir: dir})
	call(t, s, "PUT", "/v1/topics/orders", wire.TopicConfig{}, &wire.Topic{})
	call(t, s, "PUT", "/v1/topics/orders/subscriptions/billing", struct{}{}, &map[string]any{})
	var made wire.ProduceAnswer
	call(t, s, "POST", "/v1/topics/orders/messages", wire.ProduceRequest{Messages: []wire.MessageIn{
		{Key: "c42", Body: wire.Text("one"), Headers: map[string]string{"kind": "new"}},
		{Key: "c43", Body: wire.Text("two")},
	}}, &made)
	stop(t, s)

	s = start(t, local.Options{Dir: dir})
	var got wire.MessageList
	call(t, s, "POST", "/v1/topics/orders/subscriptions/billing/claims", wire.ClaimRequest{}, &got)
	if len(got.Messages) != 2 {
		t.Fatalf("after a restart %d messages are claimed, want 2", len(got.Messages))
	}
	var receipts wire.ReceiptsRequest
	bodies := make(map[string]string)
	for _, m := range got.Messages {
		receipts.Receipts = append(receipts.Receipts, m.Receipt)
		bodies[m.ID] = *m.Body
	}
	if bodies[made.Results[0].ID] != "one" || bodies[made.Results[1].ID] != "two" {
		t.Errorf("claimed %v, produced %+v", bodies, made.Results)
	}
	var done wire.ReceiptsAnswer
	call(t, s, "POST", "/v1/topics/orders/subscriptions/billing/ack", receipts, &done)
	if !done.Results[0].OK || !done.Results[1].OK {
		t.Errorf("ack: %+v", done)
	}
	got = wire.MessageList{}
	call(t, s, "POST", "/v1/topics/orders/subscriptions/billing/claims", wire.ClaimRequest{}, &got)
	if len(got.Messages) != 0 {
		t.Errorf("after the ack %d messages are left", len(got.Messages))
	}
}

func TestListen(t *testing.T) {
	for _, tc := range []struct {
		listen   string
		token    string
		insecure bool
		ok       bool
	}{
		{"127.0.0.1:0", "", false, true},
		{"localhost:0", "", false, true},
		{"[::1]:0", "", false, true},
		{"127.9.9.9:0", "", false, true},
		{":0", "", false, false},
		{"0.0.0.0:0", "", false, false},
		{"[::]:0", "", false, false},
		{"192.0.2.1:0", "", false, false},
		{"example.com:0", "", false, false},
		{"localhost.example.com:0", "", false, false},
		{"127.0.0.1", "", false, false},
		{"", "", false, true},
	} {
		o := local.Options{Dir: filepath.Join(t.TempDir(), "d"), Listen: tc.listen, Token: tc.token, Insecure: tc.insecure}
		if tc.listen == "" {
			continue // the default port may be taken on a developer's machine
		}
		s, err := local.Start(t.Context(), o)
		if err == nil {
			stop(t, s)
		}
		// A machine without IPv6 cannot listen on [::1]; that is not a refusal.
		refused := queue.CodeOf(err) == queue.CodeInvalidArgument
		if err != nil && refused == tc.ok {
			t.Errorf("listen %q: %v", tc.listen, err)
		}
		if err == nil && !tc.ok {
			t.Errorf("listen %q was not refused", tc.listen)
		}
		if _, serr := os.Stat(o.Dir); refused && serr == nil {
			t.Errorf("listen %q was refused and left a folder", tc.listen)
		}
	}
}

func TestToken(t *testing.T) {
	s := start(t, local.Options{Token: "secret"})
	for _, tc := range []struct {
		path, auth string
		want       int
	}{
		{"/v1/topics", "", 401},
		{"/v1/topics", "Bearer wrong", 401},
		{"/v1/topics", "Basic secret", 401},
		{"/v1/topics", "Bearer secret", 200},
		{"/metrics", "", 401},
		{"/healthz", "", 200},
	} {
		req, _ := http.NewRequest("GET", s.URL()+tc.path, nil)
		if tc.auth != "" {
			req.Header.Set("Authorization", tc.auth)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tc.want {
			t.Errorf("%s with %q: %d, want %d", tc.path, tc.auth, resp.StatusCode, tc.want)
		}
	}
}

func TestSecondProcessOnTheFolder(t *testing.T) {
	dir := t.TempDir()
	start(t, local.Options{Dir: dir})
	_, err := local.Start(t.Context(), local.Options{Dir: dir, Listen: "127.0.0.1:0"})
	if !queue.Is(err, queue.KindUnavailable) && queue.KindOf(err) != queue.KindUnavailable || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second server on %s: %v", dir, err)
	}
}

func TestPortTaken(t *testing.T) {
	s := start(t, local.Options{})
	dir := t.TempDir()
	addr := strings.TrimPrefix(s.URL(), "http://")
	if _, err := local.Start(t.Context(), local.Options{Dir: dir, Listen: addr}); queue.KindOf(err) != queue.KindUnavailable {
		t.Errorf("a taken port: %v", err)
	}
	start(t, local.Options{Dir: dir}) // the failed start let the folder go
}

// TestCloseEndsLongPolls: a long poll ends at once and empty when the server stops; and the server is
// not ready from then on.
func TestCloseEndsLongPolls(t *testing.T) {
	s := start(t, local.Options{})
	call(t, s, "PUT", "/v1/topics/t", wire.TopicConfig{}, &wire.Topic{})
	call(t, s, "PUT", "/v1/topics/t/subscriptions/s", struct{}{}, &map[string]any{})
	type answer struct {
		status int
		data   string
	}
	polled := make(chan answer, 1)
	go func() {
		resp, err := http.Post(s.URL()+"/v1/topics/t/subscriptions/s/claims", "application/json", strings.NewReader(`{"wait":20}`))
		if err != nil {
			polled <- answer{0, err.Error()}
			return
		}
		defer func() { _ = resp.Body.Close() }()
		data, _ := io.ReadAll(resp.Body)
		polled <- answer{resp.StatusCode, string(data)}
	}()
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	stop(t, s)
	if a := <-polled; a.status != 200 || !strings.Contains(a.data, `"messages":[]`) {
		t.Errorf("the poll was answered %d %s", a.status, a.data)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("closing took %v", d)
	}
}

// TestDelayedWakesPoll: a long poll wakes when a delayed message becomes due, not before and not much
// later.
func TestDelayedWakesPoll(t *testing.T) {
	s := start(t, local.Options{})
	delay, wait := 0.5, 10.0
	call(t, s, "PUT", "/v1/topics/t", wire.TopicConfig{DefaultDelay: &delay}, &wire.Topic{})
	call(t, s, "PUT", "/v1/topics/t/subscriptions/s", struct{}{}, &map[string]any{})
	began := time.Now()
	call(t, s, "POST", "/v1/topics/t/messages", wire.ProduceRequest{Messages: []wire.MessageIn{{Body: wire.Text("x")}}}, &wire.ProduceAnswer{})
	var got wire.MessageList
	call(t, s, "POST", "/v1/topics/t/subscriptions/s/claims", wire.ClaimRequest{Wait: &wait}, &got)
	if d := time.Since(began); len(got.Messages) != 1 || d < 500*time.Millisecond || d > 5*time.Second {
		t.Errorf("%d messages after %v, want one after half a second", len(got.Messages), d)
	}
}

// TestBackstop: a delayed message of a topic that nobody reads is promoted all the same.
func TestBackstop(t *testing.T) {
	s := start(t, local.Options{})
	delay := 0.1
	call(t, s, "PUT", "/v1/topics/t", wire.TopicConfig{DefaultDelay: &delay}, &wire.Topic{})
	call(t, s, "POST", "/v1/topics/t/messages", wire.ProduceRequest{Messages: []wire.MessageIn{{Body: wire.Text("x")}}}, &wire.ProduceAnswer{})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var st wire.Topic
		call(t, s, "GET", "/v1/topics/t", nil, &st)
		if st.Messages.Ready == 1 && st.Messages.Delayed == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %+v", st.Messages)
		}
	}
}

// TestUploadByReference: a payload goes to the presigned URL and comes back by one, and the server
// verifies both ways.
func TestUploadByReference(t *testing.T) {
	s := start(t, local.Options{})
	call(t, s, "PUT", "/v1/topics/t", wire.TopicConfig{}, &wire.Topic{})
	call(t, s, "PUT", "/v1/topics/t/subscriptions/s", struct{}{}, &map[string]any{})
	payload := bytes.Repeat([]byte("spillway "), 100_000)
	var up wire.UploadsAnswer
	call(t, s, "POST", "/v1/topics/t/uploads", wire.UploadsRequest{Objects: []wire.ObjectIn{{Size: wire.Of(int64(len(payload)))}}}, &up)
	put := func(body []byte) int {
		req, _ := http.NewRequest(up.Uploads[0].Method, up.Uploads[0].URL, bytes.NewReader(body))
		for k, v := range up.Uploads[0].Headers {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status := put(payload[1:]); status != 403 {
		t.Errorf("another length: %d, want 403", status)
	}
	if status := put(payload); status != 201 {
		t.Fatalf("put: %d", status)
	}
	var made wire.ProduceAnswer
	call(t, s, "POST", "/v1/topics/t/references", wire.ReferencesRequest{References: []wire.ReferenceIn{
		{Object: up.Uploads[0].Object, Format: wire.FormatPayload, Key: "k"},
	}}, &made)
	var got wire.MessageList
	call(t, s, "POST", "/v1/topics/t/subscriptions/s/claims", wire.ClaimRequest{Deliver: wire.DeliverReference}, &got)
	if len(got.Messages) != 1 || got.Messages[0].Reference == nil {
		t.Fatalf("claimed %+v", got)
	}
	ref := got.Messages[0].Reference
	req, _ := http.NewRequest("GET", ref.URL, nil)
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", ref.Offset, ref.Offset+ref.Length-1))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if data, _ := io.ReadAll(resp.Body); !bytes.Equal(data, payload) {
		t.Errorf("%d bytes came back, status %d, want the %d that went in", len(data), resp.StatusCode, len(payload))
	}
}

func TestMetrics(t *testing.T) {
	s := start(t, local.Options{Version: "1.2.3"})
	call(t, s, "PUT", "/v1/topics/t", wire.TopicConfig{}, &wire.Topic{})
	call(t, s, "PUT", "/v1/topics/t/subscriptions/s", wire.SubscriptionConfig{}, &wire.Subscription{})
	if _, before := raw(t, s, "GET", "/metrics", nil); !strings.Contains(string(before), "\nspillway_oldest_message_age_seconds 0\n") {
		t.Error("something waits in an empty topic")
	}
	call(t, s, "POST", "/v1/topics/t/messages", wire.ProduceRequest{Messages: []wire.MessageIn{{Body: wire.Text("x")}}}, &wire.ProduceAnswer{})
	time.Sleep(5 * time.Millisecond) // for the message to have an age
	status, data := raw(t, s, "GET", "/metrics", nil)
	if status != 200 {
		t.Fatal(status)
	}
	if !regexp.MustCompile(`\nspillway_oldest_message_age_seconds (0\.\d|[1-9])`).Match(data) {
		t.Errorf("the message that waits has no age in the metrics:\n%s", data)
	}
	for _, want := range []string{
		`spillway_build_info{version="1.2.3"} 1`, `spillway_store_operations_total{operation="append"} 1`,
		`route="/v1/topics/{topic}/messages"`, "spillway_meta_commits_total", "go_goroutines",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}
