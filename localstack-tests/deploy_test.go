//go:build localstack

package localstack

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// workshop is what deployments are made with: the built functions, and the CDK's command line.
type workshop struct {
	*endpoint
	root, dir string
}

// newWorkshop builds the functions for this machine and bootstraps the account.
func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{endpoint: newEndpoint(t), root: root, dir: t.TempDir()}
	w.command(t, 5*time.Minute, "go", "run", "./tools/functions", "-arch", runtime.GOARCH, "-starts", "0", "-out", w.code())
	w.cdk(t, "bootstrap", "aws://"+account+"/"+region, "-c", "code="+w.code())
	return w
}

func (w *workshop) code() string { return filepath.Join(w.dir, "build") }

// cdk runs the CDK's command line: the pinned one, which tools/cdk installs if it is not there.
func (w *workshop) cdk(t *testing.T, command string, args ...string) {
	t.Helper()
	// An emulator that does not know a resource may leave it in progress for ever.
	w.command(t, 6*time.Minute, filepath.Join(w.root, "tools", "cdk"), append([]string{command}, args...)...)
}

// command runs a program in the module's folder, and ends it and its children if it takes too long.
func (w *workshop) command(t *testing.T, patience time.Duration, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = w.root, w.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, output.Bytes()[max(0, output.Len()-8000):])
	}
	t.Logf("%s %s: %.1f s", filepath.Base(name), args[0], time.Since(began).Seconds())
}

// deployment is one stack and its API.
type deployment struct {
	*endpoint
	stack, api                             string
	ApiUrl, TableName, BucketName, Version string //nolint:revive // the stack's outputs have these names
}

// deploy makes or changes a deployment. More context goes to the CDK as it is.
func (w *workshop) deploy(t *testing.T, stack string, context ...string) *deployment {
	t.Helper()
	outputs := filepath.Join(w.dir, stack+".json")
	args := []string{
		stack, "--outputs-file", outputs, "--output", filepath.Join(w.dir, "cdk"), "--require-approval", "never", "--progress", "events",
		"-c", "arch=" + runtime.GOARCH, "-c", "code=" + w.code(), "-c", "stack=" + stack,
	}
	for _, c := range context {
		args = append(args, "-c", c)
	}
	w.cdk(t, "deploy", args...)
	data, err := os.ReadFile(outputs)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*deployment{}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	d := all[stack]
	if d == nil || d.TableName == "" || d.BucketName == "" || d.Version == "" {
		t.Fatalf("outputs of %s: %s", stack, data)
	}
	// The URL that the stack tells is AWS's, or a name under the emulator's domain: what emulators have in
	// common is the path below their own address, with the API's id.
	u, err := url.Parse(d.ApiUrl)
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(u.Hostname(), ".")
	d.endpoint, d.stack, d.api = w.endpoint, stack, w.url+"/_aws/execute-api/"+id+"/$default"
	return d
}

// call makes a signed call of the API.
func (d *deployment) call(t *testing.T, method, path string, in any, headers ...string) answer {
	t.Helper()
	var body []byte
	switch in := in.(type) {
	case nil:
	case string:
		body = []byte(in)
	case []byte:
		body = in
	default:
		var err error
		if body, err = json.Marshal(in); err != nil {
			t.Fatal(err)
		}
	}
	req := d.request(t, method, path, body, headers...)
	a, err := d.send(t.Context(), "execute-api", req, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (d *deployment) request(t *testing.T, method, path string, body []byte, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.api+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// fetch does what a presigned URL is for, without credentials.
func (e *endpoint) fetch(t *testing.T, method, address string, headers map[string]string, body []byte) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range headers {
		if !strings.EqualFold(k, "Content-Length") && !strings.EqualFold(k, "Host") { // net/http sends these itself
			req.Header.Set(k, v)
		}
	}
	a, err := e.send(t.Context(), "", req, body)
	if err != nil {
		t.Fatalf("%s of a presigned URL: %v", method, err)
	}
	return a
}
