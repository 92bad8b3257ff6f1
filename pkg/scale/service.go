package scale

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

const (
	// leaderLease is the name of the leader's lease.
	leaderLease = "leader"
	// LeaderTTL is how long a leader that stopped keeps others from taking over. A change takes much less.
	LeaderTTL = 10 * time.Second
	// commitTries bounds how often a change is tried again on a store that refuses, some seconds in all: it
	// comes through among the many writers of the very segment that it is to relieve.
	commitTries = 50
	// pressedFor is how long an alert of pressure counts.
	pressedFor = 2 * time.Minute
	// watchFor is how long a topic is watched at least: rates need a while to show.
	watchFor = 5 * time.Minute
)

// Topics finds topics and their policies; *topics.Service is one.
type Topics interface {
	// OpenID reads a topic by id, past the cache.
	OpenID(ctx context.Context, name string, id queue.TopicID) (*topics.Map, error)
	// Reload reads a topic by name, past the cache.
	Reload(ctx context.Context, name string) (*topics.Map, error)
	// Forget drops a topic from the cache.
	Forget(name string)
	// Heads reads heads, in the order of segs.
	Heads(ctx context.Context, segs []*meta.Segment) ([]*meta.Head, error)
	// Policy is a topic's scaling policy.
	Policy(m *topics.Map) topics.Policy
}

// Deps are what a Service stands on. All but Logger are required.
type Deps struct {
	Meta   meta.Store
	Topics Topics
	Lease  *lease.Keeper
	IDs    *queue.IDs
	Clock  queue.Clock
	// Logger hears of each change and its reason; nil drops it.
	Logger *slog.Logger
	// Patience is how long a run waits for the lease of a leader that may have stopped. 0 suits a process
	// that runs again and again, and so watches the lease; one that is called for one run needs a little
	// more than LeaderTTL.
	Patience time.Duration
}

// Service changes segments: as the leader (Run), or by hand (Split, Merge). Safe for concurrent use, also
// by any number of processes.
type Service struct {
	Deps
}

// New makes a Service.
func New(d Deps) *Service {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{d}
}
