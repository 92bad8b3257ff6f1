package boltmeta

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
)

// residentFile is how much of mapped files counts as memory of this process, in KiB.
func residentFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestOpenAfterCrashTakesNoMemory: the walk of a file that was not closed leaves nothing in memory, and
// what was read can be let go of.
func TestOpenAfterCrashTakesNoMemory(t *testing.T) {
	const payloads, size = 100, 300 << 10
	path := filepath.Join(t.TempDir(), "meta.db")
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range payloads {
		must(t, s, meta.Put{Record: &meta.Payload{ID: fmt.Sprintf("%04d", n), Data: make([]byte, size)}, If: meta.Absent(), Version: 1})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// As a killed process leaves it: without a list of free pages.
	db, err := openFile(path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(createBuckets); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	const most = payloads * size / 4 / 1024
	before := residentFile(t)
	if s, err = Open(path, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the end of the test
	if grown := residentFile(t) - before; grown > most {
		t.Errorf("opening takes %d KiB", grown)
	}
	for n := range payloads {
		if _, err := s.Get(t.Context(), meta.PayloadKey(fmt.Sprintf("%04d", n))); err != nil {
			t.Fatal(err)
		}
	}
	if grown := residentFile(t) - before; grown < most {
		t.Errorf("reading all takes %d KiB: the test measures nothing", grown)
	}
	s.forget()
	if grown := residentFile(t) - before; grown > most {
		t.Errorf("%d KiB are not let go of", grown)
	}
	if _, err := s.Get(t.Context(), meta.PayloadKey("0007")); err != nil {
		t.Error(err)
	}
}
