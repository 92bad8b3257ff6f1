//go:build localstack

package localstack

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// proxy stands between one function and its stores, and fails the function's requests as it is told.
type proxy struct {
	url string

	mu   sync.Mutex // guards what follows
	rule func(n int, r *http.Request) verdict
	seen int
}

// verdict is what happens to a request. The zero verdict lets it pass.
type verdict struct {
	// body, if any, is a store's refusal, with the status.
	status int
	body   string
	// held, if any, is closed when the request is under way; the request is then let go by release, unanswered.
	held, release chan struct{}
	// done lets the store do what a held request asks.
	done bool
}

const (
	throttled = `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"The level of configured provisioned throughput for the table was exceeded."}`
	slowDown  = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`
)

// ofTable tells a request to the table from one to the bucket.
func ofTable(r *http.Request) bool { return r.Header.Get("X-Amz-Target") != "" }

func newProxy(t *testing.T, e *endpoint) *proxy {
	t.Helper()
	target, err := url.Parse(e.url)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	forward := &httputil.ReverseProxy{
		Transport: e.client.Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := p.judge(r)
		switch {
		case v.body != "":
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			if strings.HasPrefix(v.body, "<") {
				w.Header().Set("Content-Type", "application/xml")
			}
			w.WriteHeader(v.status)
			_, _ = w.Write([]byte(v.body))
		case v.held != nil:
			if v.done {
				forward.ServeHTTP(httptest.NewRecorder(), r)
			}
			close(v.held)
			<-v.release
			panic(http.ErrAbortHandler)
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *proxy) judge(r *http.Request) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	if p.rule == nil {
		return verdict{}
	}
	return p.rule(p.seen, r)
}

// set gives the proxy a rule, which is told each request's number since then; nil lets all pass.
func (p *proxy) set(rule func(n int, r *http.Request) verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule, p.seen = rule, 0
}

// lambdaFunction is what Lambda's API tells of a function.
type lambdaFunction struct {
	FunctionName string
	Environment  struct{ Variables map[string]string }
}

// function finds the deployment's function by its construct id.
func (d *deployment) function(t *testing.T, id string) lambdaFunction {
	t.Helper()
	marker := ""
	for {
		var page struct {
			Functions  []lambdaFunction
			NextMarker string
		}
		d.service(t, "lambda", "GET", "/2015-03-31/functions/?Marker="+url.QueryEscape(marker), "", nil, &page)
		for _, f := range page.Functions {
			if strings.HasPrefix(f.FunctionName, d.stack+"-") && strings.Contains(f.FunctionName, id) && f.Environment.Variables["SPILLWAY_TABLE"] == d.TableName {
				return f
			}
		}
		if marker = page.NextMarker; marker == "" {
			t.Fatalf("%s has no function %s", d.stack, id)
		}
	}
}

// with changes variables of a function's environment, and gives what puts them back: to be deferred, since at a
// test's cleanup its context is over.
func (d *deployment) with(t *testing.T, f lambdaFunction, variables map[string]string) (restore func()) {
	t.Helper()
	path := "/2015-03-31/functions/" + f.FunctionName + "/configuration"
	changed := object{}
	for k, v := range f.Environment.Variables {
		changed[k] = v
	}
	for k, v := range variables {
		changed[k] = v
	}
	d.service(t, "lambda", "PUT", path, "", object{"Environment": object{"Variables": changed}}, &object{})
	return func() {
		d.service(t, "lambda", "PUT", path, "", object{"Environment": object{"Variables": f.Environment.Variables}}, &object{})
	}
}

// behind puts a proxy between a function and its stores, until restore.
func (d *deployment) behind(t *testing.T, id string) (p *proxy, f lambdaFunction, restore func()) {
	t.Helper()
	p, f = newProxy(t, d.endpoint), d.function(t, id)
	return p, f, d.with(t, f, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": p.url, "AWS_ENDPOINT_URL_S3": p.url})
}

// kill ends the processes that run a function, as a machine that goes down does, and tells how many there were. They
// are known by their environment: the deployment's table and the function's name.
func (d *deployment) kill(t *testing.T, f lambdaFunction) (killed int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		env, err := os.ReadFile(file)
		if err != nil {
			continue // gone, or another user's
		}
		env = append([]byte{0}, env...)
		if !bytes.Contains(env, []byte("\x00AWS_LAMBDA_FUNCTION_NAME="+f.FunctionName+"\x00")) || !bytes.Contains(env, []byte("\x00SPILLWAY_TABLE="+d.TableName+"\x00")) {
			continue
		}
		exe, err := os.Readlink(filepath.Join(filepath.Dir(file), "exe"))
		pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || perr != nil || filepath.Base(exe) != "bootstrap" {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed++
		}
	}
	return killed
}

// start makes a call beside the test. An answer without a status is that of a call that failed.
func (d *deployment) start(t *testing.T, method, path string, in any) <-chan answer {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req := d.request(t, method, path, body)
	out := make(chan answer, 1)
	go func() {
		a, err := d.send(t.Context(), "execute-api", req, body)
		if err != nil {
			a.body = []byte(err.Error())
		}
		out <- a
	}()
	return out
}

// await waits for what must happen soon.
func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(40 * time.Second):
		t.Fatalf("not within 40 s: %s", what)
	}
	return v
}
