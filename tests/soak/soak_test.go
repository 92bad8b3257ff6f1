//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/tests/process"
)

const (
	// smallDisk is enough for some minutes, largeDisk for any time; a full disk is that much memory.
	smallDisk, largeDisk = 256 << 20, 1 << 30
	// stormy and calm are how long the load of a round lasts. In a calm one the process lives, so that the compactor,
	// which looks every two minutes, works under load.
	stormy, calm = 40 * time.Second, 130 * time.Second
	// patience bounds the rest of a round: what is held is free after its visibility, at the clock's most.
	patience = 90 * time.Second
	// longRounds is how many rounds a long topic lives for.
	longRounds = 4
)

// TestSoak runs for SPILLWAY_SOAK (10s unless set). The seed is printed; SPILLWAY_SEED sets it (who comes first
// remains the machine's).
func TestSoak(t *testing.T) {
	span, err := time.ParseDuration(cmpOr(os.Getenv("SPILLWAY_SOAK"), "10s"))
	if err != nil {
		t.Fatalf("SPILLWAY_SOAK: %v", err)
	}
	seed, err := strconv.ParseUint(cmpOr(os.Getenv("SPILLWAY_SEED"), strconv.FormatInt(time.Now().UnixNano()&0xffffff, 10)), 10, 64)
	if err != nil {
		t.Fatalf("SPILLWAY_SEED: %v", err)
	}
	s := newSoak(t, seed, span)
	t.Logf("%v, SPILLWAY_SEED=%d", span, seed)
	var reporter sync.WaitGroup
	reporter.Go(s.report)
	defer func() { s.cancel(); reporter.Wait() }()
	end := s.start.Add(span - min(25*time.Second, span/8)) // the last round rests, too
	s.long = []*lane{
		s.makeLane("long.work", 0, subscription{name: "keyed", keyed: true}, subscription{name: "loose"}),
		s.makeLane("long.later", s.slow, subscription{name: "loose"}),
	}
	for time.Now().Before(end) && !t.Failed() {
		s.play(end)
	}
	s.close(span)
	s.line("end")
	t.Logf("on full disks %d produce calls were refused, %d acks went through", s.full, s.acked)
	if s.in() == 0 || s.out() == 0 || s.full == 0 && s.struck["full"] > 0 && s.disk.mounted {
		s.fail("too little happened: %d in, %d out, %d refused on a full disk", s.in(), s.out(), s.full)
	}
	if t.Failed() {
		t.Log(s.story())
	}
}

func diskFor(span time.Duration) int64 {
	if span <= 10*time.Minute {
		return smallDisk
	}
	return largeDisk
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// soak is one run of the test.
type soak struct {
	t      *testing.T
	ctx    context.Context
	cancel context.CancelFunc
	start  time.Time
	seed   uint64
	server *process.Server
	clock  *clock
	disk   *disk
	admin  *client.Client
	count  *counters
	// dice decides the faults; the streams of the load are apart.
	dice    *rand.Rand
	streams uint64
	longest time.Duration // of a freeze
	began   time.Duration // the shift at the beginning of the round

	probes int
	// probeTopic is where probes go.
	probeTopic string
	deck       []fault // that come next
	// full counts refusals of a full disk, acked the acks confirmed while it was.
	full, acked int
	// slow is how long delayed messages of the long topic wait at most.
	slow time.Duration
	long []*lane

	mu     sync.Mutex // guards all below
	round  int
	live   []*lane
	done   [2]int // messages in and out of lanes that are gone
	struck map[string]int
	events []string
}

func newSoak(t *testing.T, seed uint64, span time.Duration) *soak {
	s := &soak{
		t: t, start: time.Now(), seed: seed, dice: rand.New(rand.NewPCG(seed, 0)), clock: newClock(t), disk: newDisk(t, diskFor(span)),
		count: &counters{by: map[string]int{}}, struck: map[string]int{}, longest: min(time.Minute, max(2*time.Second, span/30)),
		slow: min(20*time.Second, max(2*time.Second, span/10)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s.ctx, s.cancel = ctx, cancel
	s.server = process.NewWith(t, process.Options{
		Build: []string{"-overlay", overlay(t), "./testdata/server"},
		Args:  func(addr, data string) []string { return []string{addr, data, s.clock.path} },
		Data:  s.disk.data(),
	})
	s.beginFull()
	s.admin = s.client()
	s.renewProbe("probe")
	s.start = time.Now()
	return s
}

// play is one round.
func (s *soak) play(end time.Time) {
	s.mu.Lock()
	s.round++
	round := s.round
	s.mu.Unlock()
	s.began, _ = s.clock.shift()
	prefix := fmt.Sprintf("round%d.", round)
	fresh := []*lane{
		s.makeLane(prefix+"work", 0, subscription{name: "keyed", keyed: true}, subscription{name: "mortal", dead: true},
			subscription{name: "again", replayed: true}, subscription{name: "handled", handled: true}),
		s.makeLane(prefix+"later", s.slow/2, subscription{name: "loose"}),
	}
	lanes := slices.Concat(fresh, s.long)
	s.mu.Lock()
	s.live = lanes
	s.mu.Unlock()

	restarts, span := true, stormy
	if round%2 == 0 {
		restarts, span = false, calm
	}
	until := time.Now().Add(span)
	if end.Before(until) {
		until = end
	}
	ctx, cancel := context.WithDeadline(s.ctx, until.Add(patience))
	defer cancel()
	r := s.begin(ctx, lanes)
	s.storm(until, restarts)
	// So that nothing is held by a claim of a time that has not come yet, and what the last round dropped is due.
	_, most := s.clock.shift()
	s.clock.set(most + queue.GracePeriod + time.Minute)
	if err := s.probe(); err != nil {
		s.fail("at rest no message goes through: %v", err)
	}
	r.finish(lanes)
	for _, l := range fresh {
		s.remove(l)
	}
	s.renewProbe(prefix + "probe")
	if round%longRounds == 0 {
		for _, l := range s.long {
			s.remove(l)
		}
		s.long = []*lane{
			s.makeLane(fmt.Sprintf("long%d.work", round), 0, subscription{name: "keyed", keyed: true}, subscription{name: "loose"}),
			s.makeLane(fmt.Sprintf("long%d.later", round), s.slow, subscription{name: "loose"}),
		}
	}
	s.clock.forget(time.Now().Add(-time.Hour))
	s.bounds()
}

// storm strikes one fault after another.
func (s *soak) storm(until time.Time, restarts bool) {
	for !s.t.Failed() {
		rest := time.Duration(1000+s.dice.IntN(4000)) * time.Millisecond
		if time.Now().Add(rest).After(until) {
			_ = pause(s.ctx, time.Until(until))
			return
		}
		_ = pause(s.ctx, rest)
		s.strike(s.deal(restarts))
	}
}

// deal gives the next fault of a shuffled deck, so that a short run has each of them.
func (s *soak) deal(restarts bool) fault {
	for {
		if len(s.deck) == 0 {
			s.deck = faults()
			s.dice.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
		}
		f := s.deck[0]
		s.deck = s.deck[1:]
		if restarts || !f.restarts {
			return f
		}
	}
}

// remove deletes the topics of a lane.
func (s *soak) remove(l *lane) {
	s.mu.Lock()
	s.done[0] += l.ledger.in
	s.done[1] += l.ledger.out
	s.live = without(s.live, l)
	s.mu.Unlock()
	topics := []string{l.topic()}
	for _, sub := range l.subs {
		if sub.dead {
			topics = append(topics, l.grave())
		}
	}
	for _, topic := range topics {
		s.must(s.admin.DeleteTopic(s.ctx, topic))
	}
}

func without(all []*lane, l *lane) []*lane {
	var out []*lane
	for _, other := range all {
		if other != l {
			out = append(out, other)
		}
	}
	return out
}

// client gives a client that tries each call once: what the SDK would hide must not be hidden here.
func (s *soak) client() *client.Client { return s.clientTrying(1) }

func (s *soak) clientTrying(attempts int) *client.Client {
	c, err := client.New(s.server.URL(), client.Options{
		HTTPClient: &http.Client{Transport: s.server.Pool},
		Retry:      client.RetryPolicy{Attempts: attempts, MinDelay: 10 * time.Millisecond, MaxDelay: time.Second},
	})
	s.must(err)
	return c
}

// rng gives a source of random numbers of its own.
func (s *soak) rng() *rand.Rand {
	s.streams++
	return rand.New(rand.NewPCG(s.seed, 100+s.streams))
}

func (s *soak) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.story())
	}
}

// fail notes what broke a promise.
func (s *soak) fail(format string, args ...any) {
	s.mu.Lock()
	round := s.round
	s.mu.Unlock()
	s.t.Errorf("round %d, %s: %s", round, time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// note keeps the last faults for the story.
func (s *soak) note(name, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.struck[name]++
	const enough = 60
	s.events = append(s.events, what)
	s.events = s.events[max(0, len(s.events)-enough):]
}

// story is what a failure prints.
func (s *soak) story() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("SPILLWAY_SEED=%d; the last faults:\n%s", s.seed, strings.Join(s.events, "\n"))
}

// counters count the refusals that clients met, by code. Safe for concurrent use.
type counters struct {
	mu sync.Mutex // guards by
	by map[string]int
}

func (c *counters) refuse(err error) {
	if err == nil {
		return
	}
	code := "no answer"
	var api *client.APIError
	if errors.As(err, &api) {
		code = string(api.Code)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[code]++
}

func (c *counters) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return listed(c.by)
}

// listed is "a 1, b 2".
func listed(counts map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(out, ", ")
}
