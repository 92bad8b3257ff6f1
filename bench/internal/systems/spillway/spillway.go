// Package spillway runs `spillway serve` on embedded storage, one process or several, and calls it through pkg/client.
//
// Several processes have a data folder each; sender and receiver i talk to process i modulo their number, so
// together they are one queue without order.
package spillway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/process"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// segments of a topic, spread over the processes.
	segments = 4
	// claim is the most messages that a receiver takes at once, wait how long it waits for a first.
	claim = 1000
	wait  = time.Second
)

// Peer is Spillway in so many processes.
func Peer(processes int) peer.Peer {
	p := peer.Peer{
		Name: "spillway", Title: "Spillway", Durability: "fsync before each acknowledgement, shared by calls",
		Notes: map[string]string{"": fmt.Sprintf("`serve`, embedded storage, a topic of %d segments", segments)},
		Start: func(ctx context.Context, o peer.StartOptions) (peer.Server, error) { return start(ctx, o, processes) },
	}
	if processes > 1 {
		p.Name, p.Title = fmt.Sprintf("spillway-%d", processes), fmt.Sprintf("Spillway, %d processes", processes)
		p.Notes[""] = fmt.Sprintf("%d times `serve`, each with a data folder of its own, the client spreads its calls over them", processes)
	}
	return p
}

type server struct {
	processes []*process.Process
	clients   []*client.Client
}

func start(ctx context.Context, o peer.StartOptions, n int) (peer.Server, error) {
	s := &server{}
	for i := range n {
		if err := s.add(ctx, o, i); err != nil {
			s.Stop()
			return nil, err
		}
	}
	return s, nil
}

func (s *server) add(ctx context.Context, o peer.StartOptions, i int) error {
	name := "spillway" + strconv.Itoa(i)
	address := filepath.Join(o.Dir, name+".url")
	p, err := process.Start(process.Options{
		Name: name, Dir: o.Dir, Path: o.Spillway,
		Args: []string{"serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(o.Dir, name), "--address-file", address, "--log-level", "warn"},
	})
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	return p.Await(ctx, func(context.Context) error {
		url, err := os.ReadFile(address)
		if err != nil {
			return err
		}
		c, err := client.New(strings.TrimSpace(string(url)), client.Options{})
		if err != nil {
			return err
		}
		s.clients = append(s.clients, c)
		return nil
	})
}

func (s *server) Version() string { return "this commit" }

func (s *server) Pids() []int {
	pids := make([]int, 0, len(s.processes))
	for _, p := range s.processes {
		pids = append(pids, p.Pid())
	}
	return pids
}

func (s *server) Stop() {
	for _, c := range s.clients {
		c.Close()
	}
	for _, p := range s.processes {
		p.Stop()
	}
}

func (s *server) Queue(ctx context.Context, spec peer.Spec) (peer.Queue, error) {
	// Its length is fixed, so that the load decides nothing that the run is not about.
	each := max(1, segments/len(s.clients))
	config := client.TopicConfig{
		Scaling:         &client.Scaling{MinSegments: &each, MaxSegments: &each},
		MaxMessageBytes: client.Of(int64(min(max(spec.Size, queue.DefaultMaxMessageBytes), queue.MaxInlineMessageBytes))),
	}
	if spec.Delayed {
		// Above 0 makes the topic a delayed one; each message says its own.
		config.DefaultDelay = client.Seconds(time.Second)
	}
	for _, c := range s.clients {
		if _, err := c.CreateTopic(ctx, spec.Name, config); err != nil {
			return nil, err
		}
		for group := range spec.Groups {
			inFlight := queue.MaxMaxInFlight
			config := client.SubscriptionConfig{MaxInFlight: &inFlight, Start: &client.Position{Word: client.Earliest}}
			if _, err := c.CreateSubscription(ctx, spec.Name, groupName(group), config); err != nil {
				return nil, err
			}
		}
	}
	return &line{server: s, spec: spec}, nil
}

func groupName(i int) string { return "group" + strconv.Itoa(i) }

type line struct {
	server *server
	spec   peer.Spec
}

func (l *line) Receivers(n int) int { return max(n, len(l.server.clients)) }

func (l *line) Sender(_ context.Context, i int) (peer.Sender, error) {
	return &sender{
		client: l.server.clients[i%len(l.server.clients)], spec: l.spec,
		guard: client.Guard{ProducerID: "sender" + strconv.Itoa(i)},
	}, nil
}

func (l *line) Receiver(_ context.Context, group, i int) (peer.Receiver, error) {
	return &receiver{client: l.server.clients[i%len(l.server.clients)], topic: l.spec.Name, group: groupName(group)}, nil
}

type sender struct {
	client   *client.Client
	spec     peer.Spec
	guard    client.Guard
	messages []client.Message
}

func (s *sender) Close() {}

func (s *sender) Send(ctx context.Context, bodies [][]byte, delay time.Duration) error {
	s.guard.Sequence++
	if s.spec.Reference {
		return s.refer(ctx, bodies)
	}
	s.messages = s.messages[:0]
	for _, body := range bodies {
		m := client.Message{Body: body}
		if s.spec.Delayed {
			m.Delay = &delay
		}
		s.messages = append(s.messages, m)
	}
	results, err := s.client.Produce(ctx, s.spec.Name, s.messages, s.guard)
	if err != nil {
		return err
	}
	return failed(results)
}

func (s *sender) refer(ctx context.Context, bodies [][]byte) error {
	references := make([]client.Reference, 0, len(bodies))
	for _, body := range bodies {
		object, err := s.client.UploadBytes(ctx, s.spec.Name, body)
		if err != nil {
			return err
		}
		references = append(references, client.Reference{Object: object})
	}
	answers, err := s.client.Reference(ctx, s.spec.Name, references, s.guard)
	if err != nil {
		return err
	}
	var failures []error
	for _, answer := range answers {
		failures = append(failures, failed(answer.Results))
	}
	return errors.Join(failures...)
}

func failed(results []client.Result) error {
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
	}
	return nil
}

type receiver struct {
	client       *client.Client
	topic, group string
	receipts     []client.Receipt
}

func (r *receiver) Close() {}

func (r *receiver) Receive(ctx context.Context, take func([]byte)) (int, error) {
	messages, err := r.client.Claim(ctx, r.topic, r.group, client.ClaimOptions{MaxMessages: claim, MaxBytes: queue.MaxClaimBytes, Wait: wait})
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	r.receipts = r.receipts[:0]
	for _, m := range messages {
		body, err := m.Bytes(ctx)
		if err != nil {
			return 0, errors.Join(m.Err, err)
		}
		take(body)
		r.add(m.Receipt)
	}
	results, err := r.client.Ack(ctx, r.topic, r.group, r.receipts)
	return len(messages), errors.Join(append(results, err)...)
}

// add puts receipts of neighbours in one claim together, which makes the call short.
func (r *receiver) add(next client.Receipt) {
	if n := len(r.receipts) - 1; n >= 0 {
		last := &r.receipts[n]
		if last.Segment == next.Segment && last.Claim == next.Claim && last.Hi == next.Lo {
			last.Hi = next.Hi
			return
		}
	}
	r.receipts = append(r.receipts, next)
}
