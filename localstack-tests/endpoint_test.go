//go:build localstack

package localstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	account = "000000000000" // every emulator's, unless told otherwise
	region  = "us-east-1"
)

// endpoint is the emulator: what all deployments on it share.
type endpoint struct {
	url    string
	client *http.Client
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	raw := strings.TrimSuffix(os.Getenv("AWS_ENDPOINT_URL"), "/")
	u, err := url.Parse(raw)
	if raw == "" || err != nil || u.Host == "" {
		t.Fatalf("AWS_ENDPOINT_URL names no emulator: %q; `make test-aws` starts one", raw)
	}
	if strings.HasSuffix(u.Hostname(), "amazonaws.com") {
		t.Fatal("AWS_ENDPOINT_URL is AWS itself: these tests are for emulators")
	}
	transport := &http.Transport{}
	if bundle := os.Getenv("AWS_CA_BUNDLE"); bundle != "" {
		pem, err := os.ReadFile(bundle)
		if err != nil {
			t.Fatal(err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	return &endpoint{url: raw, client: &http.Client{Timeout: time.Minute, Transport: transport}}
}

// environment is what programs that speak to the endpoint are given.
func (e *endpoint) environment() []string {
	return append(os.Environ(),
		"AWS_ENDPOINT_URL="+e.url, "AWS_ENDPOINT_URL_S3="+e.url, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_REGION="+region, "AWS_DEFAULT_REGION="+region, "CDK_DEFAULT_ACCOUNT="+account, "CDK_DEFAULT_REGION="+region)
}

// answer is what an HTTP call came to.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) String() string {
	return fmt.Sprintf("%d %.600s", a.status, a.body)
}

// into decodes the answer, which must have the status 200 or 201.
func (a answer) into(t *testing.T, out any) {
	t.Helper()
	if a.status != http.StatusOK && a.status != http.StatusCreated {
		t.Fatalf("answer: %v", a)
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		t.Fatalf("answer %v: %v", a, err)
	}
}

// code is the answer's error code; empty if it has none.
func (a answer) code() string {
	var e struct {
		Error struct{ Code string }
	}
	_ = json.Unmarshal(a.body, &e)
	return e.Error.Code
}

// sign signs a request by SigV4; hash is the body's SHA-256 in hex.
func sign(ctx context.Context, service string, req *http.Request, hash string) error {
	credentials := aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}
	return v4.NewSigner().SignHTTP(ctx, credentials, req, hash, service, region, time.Now())
}

// send makes a request, signed for the service unless that is empty.
func (e *endpoint) send(ctx context.Context, service string, req *http.Request, body []byte) (answer, error) {
	if service != "" {
		sum := sha256.Sum256(body)
		if err := sign(ctx, service, req, hex.EncodeToString(sum[:])); err != nil {
			return answer{}, err
		}
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, data}, err
}

// service calls one of AWS's own APIs; target is empty for those that are plain REST.
func (e *endpoint) service(t *testing.T, service, method, path, target string, in, out any) {
	t.Helper()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, e.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if target != "" {
		req.Header.Set("Content-Type", "application/x-amz-json-1.1")
		req.Header.Set("X-Amz-Target", target)
	}
	a, err := e.send(t.Context(), service, req, body)
	if err != nil {
		t.Fatalf("%s: %v", service, err)
	}
	a.into(t, out)
}

// logs reads the newest lines of a function's log, by the deployment's and the function's name.
func (e *endpoint) logs(t *testing.T, stack, function string) []string {
	t.Helper()
	const target = "Logs_20140328."
	var groups struct {
		LogGroups []struct{ LogGroupName string }
	}
	e.service(t, "logs", "POST", "/", target+"DescribeLogGroups", map[string]any{}, &groups)
	var lines []string
	for _, g := range groups.LogGroups {
		if !strings.Contains(g.LogGroupName, stack) || !strings.Contains(g.LogGroupName, function+"Logs") {
			continue
		}
		token := ""
		for {
			in := map[string]any{"logGroupName": g.LogGroupName}
			if token != "" {
				in["nextToken"] = token
			}
			var page struct {
				Events    []struct{ Message string }
				NextToken string
			}
			e.service(t, "logs", "POST", "/", target+"FilterLogEvents", in, &page)
			for _, event := range page.Events {
				lines = append(lines, event.Message)
			}
			if page.NextToken == "" || page.NextToken == token {
				break
			}
			token = page.NextToken
		}
	}
	return lines
}

// run is a scheduled run as the function's metrics tell of it.
type run struct {
	Runs, Faults, Promoted, Deleted int
	Table                           string
	// OldestMessageAge is in seconds; nil where the line has none.
	OldestMessageAge *float64
}

func (e *endpoint) runs(t *testing.T, stack, function string) []run {
	t.Helper()
	var out []run
	for _, line := range e.logs(t, stack, function) {
		var r run
		if err := json.Unmarshal([]byte(line), &r); err == nil && r.Runs > 0 {
			out = append(out, r)
		}
	}
	return out
}

// hasten makes the deployment's schedule of a function fire every minute, which is as often as it can, after
// checking what it was deployed with.
func (e *endpoint) hasten(t *testing.T, stack, function, deployed string) {
	t.Helper()
	var all struct {
		Schedules []struct{ Name, GroupName string }
	}
	e.service(t, "scheduler", "GET", "/schedules", "", nil, &all)
	for _, s := range all.Schedules {
		if !strings.HasPrefix(s.Name, stack+"-") || !strings.Contains(s.Name, function+"Schedule") {
			continue
		}
		var schedule map[string]any
		e.service(t, "scheduler", "GET", "/schedules/"+s.Name, "", nil, &schedule)
		if got := schedule["ScheduleExpression"]; got != deployed {
			t.Errorf("%s is scheduled by %v, want %s", function, got, deployed)
		}
		change := map[string]any{"ScheduleExpression": "rate(1 minute)"}
		for _, keep := range []string{"GroupName", "Target", "FlexibleTimeWindow", "State", "Description"} {
			if v, ok := schedule[keep]; ok {
				change[keep] = v
			}
		}
		e.service(t, "scheduler", "PUT", "/schedules/"+s.Name, "", change, &map[string]any{})
		return
	}
	t.Errorf("%s has no schedule of %s among %v", stack, function, all.Schedules)
}

// eventually waits for what happens by schedule.
func eventually(t *testing.T, patience time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		if done() {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("not within %v: %s", patience, what)
			return
		}
	}
}
