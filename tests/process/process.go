// Package process runs the built server as a process of its own, for tests that end it the hard way.
//
// Invariants: one server process after another, on one address and one data folder; none outlives its test.
package process

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds the wait for a server that starts.
	patience = 20 * time.Second
	// logShown is how many bytes of the log's end a test that fails shows.
	logShown = 8000
)

// Server is one spillway process after another. Not safe for concurrent use, but for Pool.
type Server struct {
	// Addr is where it listens: "127.0.0.1:8080".
	Addr string
	// Pool has the connections of the test's clients; those to a process that was killed are closed.
	Pool *http.Transport

	t      *testing.T
	binary string
	data   string
	log    *os.File
	cmd    *exec.Cmd
}

// New builds the server and chooses an address; Start runs it. It is killed when the test ends, and its log
// shown if the test has failed.
func New(t *testing.T) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{
		t: t, binary: filepath.Join(dir, "spillway"), data: filepath.Join(dir, "data"), Addr: freeAddress(t),
		Pool: &http.Transport{MaxIdleConnsPerHost: 64},
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.binary, "github.com/spillway-mq/spillway/cmd/spillway") // #nosec G204 -- a folder of the test
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	var err error
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if log, err := os.ReadFile(s.log.Name()); err == nil && t.Failed() {
			t.Logf("the server's log ends:\n%s", log[max(0, len(log)-logShown):])
		}
	})
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// URL is where the server answers.
func (s *Server) URL() string { return "http://" + s.Addr }

// Start runs the server and waits until it is ready.
func (s *Server) Start() {
	s.t.Helper()
	s.cmd = exec.CommandContext(s.t.Context(), s.binary, "serve", "--listen", s.Addr, "--data", s.data) // #nosec G204 -- what New built
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Transport: s.Pool}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL()+"/readyz", nil)
		if err != nil {
			s.t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
	}
	s.t.Fatalf("the server is not ready after %v", patience)
}

// Kill ends the server as a power cut would end the process: no handler runs.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
	s.cmd = nil
	s.Pool.CloseIdleConnections()
}
