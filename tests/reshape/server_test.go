package reshape

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// server is one spillway process after another, on one address and one data folder. It notes every answer of
// 400 or above to calls that no change may fail.
type server struct {
	t      *testing.T
	binary string
	data   string
	addr   string
	log    *os.File
	cmd    *exec.Cmd
	pool   *http.Transport

	mu      sync.Mutex // guards refused
	refused []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, binary: filepath.Join(dir, "spillway"), data: filepath.Join(dir, "data"), addr: l.Addr().String()}
	_ = l.Close()
	build := exec.Command("go", "build", "-o", s.binary, "github.com/spillway-mq/spillway/cmd/spillway")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	s.pool = &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(func() {
		s.kill()
		if log, err := os.ReadFile(s.log.Name()); err == nil && t.Failed() {
			t.Logf("the server's log ends:\n%s", log[max(0, len(log)-6000):])
		}
	})
	return s
}

// start runs the server and waits until it is ready.
func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.binary, "serve", "--listen", s.addr, "--data", s.data)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	const patience = 20 * time.Second
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get("http://" + s.addr + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
	}
	s.t.Fatalf("the server is not ready after %v", patience)
}

// kill ends the server as a power cut would end the process: no handler runs.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
	s.cmd = nil
	s.pool.CloseIdleConnections()
}

// client gives a client of the server that tries each call as often as attempts says.
func (s *server) client(attempts int) *client.Client {
	s.t.Helper()
	c, err := client.New("http://"+s.addr, client.Options{
		HTTPClient: &http.Client{Transport: s},
		Retry:      client.RetryPolicy{Attempts: attempts, MinDelay: 10 * time.Millisecond, MaxDelay: 100 * time.Millisecond},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// neverRefused are the ends of paths of calls that no change of segments may fail.
var neverRefused = []string{"/messages", "/claims", "/ack", "/release", "/records", "/segments", "/events", "/seek"}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.pool.RoundTrip(r)
	if err != nil || resp.StatusCode < http.StatusBadRequest {
		return resp, err
	}
	if slices.ContainsFunc(neverRefused, func(end string) bool { return strings.HasSuffix(r.URL.Path, end) }) {
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(strings.NewReader(string(body)))
		if strings.Contains(string(body), string(queue.CodeIdempotencyInProgress)) {
			return resp, err // what is left of a call that a kill cut off
		}
		s.mu.Lock()
		s.refused = append(s.refused, fmt.Sprintf("%s %s: %d %s", r.Method, r.URL.Path, resp.StatusCode, body))
		s.mu.Unlock()
	}
	return resp, err
}
