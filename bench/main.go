// Command bench puts the same workloads on Spillway and on other message queues, side by side on one machine, and
// writes what it measured as a page.
//
//	bench run     the runs, in turn; goes on where it was cut off
//	bench page    docs/bench.md and its plots, from the runs
//	bench list    the peers and workloads
//
// It is a module of its own so that other systems' clients do not come into Spillway's.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spillway-mq/spillway/bench/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 0
	if err := command.Run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		code = 1
	}
	stop()
	os.Exit(code)
}
