// Spillway runs and talks to a message queue and log that has no brokers.
package main

import (
	"context"
	"os"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/cli"
	"github.com/spillway-mq/spillway/pkg/local"
)

func main() { os.Exit(run()) }

func run() int {
	return cli.Main(cli.Program{
		Name: os.Args[0], Args: os.Args[1:],
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		LookupEnv: os.LookupEnv,
		Start: func(ctx context.Context, o cli.ServerOptions) (cli.Server, error) {
			s, err := local.Start(ctx, local.Options{
				Dir: o.Dir, Listen: o.Listen, Token: o.Token, Insecure: o.Insecure, Logger: o.Logger, Version: o.Version,
			})
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	})
}
