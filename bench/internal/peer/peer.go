// Package peer says what a message queue must be able to do to take part.
//
// Vocabulary: a peer is one system in one setting, as "NATS JetStream, sync always"; a server is a peer that runs;
// a queue is what a workload sends to and receives from, and each of its groups gets every message.
//
// Invariants: Send comes back when the peer has acknowledged every message as durably as its setting allows;
// Receive acknowledges what it has handed out before it comes back, and waits for that to count. Nothing else in
// the module knows a peer's client.
//
// Non-goals: features that no workload uses.
package peer

import (
	"context"
	"errors"
	"time"
)

// ErrNoFeature says that a peer cannot do what a workload asks for; the text around it says what.
var ErrNoFeature = errors.New("no such feature")

// Peer is one system in one setting.
type Peer struct {
	// Name is a word for flags and files: "nats-sync".
	Name string
	// Title is the row's name, Durability what an acknowledgement means, for the page.
	Title, Durability string
	// Notes say what a workload had to do differently with it, by the workload's name; "" is for all.
	Notes map[string]string
	// Start runs it.
	Start func(context.Context, StartOptions) (Server, error)
}

// StartOptions say with what and where.
type StartOptions struct {
	// Spillway is the program, Tools the folder with the installed peers, Dir an empty one for data and logs. All are
	// absolute.
	Spillway, Tools, Dir string
}

// Server is a peer that runs.
type Server interface {
	// Version is what the row says was measured.
	Version() string
	// Queue makes a queue and its groups.
	Queue(ctx context.Context, spec Spec) (Queue, error)
	// Pids are the server's processes.
	Pids() []int
	// Stop ends the processes and waits for them.
	Stop()
}

// Spec describes a queue.
type Spec struct {
	Name   string
	Groups int
	// Size is the largest body in bytes, Batch the most messages of one Send.
	Size, Batch int
	// Delayed: Send is given delays.
	Delayed bool
	// Reference: bodies go through the peer's store for large objects, if it has one.
	Reference bool
}

// Queue is what a workload sends to and receives from. Safe for concurrent use.
type Queue interface {
	// Sender makes the i-th sender, for one goroutine.
	Sender(ctx context.Context, i int) (Sender, error)
	// Receiver makes the i-th receiver of a group, for one goroutine.
	Receiver(ctx context.Context, group, i int) (Receiver, error)
	// Receivers is how many receivers a group should have if a workload would have n.
	Receivers(n int) int
}

// Sender sends.
type Sender interface {
	// Send sends messages, each delayed by so much, in as few calls as the peer's limits allow. Bodies
	// may be changed once it has come back.
	Send(ctx context.Context, bodies [][]byte, delay time.Duration) error
	Close()
}

// Receiver receives.
type Receiver interface {
	// Receive waits for a second or so, hands each body to take, acknowledges, and says how many there were. A
	// body must not be kept.
	Receive(ctx context.Context, take func(body []byte)) (int, error)
	Close()
}
