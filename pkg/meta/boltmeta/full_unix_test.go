//go:build unix

package boltmeta_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/boltmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// beginFull opens a new file where there is room for a part of its first pages only, or for none.
func beginFull(path string) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	was := limit.Cur
	for pages := range uint64(4) {
		limit.Cur = pages * uint64(os.Getpagesize()) // #nosec G115 -- a size
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		if s, err := boltmeta.Open(path, boltmeta.Options{}); !queue.Is(err, queue.KindFull) {
			return fmt.Errorf("room for %d pages: %v, %w, want storage full", pages, s, err)
		}
	}
	limit.Cur = was
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// fillUp writes until the file may not grow (a limit of the process stands in for a full disk), then
// lifts the limit and writes on.
func fillUp(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	if err := beginFull(path); err != nil {
		return err
	}
	s, err := boltmeta.Open(path, boltmeta.Options{})
	if err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	was := limit.Cur
	limit.Cur = 1 << 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	ctx := context.Background()
	put := func(n int) error {
		_, err := s.Apply(ctx, meta.Put{Record: &meta.Payload{ID: fmt.Sprint(n), Data: make([]byte, 8000)}, If: meta.Absent(), Version: 1})
		return err
	}
	n := 0
	for ; err == nil && n < 10_000; n++ {
		err = put(n)
	}
	n-- // refused
	if !queue.Is(err, queue.KindFull) {
		return fmt.Errorf("after %d puts: %w, want storage full", n, err)
	}
	if _, err := s.Get(ctx, meta.PayloadKey(fmt.Sprint(n-1))); err != nil {
		return fmt.Errorf("read on a full disk: %w", err)
	}
	if _, err := s.Get(ctx, meta.PayloadKey(fmt.Sprint(n))); !queue.Is(err, queue.KindNotFound) {
		return fmt.Errorf("read of what was refused: %w", err)
	}
	limit.Cur = was
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = put(n); err == nil || !queue.Is(err, queue.KindFull) || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("put after space came back: %w", err)
	}
	if err := s.Close(); err != nil {
		return err
	}
	if s, err = boltmeta.Open(path, boltmeta.Options{}); err != nil {
		return err
	}
	for i := range n + 1 {
		if _, err := s.Get(ctx, meta.PayloadKey(fmt.Sprint(i))); err != nil {
			return fmt.Errorf("payload %d of %d: %w", i, n, err)
		}
	}
	fmt.Println("well after", n)
	return s.Close()
}

func TestDiskFull(t *testing.T) {
	out, err := child(t.Context(), "full", filepath.Join(t.TempDir(), "meta.db")).Output()
	if err != nil || !strings.Contains(string(out), "well after") {
		t.Errorf("the child ended with %v and says %q", err, out)
	}
}
