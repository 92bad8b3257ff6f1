package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/drain"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// defaultBatch is how many messages a claim asks for where they are only printed.
	defaultBatch = 1000
	// followWait and onceWait are how long a claim waits for a message: as long as it may, or just
	// long enough for one that is on its way.
	followWait = queue.MaxWait
	onceWait   = 500 * time.Millisecond
	// defaultRetryDelay keeps a message whose handler failed from coming back at once, and so a
	// run without --follow from never ending.
	defaultRetryDelay = 5 * time.Second
	// reportsShown bounds the failures that are printed one by one.
	reportsShown = 10
)

type consumeFlags struct {
	output, exec, start               string
	create, follow, noAck             bool
	checksum, quiet                   bool
	workers, batch                    int
	max                               uint64
	visibility, retryDelay, waitFirst units.Duration
}

func (a *app) consumeCommand() *cobra.Command {
	f := consumeFlags{retryDelay: units.NewDuration(defaultRetryDelay), waitFirst: units.NewDuration(onceWait)}
	c := &cobra.Command{
		Use:   "consume TOPIC SUBSCRIPTION",
		Short: "Claim messages, print them or run a command for each, and acknowledge",
		Long: `Claim messages, print them or run a command for each, and acknowledge.

It ends when nothing is left to claim, after --max messages, or never with --follow.

--exec runs a shell command for each message, with the body on its standard input and
SPILLWAY_TOPIC, _SUBSCRIPTION, _ID, _KEY, _ATTEMPT, _CREATED_AT, _SIZE, _HEADERS (JSON) and a
SPILLWAY_HEADER_NAME for each header in its environment. Exit code 0 acknowledges; any other
releases the message with the command's last line of standard error as reason.

--output raw prints bodies, each with a newline behind it; json one message a line; table what
fits a terminal.`,
		Example: `  spillway consume orders billing --create
  spillway consume orders billing --follow --output json | jq .body
  spillway consume orders billing --follow --workers 4 --exec './charge --id "$SPILLWAY_ID"'`,
		Args:              args("TOPIC", "SUBSCRIPTION"),
		ValidArgsFunction: a.completeSubscription,
		RunE:              func(c *cobra.Command, words []string) error { return a.consume(c.Context(), words[0], words[1], f) },
	}
	fs := c.Flags()
	fs.StringVarP(&f.output, "output", "o", outputRaw, "`format` of messages: raw, json or table")
	fs.BoolVar(&f.create, "create", false, "create the subscription if it does not exist")
	fs.StringVar(&f.start, "start", client.Earliest, "with --create, where it begins: earliest, latest, a time or how long ago")
	fs.BoolVarP(&f.follow, "follow", "f", false, "wait for more at the end")
	fs.IntVar(&f.workers, "workers", 1, "how many claim side by side")
	fs.IntVar(&f.batch, "batch", 0, "most messages of one claim (default 1000, with --exec 10)")
	fs.Uint64Var(&f.max, "max", 0, "stop after that many messages; 0 for no limit")
	fs.StringVar(&f.exec, "exec", "", "shell `command` to run for each message")
	fs.BoolVar(&f.noAck, "no-ack", false, "leave messages claimed; they come back when their claims expire")
	fs.BoolVar(&f.checksum, "checksum", false, "print a checksum of all bodies that does not depend on their order")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print no summary")
	fs.Var(&f.visibility, "visibility-timeout", "how long a claim holds (default the subscription's)")
	fs.Var(&f.retryDelay, "retry-delay", "how long a message whose command failed stays hidden")
	fs.Var(&f.waitFirst, "wait", "without --follow, how long to wait for a first message")
	return c
}

func (f *consumeFlags) check() error {
	switch {
	case f.output != outputRaw && f.output != outputJSON && f.output != outputTable:
		return exit.Usagef("--output: %q is none of raw, json, table", f.output)
	case f.workers < 1 || f.workers > 1000:
		return exit.Usagef("--workers: must be 1 to 1000")
	case f.batch < 0 || f.batch > queue.MaxClaimMessages:
		return exit.Usagef("--batch: must be 1 to %d", queue.MaxClaimMessages)
	case f.noAck && f.exec != "":
		return exit.Usagef("--no-ack and --exec exclude each other: the command's exit code decides")
	case f.waitFirst.D > queue.MaxWait:
		return exit.Usagef("--wait: must be at most %v", queue.MaxWait)
	}
	if f.batch == 0 {
		f.batch = defaultBatch
		if f.exec != "" {
			// Few, as the rest of a claim waits while a command runs.
			f.batch = queue.DefaultClaimMessages
		}
	}
	return nil
}

func (a *app) consume(ctx context.Context, topic, subscription string, f consumeFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	s, err := a.connect()
	if err != nil {
		return err
	}
	defer s.client.Close()
	if f.create {
		if err := createSubscription(ctx, s, topic, subscription, f.start); err != nil {
			return err
		}
	}
	sub, err := describeSubscription(ctx, s, topic, subscription)
	if err != nil {
		return err
	}
	// A reader that goes away, as `head` does, gives an error that the loop sees, not a signal that
	// leaves its claims behind.
	signal.Ignore(syscall.SIGPIPE)
	o := drain.Options{
		Topic: topic, Subscription: subscription, Workers: f.workers, Batch: f.batch, Max: f.max,
		Wait: f.waitFirst.D, Follow: f.follow, Visibility: f.visibility.D, NoAck: f.noAck,
		Ordered:    sub.Config.Ordering != nil && *sub.Config.Ordering == client.OrderingKey,
		RetryDelay: f.retryDelay.D, HasRetryDelay: true, Checksum: f.checksum, Report: a.reporter("message", s.endpoint),
	}
	if f.follow {
		o.Wait = followWait
	}
	var handle drain.Handler
	if f.exec != "" {
		command := &drain.Command{
			Shell: shell(), Line: f.exec, Topic: topic, Subscription: subscription,
			Environ: os.Environ(), Stdout: a.Stdout, Stderr: a.Stderr,
		}
		handle = command.Handle
	} else {
		p := &printer{w: bufio.NewWriterSize(a.Stdout, 64<<10), format: f.output}
		handle, o.Flush = p.handle, p.flush
	}
	stats, err := drain.Run(ctx, s.client, o, handle)
	if err != nil && stats.Done+stats.Failed == 0 {
		return err
	}
	if !f.quiet {
		_, _ = fmt.Fprintf(a.Stderr, "consumed %s, %s in %s\n", messagesText(stats.Done, stats.Failed, stats.Took),
			units.FormatBytes(float64(stats.Bytes)), stats.Took.Round(time.Millisecond))
	}
	if f.checksum {
		_, _ = fmt.Fprintf(a.Stderr, "checksum %s of %s\n", stats.Sum.String(), countOf(stats.Sum.Count))
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &exit.SilentError{Code: exit.OK}
	case err != nil:
		return err
	case stats.Failed > 0:
		return &exit.PartialError{Failed: stats.Failed, Total: stats.Done + stats.Failed, What: "consumed"}
	}
	return context.Cause(ctx)
}

func describeSubscription(ctx context.Context, s *connection, topic, name string) (*client.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.client.GetSubscription(ctx, topic, name)
}

// createSubscription leaves one that exists as it is, whatever its config.
func createSubscription(ctx context.Context, s *connection, topic, name, start string) error {
	position, err := parsePosition("--start", start)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err = s.client.CreateSubscription(ctx, topic, name, client.SubscriptionConfig{Start: &position})
	if errors.Is(err, client.ErrSubscriptionExists) {
		return nil
	}
	return err
}

func shell() []string {
	if runtime.GOOS == "windows" {
		return []string{"cmd", "/C"}
	}
	return []string{"sh", "-c"}
}

// reporter prints the first failures and says when it stops doing so. One that says what the last one
// said is only counted: when a server goes away, all messages on their way fail alike.
func (a *app) reporter(what, endpoint string) func(string, error) {
	var mu sync.Mutex // guards shown and last
	shown, last := 0, ""
	return func(id string, err error) {
		mu.Lock()
		defer mu.Unlock()
		line := exit.Line(err, endpoint)
		if id == "" {
			_, _ = fmt.Fprintf(a.Stderr, "spillway: waiting: %s\n", line)
			return
		}
		if line == last {
			return
		}
		last = line
		shown++
		switch {
		case shown <= reportsShown:
			_, _ = fmt.Fprintf(a.Stderr, "spillway: %s %s: %s\n", what, id, line)
		case shown == reportsShown+1:
			_, _ = fmt.Fprintf(a.Stderr, "spillway: further failures are only counted\n")
		}
	}
}

// printer writes messages one at a time, whoever they come from.
type printer struct {
	mu     sync.Mutex // guards w and titled
	w      *bufio.Writer
	titled bool
	format string
}

func (p *printer) handle(_ context.Context, m *client.Received, body io.Reader) error {
	if p.format == outputRaw {
		p.mu.Lock()
		defer p.mu.Unlock()
		source := &sourceError{r: body}
		_, err := io.Copy(p.w, source)
		if source.err != nil {
			return source.err
		}
		if err == nil {
			err = p.w.WriteByte('\n')
		}
		return stopOn(err)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var line []byte
	if p.format == outputJSON {
		if line, err = jsonLine(messageJSON(m, text)); err != nil {
			return err
		}
	} else {
		line = fmt.Appendf(nil, tableLine, idOf(m), shorten(cell(string(m.Key)), 20), m.Attempt,
			timeOf(m.Created), len(text), bodyCell(text))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.format == outputTable && !p.titled {
		p.titled = true
		if _, err := fmt.Fprintf(p.w, "%-22s %-20s %7s %-24s %9s %s\n", "ID", "KEY", "ATTEMPT", "CREATED", "SIZE", "BODY"); err != nil {
			return stopOn(err)
		}
	}
	_, err = p.w.Write(line)
	return stopOn(err)
}

const tableLine = "%-22s %-20s %7d %-24s %9d %s\n"

// stopOn: what cannot be written now cannot be written later.
func stopOn(err error) error {
	if err == nil {
		return nil
	}
	return &drain.StopError{Err: err}
}

func (p *printer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w.Flush()
}

// sourceError remembers the error of the reading side of a copy.
type sourceError struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *sourceError) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
