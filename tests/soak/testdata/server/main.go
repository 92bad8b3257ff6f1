// Command server is `spillway serve` for the soak: pkg/local, on a wall clock that the test sets.
//
// It is built with an overlay (clock.go of the test) that gives the standard library's time.Now a shift. So every
// reader of the wall clock in the process sees a jump, as when an administrator or NTP sets the machine's; the
// monotonic clock goes on, as it does then. The product has no switch for it.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"github.com/spillway-mq/spillway/pkg/local"
)

// stopTimeout is how long calls under way may take to end.
const stopTimeout = 15 * time.Second

// main takes the address, the data folder and the clock's file.
func main() {
	listen, dir, clock := os.Args[1], os.Args[2], os.Args[3]
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := shiftBy(clock); err != nil {
		logger.Error("clock", "error", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := local.Start(context.WithoutCancel(ctx), local.Options{Dir: dir, Listen: listen, Logger: logger, Version: "soak"})
	if err != nil {
		logger.Error("start", "error", err)
		os.Exit(1)
	}
	logger.Info("serving")
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil || s.Err() != nil {
		logger.Error("stop", "error", err, "ended", s.Err())
		os.Exit(1)
	}
	logger.Info("stopped")
}

// shiftBy has the wall clock be off by the seconds that the first eight bytes of a file hold, from call to call.
func shiftBy(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	m, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	time.Shift.Store((*int64)(unsafe.Pointer(&m[0])))
	return nil
}
