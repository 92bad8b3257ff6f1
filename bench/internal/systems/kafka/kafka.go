// Package kafka runs Apache Kafka, one node in KRaft mode, and calls it through franz-go.
//
// A group has one member, which reads all partitions at once, as its client does anyway; it acknowledges by
// committing offsets. There is nowhere else for large bodies, so they go into the log.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/process"
)

const (
	version = "4.4.0"
	// partitions of a topic: as many as Spillway's segments.
	partitions = 4
	// maxBytes is the largest record, with room for what stands around a body.
	maxBytes = 16 << 20
	// clusterID is any: base64 of 16 bytes.
	clusterID = "c3BpbGx3YXktYmVuY2gtMQ"
)

// Peers are its two settings.
func Peers() []peer.Peer {
	const own = "each sender is a client of its own, so nothing is batched across senders"
	notes := map[string]string{
		"":          fmt.Sprintf("KRaft, one node, %d partitions, acks=all; acknowledges by committing offsets, one group member", partitions),
		"single":    own,
		"latency":   own,
		"reference": "no store for large bodies: they go into the log, with message.max.bytes raised",
	}
	return []peer.Peer{
		{
			Name: "kafka-flush", Title: "Apache Kafka, flush per message", Durability: "fsync before each acknowledgement (log.flush.interval.messages=1)",
			Notes: notes, Start: starter("log.flush.interval.messages=1\n"),
		},
		{Name: "kafka", Title: "Apache Kafka, default", Durability: "page cache", Notes: notes, Start: starter("")},
	}
}

type server struct {
	process *process.Process
	broker  string
}

func starter(setting string) func(context.Context, peer.StartOptions) (peer.Server, error) {
	return func(ctx context.Context, o peer.StartOptions) (peer.Server, error) {
		ports, err := process.FreePorts(ctx, 2)
		if err != nil {
			return nil, err
		}
		config := filepath.Join(o.Dir, "server.properties")
		text := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=%[4]d
%[5]s`, ports[0], ports[1], filepath.Join(o.Dir, "kafka"), maxBytes, setting)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		classes := filepath.Join(o.Tools, "kafka", "*")
		format := exec.CommandContext(ctx, "java", "-cp", classes, "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", config) //nolint:gosec // our own arguments
		if out, err := format.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("format the log: %w: %s", err, strings.TrimSpace(string(out)))
		}
		// The options of Kafka's own start script.
		p, err := process.Start(process.Options{Name: "kafka", Dir: o.Dir, Path: "java", Args: []string{
			"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
			"-cp", classes, "kafka.Kafka", config,
		}})
		if err != nil {
			return nil, err
		}
		s := &server{process: p, broker: fmt.Sprintf("127.0.0.1:%d", ports[0])}
		if err := p.Await(ctx, process.Listening(s.broker)); err != nil {
			p.Stop()
			return nil, err
		}
		return s, nil
	}
}

func (s *server) Version() string { return version }

func (s *server) Pids() []int { return []int{s.process.Pid()} }

func (s *server) Stop() { s.process.Stop() }

func (s *server) Queue(ctx context.Context, spec peer.Spec) (peer.Queue, error) {
	if spec.Delayed {
		return nil, fmt.Errorf("a delay: %w", peer.ErrNoFeature)
	}
	return NewQueue(ctx, s.broker, spec, partitions)
}

// NewQueue makes a topic at a broker that speaks Kafka's protocol.
func NewQueue(ctx context.Context, broker string, spec peer.Spec, parts int32) (peer.Queue, error) {
	control, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = spec.Name, parts, 1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics, request.TimeoutMillis = append(request.Topics, topic), 30_000
	answer, err := request.RequestWith(ctx, control)
	if err != nil {
		return nil, fmt.Errorf("create topic: %w", err)
	}
	if err := kerr.ErrorForCode(answer.Topics[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("create topic: %w", err)
	}
	return &queue{broker: broker, spec: spec}, nil
}

type queue struct {
	broker string
	spec   peer.Spec
}

func (q *queue) Receivers(int) int { return 1 }

func (q *queue) Sender(context.Context, int) (peer.Sender, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(q.broker), kgo.DefaultProduceTopic(q.spec.Name), kgo.RequiredAcks(kgo.AllISRAcks()),
		// A Send has its batch at hand: to wait for more would only slow it.
		kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(maxBytes-1024), kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	return &sender{client: client}, err
}

func (q *queue) Receiver(_ context.Context, group, _ int) (peer.Receiver, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(q.broker), kgo.ConsumeTopics(q.spec.Name), kgo.ConsumerGroup("group"+strconv.Itoa(group)),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	return &receiver{client: client}, err
}

type sender struct{ client *kgo.Client }

func (s *sender) Close() { s.client.Close() }

func (s *sender) Send(ctx context.Context, bodies [][]byte, _ time.Duration) error {
	records := make([]*kgo.Record, len(bodies))
	for i, body := range bodies {
		records[i] = &kgo.Record{Value: body}
	}
	return s.client.ProduceSync(ctx, records...).FirstErr()
}

type receiver struct{ client *kgo.Client }

func (r *receiver) Close() { r.client.Close() }

func (r *receiver) Receive(ctx context.Context, take func([]byte)) (int, error) {
	wait, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	fetches := r.client.PollFetches(wait)
	if err := fetches.Err(); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return 0, nil
		}
		return 0, err
	}
	n := 0
	fetches.EachRecord(func(record *kgo.Record) {
		take(record.Value)
		n++
	})
	if n == 0 {
		return 0, nil
	}
	return n, r.client.CommitUncommittedOffsets(ctx)
}
