//go:build linux

package soak

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// clock is the server's wall clock: this machine's, off by a shift that the test sets and remembers. Safe for concurrent
// use.
type clock struct {
	path string
	mem  []byte

	mu     sync.Mutex // guards all below
	shifts []shifted  // in order of time, none empty
	most   time.Duration
}

// shifted is a time in which the shift was by; the last one has no end.
type shifted struct {
	from, to time.Time
	by       time.Duration
}

func newClock(t *testing.T) *clock {
	t.Helper()
	c := &clock{path: filepath.Join(t.TempDir(), "clock"), shifts: []shifted{{from: time.Now().Add(-time.Hour)}}}
	f, err := os.Create(c.path)
	if err == nil {
		err = f.Truncate(int64(os.Getpagesize()))
	}
	if err == nil {
		c.mem, err = syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(c.mem); _ = f.Close() })
	return c
}

// set jumps, to whole seconds.
func (c *clock) set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by = by.Truncate(time.Second)
	before := time.Now()
	atomic.StoreInt64((*int64)(unsafe.Pointer(&c.mem[0])), int64(by/time.Second)) // #nosec G103 -- the page is the server's, too
	c.shifts[len(c.shifts)-1].to = time.Now()
	c.shifts = append(c.shifts, shifted{from: before, by: by})
	c.most = max(c.most, by)
}

// shift is how far the clock is off now, and the most it ever was.
func (c *clock) shift() (now, most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shifts[len(c.shifts)-1].by, c.most
}

// latest is the latest time that the server's clock can have shown from one time of the machine's clock to another.
func (c *clock) latest(from, to time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var latest time.Time
	for i := range c.shifts {
		s := &c.shifts[i]
		end := to
		if i < len(c.shifts)-1 && s.to.Before(to) {
			end = s.to
		}
		if s.from.After(to) || end.Before(from) {
			continue
		}
		if at := end.Add(s.by); at.After(latest) {
			latest = at
		}
	}
	return latest
}

// spread is how far apart the least and the most shift from a time until now are.
func (c *clock) spread(from time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.shifts) - 1
	least, most := c.shifts[last].by, c.shifts[last].by
	for i := last - 1; i >= 0 && c.shifts[i].to.After(from); i-- {
		least, most = min(least, c.shifts[i].by), max(most, c.shifts[i].by)
	}
	return most - least
}

// forget drops what was before a time.
func (c *clock) forget(before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.shifts) > 1 && c.shifts[0].to.Before(before) {
		c.shifts = c.shifts[1:]
	}
}

// overlay writes what go build -overlay takes: the standard library's time.Now gets a name of its own, and shift.go
// is added beside it.
func overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const now = "\nfunc Now() Time {\n"
	if strings.Count(string(source), now) != 1 {
		t.Fatal("the standard library's time.Now has another form than the overlay knows")
	}
	patched := filepath.Join(dir, "time.go")
	if err := os.WriteFile(patched, []byte(strings.Replace(string(source), now, "\nfunc unshifted() Time {\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Abs(filepath.Join("testdata", "shift.go"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(library, "time.go"): patched, filepath.Join(library, "shift.go"): own,
	}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
