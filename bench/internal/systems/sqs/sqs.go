// Package sqs runs servers that speak the API of SQS: ElasticMQ, called through aws-sdk-go-v2, and goaws, which knows only
// the older Query protocol and is called by a small client of its own.
//
// A call carries up to 10 messages and 256 KiB, so a Send makes several, one after the other. The API has no groups:
// each group is a queue, and the sender sends to all of them.
package sqs

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/process"
)

const (
	// maxEntries and maxBytes bound a call.
	maxEntries = 10
	maxBytes   = 256 << 10
	// visibility is long, so that nothing comes twice because a receiver is slow; in seconds.
	visibility = 60
	// waitSeconds is how long a receive waits for a first message.
	waitSeconds = 1
)

func notes() map[string]string {
	return map[string]string{
		"":        "10 messages a call, the API's limit",
		"large":   "2 messages a call: 256 KiB, the API's limit",
		"fanout":  "no groups: the sender sends to 4 queues",
		"delayed": "10 messages a call; whole seconds",
	}
}

// message is one that is received.
type message struct {
	Body    string `xml:"Body"`
	Receipt string `xml:"ReceiptHandle"`
}

// api is what is used of it, in one protocol.
type api interface {
	ready(ctx context.Context) error
	create(ctx context.Context, name string) (url string, err error)
	// send takes what fits into a call.
	send(ctx context.Context, url string, bodies [][]byte, seconds int) error
	receive(ctx context.Context, url string) ([]message, error)
	remove(ctx context.Context, url string, messages []message) error
}

type server struct {
	process *process.Process
	version string
	api     api
}

// serve waits until a started server answers.
func serve(ctx context.Context, p *process.Process, port int, version string, dial func(string, *http.Client) api) (peer.Server, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.Proxy = 0, 256, nil
	s := &server{process: p, version: version, api: dial(fmt.Sprintf("http://127.0.0.1:%d", port), &http.Client{Transport: transport})}
	if err := p.Await(ctx, s.api.ready); err != nil {
		p.Stop()
		return nil, err
	}
	return s, nil
}

func (s *server) Version() string { return s.version }

func (s *server) Pids() []int { return []int{s.process.Pid()} }

func (s *server) Stop() { s.process.Stop() }

func (s *server) Queue(ctx context.Context, spec peer.Spec) (peer.Queue, error) {
	if spec.Size > maxBytes {
		return nil, fmt.Errorf("a message has 256 KiB at most, and the extended client needs S3 besides: %w", peer.ErrNoFeature)
	}
	q := &queue{api: s.api}
	for i := range spec.Groups {
		url, err := s.api.create(ctx, spec.Name+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		q.urls = append(q.urls, url)
	}
	return q, nil
}

type queue struct {
	api  api
	urls []string
}

func (q *queue) Receivers(n int) int { return n }

func (q *queue) Sender(context.Context, int) (peer.Sender, error) { return &sender{queue: q}, nil }

func (q *queue) Receiver(_ context.Context, group, _ int) (peer.Receiver, error) {
	return &receiver{api: q.api, url: q.urls[group]}, nil
}

type sender struct{ queue *queue }

func (s *sender) Close() {}

func (s *sender) Send(ctx context.Context, bodies [][]byte, delay time.Duration) error {
	// The API has whole seconds: rounded up, so that nothing is early.
	seconds := int((delay + time.Second - 1) / time.Second)
	for _, url := range s.queue.urls {
		for rest := bodies; len(rest) > 0; {
			n := fit(rest)
			if err := s.queue.api.send(ctx, url, rest[:n], seconds); err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	return nil
}

// fit says how many of the first messages one call takes; at least one.
func fit(bodies [][]byte) int {
	n, size := 0, 0
	for _, body := range bodies {
		size += len(body)
		if n == maxEntries || n > 0 && size > maxBytes {
			break
		}
		n++
	}
	return n
}

type receiver struct {
	api api
	url string
}

func (r *receiver) Close() {}

func (r *receiver) Receive(ctx context.Context, take func([]byte)) (int, error) {
	messages, err := r.api.receive(ctx, r.url)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	for i := range messages {
		take([]byte(messages[i].Body))
	}
	return len(messages), r.api.remove(ctx, r.url, messages)
}
