package reshape

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/tests/process"
)

const (
	work  = "work"
	later = "later"
)

// TestReshape works on two topics, of which one is delayed, for SPILLWAY_RESHAPE seconds (5 unless set), with
// a kill every one to three seconds, while segments split and merge. The seed is printed; SPILLWAY_SEED sets it (who
// comes first remains the machine's).
func TestReshape(t *testing.T) {
	span := time.Duration(process.Number(t, "SPILLWAY_RESHAPE", 5)) * time.Second
	seed := uint64(process.Number(t, "SPILLWAY_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("%v, SPILLWAY_SEED=%d", span, seed)
	s := newServer(t)
	s.Start()
	ctx, cancel := context.WithTimeout(t.Context(), span+90*time.Second)
	defer cancel()
	r := &run{t: t, ctx: ctx, server: s, seed: seed, admin: s.client(40), stop: make(chan struct{}), drain: make(chan struct{})}
	r.setUp()
	r.produceAll()
	r.consumeAll()
	r.changeAll()
	cut := r.laterSubscription(span / 3)

	rng := rand.New(rand.NewPCG(seed, 1))
	for end := time.Now().Add(span); time.Now().Before(end); {
		time.Sleep(time.Duration(1000+rng.IntN(2000)) * time.Millisecond)
		s.Kill()
		s.Start()
	}
	r.awaitLeader()
	close(r.stop)
	r.producers.Wait()
	cut.check(r)
	close(r.drain)
	r.consumers.Wait()
	r.judge()
}

// run is one run of the test.
type run struct {
	t      *testing.T
	ctx    context.Context
	server *server
	seed   uint64
	admin  *client.Client
	work   *ledger
	later  *ledger
	// stop ends producers and changers, drain makes consumers end once they have everything.
	stop, drain          chan struct{}
	producers, consumers sync.WaitGroup
	changers             []*changer
	streams              uint64
}

// rng gives a source of random numbers of its own.
func (r *run) rng() *rand.Rand {
	r.streams++
	return rand.New(rand.NewPCG(r.seed, 100+r.streams))
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) setUp() {
	r.t.Helper()
	r.work, r.later = newLedger(work), newLedger(later)
	_, err := r.admin.CreateTopic(r.ctx, work, client.TopicConfig{Scaling: &client.Scaling{MinSegments: client.Of(2), MaxSegments: client.Of(40)}})
	r.must(err)
	_, err = r.admin.CreateTopic(r.ctx, later, client.TopicConfig{DefaultDelay: client.Seconds(time.Second), Scaling: &client.Scaling{MaxSegments: client.Of(20)}})
	r.must(err)
	for _, sub := range []struct {
		ledger *ledger
		name   string
		keyed  bool
	}{{r.work, "keyed", true}, {r.work, "loose", false}, {r.later, "loose", false}, {r.work, "afterwards", true}} {
		r.subscribe(sub.ledger, sub.name, sub.keyed, client.Earliest)
	}
}

func (r *run) subscribe(l *ledger, name string, keyed bool, start string) {
	r.t.Helper()
	l.subscribe(name, keyed)
	cfg := client.SubscriptionConfig{Start: &client.Position{Word: start}}
	if keyed {
		cfg.Ordering = client.Of(client.OrderingKey)
	}
	_, err := r.admin.CreateSubscription(r.ctx, l.topic, name, cfg)
	r.must(err)
}

// start runs f on its own; its error fails the test.
func (r *run) start(wg *sync.WaitGroup, f func() error) {
	wg.Go(func() {
		if err := f(); err != nil {
			r.t.Error(err)
		}
	})
}

func (r *run) produceAll() {
	for i := range 2 {
		name := fmt.Sprintf("sequence%d", i)
		p := r.producer(name, r.work, 20)
		r.start(&r.producers, func() error {
			return p.calls(r.ctx, r.stop, func(n uint64) client.Guard { return client.Guard{ProducerID: name, Sequence: n} })
		})
	}
	idempotent := r.producer("idempotent", r.work, 2)
	r.start(&r.producers, func() error {
		return idempotent.calls(r.ctx, r.stop, func(n uint64) client.Guard { return client.Guard{IdempotencyKey: fmt.Sprint("key-", n)} })
	})
	loose := r.producer("loose", r.work, 0)
	r.start(&r.producers, func() error { return loose.loose(r.ctx, r.stop) })
	for i := range 2 {
		p := r.producer(fmt.Sprintf("stream%d", i), r.work, 30)
		p.client = r.server.client(5)
		r.start(&r.producers, func() error { return p.stream(r.ctx, r.stop) })
	}
	delayed := r.producer("delayed", r.later, 40)
	delayed.delay = 1500 * time.Millisecond
	r.start(&r.producers, func() error {
		return delayed.calls(r.ctx, r.stop, func(n uint64) client.Guard { return client.Guard{ProducerID: "delayed", Sequence: n} })
	})
}

func (r *run) producer(name string, l *ledger, keys int) *producer {
	return &producer{name: name, ledger: l, client: r.server.client(1), rng: r.rng(), next: map[string]int{}, keys: keys}
}

func (r *run) consumeAll() {
	r.consume(r.work, "keyed", 4, r.drain)
	r.consume(r.work, "loose", 3, r.drain)
	r.consume(r.later, "loose", 2, r.drain)
}

func (r *run) consume(l *ledger, sub string, workers int, drain <-chan struct{}) {
	for range workers {
		c := &consumer{ledger: l, sub: sub, client: r.server.client(1), rng: r.rng()}
		r.start(&r.consumers, func() error { return c.run(r.ctx, drain) })
	}
}

func (r *run) changeAll() {
	for _, topic := range []string{work, work, later} {
		c := &changer{topic: topic, client: r.server.client(1), rng: r.rng()}
		r.changers = append(r.changers, c)
		r.start(&r.producers, func() error { return c.run(r.ctx, r.stop) })
	}
	for _, topic := range []string{work, later} {
		rng, c := r.rng(), r.server.client(1)
		r.start(&r.producers, func() error { return policies(r.ctx, c, topic, rng, r.stop) })
	}
	began := time.Now().Add(-time.Minute)
	rng, c := r.rng(), r.server.client(1)
	r.start(&r.producers, func() error { return seeks(r.ctx, c, "afterwards", began, rng, r.stop) })
}

// judge reads everything and holds it against the ledgers.
func (r *run) judge() {
	r.t.Helper()
	// A subscription that nobody has read of, over all that has happened.
	r.consume(r.work, "afterwards", 3, r.drain)
	r.consumers.Wait()
	changes := 0
	for _, l := range []*ledger{r.work, r.later} {
		log, wrong, err := readAll(r.ctx, r.admin, l.topic)
		r.must(err)
		l.balance(log)
		for _, w := range append(wrong, l.wrong...) {
			r.t.Error(w)
		}
		r.t.Logf("%s: %d messages sent, %d in the log", l.topic, len(l.sent), len(log))
	}
	for _, c := range r.changers {
		changes += len(c.made)
	}
	leader := r.ledChanges()
	for i, refused := range r.server.refused {
		if i < maxWrong {
			r.t.Errorf("refused: %s", refused)
		}
	}
	r.t.Logf("%d changes by hand, %d by the leader", changes, leader)
	if changes < 10 || leader < 1 || len(r.work.sent) < 500 {
		r.t.Error("too little happened")
	}
}

// ledChanges counts the changes of which the leader's events tell.
func (r *run) ledChanges() (n int) {
	for e, err := range r.admin.Events(r.ctx, "") {
		r.must(err)
		if e.LeaderEpoch != 0 {
			n++
		}
	}
	return n
}

// awaitLeader goes on, without kills, until the leader has made a change. One that was killed under its lease
// keeps the next one from acting for the lease's time, and kills may have come faster than that.
func (r *run) awaitLeader() {
	const patience = 3 * scale.LeaderTTL
	for end := time.Now().Add(patience); r.ledChanges() == 0 && time.Now().Before(end); {
		time.Sleep(200 * time.Millisecond)
	}
}
