package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/pkg/meter"
)

// ServerOptions are what the local server is started with.
type ServerOptions struct {
	Dir, Listen, Token string
	Insecure           bool
	Logger             *slog.Logger
	Version            string
}

// Server is a local server that runs.
type Server interface {
	URL() string
	Dir() string
	Close(context.Context) error
	Meter() meter.Snapshot
	// Done is closed when the server has ended by itself, for the reason that Err gives.
	Done() <-chan struct{}
	Err() error
}

// StartFunc starts a local server.
type StartFunc func(context.Context, ServerOptions) (Server, error)

// drainTimeout is how long calls under way may take to end once the server is told to stop: as long
// as the longest of them, a long poll, may take.
const drainTimeout = 25 * time.Second

type serveFlags struct {
	listen, data, addressFile, logFormat, logLevel string
	insecure                                       bool
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a server on this machine",
		Long: `Run a server on this machine, with its data in a folder.

It listens on the loopback interface. An address that others can reach is refused unless
--token-file (or SPILLWAY_TOKEN) gives the bearer token that every call must bring, or --insecure
says that something else guards the door.

The first SIGINT or SIGTERM stops it in order: /readyz turns red, calls under way end. A second one
stops it at once; what was acknowledged is on disk in any case.`,
		Example: `  spillway serve
  spillway serve --listen 127.0.0.1:0 --data /var/lib/spillway --address-file /run/spillway.url
  spillway serve --listen 0.0.0.0:8080 --token-file token`,
		Args: args(),
		RunE: func(c *cobra.Command, _ []string) error { return a.serve(c.Context(), f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.listen, "listen", defaultListen, "`address` to listen on; port 0 takes a free one")
	fs.StringVar(&f.data, "data", "./spillway-data", "`folder` of the data")
	fs.StringVar(&f.addressFile, "address-file", "", "`file` to write the server's URL to, once it listens")
	fs.BoolVar(&f.insecure, "insecure", false, "listen beyond loopback without a token")
	fs.StringVar(&f.logFormat, "log-format", "text", "`format` of the log on standard error: text or json")
	fs.StringVar(&f.logLevel, "log-level", "info", "least `level` that is logged: debug, info, warn or error")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	c, err := configure(a.globals, a.LookupEnv)
	if err != nil {
		return err
	}
	logger, err := newLogger(f.logFormat, f.logLevel, a)
	if err != nil {
		return err
	}
	started := time.Now()
	// The server outlives the context that a signal ends: it stops by Close, in order.
	server, err := a.Start(context.WithoutCancel(ctx), ServerOptions{
		Dir: f.data, Listen: f.listen, Token: c.token, Insecure: f.insecure, Logger: logger, Version: a.version,
	})
	if err != nil {
		return err
	}
	logger.Debug("started", "seconds", time.Since(started).Seconds())
	err = a.announce(f, server)
	if err == nil {
		select {
		case <-ctx.Done():
			logger.Info("stopping: calls under way may end; a second signal stops at once")
		case <-server.Done():
			err = server.Err()
		}
	}
	return errors.Join(err, closeServer(ctx, server), removeAddress(f.addressFile))
}

func closeServer(ctx context.Context, s Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	return s.Close(ctx)
}

func newLogger(format, level string, a *app) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, exit.Usagef("--log-level: %q is none of debug, info, warn, error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(a.Stderr, o)), nil
	case "text":
		return slog.New(slog.NewTextHandler(a.Stderr, o)), nil
	}
	return nil, exit.Usagef("--log-format: %q is neither text nor json", format)
}

// announce says where the server is and what to do with it.
func (a *app) announce(f serveFlags, s Server) error {
	if f.addressFile != "" {
		if err := writeAddress(f.addressFile, s.URL()); err != nil {
			return err
		}
	}
	self := a.self()
	flags := ""
	if s.URL() != defaultEndpoint {
		flags += " --endpoint " + shellQuote(s.URL())
	}
	if a.globals.tokenFile != "" {
		flags += " --token-file " + shellQuote(a.globals.tokenFile)
	}
	dir, err := filepath.Abs(s.Dir())
	if err != nil {
		dir = s.Dir()
	}
	_, err = fmt.Fprintf(a.Stdout, `Spillway %s listens on %s
Data is in %s

Try, in another terminal:
  %[4]s topic create orders%[5]s
  echo 'hello' | %[4]s produce orders%[5]s
  %[4]s consume orders billing --create%[5]s

`, a.version, s.URL(), dir, self, flags)
	return err
}

// writeAddress writes the file in one step, so that who waits for it never reads half of it.
func writeAddress(path, url string) error {
	temp := path + ".tmp"
	if err := os.WriteFile(temp, []byte(url+"\n"), 0o600); err != nil {
		return fmt.Errorf("--address-file: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("--address-file: %w", err)
	}
	return nil
}

func removeAddress(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--address-file: %w", err)
	}
	return nil
}

// self is how to call this program again from the same folder.
func (a *app) self() string {
	path, err := os.Executable()
	if err != nil {
		return shellQuote(a.Name)
	}
	if found, err := exec.LookPath("spillway"); err == nil {
		if same(found, path) {
			return "spillway"
		}
	}
	// `go run` builds into a folder that is gone when it ends.
	if strings.Contains(filepath.ToSlash(path), "/go-build") {
		return "go run ./cmd/spillway"
	}
	return shellQuote(a.Name)
}

func same(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// shellQuote makes a word that a POSIX shell reads as s.
func shellQuote(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,", r)
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
