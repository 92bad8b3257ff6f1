package client

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	defaultParallelism  = 8
	maxParallelism      = 10_000
	defaultClaimSize    = 100
	defaultWait         = 10 * time.Second
	defaultFetchBelow   = 1 << 20
	defaultDrainTimeout = 30 * time.Second
	defaultAckLinger    = 5 * time.Millisecond
	// settleGrace is how long a drain waits for the last acks and releases.
	settleGrace = 10 * time.Second
	// claimGrace is how long a claim under way may go on after the run's context ended. Cut off at
	// once, it might have been granted already: its messages would be hidden until their claim ends.
	claimGrace = 200 * time.Millisecond
)

// Handler works on one message. Without an error the message is acked; with one it is released (see
// RetryAfter and DeadLetter). ctx ends when the claim is lost (context.Cause is ErrClaimLost) and when a
// drain runs out of time. The message must not be used after the handler returns.
type Handler func(ctx context.Context, m *Received) error

// ConsumerOptions are the optional arguments of NewConsumer. Zero fields take the defaults.
type ConsumerOptions struct {
	// Parallelism is how many handlers run at once, 1 to 10,000; 8 unless set.
	Parallelism int
	// MaxMessages bounds one claim, 1 to queue.MaxClaimMessages; 100 unless set.
	MaxMessages int
	// MaxBytes bounds the bodies of one claim, 1 to queue.MaxClaimBytes; the server's default
	// unless set.
	MaxBytes int64
	// Prefetch is how many messages are claimed ahead of the handlers; the larger of Parallelism and
	// MaxMessages unless set, negative for none. No more than Parallelism + Prefetch are held.
	Prefetch int
	// Wait is how long a claim waits for a first message, up to queue.MaxWait; 10 s unless set,
	// negative for not at all: empty claims are then made with growing pauses.
	Wait time.Duration
	// VisibilityTimeout is how long a claim holds unless it is extended, queue.MinVisibilityTimeout
	// to queue.MaxVisibilityTimeout; the subscription's unless set.
	VisibilityTimeout time.Duration
	// NoAutoExtend leaves claims as they are. Otherwise a claim is extended at half of its
	// visibility timeout for as long as its messages wait or are worked on.
	NoAutoExtend bool
	// ByReference asks for presigned URLs in place of bodies, so that they do not pass through the
	// server. Bodies too large for an answer come so in any case.
	ByReference bool
	// FetchBelow is the size in bytes up to which a body that came by reference is fetched before
	// its handler runs; 1 MiB unless set, negative for never. Others have a nil Body: see
	// Received.Open.
	FetchBelow int64
	// DrainTimeout is how long handlers may go on after Run's context ended, before theirs ends; 30 s
	// unless set.
	DrainTimeout time.Duration
	// AckLinger is how long an ack waits for others to share its call; 5 ms unless set.
	AckLinger time.Duration
	// OnError is told of what goes wrong and is not the caller's to return: failed claims that are
	// tried again, handlers' errors and panics (as *MessageError), lost claims, acks that failed. It
	// may be called by several goroutines at once and must not block. Nil drops them.
	OnError func(error)
}

func (o ConsumerOptions) withDefaults() (ConsumerOptions, error) {
	o.Parallelism = orDefault(o.Parallelism, defaultParallelism)
	o.MaxMessages = orDefault(o.MaxMessages, defaultClaimSize)
	o.Prefetch = max(orDefault(o.Prefetch, max(o.Parallelism, o.MaxMessages)), 0)
	o.Wait = max(orDefault(o.Wait, defaultWait), 0)
	o.FetchBelow = orDefault(o.FetchBelow, defaultFetchBelow)
	o.DrainTimeout = orDefault(o.DrainTimeout, defaultDrainTimeout)
	o.AckLinger = orDefault(o.AckLinger, defaultAckLinger)
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	visibility := orDefault(o.VisibilityTimeout, queue.DefaultVisibilityTimeout)
	for _, r := range []struct {
		field       string
		got, lo, hi int64
	}{
		{"parallelism", int64(o.Parallelism), 1, maxParallelism},
		{"max_messages", int64(o.MaxMessages), 1, queue.MaxClaimMessages},
		{"max_bytes", o.MaxBytes, 0, queue.MaxClaimBytes},
		{"prefetch", int64(o.Prefetch), 0, queue.MaxMaxInFlight},
		{"wait", int64(o.Wait), 0, int64(queue.MaxWait)},
		{"visibility_timeout", int64(visibility), int64(queue.MinVisibilityTimeout), int64(queue.MaxVisibilityTimeout)},
		{"drain_timeout", int64(o.DrainTimeout), 0, int64(queue.MaxVisibilityTimeout)},
		{"ack_linger", int64(o.AckLinger), 0, int64(time.Second)},
	} {
		if err := queue.Whole(r.field, r.got, r.lo, r.hi); err != nil {
			return o, err
		}
	}
	return o, nil
}

// Consumer hands the messages of one subscription to a handler. Of a subscription with OrderingKey it
// hands out one message of a key at a time, in order; what follows a message that was not done goes back.
type Consumer struct {
	client              *Client
	topic, subscription string
	options             ConsumerOptions
}

// NewConsumer makes a consumer. It makes no call. The error is of KindInvalid and names the topic,
// the subscription or the option.
func NewConsumer(c *Client, topic, subscription string, o ConsumerOptions) (*Consumer, error) {
	if err := queue.ValidateTopicName("topic", topic); err != nil {
		return nil, err
	}
	if err := queue.ValidateSubscriptionName("subscription", subscription); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Consumer{client: c, topic: topic, subscription: subscription, options: o}, nil
}

// Run claims messages and hands them to handler until ctx ends, and then drains: it claims no more,
// gives messages back that no handler has begun, without counting the delivery, lets handlers finish,
// and settles what they did. It comes back when every handler has; one that takes longer than
// DrainTimeout sees its own context end.
//
// The error is nil if ctx ended it. Otherwise claims cannot succeed (ErrSubscriptionNotFound,
// ErrUnauthorized and the like) and Run has drained in the same way. Run may be called again, also
// while it runs.
func (c *Consumer) Run(ctx context.Context, handler Handler) error {
	s, err := c.client.GetSubscription(ctx, c.topic, c.subscription)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil //nolint:nilerr // the end of ctx is a plain end
	case err != nil:
		return err
	}
	visibility := c.options.VisibilityTimeout
	if visibility == 0 {
		visibility = queue.DefaultVisibilityTimeout
		if v := s.Config.VisibilityTimeout; v != nil {
			if visibility, err = queue.Seconds("visibility_timeout", *v, queue.MinVisibilityTimeout, queue.MaxVisibilityTimeout); err != nil {
				return malformed("get subscription", err)
			}
		}
	}
	r := newRun(ctx, c, handler, visibility)
	r.ordered = s.Config.Ordering != nil && *s.Config.Ordering == OrderingKey
	return r.run(ctx)
}

// running is one Run.
type running struct {
	*Consumer
	handler Handler
	// ordered: of one key's messages a handler has one at a time, in order.
	ordered bool
	// bound is how many messages may be held at once.
	bound int
	// work holds claimed messages that no handler has begun, of an ordered run the first of each key
	// in an answer; its capacity is bound.
	work  chan *delivery
	holds *holds
	acks  *settler

	// handlers is the context that handlers' contexts come from; cut ends it.
	handlers context.Context // lives exactly as long as the run
	cut      context.CancelFunc
	draining chan struct{} // closed when no handler is to begin any more

	mu sync.Mutex // guards held
	// held counts messages from the claim that asks for them to the end of their handler.
	held  int
	freed chan struct{} // holds a token when held went down
}

func newRun(ctx context.Context, c *Consumer, handler Handler, visibility time.Duration) *running {
	r := &running{
		Consumer: c, handler: handler, bound: c.options.Parallelism + c.options.Prefetch,
		draining: make(chan struct{}), freed: make(chan struct{}, 1),
	}
	r.work = make(chan *delivery, r.bound)
	// The end of ctx begins a drain and must not end handlers or their settling.
	r.handlers, r.cut = context.WithCancel(context.WithoutCancel(ctx))
	r.holds = newHolds(c, visibility)
	r.acks = newSettler(c, r.holds, r.bound)
	return r
}

func (r *running) run(ctx context.Context) error {
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background, workers sync.WaitGroup
	background.Go(func() { r.holds.run(lasting) })
	settled := make(chan struct{})
	go func() { defer close(settled); r.acks.run(lasting) }()
	for range r.options.Parallelism {
		workers.Go(func() {
			for d := range r.work {
				r.handleAll(d)
			}
		})
	}

	claims, endClaims := context.WithCancel(context.WithoutCancel(ctx))
	defer endClaims()
	background.Go(func() { r.watch(ctx, lasting, endClaims) })

	err := r.claimAll(ctx, claims)

	close(r.draining)
	close(r.work)
	for d := range r.work { // the workers may all be busy
		r.handleAll(d)
	}
	workers.Wait()
	r.cut()
	close(r.acks.in)
	last := time.AfterFunc(settleGrace, stop)
	<-settled
	last.Stop()
	stop()
	background.Wait()
	return err
}

// watch cuts off, some time after ctx ended or draining began, what takes too long: the last claim, and
// the handlers. It ends with the run.
func (r *running) watch(ctx, lasting context.Context, endClaims context.CancelFunc) {
	select {
	case <-ctx.Done():
	case <-r.draining:
	}
	grace, patience := time.NewTimer(claimGrace), time.NewTimer(r.options.DrainTimeout)
	defer grace.Stop()
	defer patience.Stop()
	for {
		select {
		case <-grace.C:
			endClaims()
		case <-patience.C:
			r.cut()
		case <-lasting.Done():
			return
		}
	}
}

// claimAll claims until ctx ends, or until claims cannot succeed. A claim itself ends with claims.
func (r *running) claimAll(ctx, claims context.Context) error {
	failed, empty := 0, 0
	for {
		n := r.reserve(ctx)
		if n == 0 {
			return nil
		}
		began := time.Now()
		messages, err := r.client.Claim(claims, r.topic, r.subscription, ClaimOptions{
			MaxMessages: n, MaxBytes: r.options.MaxBytes, Wait: r.options.Wait,
			VisibilityTimeout: r.holds.visibility, ByReference: r.options.ByReference,
		})
		r.give(n - len(messages))
		r.accept(messages, began)
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is a plain end
		case hopeless(err):
			return err
		case err != nil:
			r.options.OnError(err)
			failed++
			pause = r.client.pause(failed, err)
		case len(messages) == 0 && time.Since(began) < r.options.Wait/2, len(messages) == 0 && r.options.Wait == 0:
			// A server that does not wait must not be asked in a tight loop.
			failed = 0
			empty++
			pause = r.client.pause(empty, nil)
		default:
			failed, empty = 0, 0
		}
		if pause > 0 && !sleepUntilDone(ctx, pause) {
			return nil
		}
	}
}

// sleepUntilDone waits for d, or until ctx ends: then it reports false.
func sleepUntilDone(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// hopeless reports whether claiming again cannot help until somebody changes something.
func hopeless(err error) bool {
	switch queue.KindOf(err) {
	case queue.KindNotFound, queue.KindDenied, queue.KindInvalid:
		return err != nil
	default:
		return false
	}
}

// reserve waits until a claim is worth its call, and gives how many messages to ask for; 0 once ctx
// ended. It is worth it when a handler is idle, or when half of a claim fits: asking for each message
// as it is done would cost a call for each.
func (r *running) reserve(ctx context.Context) int {
	most := min(r.options.MaxMessages, r.bound)
	for ctx.Err() == nil {
		r.mu.Lock()
		free := r.bound - r.held
		if free > 0 && (r.held < r.options.Parallelism || free >= (most+1)/2) {
			n := min(free, most)
			r.held += n
			r.mu.Unlock()
			return n
		}
		r.mu.Unlock()
		select {
		case <-r.freed:
		case <-ctx.Done():
		}
	}
	return 0
}

// give takes messages off what is held.
func (r *running) give(n int) {
	r.mu.Lock()
	r.held -= n
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// chained ties the messages of each key in an answer together, and gives the first of each.
func chained(ds []*delivery) []*delivery {
	first := ds[:0:0]
	last := make(map[string]*delivery)
	for _, d := range ds {
		key := string(d.message.Key)
		before := last[key]
		if key == "" || before == nil {
			first = append(first, d)
		} else {
			before.next = d
		}
		last[key] = d
	}
	return first
}

// accept starts holding what was claimed and queues it. began is when the claim was asked for: by our
// clock it holds at least as long from then.
func (r *running) accept(messages []*Received, began time.Time) {
	deliveries := r.holds.add(messages, began)
	if r.ordered {
		deliveries = chained(deliveries)
	}
	for _, d := range deliveries {
		r.work <- d // never blocks: held counts it, and no more than bound are held
	}
}
