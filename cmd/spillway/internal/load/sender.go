package load

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
)

// MaxLanes bounds the calls side by side: the SDK's own bound.
const MaxLanes = 64

const (
	// pendingMessages and pendingBytes bound what is sent and has no result yet.
	pendingMessages = 1 << 16
	pendingBytes    = 32 << 20
	// maxTimeout is the SDK's bound.
	maxTimeout = 10 * time.Minute
)

// SenderOptions say how messages travel; zero fields take the defaults.
type SenderOptions struct {
	Batch, Lanes int
	// Timeout is how long a batch is tried before its messages fail.
	Timeout time.Duration
	// ByReference uploads batch files to the object store and submits references to them, so that
	// the server never sees a body.
	ByReference bool
}

// NewSender makes a sender to a topic. The error is about the options.
func NewSender(c *client.Client, topic string, o SenderOptions) (Sender, error) {
	if o.ByReference {
		return newReferenceSender(c, topic, o), nil
	}
	p, err := client.NewProducer(c, topic, client.ProducerOptions{
		MaxBatchMessages: o.Batch, Lanes: o.Lanes, MaxInFlightBytes: pendingBytes, DeliveryTimeout: min(o.Timeout, maxTimeout),
	})
	if err != nil {
		return nil, err
	}
	s := &producerSender{producer: p, pending: make(chan pending, pendingMessages), finished: make(chan struct{})}
	go s.collect()
	return s, nil
}

// producerSender sends through the SDK's Producer.
type producerSender struct {
	producer *client.Producer
	pending  chan pending
	finished chan struct{}
}

type pending struct {
	future *client.Future
	done   func(client.Result)
}

// Send implements Sender.
func (s *producerSender) Send(ctx context.Context, m client.Message, done func(client.Result)) error {
	f, err := s.producer.Send(ctx, m)
	if err != nil {
		return err
	}
	s.pending <- pending{f, done}
	return nil
}

// collect passes results on, in the order of the sends. Each comes: a producer resolves all that it
// has taken.
func (s *producerSender) collect() {
	defer close(s.finished)
	for p := range s.pending {
		<-p.future.Done()
		result, _ := p.future.Result()
		p.done(result)
	}
}

// Close implements Sender. The producer's own error lists failures that each message's result has
// told already.
func (s *producerSender) Close(ctx context.Context) error {
	_ = s.producer.Close(ctx)
	close(s.pending)
	<-s.finished
	return nil
}
