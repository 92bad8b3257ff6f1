// Package demo floods a server by reference, consumes the flood, and checks with a record kept outside
// that nothing was lost or doubled.
//
// Vocabulary: the ledger is that record: what producers were told is durable, and what workers
// acknowledged; the flood is the topic that producers fill with batch files and single objects; the
// trickle is the delayed topic.
//
// Invariants: a run ends within Duration and drainTime; the verdict rests on the ledger alone, never
// on what the server says of itself.
package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/drain"
	"github.com/spillway-mq/spillway/pkg/client"
)

const (
	floodTopic   = "demo.flood"
	trickleTopic = "demo.later"
	subscription = "workers"
	segments     = 4
	// drainTime is how long the workers may take to finish once the producers have ended.
	drainTime = 20 * time.Second
	// retryDelay keeps a message that failed hidden: long enough to be seen, short enough to wait.
	retryDelay = 300 * time.Millisecond
	// failEvery is how many messages there are to one whose first delivery fails.
	failEvery = 97
	claimSize = 500
)

// Options say how much there is to see.
type Options struct {
	// Messages ends the flood by count, Duration by time; each is above 0.
	Messages  int64
	Duration  time.Duration
	Producers int
	Workers   int
	// Show hears several times a second how it goes.
	Show func(State)
}

// State is a moment of a run.
type State struct {
	Elapsed            time.Duration
	Wanted             int64
	Produced, Consumed uint64
	ProducedBytes      uint64
	// Files are batch files, Objects single bodies, that were uploaded.
	Files, Objects    uint64
	Retried           uint64
	InFlight, Delayed uint64
	// Flooding until the producers have ended.
	Flooding bool
}

// Lag is how many messages are produced and not consumed.
func (s State) Lag() uint64 {
	if s.Consumed > s.Produced {
		return 0
	}
	return s.Produced - s.Consumed
}

// Result is what the ledger says at the end.
type Result struct {
	Produced         uint64  `json:"produced"`
	Consumed         uint64  `json:"consumed"`
	Bytes            uint64  `json:"bytes"`
	Files            uint64  `json:"batch_files"`
	Objects          uint64  `json:"single_objects"`
	DelayedMessages  uint64  `json:"delayed_messages"`
	Retried          uint64  `json:"retried"`
	Lost             uint64  `json:"lost"`
	Doubled          uint64  `json:"doubled"`
	Early            uint64  `json:"early"`
	Seconds          float64 `json:"seconds"`
	PerSecond        float64 `json:"messages_per_second"`
	ProducedChecksum string  `json:"produced_checksum"`
	ConsumedChecksum string  `json:"consumed_checksum"`
	OK               bool    `json:"ok"`
}

type demo struct {
	client  *client.Client
	options Options
	started time.Time
	ledger  *ledger

	// left is how many messages the producers have not begun yet.
	left                                       atomic.Int64
	files, objects, later                      atomic.Uint64
	inFlight, delayed                          atomic.Uint64
	retried, early                             atomic.Uint64
	produced, consumed, producedBytes, flowing atomic.Uint64
}

// Run does all of it. The error is of a call that failed for good, or of ctx; a run whose ledger does
// not balance is no error, but a Result that is not OK.
func Run(ctx context.Context, c *client.Client, o Options) (Result, error) {
	d := &demo{client: c, options: o, started: time.Now(), ledger: newLedger(o.Producers + 1)}
	d.left.Store(o.Messages)
	if err := d.setUp(ctx); err != nil {
		return Result{}, err
	}
	consuming, stopConsuming := context.WithCancel(ctx)
	defer stopConsuming()
	workers, failure := d.startWorkers(consuming)
	watching, stopWatching := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); d.watch(watching) }()
	d.flowing.Store(1)
	err := d.flood(ctx)
	d.flowing.Store(0)
	if err == nil {
		err = d.drain(ctx, failure)
	}
	stopConsuming()
	workers.Wait()
	stopWatching()
	<-watched
	if err == nil {
		select {
		case err = <-failure:
		default:
		}
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return d.result(), err
}

func (d *demo) setUp(ctx context.Context) error {
	config := client.TopicConfig{Scaling: &client.Scaling{MinSegments: client.Of(segments)}}
	if _, err := d.client.CreateTopic(ctx, floodTopic, config); err != nil {
		return err
	}
	if _, err := d.client.CreateTopic(ctx, trickleTopic, client.TopicConfig{DefaultDelay: client.Of(1.0)}); err != nil {
		return err
	}
	for _, topic := range []string{floodTopic, trickleTopic} {
		_, err := d.client.CreateSubscription(ctx, topic, subscription,
			client.SubscriptionConfig{Start: &client.Position{Word: client.Earliest}})
		if err != nil {
			return err
		}
	}
	return nil
}

// startWorkers consumes both topics until ctx ends. A failure comes over the channel.
func (d *demo) startWorkers(ctx context.Context) (*sync.WaitGroup, chan error) {
	var wg sync.WaitGroup
	failure := make(chan error, 2)
	consume := func(topic string, workers int) {
		_, err := drain.Run(ctx, d.client, drain.Options{
			Topic: topic, Subscription: subscription, Workers: workers, Batch: claimSize,
			Wait: time.Second, Follow: true, RetryDelay: retryDelay, HasRetryDelay: true, Done: d.settled,
		}, d.handle)
		if err != nil {
			failure <- fmt.Errorf("consume %s: %w", topic, err)
		}
	}
	wg.Go(func() { consume(floodTopic, d.options.Workers) })
	wg.Go(func() { consume(trickleTopic, 1) })
	return &wg, failure
}

var errOnPurpose = errors.New("failed on purpose: the demo's handlers do so now and then")

// drain waits until the workers have everything that was produced.
func (d *demo) drain(ctx context.Context, failure chan error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	end := time.After(drainTime)
	for {
		if d.consumed.Load() >= d.produced.Load() {
			// A doubled message would still be on its way: give it the time of a retry.
			time.Sleep(retryDelay)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failure:
			return err
		case <-end:
			return nil
		case <-ticker.C:
		}
	}
}

func (d *demo) result() Result {
	produced, consumed, lost, doubled := d.ledger.balance()
	took := time.Since(d.started)
	r := Result{
		Produced: produced.Count, Consumed: consumed.Count, Bytes: produced.Bytes,
		Files: d.files.Load(), Objects: d.objects.Load(), DelayedMessages: d.later.Load(), Retried: d.retried.Load(),
		Lost: lost, Doubled: doubled, Early: d.early.Load(), Seconds: took.Seconds(),
		PerSecond:        float64(consumed.Count) / took.Seconds(),
		ProducedChecksum: produced.String(), ConsumedChecksum: consumed.String(),
	}
	r.OK = lost == 0 && doubled == 0 && r.Early == 0 && produced.Count > 0 && produced == consumed
	return r
}

// watch shows the state, and asks the server for what only it knows.
func (d *demo) watch(ctx context.Context) {
	const every, ask = 200 * time.Millisecond, time.Second
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			d.show()
			return
		case now := <-ticker.C:
			if now.Sub(asked) >= ask {
				asked = now
				d.ask(ctx)
			}
			d.show()
		}
	}
}

// ask is for show only: an error leaves the last figures.
func (d *demo) ask(ctx context.Context) {
	var inFlight, waiting uint64
	for _, topic := range []string{floodTopic, trickleTopic} {
		s, err := d.client.GetSubscription(ctx, topic, subscription)
		if err != nil || s.Status == nil {
			return
		}
		inFlight += s.Status.InFlight
		waiting += s.Status.Delayed
	}
	t, err := d.client.GetTopic(ctx, trickleTopic)
	if err != nil {
		return
	}
	d.inFlight.Store(inFlight)
	d.delayed.Store(waiting + t.Messages.Delayed)
}

func (d *demo) show() {
	if d.options.Show == nil {
		return
	}
	d.options.Show(State{
		Elapsed: time.Since(d.started), Wanted: d.options.Messages,
		Produced: d.produced.Load(), Consumed: d.consumed.Load(), ProducedBytes: d.producedBytes.Load(),
		Files: d.files.Load(), Objects: d.objects.Load(), Retried: d.retried.Load(),
		InFlight: d.inFlight.Load(), Delayed: d.delayed.Load(), Flooding: d.flowing.Load() == 1,
	})
}
