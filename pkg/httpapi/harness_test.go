package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/spillway-mq/spillway/docs"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

// document loads docs/openapi.yaml once for all tests.
var document = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(openapi3.NewLoader().Context)
})

func spec(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// api is a handler under test whose every answer is held against the spec.
type api struct {
	*fakes
	handler http.Handler
}

func newAPI(change ...func(*httpapi.Deps)) *api {
	f := new(fakes)
	d := f.deps()
	for _, c := range change {
		c(&d)
	}
	return &api{f, httpapi.New(d)}
}

// reply is an answer, read.
type reply struct {
	*http.Response
	body []byte
}

func (r reply) into(t testing.TB, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
}

// fault is the error of an answer; empty if it is none.
func (r reply) fault() wire.Error {
	var e wire.ErrorAnswer
	_ = json.Unmarshal(r.body, &e)
	return e.Error
}

// do makes a call. Headers come in pairs.
func (a *api) do(t testing.TB, method, target, body string, headers ...string) reply {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, "http://queue.test/", reader)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return a.sendTo(t, r, target, body)
}

// sendTo sends r to a target that httptest would not take.
func (a *api) sendTo(t testing.TB, r *http.Request, target string, body ...string) reply {
	t.Helper()
	where, err := url.ParseRequestURI(target)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	r.RequestURI, r.URL = target, where
	return a.send(t, r, strings.Join(body, ""))
}

func (a *api) send(t testing.TB, r *http.Request, body string) reply {
	t.Helper()
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	out := reply{w.Result(), w.Body.Bytes()}
	a.check(t, r, body, out)
	return out
}

// check holds what holds for every answer, and the answer and its request against the spec.
func (a *api) check(t testing.TB, r *http.Request, body string, got reply) {
	t.Helper()
	what := r.Method + " " + r.RequestURI
	if id := got.Header.Get(wire.HeaderRequestID); id == "" || len(id) > 128 {
		t.Errorf("%s: request id %q", what, id)
	}
	if got.StatusCode >= 300 {
		checkFault(t, what, got)
	}
	item := spec(t).Paths.Value(r.Pattern)
	if item == nil || r.Method == http.MethodHead {
		return
	}
	op := item.GetOperation(r.Method)
	if op == nil {
		return
	}
	answer := op.Responses.Status(got.StatusCode)
	if answer == nil {
		answer = op.Responses.Default()
	}
	if answer == op.Responses.Default() && got.StatusCode < 300 {
		t.Errorf("%s: status %d is not in the spec", what, got.StatusCode)
	}
	matches(t, what+" answer", answer.Value.Content, got.Header.Get("Content-Type"), got.body)
	if got.StatusCode < 300 && body != "" && op.RequestBody != nil {
		media := r.Header.Get("Content-Type")
		if media == "" {
			media = wire.MediaTypeJSON
		}
		matches(t, what+" request", op.RequestBody.Value.Content, media, []byte(body))
	}
}

func matches(t testing.TB, what string, content openapi3.Content, media string, body []byte) {
	t.Helper()
	if len(content) == 0 {
		if len(body) > 0 {
			t.Errorf("%s: the spec knows no body", what)
		}
		return
	}
	media, _, _ = mime.ParseMediaType(media)
	known := content[media]
	if known == nil {
		t.Errorf("%s: media type %q is not in the spec", what, media)
		return
	}
	if media != wire.MediaTypeJSON {
		return
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("%s: %v in %s", what, err, body)
		return
	}
	if err := known.Schema.Value.VisitJSON(v, openapi3.EnableJSONSchema2020(), openapi3.EnableFormatValidation()); err != nil {
		t.Errorf("%s: %s\n%v", what, body, err)
	}
}

func checkFault(t testing.TB, what string, got reply) {
	t.Helper()
	e := got.fault()
	if e.Code == "" || e.Message == "" || e.Code.Status() != got.StatusCode || e.Retryable != e.Code.Retryable() {
		t.Errorf("%s: %d with %s", what, got.StatusCode, got.body)
	}
	if got.Header.Get("Content-Type") != wire.MediaTypeJSON {
		t.Errorf("%s: an error of type %q", what, got.Header.Get("Content-Type"))
	}
	if retry := got.Header.Get("Retry-After"); (retry != "") != (got.StatusCode == 429 || got.StatusCode == 503) {
		t.Errorf("%s: %d with Retry-After %q", what, got.StatusCode, retry)
	}
	if got.StatusCode == http.StatusMethodNotAllowed && strings.HasPrefix(what, "BREW ") && got.Header.Get("Allow") == "" {
		t.Errorf("%s: no Allow", what)
	}
}

// send posts without looking at the answer but for its body.
func send(a *api, target, body string) []byte {
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, target, strings.NewReader(body)))
	return w.Body.Bytes()
}
