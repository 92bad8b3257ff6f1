//go:build localstack

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds what should take a second on a machine that has other things to do.
const patience = 30 * time.Second

// process is one `spillway serve --aws`.
type process struct {
	name, url string
	cmd       *exec.Cmd
	log       string
	ended     chan struct{}
	// green is what the balancer saw last; killed is set before the process is; served counts answers.
	green, killed atomic.Bool
	served        atomic.Int64
}

// works is what processes are made of.
type works struct {
	dir, binary   string
	table, bucket string
	environment   []string
	count         int
}

func newWorks(t *testing.T) *works {
	t.Helper()
	w := &works{dir: t.TempDir()}
	w.binary = filepath.Join(w.dir, "spillway")
	if out, err := exec.Command("go", "build", "-o", w.binary, "github.com/spillway-mq/spillway/cmd/spillway").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	w.table, w.bucket = newStores(t)
	w.environment = asDocumented(t, w.table, w.bucket)
	return w
}

// start runs one more process and waits until it listens.
func (w *works) start(t *testing.T) *process {
	t.Helper()
	return w.startAs(t, w.environment)
}

// startAs is start with an environment of the process' own.
func (w *works) startAs(t *testing.T, environment []string) *process {
	t.Helper()
	w.count++
	p := &process{name: fmt.Sprintf("process %d", w.count), ended: make(chan struct{})}
	address := filepath.Join(w.dir, fmt.Sprintf("url.%d", w.count))
	p.log = filepath.Join(w.dir, fmt.Sprintf("log.%d", w.count))
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(w.binary, "serve", "--aws", "--table", w.table, "--bucket", w.bucket,
		"--listen", "127.0.0.1:0", "--address-file", address, "--drain-delay", drainDelay.String())
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environment, log, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.killed.Store(true)
		_ = p.cmd.Process.Kill()
		<-p.ended
		if text, err := os.ReadFile(p.log); t.Failed() && err == nil {
			t.Logf("the log of %s ends:\n%s", p.name, text[max(0, len(text)-3000):])
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(address); err == nil {
			p.url = strings.TrimSpace(string(text))
			return p
		}
		select {
		case <-p.ended:
			t.Fatalf("%s has ended", p.name)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen", p.name)
		}
	}
}

// ready asks /readyz.
func (p *process) ready(ctx context.Context, c *http.Client) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// stop tells the process to stop, and wants it to end well: ready no more while it still answers, then exit code 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	select {
	case <-p.ended:
	case <-time.After(patience + drainDelay):
		t.Errorf("%s does not stop", p.name)
		return
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("%s ended with exit code %d", p.name, code)
	}
	if took := time.Since(began); took < drainDelay {
		t.Errorf("%s ended after %v, within its drain delay", p.name, took)
	}
}
