package afterwards_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/spillway-mq/spillway/functions/internal/afterwards"
	"github.com/spillway-mq/spillway/functions/internal/host"
	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// extensions is Lambda's extensions API as far as an internal extension needs it.
type extensions struct {
	t      *testing.T
	status int // of a registration
	asked  chan struct{}
	tell   chan string // an event, or "" for an answer that is none
}

func (x *extensions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /2020-01-01/extension/register":
		var body struct{ Events []string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Events) != 1 || body.Events[0] != "INVOKE" || r.Header.Get("Lambda-Extension-Name") == "" {
			x.t.Errorf("registration of %q for %v, %v", r.Header.Get("Lambda-Extension-Name"), body.Events, err)
		}
		w.Header().Set("Lambda-Extension-Identifier", "the one")
		w.WriteHeader(x.status)
	case "GET /2020-01-01/extension/event/next":
		if id := r.Header.Get("Lambda-Extension-Identifier"); id != "the one" {
			x.t.Errorf("identifier %q", id)
		}
		select {
		case x.asked <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		select {
		case event := <-x.tell:
			_, _ = fmt.Fprint(w, event)
		case <-r.Context().Done():
		}
	default:
		x.t.Errorf("%s %s", r.Method, r.URL.Path)
	}
}

// slowRolls has transactions wait until the test lets them.
type slowRolls struct {
	meta.Store
	slow    bool
	started chan struct{}
	release chan struct{}
}

func (s *slowRolls) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if s.slow {
		s.started <- struct{}{}
		<-s.release
	}
	return s.Store.Transact(ctx, ops)
}

// function is a produce function under a Lambda that is played.
type function struct {
	t       *testing.T
	api     *extensions
	store   *slowRolls
	out     *bytes.Buffer
	handler lambda.Handler
	calls   int
}

func newFunction(t *testing.T, status int) *function {
	t.Helper()
	f := &function{
		t: t, out: new(bytes.Buffer), store: &slowRolls{Store: memmeta.New(t), started: make(chan struct{}), release: make(chan struct{})},
		api: &extensions{t: t, status: status, asked: make(chan struct{}), tell: make(chan string)},
	}
	server := httptest.NewServer(f.api) // stays: a function whose Lambda has gone ends its process
	config := host.Config{Function: "produce", LogLevel: slog.LevelDebug}
	after := afterwards.Register(strings.TrimPrefix(server.URL, "http://"), config.Logger(f.out))
	config.Later = after.Later()
	h := host.New(config, assembly.Deps{
		Meta: f.store, Blob: memblob.New(t, time.Now, memblob.Options{}), Presigner: nil,
	}, f.out).API()
	f.handler = after.Handler(h.HTTP)
	if a := f.invoke("PUT", "/v1/topics/orders", `{}`); a.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", a.StatusCode, a.Body)
	}
	return f
}

// told is the event of the extension for a call.
func told(n int) string {
	return fmt.Sprintf(`{"eventType":"INVOKE","requestId":"r%d","deadlineMs":%d}`, n, time.Now().Add(time.Minute).UnixMilli())
}

// invoke makes the next call as Lambda's runtime does.
func (f *function) invoke(method, path, body string) (a events.APIGatewayV2HTTPResponse) {
	f.calls++
	e := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: path, Headers: map[string]string{"content-type": "application/json"}, Body: body}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path = method, path
	payload, err := json.Marshal(e)
	if err != nil {
		f.t.Error(err)
	}
	ctx := lambdacontext.NewContext(f.t.Context(), &lambdacontext.LambdaContext{AwsRequestID: fmt.Sprintf("r%d", f.calls)})
	data, err := f.handler.Invoke(ctx, payload)
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err != nil {
		f.t.Error(err)
	}
	return a
}

func (f *function) produce() {
	if a := f.invoke("POST", "/v1/topics/orders/messages", `{"messages":[{"body":"x"}]}`); a.StatusCode != http.StatusOK {
		f.t.Errorf("%d %s", a.StatusCode, a.Body)
	}
}

// TestAfterwards holds that a roll goes on after the answer, and that Lambda is not asked for what is next before
// it is over, in whatever order Lambda tells the runtime and the extension of a call.
func TestAfterwards(t *testing.T) {
	f := newFunction(t, http.StatusOK)
	<-f.api.asked
	f.api.tell <- told(f.calls) // of the call that made the topic, when that has ended
	for n := range queue.RollRefs - 1 {
		<-f.api.asked
		if n%2 == 0 {
			f.api.tell <- told(f.calls + 1)
		}
		f.produce()
		if n%2 == 1 {
			f.api.tell <- told(f.calls)
		}
	}
	<-f.api.asked
	f.api.tell <- told(f.calls + 1)
	f.store.slow = true
	f.produce() // is answered
	<-f.store.started
	select {
	case <-f.api.asked:
		t.Error("Lambda may let the process stand still before the roll is over")
	case <-time.After(50 * time.Millisecond):
	}
	f.store.slow = false
	close(f.store.release)
	<-f.api.asked
	// A call that the runtime refuses before it begins does not hold the process for longer than its deadline.
	f.api.tell <- fmt.Sprintf(`{"eventType":"INVOKE","requestId":"never","deadlineMs":%d}`, time.Now().Add(20*time.Millisecond).UnixMilli())
	<-f.api.asked
}

// TestNoExtensions holds that without the API the roll comes before the answer.
func TestNoExtensions(t *testing.T) {
	f := newFunction(t, http.StatusForbidden)
	for range queue.RollRefs - 1 {
		f.produce()
	}
	f.store.slow = true
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f.produce()
	}()
	<-f.store.started
	select {
	case <-answered:
		t.Error("answered before the roll")
	case <-time.After(50 * time.Millisecond):
	}
	close(f.store.release)
	<-answered
	if !strings.Contains(f.out.String(), "no extension") {
		t.Errorf("the log does not tell:\n%s", f.out)
	}
}
