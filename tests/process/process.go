// Package process runs the built server as a process of its own, for tests that end it the hard way.
//
// Invariants: one server process after another, on one address and one data folder; none outlives its test.
package process

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
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

// Server is one spillway process after another. Not safe for concurrent use, but for Pool and PID.
type Server struct {
	// Addr is where it listens: "127.0.0.1:8080".
	Addr string
	// Pool has the connections of the test's clients; those to a process that was killed are closed.
	Pool *http.Transport

	t      *testing.T
	o      Options
	binary string
	log    *os.File
	cmd    *exec.Cmd
	pid    atomic.Int64
	ended  chan struct{} // closed when cmd has ended
}

// Options are how a server differs from `spillway serve` on a folder of the test's own, which the zero value is.
type Options struct {
	// Build are the arguments of go build, after its -o.
	Build []string
	// Args are the arguments of the program, given where to listen and where the data is.
	Args func(addr, data string) []string
	// Data is the data folder.
	Data string
}

// New is NewWith the zero Options.
func New(t *testing.T) *Server {
	t.Helper()
	return NewWith(t, Options{})
}

// NewWith builds the server and chooses an address; Start runs it. It is killed when the test ends, and its log
// shown if the test has failed.
func NewWith(t *testing.T, o Options) *Server {
	t.Helper()
	dir := t.TempDir()
	if o.Build == nil {
		o.Build = []string{"github.com/spillway-mq/spillway/cmd/spillway"}
	}
	if o.Args == nil {
		o.Args = func(addr, data string) []string { return []string{"serve", "--listen", addr, "--data", data} }
	}
	if o.Data == "" {
		o.Data = filepath.Join(dir, "data")
	}
	s := &Server{
		t: t, o: o, binary: filepath.Join(dir, "spillway"), Addr: freeAddress(t),
		Pool: &http.Transport{MaxIdleConnsPerHost: 64},
	}
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", s.binary}, o.Build...)...) // #nosec G204 -- the test's own
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
	if err := s.TryStart(); err != nil {
		s.t.Fatal(err)
	}
}

// TryStart is Start for a server that may be unable to; then it has ended.
func (s *Server) TryStart() error {
	s.cmd = exec.CommandContext(s.t.Context(), s.binary, s.o.Args(s.Addr, s.o.Data)...) // #nosec G204 -- what NewWith built
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	s.pid.Store(int64(s.cmd.Process.Pid))
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait()
	}(s.cmd, s.ended)
	client := &http.Client{Transport: s.Pool}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.ended:
			err := fmt.Errorf("the server has ended: %s", s.cmd.ProcessState)
			s.gone()
			return err
		default:
		}
		req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL()+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	s.Kill()
	return fmt.Errorf("the server is not ready after %v", patience)
}

// PID is the process that runs; 0 if none does. It may be called at any time.
func (s *Server) PID() int { return int(s.pid.Load()) }

// Log is the file that the server's log goes to.
func (s *Server) Log() string { return s.log.Name() }

// Signal sends the process a signal.
func (s *Server) Signal(sig syscall.Signal) error {
	if s.cmd == nil {
		return os.ErrProcessDone
	}
	return s.cmd.Process.Signal(sig)
}

// Stop ends the server in order, by SIGTERM. One that does not end in time is killed, which is an error, as is
// one that ends with another code than 0.
func (s *Server) Stop(within time.Duration) error {
	if err := s.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(within):
		s.Kill()
		return fmt.Errorf("the server did not end within %v", within)
	}
	state := s.cmd.ProcessState
	s.gone()
	if !state.Success() {
		return errors.New("the server ended with " + state.String())
	}
	return nil
}

// Kill ends the server as a power cut would end the process: no handler runs.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.ended
	s.gone()
}

func (s *Server) gone() {
	s.cmd = nil
	s.pid.Store(0)
	s.Pool.CloseIdleConnections()
}
