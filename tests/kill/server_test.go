package kill

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/tests/load"
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

// URL implements load.Target.
func (s *server) URL() string { return "http://" + s.addr }

// Do implements load.Target.
func (s *server) Do(req *http.Request) ([]byte, int, error) { return load.Send(s.client, req) }

// call makes one API call, as load.Call.
func (s *server) call(ctx context.Context, method, path string, in, out any) error {
	return load.Call(ctx, s, load.Request{Method: method, Path: path, In: in}, out)
}
