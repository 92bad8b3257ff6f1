package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// What the clients use.
const (
	Topic        = "history.orders"
	Subscription = "workers"
)

// Options say how clients go about it.
type Options struct {
	// Subscribers has some clients make and delete subscriptions, too.
	Subscribers bool
	Seed        uint64
	// Endpoint gives where the next call of a client goes, by the client's number.
	Endpoint func(client int) string
	// Pace is the pause between two calls of a client, Patience how long a call may take, Visibility how long claims hold.
	Pace, Patience, Visibility time.Duration
	// Era is for how long clients use a name, so that no history of one becomes long.
	Era time.Duration
}

// Clients are the clients of one run.
type Clients struct {
	o     Options
	rec   *history.Recorder
	began time.Time
	stop  chan struct{}
	all   sync.WaitGroup

	mu sync.Mutex // guards what follows
	// faults are what clients met that no server may do.
	faults []string
	// delivered are messages that some claim handed out.
	delivered map[string]bool
	counts    map[string]int
	// refusals are the errors after which a call is taken to have had no effect, with their times.
	refusals []string
}

// New makes clients that have not begun.
func New(o Options) *Clients {
	began := time.Now()
	return &Clients{
		o: o, rec: history.New(func() time.Duration { return time.Since(began) }), began: began,
		stop: make(chan struct{}), delivered: make(map[string]bool), counts: make(map[string]int),
	}
}

// user is one client.
type user struct {
	*Clients
	number int
	rng    *rand.Rand
	sdk    map[string]*client.Client
}

func (c *Clients) user(number int) *user {
	rng := rand.New(rand.NewPCG(c.o.Seed, uint64(number))) // #nosec G404 -- must be repeatable, not secret
	return &user{c, number, rng, make(map[string]*client.Client)}
}

// client is the SDK's client for the next call: one try, whose outcome is then recorded as it is.
func (u *user) client() *client.Client {
	at := u.o.Endpoint(u.number)
	if u.sdk[at] == nil {
		o := client.Options{Retry: client.RetryPolicy{Attempts: 1, AttemptTimeout: u.o.Patience}}
		c, err := client.New(at, o)
		if err != nil {
			u.fault("make a client: %v", err)
			return nil
		}
		u.sdk[at] = c
	}
	return u.sdk[at]
}

func (u *user) close() {
	for _, c := range u.sdk {
		c.Close()
	}
}

func (c *Clients) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *Clients) count(what string, a history.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what+" "+[...]string{"unknown", "ok", "refused", "void"}[a]]++
}

// answer is what an error says of a call's outcome; refusals are the codes that the operation's model knows.
func answer(err error, refusals ...queue.Code) history.Answer {
	if err == nil {
		return history.OK
	}
	for _, code := range refusals {
		if errors.Is(err, client.CodeError(code)) {
			return history.Refused
		}
	}
	// What is under way may be this very call: net/http sends a request with an Idempotency-Key again by itself
	// where its connection broke.
	if errors.Is(err, client.CodeError(queue.CodeIdempotencyInProgress)) {
		return history.Unknown
	}
	switch queue.KindOf(err) {
	case queue.KindOutcomeUnknown, queue.KindCanceled, queue.KindInternal, queue.KindCorrupt:
		return history.Unknown
	}
	return history.Void
}

// strange notes an answer that no fault of these tests explains, and what a refusal said.
func (u *user) strange(what string, err error) {
	if err != nil && answer(err) == history.Void && !errors.Is(err, client.ErrClaimLost) {
		u.mu.Lock()
		u.refusals = append(u.refusals, fmt.Sprintf("%.6f client %d: %s: %v", time.Since(u.began).Seconds(), u.number, what, err))
		u.mu.Unlock()
	}
	var api *client.APIError
	if errors.As(err, &api) && (api.Code == queue.CodeInternal || api.Code == queue.CodeCorrupt || api.Code == queue.CodeInvalidArgument) {
		u.fault("%s: %v", what, err)
	}
}

func configOf(segments int) client.TopicConfig {
	return client.TopicConfig{Scaling: &client.Scaling{MinSegments: &segments}}
}

// SetUp makes the topic and the subscription.
func (c *Clients) SetUp(ctx context.Context, t *testing.T, segments int) {
	t.Helper()
	u := c.user(0)
	defer u.close()
	_, err := u.client().CreateTopic(ctx, Topic, configOf(segments))
	if err == nil {
		_, err = u.client().CreateSubscription(ctx, Topic, Subscription, client.SubscriptionConfig{VisibilityTimeout: client.Seconds(c.o.Visibility)})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Kinds is how many clients there are for each of Start's, subscribers included.
const Kinds = 5

// Start lets the clients begin: Kinds of each: producers, consumers, readers, namers and subscribers.
func (c *Clients) Start(ctx context.Context, each int) {
	number := 1
	run := func(do func(context.Context, *user)) {
		u := c.user(number)
		number++
		c.all.Go(func() {
			defer u.close()
			for {
				select {
				case <-c.stop:
					return
				case <-ctx.Done():
					return
				case <-time.After(u.o.Pace/2 + time.Duration(u.rng.Int64N(int64(u.o.Pace)))):
				}
				do(ctx, u)
			}
		})
	}
	for range each {
		p := &producer{id: fmt.Sprintf("p%d", number)}
		run(p.call)
		run((&consumer{sub: Subscription}).call)
		run((&reader{}).call)
		run((*namer)(nil).call)
		if c.o.Subscribers {
			run((&subscriber{}).call)
		}
	}
}

// Stop waits for the clients' last calls.
func (c *Clients) Stop() {
	close(c.stop)
	c.all.Wait()
}

// Split splits the topic's first open segment.
func (c *Clients) Split(ctx context.Context, t *testing.T) {
	t.Helper()
	u := c.user(0)
	defer u.close()
	err := u.insist(ctx, func() error {
		for seg, err := range u.client().OpenSegments(ctx, Topic) {
			if err != nil {
				return err
			}
			_, err = u.client().Split(ctx, Topic, seg.ID, client.SplitOptions{})
			u.strange("split", err)
			return err
		}
		return errors.New("no segment is open")
	})
	if err != nil {
		t.Errorf("no segment was split: %v", err)
	}
}

// insistence is for how many Patiences something that fails is tried, where nothing is disturbed.
const insistence = 10

// insist makes a call until it does not fail; the last error if it goes on failing.
func (c *Clients) insist(ctx context.Context, call func() error) error {
	for end := time.Now().Add(insistence * c.o.Patience); ; {
		err := call()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		rest(ctx, c.o.Pace)
	}
}

// drain claims and acks until nothing is left.
func (u *user) drain(ctx context.Context) error {
	last := &consumer{sub: Subscription, all: true}
	for empty := 0; empty < 3; {
		// A claim that fails does not show that nothing is left.
		if err := u.insist(ctx, func() error { return last.claim(ctx, u) }); err != nil {
			return err
		}
		if last.got > 0 {
			empty = 0
			continue
		}
		empty++
		if rest(ctx, u.o.Visibility); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Judge reads and consumes what is left, now that it is quiet, and holds everything against the models.
func (c *Clients) Judge(ctx context.Context, t *testing.T, o history.Options, repeat string) *history.History {
	t.Helper()
	u := c.user(0)
	defer u.close()
	if err := u.drain(ctx); err != nil {
		t.Fatalf("not drained, after %d messages were delivered: %v\n%s", len(c.delivered), err, repeat)
	}
	if err := (&reader{}).toEnd(ctx, u); err != nil {
		t.Errorf("the last read did not come to its end: %v\n%s", err, repeat)
	}
	h := c.rec.History()
	rep, err := history.Check(h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v; %s", c.counts, rep)
	for _, v := range rep.Violations {
		t.Errorf("%s%s", v, repeat)
	}
	for _, f := range c.faults {
		t.Error(f)
	}
	if t.Failed() {
		for _, r := range c.refusals {
			t.Log(r)
		}
	}
	for _, p := range h.Produces {
		for _, m := range p.Messages {
			if m.Answer == history.OK && !c.delivered[m.Body] {
				t.Errorf("%s was acknowledged at %s and never delivered\n%s", m.Body, m.At, repeat)
			}
		}
	}
	return h
}
