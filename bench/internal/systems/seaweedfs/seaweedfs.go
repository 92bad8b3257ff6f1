// Package seaweedfs runs SeaweedFS with its message queue and calls the broker through its gRPC API.
//
// Its own Go client tells no one which message is acknowledged, and its gateway for Kafka's clients takes only topics
// with a schema in a schema registry. A receiver has one partition, so a group has as many as there are partitions; an
// acknowledgement of what was received is not answered. In the version that is pinned only a backlog can be received: the
// broker wakes subscribers that wait only if a count of them is not 0, and nothing counts them.
package seaweedfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/process"
)

const (
	// version is what tools/peers installs.
	version = "4.53, 2026-11-09"
	// partitions of a topic: as many as Spillway's segments.
	partitions = 4
	// ahead is how many messages a receiver may have that are not acknowledged.
	ahead = 1000
	// maxBytes is the largest message of a stream, either way.
	maxBytes = 64 << 20

	service = "/messaging_pb.SeaweedMessaging/"
)

// Peer is its one setting: the broker keeps messages in memory and writes them out every few seconds.
func Peer() peer.Peer {
	return peer.Peer{
		Name: "seaweedfs", Title: "SeaweedFS MQ", Durability: "none: memory, written out every 5 seconds",
		Notes: map[string]string{
			"": fmt.Sprintf("master, volume, filer and broker in one process, %d partitions, called by gRPC; \"WIP\" by its own help: "+
				"it does not wake a subscriber that waits for messages, so only a backlog can be received", partitions),
			"reference": "bodies go into the log",
		},
		Start: start,
	}
}

type server struct {
	process *process.Process
	conn    *grpc.ClientConn
}

func start(ctx context.Context, o peer.StartOptions) (peer.Server, error) {
	// Each server's gRPC port is 10,000 above its HTTP port unless it is told.
	ports, err := process.FreePorts(ctx, 7)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, "weed")
	if err := os.Mkdir(dir, 0o750); err != nil {
		return nil, err
	}
	args := []string{"-logtostderr", "server", "-master.telemetry=false", "-dir=" + dir, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-mq.broker"}
	for i, flag := range []string{"master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "mq.broker.port"} {
		args = append(args, fmt.Sprintf("-%s=%d", flag, ports[i]))
	}
	p, err := process.Start(process.Options{Name: "weed", Dir: o.Dir, Path: filepath.Join(o.Tools, "weed"), Args: args})
	if err != nil {
		return nil, err
	}
	s := &server{process: p}
	address := fmt.Sprintf("127.0.0.1:%d", ports[6])
	s.conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(
		grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxBytes), grpc.MaxCallSendMsgSize(maxBytes)))
	if err != nil {
		p.Stop()
		return nil, err
	}
	// Listening is not ready: asked for a topic before its broker has found its filer, it crashes, and until it has
	// found who assigns partitions, which takes 20 s, it refuses.
	err = p.Await(ctx, func(ctx context.Context) error {
		if err := p.Logged("found balanacer"); err != nil {
			return err
		}
		_, err := s.configure(ctx, "ready")
		return err
	})
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *server) Version() string { return version }

func (s *server) Pids() []int { return []int{s.process.Pid()} }

func (s *server) Stop() {
	_ = s.conn.Close()
	s.process.Stop()
}

func (s *server) configure(ctx context.Context, name string) ([]assignment, error) {
	request, answer := configure(name, partitions), frame(nil)
	if err := s.conn.Invoke(ctx, service+"ConfigureTopic", &request, &answer); err != nil {
		return nil, err
	}
	all, err := assignments(answer)
	if err == nil && len(all) != partitions {
		err = fmt.Errorf("%d partitions of %d are assigned", len(all), partitions)
	}
	return all, err
}

func (s *server) Queue(ctx context.Context, spec peer.Spec) (peer.Queue, error) {
	if spec.Delayed {
		return nil, fmt.Errorf("a delay: %w", peer.ErrNoFeature)
	}
	all, err := s.configure(ctx, spec.Name)
	return &queue{server: s, name: spec.Name, assignments: all}, err
}

type queue struct {
	server      *server
	name        string
	assignments []assignment
}

func (q *queue) Receivers(int) int { return partitions }

// stream opens one and sends its first message.
func (q *queue) stream(ctx context.Context, method string, first frame) (grpc.ClientStream, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := q.server.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, service+method)
	if err == nil {
		err = stream.SendMsg(&first)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return stream, cancel, nil
}

func (q *queue) Sender(ctx context.Context, i int) (peer.Sender, error) {
	stream, cancel, err := q.stream(ctx, "PublishMessage", publishTo(q.name, q.assignments[i%partitions].partition))
	if err != nil {
		return nil, err
	}
	s := &sender{stream: stream, cancel: cancel, id: i}
	// The first answer says that the stream is open.
	if err := s.await(); err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

func (q *queue) Receiver(ctx context.Context, group, i int) (peer.Receiver, error) {
	name := "group" + strconv.Itoa(group)
	stream, cancel, err := q.stream(ctx, "SubscribeMessage", subscribeTo(q.name, name, name+"-"+strconv.Itoa(i), q.assignments[i%partitions].partition, ahead))
	if err != nil {
		return nil, err
	}
	r := &receiver{stream: stream, cancel: cancel, arrived: make(chan message, ahead), over: make(chan error, 1)}
	go r.read(ctx)
	return r, nil
}

type sender struct {
	stream   grpc.ClientStream
	cancel   context.CancelFunc
	id, sent int
}

func (s *sender) Close() { s.cancel() }

func (s *sender) await() error {
	var answer frame
	if err := s.stream.RecvMsg(&answer); err != nil {
		return err
	}
	return published(answer)
}

// Send sends all and then waits for as many acknowledgements, which come in order.
func (s *sender) Send(_ context.Context, bodies [][]byte, _ time.Duration) error {
	for _, body := range bodies {
		s.sent++
		// A message without a key is not acknowledged, and two of one key are not in flight at once.
		next := data(fmt.Appendf(nil, "%d-%d", s.id, s.sent), body, time.Now().UnixNano())
		if err := s.stream.SendMsg(&next); err != nil {
			return err
		}
	}
	for range bodies {
		if err := s.await(); err != nil {
			return err
		}
	}
	return nil
}

type receiver struct {
	stream  grpc.ClientStream
	cancel  context.CancelFunc
	arrived chan message
	over    chan error
}

func (r *receiver) Close() { r.cancel() }

// read takes messages off the stream until it ends.
func (r *receiver) read(ctx context.Context) {
	for {
		var answer frame
		err := r.stream.RecvMsg(&answer)
		m, ok, decoded := message{}, false, error(nil)
		if err == nil {
			m, ok, decoded = received(answer)
		}
		if err := errors.Join(err, decoded); err != nil {
			r.over <- err
			return
		}
		if !ok {
			continue
		}
		select {
		case r.arrived <- m:
		case <-ctx.Done():
			return
		}
	}
}

func (r *receiver) Receive(ctx context.Context, take func([]byte)) (int, error) {
	var next message
	select {
	case next = <-r.arrived:
	case err := <-r.over:
		return 0, err
	case <-time.After(time.Second):
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n := 1; ; n++ {
		take(next.value)
		done := ack(next)
		if err := r.stream.SendMsg(&done); err != nil || n == ahead {
			return n, err
		}
		select {
		case next = <-r.arrived:
		default:
			return n, nil
		}
	}
}
