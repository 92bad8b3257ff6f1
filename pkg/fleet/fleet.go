// Package fleet runs one process of a fleet: a server without state on the table and the bucket of a deployment in
// AWS, beside any number of others, and beside the deployment's functions.
//
// Vocabulary: a fleet is all processes on one table and bucket.
//
// Invariants: a process keeps nothing that another needs; any of them may be ended at any moment, and what it
// had claimed for a caller that never heard of it comes back when the claim expires.
//
// Non-goals: embedded storage (pkg/local), making tables and buckets (infra), balancing the load.
package fleet

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/pkg/cloud"
	"github.com/spillway-mq/spillway/pkg/server"
)

// Options are what a process may be told. Config must name table and bucket.
type Options struct {
	cloud.Config
	server.Door
	// DrainDelay is as in server.Options.
	DrainDelay time.Duration
	Logger     *slog.Logger
	Version    string
}

// cacheBytes is what a process keeps of pages and batches: reads that it saves are paid for one by one.
const cacheBytes = 64 << 20

// checkTimeout bounds the first look at table and bucket.
const checkTimeout = 30 * time.Second

// Start looks whether table and bucket are there, and serves them until Close. ctx bounds the start only.
//
// GET /readyz asks the stores nothing: if they do not answer they answer none of the processes, and there is no
// better one to send a call to.
//
// Errors are *queue.Error: Invalid for options that are refused; Unavailable for an address that is taken; what
// cloud.Stores.Check says of the stores.
func Start(ctx context.Context, o Options) (*server.Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	stores, err := cloud.Open(ctx, o.Config)
	if err != nil {
		return nil, err
	}
	look, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := stores.Check(look); err != nil {
		return nil, err
	}
	return server.Start(ctx, server.Options{
		Door: o.Door, Meta: stores.Meta, Blob: stores.Blob, Presigner: stores.Blob, Fleet: true, CacheBytes: cacheBytes,
		DrainDelay: o.DrainDelay, Logger: o.Logger, Version: o.Version,
	})
}
