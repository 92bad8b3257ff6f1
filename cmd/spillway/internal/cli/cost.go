package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/cost"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/queue"
)

type costFlags struct {
	size units.Size
	keep units.Duration
	w    cost.Workload
}

func (a *app) costCommand() *cobra.Command {
	f := costFlags{size: units.NewSize(1000), keep: units.NewDuration(7 * 24 * time.Hour)}
	c := &cobra.Command{
		Use:   "cost",
		Short: "Work out what a load would cost on AWS",
		Long: `Work out what a load would cost on AWS, beside SQS, Kinesis and MSK.

It puts some of the load through the code that runs on AWS, on stores in memory whose requests are
counted, and prices what was counted. docs/cost.md tells what is counted, what is assumed, and where
the prices are from. It needs no server, no account and no network.`,
		Example: `  spillway cost --batch 10 --size 1KB
  spillway cost --batch 100 --size 4KiB --groups 3 --rate 500 --keep 1d
  spillway cost --batch 1 --size 200 --producers 32 --output json`,
		Args: args(),
		RunE: func(c *cobra.Command, _ []string) error { return a.cost(c.Context(), &f) },
	}
	fs := c.Flags()
	fs.Var(&f.size, "size", "size of a body")
	fs.IntVar(&f.w.Batch, "batch", 10, "messages of one produce call")
	fs.IntVar(&f.w.Segments, "segments", 1, "segments of the topic")
	fs.BoolVar(&f.w.Keyed, "keyed", false, "each message has a key of its own, so that a call touches many segments")
	fs.IntVar(&f.w.Groups, "groups", 1, "subscriptions, each of which consumes every message")
	fs.IntVar(&f.w.Claim, "claim", 0, "most messages of one claim (default as --batch)")
	fs.IntVar(&f.w.Producers, "producers", 1, "idempotent producers side by side; 0 for calls without an id")
	fs.Float64Var(&f.w.Delayed, "delayed", 0, "`share` of messages that are delayed, 0 to 1")
	fs.Float64Var(&f.w.Rate, "rate", 100, "messages a second")
	fs.Var(&f.keep, "keep", "how long bytes are kept")
	fs.Lookup("claim").DefValue = ""
	return c
}

func (a *app) cost(ctx context.Context, f *costFlags) error {
	cfg, err := configure(a.globals, a.LookupEnv)
	if err != nil {
		return err
	}
	if f.size.Bytes < 1 || f.size.Bytes > queue.DefaultMaxMessageBytes {
		return exit.Usagef("--size: must be 1 to %d bytes, not %d", queue.DefaultMaxMessageBytes, f.size.Bytes)
	}
	f.w.Size, f.w.Keep = int(f.size.Bytes), f.keep.D
	if err := f.w.Check(); err != nil {
		return exit.Usagef("%w", err)
	}
	bill, err := cost.Of(ctx, f.w, cost.USEast1())
	if err != nil {
		return err
	}
	if cfg.json {
		return printJSON(a.Stdout, bill)
	}
	return printBill(a.Stdout, bill)
}

func printBill(w io.Writer, b *cost.Bill) error {
	out := newTable(w, "US$ FOR A MILLION", "PRODUCE", "CONSUME", "COMPACT", "ALL")
	usd := func(v float64) string { return fmt.Sprintf("%.4f", v) }
	for _, p := range b.Parts {
		out.add(p.Name, usd(p.Produce), usd(p.Consume), usd(p.Compact), usd(p.Total))
	}
	out.add("all", "", "", "", usd(b.PerMillion))
	if err := out.flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	out = newTable(w, "BESIDE", "US$ A MILLION", "US$ A GB", "OF IT FIXED, A MONTH")
	out.add("Spillway", usd(b.PerMillion), usd(b.PerGB), fmt.Sprintf("idle %.2f, apart", b.Idle.Total))
	out.add("floor: a put and an update a call", usd(b.Floor), "", "")
	for _, r := range b.Rivals {
		if r.Beyond {
			out.add(r.Name, "more than it bears", "", "")
			continue
		}
		out.add(r.Name, usd(r.PerMillion), usd(r.PerGB), fmt.Sprintf("%.2f", r.Monthly))
	}
	if err := out.flush(); err != nil {
		return err
	}
	note := ""
	if b.CallMessages < b.Workload.Batch {
		note = fmt.Sprintf("; a call carries %d messages at most", b.CallMessages)
	}
	_, err := fmt.Fprintf(w, "\n%s, prices of %s, without free tiers; %g messages a second%s.\n"+
		"A consumer that waits by long polls all the time costs %.2f a month more, on SQS %.2f.\n"+
		"What is counted and what is assumed: docs/cost.md.\n",
		b.Region, b.PricesOf, b.Workload.Rate, note, b.Idle.Waiter, b.Idle.SQSWaiter)
	return err
}
