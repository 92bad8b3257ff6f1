package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/demo"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
)

// anyPort lets the system choose a free port on the loopback interface.
const anyPort = "127.0.0.1:0"

// ownServer is a server on a temporary folder.
type ownServer struct {
	Server
	dir string
	// stop stops it and removes the folder.
	stop func() error
}

func (a *app) startOwn(ctx context.Context, base string) (*ownServer, error) {
	dir, err := os.MkdirTemp(base, "spillway-")
	if err != nil {
		return nil, err
	}
	s, err := a.Start(context.WithoutCancel(ctx), ServerOptions{
		Dir: dir, Listen: anyPort, Logger: slog.New(slog.DiscardHandler), Version: a.version,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &ownServer{s, dir, func() error { return errors.Join(closeServer(ctx, s, 0), os.RemoveAll(dir)) }}, nil
}

func (a *app) demoCommand() *cobra.Command {
	o := demo.Options{Messages: 250_000, Producers: 3, Workers: 4}
	duration := units.NewDuration(10 * time.Second)
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch a flood come in by reference and go out, and see that nothing is lost",
		Long: `Watch a flood come in by reference and go out, and see that nothing is lost.

It starts a server on a temporary folder. Producers pack messages into batch files, upload them and
submit references; now and then a large body goes as an object of its own, and a trickle of messages
is delayed. Workers claim and acknowledge; a few handlers fail at first and are tried again.

At the end checksums that were kept outside of the queue are compared: exit code 0 if nothing was
lost, doubled or early, 1 if not. The folder is removed.`,
		Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Duration = duration.D
			switch {
			case o.Messages < 1 || o.Messages > 100_000_000:
				return exit.Usagef("--messages: must be 1 to 100000000")
			case o.Producers < 1 || o.Producers > 100:
				return exit.Usagef("--producers: must be 1 to 100")
			case o.Workers < 1 || o.Workers > 100:
				return exit.Usagef("--workers: must be 1 to 100")
			case o.Duration <= 0 || o.Duration > time.Hour:
				return exit.Usagef("--duration: must be above 0 and at most 1h")
			}
			return a.demo(c.Context(), o)
		},
	}
	fs := c.Flags()
	fs.Int64Var(&o.Messages, "messages", o.Messages, "most messages to produce")
	fs.IntVar(&o.Producers, "producers", o.Producers, "how many produce side by side")
	fs.IntVar(&o.Workers, "workers", o.Workers, "how many consume side by side")
	fs.Var(&duration, "duration", "longest time to produce")
	return c
}

func (a *app) demo(ctx context.Context, o demo.Options) (err error) {
	cfg, err := configure(a.globals, a.LookupEnv)
	if err != nil {
		return err
	}
	server, err := a.startOwn(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	c, err := client.New(server.URL(), client.Options{UserAgent: "spillway-demo/" + a.version})
	if err != nil {
		return err
	}
	defer c.Close()
	out := a.Stdout
	if cfg.json {
		out = a.Stderr
	}
	_, _ = fmt.Fprintf(out, "Spillway demo: %d producers upload batch files and submit references, %d workers claim and acknowledge\n"+
		"server %s, data in %s, removed at the end\n\n", o.Producers, o.Workers, server.URL(), server.dir)
	live := &demoView{w: out, redraw: isTerminal(out)}
	o.Show = live.show
	result, err := demo.Run(ctx, c, o)
	live.end()
	if err != nil {
		return err
	}
	if cfg.json {
		err = printJSON(a.Stdout, result)
	} else {
		err = printDemo(out, result)
	}
	if err == nil && !result.OK {
		return &exit.SilentError{Code: exit.Failure}
	}
	return err
}

func printDemo(w io.Writer, r demo.Result) error {
	group := func(n uint64) string { return units.Group(int64(n)) } // #nosec G115 -- counts
	verdict := "OK: nothing was lost, doubled or early; the checksums are equal"
	if !r.OK {
		verdict = "FAILED: the record kept outside does not balance"
	}
	_, err := fmt.Fprintf(w, `produced %12s messages, checksum %s
consumed %12s messages, checksum %s
%s in %.1f s: %s messages/s end to end; %s batch files, %s large objects, %s delayed, %s retried
lost %s, doubled %s, early %s
%s
`, group(r.Produced), r.ProducedChecksum, group(r.Consumed), r.ConsumedChecksum,
		units.FormatBytes(float64(r.Bytes)), r.Seconds, units.FormatCount(r.PerSecond),
		group(r.Files), group(r.Objects), group(r.DelayedMessages), group(r.Retried),
		group(r.Lost), group(r.Doubled), group(r.Early), verdict)
	return err
}

// demoView shows states: a table that is drawn over itself, or a line a second.
type demoView struct {
	w      io.Writer
	redraw bool
	lines  int
	shown  time.Time
	last   demo.State
	rates  demoRates
}

// demoRates are smoothed, as the figures of a fifth of a second jump about.
type demoRates struct{ produced, consumed, bytes float64 }

func (v *demoView) show(s demo.State) {
	if !v.redraw && time.Since(v.shown) < time.Second {
		return
	}
	v.shown = time.Now()
	if dt := (s.Elapsed - v.last.Elapsed).Seconds(); dt > 0 {
		smooth := func(old *float64, now, before uint64) {
			const weight = 0.4
			*old += weight * (float64(now-before)/dt - *old)
		}
		smooth(&v.rates.produced, s.Produced, v.last.Produced)
		smooth(&v.rates.consumed, s.Consumed, v.last.Consumed)
		smooth(&v.rates.bytes, s.ProducedBytes, v.last.ProducedBytes)
	}
	v.last = s
	count := func(n uint64) string { return units.Group(int64(n)) } // #nosec G115 -- counts
	if !v.redraw {
		_, _ = fmt.Fprintf(v.w, "%5.1fs produced %s (%s/s), consumed %s (%s/s), lag %s, in flight %s, delayed %s, retried %s\n",
			s.Elapsed.Seconds(), count(s.Produced), units.FormatCount(v.rates.produced), count(s.Consumed),
			units.FormatCount(v.rates.consumed), count(s.Lag()), count(s.InFlight), count(s.Delayed), count(s.Retried))
		return
	}
	phase, whole := "flooding", uint64(max(s.Wanted, 1)) // #nosec G115 -- above 0
	if !s.Flooding {
		// The time may have ended the flood before its count did.
		phase, whole = "draining", max(s.Produced, 1)
	}
	text := fmt.Sprintf(`            %14s %14s %14s
  produced  %14s %14s %14s   %s files, %s large objects
  consumed  %14s %14s
  lag       %14s     in flight %10s     delayed %6s     retried %6s
  %s %s %.1f s
`, "messages", "a second", "bytes/s",
		count(s.Produced), units.FormatCount(v.rates.produced), units.FormatBytes(v.rates.bytes), count(s.Files), count(s.Objects),
		count(s.Consumed), units.FormatCount(v.rates.consumed),
		count(s.Lag()), count(s.InFlight), count(s.Delayed), count(s.Retried),
		bar(float64(s.Consumed)/float64(whole), 50), phase, s.Elapsed.Seconds())
	v.draw(text)
}

// draw writes text over what was drawn before.
func (v *demoView) draw(text string) {
	var b strings.Builder
	if v.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.lines)
	}
	v.lines = 0
	for line := range strings.Lines(text) {
		b.WriteString("\x1b[2K")
		b.WriteString(line)
		v.lines++
	}
	_, _ = io.WriteString(v.w, b.String())
}

func (v *demoView) end() { _, _ = io.WriteString(v.w, "\n") }

func bar(fraction float64, width int) string {
	full := int(min(max(fraction, 0), 1) * float64(width))
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
