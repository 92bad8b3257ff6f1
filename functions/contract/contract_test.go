//go:build rie

package contract_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/functions/internal/cloudtest"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// bench is the four built functions and one cloud for them.
type bench struct {
	*cloudtest.Cloud
	code             string
	dynamo, s3, tool string
}

var names = []string{"produce", "consume", "leader", "compactor"}

func newBench(t *testing.T) *bench {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Cloud: cloudtest.New(t), code: t.TempDir(), tool: filepath.Join(root, ".tools", "bin", "aws-lambda-rie")}
	if _, err := os.Stat(b.tool); err != nil {
		t.Fatalf("%v: `make test-rie` installs it", err)
	}
	build := exec.CommandContext(t.Context(), "go", "run", "./tools/functions", "-arch", runtime.GOARCH, "-starts", "0", "-out", b.code)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for door, url := range map[*cloudtest.Door]*string{b.Dynamo: &b.dynamo, b.S3: &b.s3} {
		server := httptest.NewServer(door)
		t.Cleanup(server.Close)
		*url = server.URL
	}
	return b
}

// output is what a process prints, safe to be read while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// function is one function under the emulator.
type function struct {
	url string
	out *output
}

func freeAddress(t *testing.T) string {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// start runs a function until the test's end. Its time for a call is in seconds.
func (b *bench) start(t *testing.T, name, seconds string) *function {
	t.Helper()
	address := freeAddress(t)
	cmd := exec.CommandContext(t.Context(), b.tool, "--log-level", "error", "--runtime-interface-emulator-address", address,
		"--runtime-api-address", freeAddress(t), filepath.Join(b.code, name, "bootstrap"))
	f := &function{url: "http://" + address + "/2015-03-31/functions/function/invocations", out: new(output)}
	cmd.Stdout, cmd.Stderr = f.out, f.out
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "AWS_LAMBDA_FUNCTION_NAME=" + name, "AWS_LAMBDA_FUNCTION_TIMEOUT=" + seconds, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
		"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_ENDPOINT_URL_DYNAMODB=" + b.dynamo, "AWS_ENDPOINT_URL_S3=" + b.s3,
		"SPILLWAY_TABLE=" + cloudtest.Table, "SPILLWAY_BUCKET=" + cloudtest.Bucket, "SPILLWAY_LOG_LEVEL=debug",
	}
	// The function is the emulator's child: both end as one group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s printed:\n%.4000s", name, f.out)
		}
	})
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = c.Close()
			return f
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("the emulator does not listen: %v", err)
		}
	}
}

// invoke sends an event and gives the answer as it is.
func (f *function) invoke(t *testing.T, event string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, strings.NewReader(event))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type answer struct {
	StatusCode      int               `json:"statusCode"`
	Headers         map[string]string `json:"headers"`
	Body            string            `json:"body"`
	IsBase64Encoded bool              `json:"isBase64Encoded"`
	ErrorType       string            `json:"errorType"`
	ErrorMessage    string            `json:"errorMessage"`
}

// call sends an HTTP call as API Gateway does, by payload format 2.0.
func (f *function) call(t *testing.T, method, path string, body []byte, encoded bool, headers map[string]string) answer {
	t.Helper()
	text := string(body)
	if encoded {
		text = base64.StdEncoding.EncodeToString(body)
	}
	raw, query, _ := strings.Cut(path, "?")
	given := map[string]string{"content-type": "application/json"}
	for k, v := range headers {
		given[k] = v
	}
	event, err := json.Marshal(map[string]any{
		"version": "2.0", "routeKey": method + " " + raw, "rawPath": raw, "rawQueryString": query, "headers": given,
		"body": text, "isBase64Encoded": encoded,
		"requestContext": map[string]any{
			"accountId": "000000000000", "apiId": "a", "domainName": "a.execute-api.us-east-1.amazonaws.com", "stage": "$default", "requestId": "r",
			"http": map[string]string{"method": method, "path": raw, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1", "userAgent": "test"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f.decode(t, f.invoke(t, string(event)))
}

func (f *function) decode(t *testing.T, data []byte) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("the answer is no JSON: %v: %.500s", err, data)
	}
	return a
}

const schedule = `{"source":"aws.scheduler","time":"2026-11-30T00:00:00Z"}`

// TestContract is one test because its parts share the built functions.
func TestContract(t *testing.T) {
	b := newBench(t)
	functions := map[string]*function{}
	for _, name := range names {
		functions[name] = b.start(t, name, "20")
	}
	leader, produce, consume := functions["leader"], functions["produce"], functions["consume"]
	must := func(t *testing.T, a answer, status int, part string) {
		t.Helper()
		if a.StatusCode != status || !strings.Contains(a.Body, part) || a.ErrorMessage != "" {
			t.Errorf("%d %.400s %s, want %d with %q", a.StatusCode, a.Body, a.ErrorMessage, status, part)
		}
	}
	t.Run("calls one after another", func(t *testing.T) {
		must(t, leader.call(t, "PUT", "/v1/topics/t", []byte(`{}`), false, nil), 201, `"name":"t"`)
		must(t, consume.call(t, "PUT", "/v1/topics/t/subscriptions/s", []byte(`{}`), false, nil), 201, `"name":"s"`)
		for range 3 { // cold, then warm
			must(t, produce.call(t, "POST", "/v1/topics/t/messages", []byte(`{"messages":[{"body":"text"}]}`), false, nil), 200, `"id"`)
		}
		must(t, consume.call(t, "POST", "/v1/topics/t/subscriptions/s/claims", []byte(`{"max_messages":10}`), false, nil), 200, `"text"`)
	})
	t.Run("rolls after the answer", func(t *testing.T) {
		must(t, leader.call(t, "PUT", "/v1/topics/rolled", []byte(`{}`), false, nil), 201, `"name":"rolled"`)
		var answer struct{ Results []struct{ ID string } }
		for range 2 * queue.RollRefs {
			a := produce.call(t, "POST", "/v1/topics/rolled/messages", []byte(`{"messages":[{"body":"x"}]}`), false, nil)
			must(t, a, 200, `"id"`)
			if err := json.Unmarshal([]byte(a.Body), &answer); err != nil {
				t.Fatal(err)
			}
		}
		id, err := queue.ParseMessageID(answer.Results[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		table := dynamometa.New(b.Client(), cloudtest.Table, dynamometa.Options{})
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			pages, err := table.Query(t.Context(), meta.PagesFrom(id.Segment, 0, 10))
			if err == nil && len(pages.Items) == 2 {
				break
			}
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%d pages, %v, want 2", len(pages.Items), err)
			}
		}
		if out := produce.out.String(); strings.Contains(out, "no extension") {
			t.Errorf("produce is no extension of itself: %.2000s", out)
		}
		for _, f := range []*function{consume, leader} {
			if strings.Contains(f.out.String(), "extension") {
				t.Error("a function that leaves nothing for later is one")
			}
		}
	})
	t.Run("base64 both ways", func(t *testing.T) {
		must(t, produce.call(t, "POST", "/v1/topics/t/messages", []byte(`{"messages":[{"body":"ünï"}]}`), true, nil), 200, `"id"`)
		must(t, produce.call(t, "POST", "/v1/topics/t/messages", []byte{0xff, 0xfe, 0}, true, map[string]string{"content-type": "application/vnd.spillway.batch"}), 400, `"invalid_argument"`)
		a := consume.call(t, "POST", "/v1/topics/t/subscriptions/s/claims", []byte(`{}`), true, map[string]string{"accept": "application/vnd.spillway.batch"})
		if data, err := base64.StdEncoding.DecodeString(a.Body); a.StatusCode != 200 || !a.IsBase64Encoded || err != nil || !bytes.Contains(data, []byte("ünï")) {
			t.Errorf("%d, base 64 %v, %v", a.StatusCode, a.IsBase64Encoded, err)
		}
	})
	t.Run("odd paths", func(t *testing.T) {
		for _, path := range []string{"/v1/topics/%00", "/v1/topics/%E2%98%83", "/v1/topics/a%20b", "/v1/topics/a+b", "/v1/topics/a%2Fb", "/v1/topics/" + strings.Repeat("x", 5000)} {
			must(t, leader.call(t, "GET", path, nil, false, nil), 400, `"invalid_argument"`)
		}
		for _, path := range []string{"", "/", "//", "/v1/../v1/topics", "/nothing"} {
			must(t, leader.call(t, "GET", path, nil, false, nil), 404, `"route_not_found"`)
		}
		must(t, leader.call(t, "GET", "/v1/topics?limit=many&limit=2", nil, false, nil), 400, `"invalid_argument"`)
	})
	t.Run("bodies that are not JSON", func(t *testing.T) {
		for _, body := range []string{"", "{", "null", "[]", "\xff", `{"messages":[]} x`, strings.Repeat("[", 100000)} {
			must(t, produce.call(t, "POST", "/v1/topics/t/messages", []byte(body), false, nil), 400, `"invalid_argument"`)
		}
	})
	t.Run("events that are no HTTP call", func(t *testing.T) {
		for name, f := range functions {
			if name == "compactor" {
				continue // takes any event as its schedule's
			}
			for _, event := range []string{"{}", `{"version":"2.0","body":"%%%","isBase64Encoded":true,"rawPath":"/v1/topics","requestContext":{"http":{"method":"GET"}}}`, `{"Records":[]}`} {
				if a := f.decode(t, f.invoke(t, event)); a.StatusCode < 400 || a.StatusCode > 499 || !strings.Contains(a.Body, `"error"`) {
					t.Errorf("%s, %s: %+v", name, event, a)
				}
			}
			if data := f.invoke(t, `[1,`); bytes.Contains(data, []byte("goroutine")) {
				t.Errorf("%s: an event that is no JSON: %s", name, data)
			}
		}
		// The next call finds the function as it was.
		must(t, produce.call(t, "POST", "/v1/topics/t/messages", []byte(`{"messages":[{"body":"after"}]}`), false, nil), 200, `"id"`)
	})
	t.Run("schedules", func(t *testing.T) {
		for _, f := range []*function{leader, functions["compactor"]} {
			for range 2 {
				if data := f.invoke(t, schedule); string(bytes.TrimSpace(data)) != "null" && len(bytes.TrimSpace(data)) != 0 {
					t.Errorf("a scheduled run: %s", data)
				}
			}
			if !strings.Contains(f.out.String(), `"Runs":1`) {
				t.Error("a scheduled run does not tell of itself")
			}
		}
	})
	t.Run("a scheduled run that fails is an error", func(t *testing.T) {
		b.Dynamo.Set(func(int, *http.Request) cloudtest.Outcome { return cloudtest.Expired })
		defer b.Dynamo.Set(nil)
		for _, name := range []string{"leader", "compactor"} {
			if a := functions[name].decode(t, functions[name].invoke(t, schedule)); a.ErrorType == "" || a.ErrorMessage == "" {
				t.Errorf("%s: %+v", name, a)
			}
		}
	})
	t.Run("a store that hangs", func(t *testing.T) {
		f := b.start(t, "produce", "5")
		must(t, f.call(t, "POST", "/v1/topics/t/messages", []byte(`{"messages":[{"body":"before"}]}`), false, nil), 200, `"id"`)
		b.Dynamo.Set(func(int, *http.Request) cloudtest.Outcome { return cloudtest.Hang })
		a := f.call(t, "POST", "/v1/topics/t/messages", []byte(`{"messages":[{"body":"hangs"}]}`), false, nil)
		b.Dynamo.Set(nil)
		if !strings.Contains(a.Body, `"retryable":true`) || strings.Contains(a.ErrorMessage+a.Body, "timed out") {
			t.Errorf("%+v", a)
		}
		must(t, f.call(t, "POST", "/v1/topics/t/messages", []byte(`{"messages":[{"body":"after"}]}`), false, nil), 200, `"id"`)
	})
	t.Run("a table out of reach", func(t *testing.T) {
		broken := *b
		broken.dynamo = "http://127.0.0.1:1"
		f := broken.start(t, "produce", "10")
		a := f.call(t, "POST", "/v1/topics/t/messages", []byte(`{"messages":[{"body":"nowhere"}]}`), false, nil)
		must(t, a, 503, `"unavailable"`)
	})
}
