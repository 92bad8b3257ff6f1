// Package cli is the command line of Spillway: it turns arguments and environment into calls of the
// packages that do the work, and their outcome into output, one line of error and an exit code.
//
// Invariants: answers go to standard output, everything else to standard error; an error is one line;
// the environment is read here and nowhere else; a first signal ends a command in order, a second one
// at once.
//
// Non-goals: no logic of its own beyond flags and printing.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
)

// Program is what the process gives to the command line.
type Program struct {
	// Name is how the program was called, Args are its arguments.
	Name   string
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// LookupEnv is os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Start starts a server.
	Start StartFunc
}

// app is what the commands share.
type app struct {
	Program
	globals globals
	version string
}

// Main runs the program and gives its exit code.
func Main(p Program) int {
	ctx, stop := signals(p.Stderr)
	defer stop()
	a := &app{Program: p, version: buildVersion()}
	root := a.root()
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return int(exit.OK)
	}
	if cause := context.Cause(ctx); errors.Is(cause, exit.ErrInterrupted) && exit.CodeOf(err) != exit.Partial {
		err = cause
	}
	code := exit.CodeOf(err)
	var usage *exit.UsageError
	if errors.As(err, &usage) && usage.Command == "" {
		usage.Command = cmd.CommandPath()
	}
	var silent *exit.SilentError
	if !errors.As(err, &silent) {
		endpoint := ""
		// What a server that starts cannot reach is none of ours.
		if c, err := configure(a.globals, p.LookupEnv); err == nil && cmd.Name() != serveName {
			endpoint = c.endpoint
		}
		_, _ = fmt.Fprintf(p.Stderr, "spillway: %s\n", exit.Line(err, endpoint))
	}
	return int(code)
}

// signals gives a context that the first SIGINT or SIGTERM ends; the second ends the process.
func signals(stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	got := make(chan os.Signal, 2)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-got; !ok {
			return
		}
		cancel(exit.ErrInterrupted)
		if _, ok := <-got; ok {
			_, _ = fmt.Fprintln(stderr, "spillway: interrupted twice, leaving at once")
			os.Exit(int(exit.Interrupted))
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		close(got)
		cancel(nil)
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "spillway",
		Short: "A message queue and log with no brokers",
		Long: `Spillway is a message queue and log with no brokers to run.

Start a server with "spillway serve", or watch one at work with "spillway demo".

Environment: SPILLWAY_ENDPOINT stands in for --endpoint, SPILLWAY_TOKEN for --token-file,
SPILLWAY_AUTH for --auth; for serve --aws SPILLWAY_TABLE for --table, SPILLWAY_BUCKET for --bucket.
The URL of an AWS API Gateway is called with your AWS credentials.
Durations are 90, 30s, 5m, 2h or 7d; sizes 4096, 64KiB or 10MB.

` + exit.Help,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	a.globals.timeout = units.NewDuration(defaultTimeout)
	f := root.PersistentFlags()
	f.StringVar(&a.globals.endpoint, "endpoint", "", "the server's `URL` (default "+defaultEndpoint+")")
	f.StringVar(&a.globals.auth, "auth", "", "`how` calls say who makes them: iam (AWS credentials), token, none or auto (default auto)")
	f.StringVar(&a.globals.tokenFile, "token-file", "", "`file` with the bearer token")
	f.StringVarP(&a.globals.output, "output", "o", outputTable, "`format` of answers: json or table")
	f.Var(&a.globals.timeout, "timeout", "how long one call may take")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &exit.UsageError{Err: err, Command: c.CommandPath()}
	})
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run a server:"},
		&cobra.Group{ID: "messages", Title: "Send and receive:"},
		&cobra.Group{ID: "manage", Title: "Manage:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", a.serveCommand(), a.demoCommand(), a.benchCommand(), a.costCommand())
	add("messages", a.produceCommand(), a.consumeCommand(), a.peekCommand(), a.delayedCommand())
	add("manage", a.topicCommand(), a.subscriptionCommand(), a.segmentsCommand(), a.eventsCommand(), a.doctorCommand())
	root.AddCommand(a.versionCommand(), &cobra.Command{
		Use: "exit-codes", Short: "The exit codes and what they mean", Long: exit.Help,
	})
	asGroup(root)
	return root
}

// asGroup makes a command that only holds others say so in an error, not with its whole help and
// exit code 0, when none or a wrong one is named.
func asGroup(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			if c.HasParent() {
				c.SetOut(c.ErrOrStderr())
				_ = c.Help()
				return &exit.SilentError{Code: exit.Usage}
			}
			return c.Help()
		}
		hint := ""
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf("; did you mean %q?", near[0])
		}
		return exit.Usagef("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
	}
	c.SuggestionsMinimumDistance = 2
	return c
}

// args wants the positional arguments named, in order; one in square brackets may be left out.
func args(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, got []string) error {
		if len(got) > len(names) {
			return exit.Usagef("unexpected argument %q", got[len(names)])
		}
		for i, name := range names {
			if i >= len(got) && name[0] != '[' {
				return exit.Usagef("missing argument %s", name)
			}
			if i < len(got) && got[i] == "" {
				return exit.Usagef("argument %s is empty", name)
			}
		}
		return nil
	}
}

// connection is a command's way to the server.
type connection struct {
	config
	client *client.Client
}

func (a *app) connect(ctx context.Context) (*connection, error) {
	c, err := configure(a.globals, a.LookupEnv)
	if err != nil {
		return nil, err
	}
	cl, err := c.newClient(ctx, a.version)
	if err != nil {
		return nil, err
	}
	return &connection{config: c, client: cl}, nil
}

// call runs a command that is one or a few calls, within --timeout.
func (a *app) call(ctx context.Context, do func(context.Context, *connection) error) error {
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer s.client.Close()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return do(ctx, s)
}
