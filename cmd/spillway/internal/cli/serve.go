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
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/meter"
)

// ServerOptions are what a server is started with. Its data is in Dir, or in AWS.
type ServerOptions struct {
	Dir, Listen, Token string
	AWS                *AWSOptions
	Insecure           bool
	DrainDelay         time.Duration
	Logger             *slog.Logger
	Version            string
}

// AWSOptions name a deployment in AWS. An empty Region is the environment's.
type AWSOptions struct{ Table, Bucket, Region string }

// Server is a server that runs.
type Server interface {
	URL() string
	Close(context.Context) error
	Meter() meter.Snapshot
	// Done is closed when the server has ended by itself, for the reason that Err gives.
	Done() <-chan struct{}
	Err() error
}

// StartFunc starts a server.
type StartFunc func(context.Context, ServerOptions) (Server, error)

const (
	serveName = "serve"
	// drainTimeout is how long calls under way may take to end once the server listens no more: as long
	// as the longest of them, a large body on a slow line, should take.
	drainTimeout = 25 * time.Second
	// awsDrainDelay is the default of --drain-delay with --aws: two looks of a load balancer that
	// looks every two seconds, and one to spare.
	awsDrainDelay = 5 * time.Second
)

type serveFlags struct {
	listen, data, addressFile, logFormat, logLevel string
	table, bucket, region                          string
	insecure, aws                                  bool
	drainDelay                                     units.Duration
	// dataGiven and drainGiven say that the flag was.
	dataGiven, drainGiven bool
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   serveName,
		Short: "Run a server: on this machine, or one of many on AWS",
		Long: `Run a server, with its data in a folder of this machine. With --aws the data is in a DynamoDB table
and an S3 bucket: the process keeps nothing, and any number of them may run on one table and bucket,
behind any load balancer that looks at /readyz. Credentials and region come from where AWS programs
look for them (AWS_PROFILE, AWS_REGION, a role; AWS_ENDPOINT_URL leads to an emulator).

It listens on the loopback interface. An address that others can reach is refused unless
--token-file (or SPILLWAY_TOKEN) gives the bearer token that every call must bring, or --insecure
says that something else guards the door.

The first SIGINT or SIGTERM stops it in order: /readyz turns red; --drain-delay later it listens no
more, long polls are answered empty, calls under way end. A second one stops it at once; what was
acknowledged is safe in any case.`,
		Example: `  spillway serve
  spillway serve --listen 127.0.0.1:0 --data /var/lib/spillway --address-file /run/spillway.url
  spillway serve --listen 0.0.0.0:8080 --token-file token
  spillway serve --aws --table NAME --bucket NAME --listen 0.0.0.0:8080 --token-file token`,
		Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			f.dataGiven, f.drainGiven = c.Flags().Changed("data"), c.Flags().Changed("drain-delay")
			return a.serve(c.Context(), f)
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.listen, "listen", defaultListen, "`address` to listen on; port 0 takes a free one")
	fs.StringVar(&f.data, "data", "./spillway-data", "`folder` of the data")
	fs.StringVar(&f.addressFile, "address-file", "", "`file` to write the server's URL to, once it listens")
	fs.BoolVar(&f.aws, "aws", false, "keep the data in AWS, not in a folder")
	fs.StringVar(&f.table, "table", "", "`name` of the DynamoDB table (or "+envTable+")")
	fs.StringVar(&f.bucket, "bucket", "", "`name` of the S3 bucket (or "+envBucket+")")
	fs.StringVar(&f.region, "region", "", "AWS `region` (default: the environment's)")
	fs.Var(&f.drainDelay, "drain-delay", "how long it answers on after /readyz turned red (default 0s, with --aws "+awsDrainDelay.String()+")")
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
	o := ServerOptions{
		Dir: f.data, Listen: f.listen, Token: c.token, Insecure: f.insecure, DrainDelay: f.drainDelay.D, Logger: logger, Version: a.version,
	}
	if o.AWS, err = f.deployment(a.LookupEnv); err != nil {
		return err
	}
	if o.AWS != nil && !f.drainGiven {
		o.DrainDelay = awsDrainDelay
	}
	started := time.Now()
	// The server outlives the context that a signal ends: it stops by Close, in order.
	server, err := a.Start(context.WithoutCancel(ctx), o)
	if err != nil {
		return err
	}
	logger.Debug("started", "seconds", time.Since(started).Seconds())
	err = a.announce(f, o, server)
	if err == nil {
		select {
		case <-ctx.Done():
			logger.Info("stopping: not ready from now on, calls under way may end; a second signal stops at once", "drain_delay", o.DrainDelay.String())
		case <-server.Done():
			err = server.Err()
		}
	}
	return errors.Join(err, closeServer(ctx, server, o.DrainDelay), removeAddress(f.addressFile))
}

// deployment is what --aws and its flags, or their variables, name; nil without --aws.
func (f *serveFlags) deployment(lookup func(string) (string, bool)) (*AWSOptions, error) {
	if !f.aws {
		for flag, value := range map[string]string{"--table": f.table, "--bucket": f.bucket, "--region": f.region} {
			if value != "" {
				return nil, exit.Usagef("%s: only with --aws", flag)
			}
		}
		return nil, nil
	}
	if f.dataGiven {
		return nil, exit.Usagef("--data: not with --aws, where no data is on this machine")
	}
	o := &AWSOptions{Table: f.table, Bucket: f.bucket, Region: f.region}
	for _, one := range []struct {
		flag, variable string
		value          *string
	}{{"--table", envTable, &o.Table}, {"--bucket", envBucket, &o.Bucket}} {
		if *one.value == "" {
			*one.value, _ = lookup(one.variable)
		}
		if *one.value == "" {
			return nil, exit.Usagef("%s: --aws needs it; %s stands in for it", one.flag, one.variable)
		}
	}
	return o, nil
}

func closeServer(ctx context.Context, s Server, drainDelay time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainDelay+drainTimeout)
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
func (a *app) announce(f serveFlags, o ServerOptions, s Server) error {
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
	_, err := fmt.Fprintf(a.Stdout, `Spillway %s listens on %s
Data is in %s

Try, in another terminal:
  %[4]s topic create orders%[5]s
  echo 'hello' | %[4]s produce orders%[5]s
  %[4]s consume orders billing --create%[5]s

`, a.version, s.URL(), o.where(), self, flags)
	return err
}

// where says where the data is.
func (o *ServerOptions) where() string {
	if o.AWS != nil {
		return "table " + o.AWS.Table + " and bucket " + o.AWS.Bucket
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o.Dir
	}
	return dir
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
