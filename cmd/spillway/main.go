// Spillway runs and talks to a message queue and log that has no brokers.
package main

import (
	"context"
	"os"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/cli"
	"github.com/spillway-mq/spillway/pkg/cloud"
	"github.com/spillway-mq/spillway/pkg/fleet"
	"github.com/spillway-mq/spillway/pkg/local"
	"github.com/spillway-mq/spillway/pkg/server"
)

func main() { os.Exit(run()) }

func run() int {
	return cli.Main(cli.Program{
		Name: os.Args[0], Args: os.Args[1:],
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		LookupEnv: os.LookupEnv,
		Start:     start,
	})
}

// start starts a server on the storage that o names.
func start(ctx context.Context, o cli.ServerOptions) (cli.Server, error) {
	if o.AWS == nil {
		return given(local.Start(ctx, local.Options{
			Dir: o.Dir, Listen: o.Listen, Token: o.Token, Insecure: o.Insecure, DrainDelay: o.DrainDelay,
			Logger: o.Logger, Version: o.Version,
		}))
	}
	return given(fleet.Start(ctx, fleet.Options{
		Config:     cloud.Config{Table: o.AWS.Table, Bucket: o.AWS.Bucket, Region: o.AWS.Region},
		Door:       server.Door{Listen: o.Listen, Token: o.Token, Insecure: o.Insecure},
		DrainDelay: o.DrainDelay, Logger: o.Logger, Version: o.Version,
	}))
}

// given makes of a server that did not start no server, which a nil pointer in an interface would be.
func given[S cli.Server](s S, err error) (cli.Server, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
