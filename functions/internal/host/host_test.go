package host_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/spillway-mq/spillway/functions/internal/host"
	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

type presigner struct{}

func (presigner) PresignPut(_ context.Context, key string, _ blob.Terms, _ time.Time) (blob.Request, error) {
	return blob.Request{Method: "PUT", URL: "https://bucket.example/" + key}, nil
}

func (presigner) PresignGet(_ context.Context, key string, _ time.Time) (blob.Request, error) {
	return blob.Request{Method: "GET", URL: "https://bucket.example/" + key}, nil
}

func newHost(t *testing.T) (*host.API, *bytes.Buffer) {
	t.Helper()
	out := new(bytes.Buffer)
	return host.New(host.Config{Function: "produce", LogLevel: slog.LevelDebug}, assembly.Deps{
		Meta: memmeta.New(t), Blob: memblob.New(t, time.Now, memblob.Options{}), Presigner: presigner{},
	}, out).API(), out
}

// event is a call as API Gateway's payload format 2.0 has it.
func event(method, path, body string, headers map[string]string) events.APIGatewayV2HTTPRequest {
	e := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: path, Headers: map[string]string{"content-type": "application/json"}, Body: body}
	for k, v := range headers {
		e.Headers[k] = v
	}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path = method, path
	e.RequestContext.DomainName = "abc.execute-api.example"
	return e
}

func call(t *testing.T, h *host.API, e events.APIGatewayV2HTTPRequest) events.APIGatewayV2HTTPResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := h.HTTP(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestJourneyThroughEvents(t *testing.T) {
	h, out := newHost(t)
	for _, e := range []events.APIGatewayV2HTTPRequest{
		event("PUT", "/v1/topics/orders", `{}`, nil),
		event("PUT", "/v1/topics/orders/subscriptions/billing", `{}`, nil),
	} {
		if a := call(t, h, e); a.StatusCode != 201 && a.StatusCode != 200 {
			t.Fatalf("%s: %d %s", e.RawPath, a.StatusCode, a.Body)
		}
	}
	secret := "a body that no log may hold"
	made := event("POST", "/v1/topics/orders/messages", base64.StdEncoding.EncodeToString([]byte(`{"messages":[{"body":"`+secret+`"}]}`)), nil)
	made.IsBase64Encoded = true
	if a := call(t, h, made); a.StatusCode != 200 {
		t.Fatalf("produce: %d %s", a.StatusCode, a.Body)
	}
	got := call(t, h, event("POST", "/v1/topics/orders/subscriptions/billing/claims", `{}`, nil))
	if got.StatusCode != 200 || got.IsBase64Encoded || !strings.Contains(got.Body, secret) {
		t.Errorf("claim: %d %s", got.StatusCode, got.Body)
	}
	raw := event("POST", "/v1/topics/orders/subscriptions/billing/claims", `{}`, map[string]string{"accept": "application/vnd.spillway.batch"})
	if a := call(t, h, raw); a.StatusCode != 200 {
		t.Errorf("claim as stream: %d %s", a.StatusCode, a.Body)
	}
	if strings.Contains(out.String(), secret) || strings.Contains(out.String(), `"orders"`) {
		t.Errorf("logs or dimensions tell too much:\n%s", out)
	}
	metrics := 0
	for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("a line that is not JSON: %v: %s", err, line)
		}
		if _, ok := m["_aws"]; ok {
			metrics++
		}
	}
	if metrics != 5 {
		t.Errorf("%d lines of metrics for 5 calls:\n%s", metrics, out)
	}
}

// TestLargeAnswerGoesByReference: what would not fit Lambda's 6 MB is not sent inline.
func TestLargeAnswerGoesByReference(t *testing.T) {
	h, _ := newHost(t)
	call(t, h, event("PUT", "/v1/topics/t", `{"max_message_bytes":8000000}`, nil))
	call(t, h, event("PUT", "/v1/topics/t/subscriptions/s", `{}`, nil))
	body := strings.Repeat("x", 5<<20)
	for range 2 {
		if a := call(t, h, event("POST", "/v1/topics/t/messages", `{"messages":[{"body":"`+body+`"}]}`, nil)); a.StatusCode != 200 {
			t.Fatalf("produce: %d %.200s", a.StatusCode, a.Body)
		}
	}
	got := call(t, h, event("POST", "/v1/topics/t/subscriptions/s/claims", `{"max_bytes":30000000}`, nil))
	if got.StatusCode != 200 || len(got.Body) > 6<<20 || !strings.Contains(got.Body, `"reference"`) {
		t.Errorf("%d, %d bytes", got.StatusCode, len(got.Body))
	}
}

// TestLongPollWithinTheBudget: a long poll is answered before Lambda ends the call.
func TestLongPollWithinTheBudget(t *testing.T) {
	h, _ := newHost(t)
	call(t, h, event("PUT", "/v1/topics/t", `{}`, nil))
	call(t, h, event("PUT", "/v1/topics/t/subscriptions/s", `{}`, nil))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	a, err := h.HTTP(ctx, event("POST", "/v1/topics/t/subscriptions/s/claims", `{"wait":20}`, nil))
	if err != nil || a.StatusCode != 200 || ctx.Err() != nil {
		t.Errorf("%d %s, %v, the budget: %v", a.StatusCode, a.Body, err, ctx.Err())
	}
}

func TestOddEvents(t *testing.T) {
	h, _ := newHost(t)
	for name, e := range map[string]events.APIGatewayV2HTTPRequest{
		"empty":      {},
		"bad base64": {Version: "2.0", RawPath: "/v1/topics/t/messages", Body: "%%%", IsBase64Encoded: true},
		"odd path":   event("GET", "/v1/topics/%00", "", nil),
		"no route":   event("GET", "/nothing", "", nil),
		"method":     event("BREW", "/v1/topics", "", nil),
	} {
		a := call(t, h, e)
		if a.StatusCode < 400 || a.StatusCode > 499 || !strings.Contains(a.Body, `"error"`) {
			t.Errorf("%s: %d %s", name, a.StatusCode, a.Body)
		}
	}
}

func TestEnvironment(t *testing.T) {
	full := map[string]string{"SPILLWAY_TABLE": "t", "SPILLWAY_BUCKET": "b", "SPILLWAY_LOG_LEVEL": "warn", "AWS_REGION": "eu-north-1"}
	c, err := host.FromEnvironment("produce", func(k string) string { return full[k] })
	if err != nil || c.Table != "t" || c.Bucket != "b" || c.LogLevel != slog.LevelWarn {
		t.Errorf("%+v, %v", c, err)
	}
	for _, missing := range []string{"SPILLWAY_TABLE", "SPILLWAY_BUCKET", "AWS_REGION"} {
		_, err := host.FromEnvironment("produce", func(k string) string {
			if k == missing {
				return ""
			}
			return full[k]
		})
		if queue.CodeOf(err) != queue.CodeInvalidArgument || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	if _, err := host.FromEnvironment("produce", func(k string) string { return "chatty" }); err == nil {
		t.Error("a log level that is none was taken")
	}
}

// TestScheduledRuns: what the schedule calls does its work and says so.
func TestScheduledRuns(t *testing.T) {
	h, out := newHost(t)
	call(t, h, event("PUT", "/v1/topics/t", `{"default_delay":0.01}`, nil))
	call(t, h, event("POST", "/v1/topics/t/messages", `{"messages":[{"body":"x"}]}`, nil))
	time.Sleep(20 * time.Millisecond)
	out.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := h.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Promoted":1`, `"Deleted":0`, `"Runs":1`, `"OldestMessageAge":0`, `{"Name":"OldestMessageAge","Unit":"Seconds"}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if a := call(t, h, event("GET", "/v1/topics/t", "", nil)); !strings.Contains(a.Body, `"ready":1`) {
		t.Errorf("after the leader's run: %s", a.Body)
	}
}

// TestOldestMessageAge: the leader tells how long a message waits that another function took in, and that
// none does once it was acked.
func TestOldestMessageAge(t *testing.T) {
	h, out := newHost(t)
	age := func() float64 {
		t.Helper()
		out.Reset()
		if err := h.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		var line struct {
			Age *float64 `json:"OldestMessageAge"`
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Age == nil {
			t.Fatalf("%v: %s", err, out)
		}
		return *line.Age
	}
	call(t, h, event("PUT", "/v1/topics/t", `{}`, nil))
	call(t, h, event("PUT", "/v1/topics/t/subscriptions/s", `{}`, nil))
	if got := age(); got != 0 {
		t.Errorf("nothing waits, and its age is %v", got)
	}
	call(t, h, event("POST", "/v1/topics/t/messages", `{"messages":[{"body":"x"}]}`, nil))
	time.Sleep(5 * time.Millisecond)
	if got := age(); got <= 0 || got > 60 {
		t.Errorf("a message waits, and its age is %v", got)
	}
	call(t, h, event("POST", "/v1/topics/t/subscriptions/s/claims", `{}`, nil))
	if got := age(); got != 0 {
		t.Errorf("the message is claimed, and its age is %v", got)
	}
}
