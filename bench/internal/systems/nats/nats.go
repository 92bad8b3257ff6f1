// Package nats runs NATS JetStream with a file store and calls it through nats.go.
//
// Each setting gets the way to publish a batch that is the faster one for it: an atomic batch where the server syncs,
// which it does once for all of it, and otherwise one message after the other without waiting in between. Receivers pull
// ahead of what they work on; the last acknowledgement of what was received is waited for, and those before it travel in
// order on the same connection. Large bodies go through JetStream's object store. A delay is a message schedule.
package nats

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/process"
)

const (
	// ahead is how many messages a receiver pulls ahead, and the most it acknowledges at once.
	ahead = 1000
	// inFlight is the most unacknowledged messages of a group: as many as Spillway is given for a segment.
	inFlight = 100_000
	// ackWait is long, so that nothing comes twice because a receiver is slow.
	ackWait = time.Minute
)

// Peers are its two settings.
func Peers() []peer.Peer {
	notes := func(batch string) map[string]string {
		return map[string]string{
			"":          "file store; " + batch,
			"reference": "bodies through JetStream's object store, a message names the object",
			"delayed":   "a message schedule (`@at`, whole seconds) for each message, each on a subject of its own",
		}
	}
	return []peer.Peer{
		{
			Name: "nats-sync", Title: "NATS JetStream, sync always", Durability: "fsync before each acknowledgement",
			Notes: notes("a send is an atomic batch, which is faster here than single messages without waiting"),
			Start: starter("always", true),
		},
		{
			Name: "nats", Title: "NATS JetStream, default", Durability: "page cache; fsync every 2 minutes",
			Notes: notes("a send is single messages without waiting in between, which is faster here than an atomic batch"),
			Start: starter("2m", false),
		},
	}
}

type server struct {
	process *process.Process
	url     string
	control *natsgo.Conn
	// atomic says how a batch is published.
	atomic bool
}

func starter(sync string, atomic bool) func(context.Context, peer.StartOptions) (peer.Server, error) {
	return func(ctx context.Context, o peer.StartOptions) (peer.Server, error) {
		ports, err := process.FreePorts(ctx, 1)
		if err != nil {
			return nil, err
		}
		config := filepath.Join(o.Dir, "nats.conf")
		text := fmt.Sprintf("listen: \"127.0.0.1:%d\"\njetstream {\n  store_dir: %q\n  sync_interval: %s\n}\n", ports[0], filepath.Join(o.Dir, "nats"), sync)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		p, err := process.Start(process.Options{Name: "nats-server", Dir: o.Dir, Path: filepath.Join(o.Tools, "nats-server"), Args: []string{"-c", config}})
		if err != nil {
			return nil, err
		}
		s := &server{process: p, url: fmt.Sprintf("nats://127.0.0.1:%d", ports[0]), atomic: atomic}
		err = p.Await(ctx, func(context.Context) error {
			s.control, err = natsgo.Connect(s.url)
			return err
		})
		if err != nil {
			p.Stop()
			return nil, err
		}
		return s, nil
	}
}

func (s *server) Version() string { return s.control.ConnectedServerVersion() }

func (s *server) Pids() []int { return []int{s.process.Pid()} }

func (s *server) Stop() {
	s.control.Close()
	s.process.Stop()
}

// connect makes a connection of its own, as each producer and consumer of a system has.
func (s *server) connect() (*natsgo.Conn, jetstream.JetStream, error) {
	conn, err := natsgo.Connect(s.url)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, js, nil
}

const objects = "objects"

func groupName(i int) string { return "group" + strconv.Itoa(i) }

func (s *server) Queue(ctx context.Context, spec peer.Spec) (peer.Queue, error) {
	conn, js, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	config := jetstream.StreamConfig{
		Name: spec.Name, Subjects: []string{spec.Name, spec.Name + ".later.*"}, Storage: jetstream.FileStorage,
		AllowAtomicPublish: s.atomic && !spec.Delayed, AllowMsgSchedules: spec.Delayed,
	}
	if _, err := js.CreateStream(ctx, config); err != nil {
		return nil, fmt.Errorf("create stream: %w", err)
	}
	if spec.Reference {
		if _, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: objects}); err != nil {
			return nil, fmt.Errorf("create object store: %w", err)
		}
	}
	for i := range spec.Groups {
		_, err := js.CreateConsumer(ctx, spec.Name, jetstream.ConsumerConfig{
			Durable: groupName(i), FilterSubject: spec.Name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
			DeliverPolicy: jetstream.DeliverAllPolicy, MaxAckPending: inFlight,
		})
		if err != nil {
			return nil, fmt.Errorf("create consumer: %w", err)
		}
	}
	return &queue{server: s, spec: spec}, nil
}

type queue struct {
	server *server
	spec   peer.Spec
}

func (q *queue) Receivers(n int) int { return n }

// endpoint is what sender and receiver have in common.
type endpoint struct {
	conn    *natsgo.Conn
	js      jetstream.JetStream
	objects jetstream.ObjectStore
}

func (q *queue) endpoint(ctx context.Context) (e endpoint, err error) {
	if e.conn, e.js, err = q.server.connect(); err != nil || !q.spec.Reference {
		return e, err
	}
	if e.objects, err = e.js.ObjectStore(ctx, objects); err != nil {
		e.conn.Close()
	}
	return e, err
}

func (q *queue) Sender(ctx context.Context, i int) (peer.Sender, error) {
	e, err := q.endpoint(ctx)
	return &sender{endpoint: e, spec: q.spec, atomic: q.server.atomic, id: i}, err
}

func (q *queue) Receiver(ctx context.Context, group, _ int) (peer.Receiver, error) {
	e, err := q.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	r := &receiver{endpoint: e, arrived: make(chan jetstream.Msg, ahead), over: make(chan struct{})}
	consumer, err := e.js.Consumer(ctx, q.spec.Name, groupName(group))
	if err == nil {
		r.pull, err = consumer.Consume(func(m jetstream.Msg) {
			select {
			case r.arrived <- m:
			case <-r.over:
			}
		}, jetstream.PullMaxMessages(ahead))
	}
	if err != nil {
		e.conn.Close()
		return nil, err
	}
	return r, nil
}

type sender struct {
	endpoint
	spec     peer.Spec
	atomic   bool
	id, sent int
}

func (s *sender) Close() { s.conn.Close() }

func (s *sender) Send(ctx context.Context, bodies [][]byte, delay time.Duration) error {
	switch {
	case s.spec.Reference:
		return s.refer(ctx, bodies)
	case s.spec.Delayed:
		return s.later(ctx, bodies, delay)
	case len(bodies) == 1:
		_, err := s.js.Publish(ctx, s.spec.Name, bodies[0])
		return err
	}
	if !s.atomic {
		return s.publish(ctx, bodies, func(body []byte) (jetstream.PubAckFuture, error) { return s.js.PublishAsync(s.spec.Name, body) })
	}
	batch := make([]*natsgo.Msg, len(bodies))
	for i, body := range bodies {
		batch[i] = &natsgo.Msg{Subject: s.spec.Name, Data: body, Header: natsgo.Header{}}
	}
	_, err := jetstreamext.PublishMsgBatch(ctx, s.js, batch)
	return err
}

// publish publishes one by one without waiting in between, and then waits for all.
func (s *sender) publish(ctx context.Context, bodies [][]byte, one func([]byte) (jetstream.PubAckFuture, error)) error {
	futures := make([]jetstream.PubAckFuture, 0, len(bodies))
	for _, body := range bodies {
		future, err := one(body)
		if err != nil {
			return err
		}
		futures = append(futures, future)
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *sender) refer(ctx context.Context, bodies [][]byte) error {
	for _, body := range bodies {
		s.sent++
		name := fmt.Sprintf("%d-%d", s.id, s.sent)
		if _, err := s.objects.PutBytes(ctx, name, body); err != nil {
			return err
		}
		if _, err := s.js.Publish(ctx, s.spec.Name, []byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// later publishes schedules, which an atomic batch may not hold.
func (s *sender) later(ctx context.Context, bodies [][]byte, delay time.Duration) error {
	// Schedules have whole seconds: rounded up, so that nothing is early.
	at := time.Now().Add(delay + time.Second - time.Nanosecond).Truncate(time.Second)
	return s.publish(ctx, bodies, func(body []byte) (jetstream.PubAckFuture, error) {
		s.sent++
		return s.js.PublishAsync(fmt.Sprintf("%s.later.%d-%d", s.spec.Name, s.id, s.sent), body,
			jetstream.WithScheduleAt(at), jetstream.WithScheduleTarget(s.spec.Name))
	})
}

type receiver struct {
	endpoint
	pull    jetstream.ConsumeContext
	arrived chan jetstream.Msg
	over    chan struct{}
}

func (r *receiver) Close() {
	close(r.over)
	r.pull.Stop()
	r.conn.Close()
}

func (r *receiver) Receive(ctx context.Context, take func([]byte)) (int, error) {
	var first jetstream.Msg
	select {
	case first = <-r.arrived:
	case <-time.After(time.Second):
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	n := 0
	for m := first; ; {
		n++
		if err := r.hand(ctx, m, take); err != nil {
			return 0, err
		}
		var next jetstream.Msg
		if n < ahead {
			select {
			case next = <-r.arrived:
			default:
			}
		}
		if next == nil {
			return n, m.DoubleAck(ctx)
		}
		if err := m.Ack(); err != nil {
			return 0, err
		}
		m = next
	}
}

func (r *receiver) hand(ctx context.Context, m jetstream.Msg, take func([]byte)) error {
	if r.objects == nil {
		take(m.Data())
		return nil
	}
	object, err := r.objects.Get(ctx, string(m.Data()))
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }()
	var body bytes.Buffer
	if _, err := body.ReadFrom(object); err != nil {
		return err
	}
	take(body.Bytes())
	return nil
}
