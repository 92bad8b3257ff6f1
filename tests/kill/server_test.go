package kill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is one spillway process after another, on one address and one data folder.
type server struct {
	t      *testing.T
	binary string
	data   string
	addr   string
	log    *os.File
	cmd    *exec.Cmd
	client *http.Client
}

func newServer(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, binary: filepath.Join(dir, "spillway"), data: filepath.Join(dir, "data"), addr: freeAddress(t)}
	build := exec.Command("go", "build", "-o", s.binary, "github.com/spillway-mq/spillway/cmd/spillway")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	var err error
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	s.client = &http.Client{
		Timeout:   15 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			if log, err := os.ReadFile(s.log.Name()); err == nil {
				t.Logf("the server's log ends:\n%s", log[max(0, len(log)-8000):])
			}
		}
	})
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
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
		resp, err := s.client.Get("http://" + s.addr + "/readyz")
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
	s.client.CloseIdleConnections()
}

// errDown: the server did not answer, so whether it did what it was asked is not known.
var errDown = errors.New("no answer")

// call makes one API call. Its error is errDown, or says what the server refused.
func (s *server) call(ctx context.Context, method, path string, headers map[string]string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	data, status, err := s.do(req)
	if err != nil {
		return err
	}
	if status >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %d %s", method, path, status, strings.TrimSpace(string(data)))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: %w in %s", method, path, err, data)
	}
	return nil
}

func (s *server) do(req *http.Request) ([]byte, int, error) {
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, 0, errDown
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0, errDown
	}
	return data, resp.StatusCode, nil
}
