//go:build linux

package soak

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Bounds of what the server may hold once a round has ended, however long it has run: memory of its own (not the
// mapped file), open files, goroutines. Of the disk it may have three quarters: what nobody reaches any more stays until
// the compactor has come by, and its files until all in them is as old.
const (
	maxMemory     = 400 << 20
	maxFiles      = 256
	maxGoroutines = 400
	reportEvery   = time.Minute
)

// usage is what the process holds.
type usage struct{ memory, files, goroutines int64 }

func (s *soak) usage() (u usage) {
	proc := "/proc/" + strconv.Itoa(s.server.PID())
	if status, err := os.ReadFile(filepath.Join(proc, "status")); err == nil {
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				u.memory = kb << 10
			}
		}
	}
	if files, err := os.ReadDir(filepath.Join(proc, "fd")); err == nil {
		u.files = int64(len(files))
	}
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.server.URL()+"/metrics", nil)
	if err != nil {
		return u
	}
	resp, err := (&http.Client{Transport: s.server.Pool, Timeout: 5 * time.Second}).Do(req)
	if err != nil {
		return u
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			u.goroutines = int64(n)
		}
	}
	return u
}

// bounds holds what the server holds at rest against what it may.
func (s *soak) bounds() {
	s.server.Pool.CloseIdleConnections()
	_ = pause(s.ctx, 200*time.Millisecond)
	u := s.usage()
	if used := s.disk.used(); used > s.disk.size/4*3 {
		s.fail("the data folder takes %d MB", used>>20)
	}
	if u.memory > maxMemory || u.files > maxFiles || u.goroutines > maxGoroutines || u.memory*u.files*u.goroutines == 0 {
		s.fail("at rest the server holds %d MB, %d files, %d goroutines", u.memory>>20, u.files, u.goroutines)
	}
}

// report prints a line each minute.
func (s *soak) report() {
	for pause(s.ctx, reportEvery) == nil {
		s.line("now")
	}
}

func (s *soak) line(what string) {
	u := s.usage()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, most := s.clock.shift()
	s.t.Logf("%s %v: round %d; %d messages in, %d out; faults: %s; clock %v (at most %v); refused: %s; memory %d MB, files %d, goroutines %d, disk %d MB",
		what, time.Since(s.start).Round(time.Second), s.round, s.inLocked(), s.outLocked(), listed(s.struck), now, most, s.count,
		u.memory>>20, u.files, u.goroutines, s.disk.used()>>20)
}

// in and out are the messages that were acknowledged to their producers, and the acks that were confirmed.
func (s *soak) in() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inLocked()
}

func (s *soak) inLocked() int {
	n := s.done[0]
	for _, l := range s.live {
		l.ledger.mu.Lock()
		n += l.ledger.in
		l.ledger.mu.Unlock()
	}
	return n
}

func (s *soak) out() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outLocked()
}

func (s *soak) outLocked() int {
	n := s.done[1]
	for _, l := range s.live {
		l.ledger.mu.Lock()
		n += l.ledger.out
		l.ledger.mu.Unlock()
	}
	return n
}

// settle is how long the compactor gets, at the end of a run of at least settleAfter, to remove everything that nobody
// reaches any more.
const (
	settleAfter = 30 * time.Minute
	settleFor   = 10 * time.Minute
)

// close deletes everything, and looks into what is left: nothing that can be reached may be missing, and after a long
// run nothing else may be there.
func (s *soak) close(span time.Duration) {
	for _, l := range s.long {
		s.remove(l)
	}
	if span >= settleAfter && !s.t.Failed() {
		s.settle()
	}
	if err := s.server.Stop(stopPatience); err != nil {
		s.fail("stop at the end: %v", err)
	}
	shift, _ := s.clock.shift()
	found, err := audit(s.ctx, s.disk.data(), time.Now().Add(shift))
	if err != nil {
		s.fail("audit: %v", err)
	}
	for i, lost := range found.Lost {
		if i < maxWrong {
			s.fail("lost: %s", lost)
		}
	}
	if span < settleAfter || s.t.Failed() {
		return
	}
	for i, leaked := range found.Leaked {
		if i < maxWrong {
			s.fail("leaked, one of %d: %s", len(found.Leaked), leaked)
		}
	}
}

// settle lets the compactor look several times, two minutes apart, each time more than a day later: an upload is kept
// for a day, what is replaced for an hour.
func (s *soak) settle() {
	for end := time.Now().Add(settleFor); time.Now().Before(end); _ = pause(s.ctx, 2*time.Minute) {
		now, most := s.clock.shift()
		s.clock.set(max(now, most) + 26*time.Hour)
	}
	s.must(s.probe())
}
