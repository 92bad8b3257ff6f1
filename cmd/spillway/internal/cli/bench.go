package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/bench"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/latency"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/queue"
)

type benchFlags struct {
	size     units.Size
	duration units.Duration
	o        bench.Options
	dir      string
	noDisk   bool
}

// benchReport is the JSON form of `spillway bench`.
type benchReport struct {
	bench.Report
	// CPUSeconds are of this process: of clients and, with its own server, of the server too.
	CPUSeconds float64 `json:"cpu_seconds"`
	CPUs       int     `json:"cpus"`
	// Store is absent where the server is not our own, Disk where it was not measured.
	Store *storeReport `json:"store,omitempty"`
	Disk  *bench.Disk  `json:"disk,omitempty"`
}

// storeReport is what the load asked of the stores.
type storeReport struct {
	CallsPerMessage float64        `json:"calls_per_message"`
	OpsPerMessage   float64        `json:"operations_per_message"`
	USDPerMillion   float64        `json:"usd_per_million_messages"`
	Meter           meter.Snapshot `json:"meter"`
	Cost            meter.Cost     `json:"cost"`
}

func (a *app) benchCommand() *cobra.Command {
	f := benchFlags{size: units.NewSize(1 << 10), duration: units.NewDuration(10 * time.Second)}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure a server, or this machine",
		Long: `Measure a server: messages and bytes a second, latencies, processor time.

Without --endpoint it starts a server of its own, in this process, on a temporary folder; then it
also reports what the load asked of the stores, what that would cost on AWS, and how far the queue
is from what the disk can do. Every produce call is durable when it is acknowledged.`,
		Example: `  spillway bench --size 1KiB --batch 100 --producers 8 --consumers 4
  spillway bench --batch 1 --producers 64 --consumers 0 --duration 5s
  spillway bench --endpoint http://127.0.0.1:8080 --messages 100000
  spillway bench disk --dir /var/lib/spillway`,
		RunE: func(c *cobra.Command, words []string) error {
			if len(words) > 0 {
				return exit.Usagef("unknown command %q for %q", words[0], c.CommandPath())
			}
			return a.bench(c.Context(), f)
		},
	}
	fs := c.Flags()
	fs.Var(&f.size, "size", "size of a body")
	fs.Var(&f.duration, "duration", "longest time to produce")
	fs.Int64Var(&f.o.Messages, "messages", 1<<40, "most messages to produce")
	fs.IntVar(&f.o.Batch, "batch", 100, "messages of one produce call")
	fs.IntVar(&f.o.Producers, "producers", 8, "how many produce side by side")
	fs.IntVar(&f.o.Consumers, "consumers", 2, "how many consume side by side; 0 for none")
	fs.IntVar(&f.o.Segments, "segments", 4, "segments of the topic")
	fs.IntVar(&f.o.ClaimSize, "claim", 2000, "most messages of one claim")
	fs.BoolVar(&f.o.ByReference, "by-reference", false, "upload batch files and submit references")
	fs.StringVar(&f.dir, "dir", "", "`folder` for the own server's data (default the system's temporary folder)")
	fs.BoolVar(&f.noDisk, "no-disk", false, "do not measure the disk for comparison")
	fs.Lookup("messages").DefValue = "no limit"
	c.AddCommand(a.benchDisk())
	return c
}

func (f *benchFlags) check() error {
	f.o.Size, f.o.Duration = int(f.size.Bytes), f.duration.D
	for _, r := range []struct {
		flag        string
		got, lo, hi int64
	}{
		{"--size", f.size.Bytes, 0, queue.MaxInlineMessageBytes},
		{"--batch", int64(f.o.Batch), 1, queue.MaxBatchRecords},
		{"--producers", int64(f.o.Producers), 1, 10_000},
		{"--consumers", int64(f.o.Consumers), 0, 10_000},
		{"--segments", int64(f.o.Segments), 1, queue.MaxSegments},
		{"--claim", int64(f.o.ClaimSize), 1, queue.MaxClaimMessages},
		{"--messages", f.o.Messages, 1, 1 << 40},
		{"--duration", int64(f.o.Duration), int64(time.Millisecond), int64(24 * time.Hour)},
	} {
		if r.got < r.lo || r.got > r.hi {
			if r.flag == "--duration" {
				return exit.Usagef("--duration: must be 1ms to 24h")
			}
			return exit.Usagef("%s: must be %d to %d, not %d", r.flag, r.lo, r.hi, r.got)
		}
	}
	if call := int64(f.o.Batch) * (f.size.Bytes + 64); !f.o.ByReference && call > queue.MaxRequestBytes {
		return exit.Usagef("--batch times --size: a call of about %s is over the limit of %d bytes; --by-reference has none so small",
			units.FormatBytes(float64(call)), queue.MaxRequestBytes)
	}
	return nil
}

func (a *app) bench(ctx context.Context, f benchFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	cfg, err := configure(a.globals, a.LookupEnv)
	if err != nil {
		return err
	}
	report := benchReport{CPUs: runtime.GOMAXPROCS(0)}
	own := a.globals.endpoint == ""
	var server *ownServer
	if own {
		if server, err = a.startOwn(ctx, f.dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.stop()) }()
		cfg.endpoint, cfg.auth = server.URL(), authNone
		if !f.noDisk {
			disk, err := bench.ProbeDisk(bench.DiskOptions{Dir: server.dir, SequentialBytes: 128 << 20, Each: 400 * time.Millisecond})
			if err != nil {
				return err
			}
			report.Disk = &disk
		}
	}
	options, err := cfg.clientOptions(ctx, "spillway-bench/"+a.version)
	if err != nil {
		return err
	}
	c, err := client.New(cfg.endpoint, options)
	if err != nil {
		return err
	}
	defer c.Close()
	var before meter.Snapshot
	if own {
		before = server.Meter()
	}
	cpu := bench.CPU()
	if report.Report, err = bench.Run(ctx, c, f.o); err != nil {
		return err
	}
	report.CPUSeconds = (bench.CPU() - cpu).Seconds()
	if own {
		report.Store = storeReportOf(server.Meter().Sub(before), report.Produced)
	}
	if cfg.json {
		return printJSON(a.Stdout, report)
	}
	return printBench(a.Stdout, report)
}

func storeReportOf(used meter.Snapshot, messages uint64) *storeReport {
	n := float64(max(messages, 1))
	total, cost := used.Total(), used.Cost(meter.USEast1())
	return &storeReport{
		CallsPerMessage: float64(total.Calls) / n, OpsPerMessage: float64(total.Ops) / n,
		USDPerMillion: cost.Total / n * 1e6, Meter: used, Cost: cost,
	}
}

func printBench(w io.Writer, r benchReport) error {
	way := ""
	if r.ByReference {
		way = ", by reference"
	}
	out := newTable(w)
	out.add("workload", fmt.Sprintf("%d producers, %d messages of %s a call%s; %d consumers; %d segments; %d processors",
		r.Producers, r.Batch, units.FormatBytes(float64(r.Size)), way, r.Consumers, r.Segments, r.CPUs))
	count := func(n uint64) string { return units.Group(int64(n)) } // #nosec G115 -- a count
	out.add("produced", fmt.Sprintf("%s messages/s, %s/s, %s calls/s (%s messages in %.1f s, each durable)",
		units.FormatCount(r.ProduceRate), units.FormatBytes(r.ProduceBytes), units.FormatCount(r.CallRate), count(r.Produced), r.ProduceSeconds))
	if r.Consumers > 0 {
		out.add("consumed", fmt.Sprintf("%s messages/s (%s messages in %.1f s)", units.FormatCount(r.ConsumeRate), count(r.Consumed), r.ConsumeSeconds))
		out.add("in and out", units.FormatCount(r.TogetherRate)+" messages/s")
	}
	out.add("produce latency", latencyText(r.ProduceLatency))
	if r.Consumers > 0 {
		out.add("end to end", latencyText(r.EndToEndLatency))
	}
	out.add("processor time", fmt.Sprintf("%.1f s, %.1f µs a message, of this process", r.CPUSeconds, r.CPUSeconds*1e6/float64(max(r.Produced, 1))))
	if r.Missing > 0 {
		out.add("MISSING", count(r.Missing)+" messages were acknowledged and not consumed in time")
	}
	if s := r.Store; s != nil {
		out.add("store calls", fmt.Sprintf("%.4f a message (%.4f operations)", s.CallsPerMessage, s.OpsPerMessage))
		out.add("price on AWS", fmt.Sprintf("%.4f US$ for a million messages", s.USDPerMillion))
	}
	if err := out.flush(); err != nil {
		return err
	}
	if r.Disk != nil {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := printDisk(w, *r.Disk); err != nil {
			return err
		}
		if err := printDistance(w, r); err != nil {
			return err
		}
	}
	if s := r.Store; s != nil {
		_, err := fmt.Fprintf(w, "\n%s", s.Meter)
		return err
	}
	return nil
}

// printDistance compares the queue with the disk below it.
func printDistance(w io.Writer, r benchReport) error {
	lone := r.Disk.Appends[0].PerSecond
	_, err := fmt.Fprintf(w, "the queue wrote bodies at %.0f %% of the sequential rate, and made %.1f durable calls for each durable 1 KiB append that one writer could have made\n",
		100*r.ProduceBytes/r.Disk.Sequential, r.CallRate/lone)
	return err
}

func latencyText(s latency.Summary) string {
	ms := func(v float64) string { return strings.TrimSpace(fmt.Sprintf("%.2f ms", v*1e3)) }
	return fmt.Sprintf("p50 %s, p99 %s, max %s", ms(s.P50), ms(s.P99), ms(s.Max))
}

func (a *app) benchDisk() *cobra.Command {
	dir := "."
	size, each := units.NewSize(512<<20), units.NewDuration(2*time.Second)
	c := &cobra.Command{
		Use:   "disk",
		Short: "Measure what the disk below a folder can do",
		Long: `Measure what the disk below a folder can do: large sequential writes with one sync at the end, and
appends of 1 KiB, 64 KiB and 1 MiB that are synced one by one. No queue that keeps its promises is
faster than its disk, except by letting several messages share a sync.`,
		Args: args(),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := configure(a.globals, a.LookupEnv)
			if err != nil {
				return err
			}
			const mostBytes = 1 << 40
			if size.Bytes < 1<<20 || size.Bytes > mostBytes || each.D <= 0 || each.D > time.Hour {
				return exit.Usagef("--size must be 1MiB to 1TiB, --each above 0 and at most 1h")
			}
			disk, err := bench.ProbeDisk(bench.DiskOptions{Dir: dir, SequentialBytes: size.Bytes, Each: each.D})
			if err != nil {
				return err
			}
			if cfg.json {
				return printJSON(a.Stdout, disk)
			}
			return printDisk(a.Stdout, disk)
		},
	}
	fs := c.Flags()
	fs.StringVar(&dir, "dir", dir, "`folder` to write in")
	fs.Var(&size, "size", "how much to write sequentially")
	fs.Var(&each, "each", "how long to append with each size")
	return c
}

func printDisk(w io.Writer, d bench.Disk) error {
	out := newTable(w)
	out.add("sequential write", units.FormatBytes(d.Sequential)+"/s")
	for _, r := range d.Appends {
		out.add("append+fdatasync "+units.FormatBytes(float64(r.Size)), fmt.Sprintf("%s/s, %s/s, %.2f ms each",
			units.FormatCount(r.PerSecond), units.FormatBytes(r.Bytes), r.Mean*1e3))
	}
	return out.flush()
}
