// Functions builds the AWS Lambda functions: build/NAME/bootstrap for the deployment, build/NAME.zip
// to see what it weighs. It prints the sizes and the time from the start of each process to its
// first request of the runtime API, and fails if a zip is too big.
//
//	go run ./tools/functions -arch amd64
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tools/functions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, w io.Writer) error {
	o := options{
		Root: ".", MaxZipBytes: 5_000_000, Names: []string{"produce", "consume", "leader", "compactor"},
		SlowStart: 40 * time.Millisecond,
	}
	flags := flag.NewFlagSet("functions", flag.ContinueOnError)
	flags.StringVar(&o.Arch, "arch", "arm64", "build for `arm64 or amd64`")
	flags.StringVar(&o.Out, "out", "build", "write to this `folder`")
	flags.IntVar(&o.Starts, "starts", 10, "how often to start each; the fastest counts. 0 measures nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.Arch != "arm64" && o.Arch != "amd64" {
		return fmt.Errorf("-arch must be arm64 or amd64, not %q", o.Arch)
	}
	if runtime.GOOS != "linux" {
		o.Starts = 0 // what is built runs on Linux only
	}
	return build(ctx, o, w)
}
