package kill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/tests/load"
	"github.com/spillway-mq/spillway/tests/process"
)

// The topics of TestKillMix.
const (
	fragile = "fragile" // its subscription gives up after two deliveries
	dead    = "dead"
	edited  = "edited" // delayed; its messages are edited and cancelled
	churned = "churned"
)

// TestKillMix is TestKillLoop with what changes rarely: messages that go to a dead-letter topic, edits
// and cancellations of delayed ones, subscriptions that are made, moved and deleted, topics that come
// and go. SPILLWAY_KILLS and SPILLWAY_SEED are as there.
func TestKillMix(t *testing.T) {
	kills := process.Number(t, "SPILLWAY_KILLS", 4)
	seed := uint64(process.Number(t, "SPILLWAY_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("%d kills, SPILLWAY_SEED=%d", kills, seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newServer(t)
	s.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	m := &mix{s: s, stop: make(chan struct{})}
	m.setUp(ctx, t)

	var working, draining sync.WaitGroup
	for i, work := range []func(context.Context, *rand.Rand) error{m.deadLetters, m.edits, m.edits, m.subscriptions, m.topics} {
		working.Go(func() {
			if err := work(ctx, rand.New(rand.NewPCG(seed, uint64(10+i)))); err != nil {
				t.Error(err)
			}
		})
	}
	stopDraining := make(chan struct{})
	draining.Go(func() {
		if err := m.failing(ctx, stopDraining); err != nil {
			t.Error(err)
		}
	})
	for range kills {
		time.Sleep(time.Duration(50+rng.IntN(400)) * time.Millisecond)
		s.Kill()
		s.Start()
	}
	m.await(ctx)
	close(m.stop)
	working.Wait()
	close(stopDraining)
	draining.Wait()
	m.verify(ctx, t)
}

// kinds are the kinds of work that the mix must have done, or it shows nothing.
func kinds() []string {
	return []string{"dead letters", "left alone", "cancelled", "edited", "subscriptions", "topics"}
}

// await lets the load go on until it has done some of everything: on a slow machine a few kills are too
// soon over.
func (m *mix) await(ctx context.Context) {
	const patience = 30 * time.Second
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		m.mu.Lock()
		missing := slices.ContainsFunc(kinds(), func(what string) bool { return m.rounds[what] == 0 })
		m.mu.Unlock()
		if !missing {
			return
		}
	}
}

// mix is the load, and what it knows for certain.
type mix struct {
	s    *server
	stop chan struct{}

	mu sync.Mutex // guards all below
	// poison and sound are bodies acknowledged by the topic fragile; acked those of it that a
	// consumer asked to have acked.
	poison, sound []string
	acked         map[string]bool
	// must have to be in the topic edited exactly once, mustNot not at all.
	must, mustNot []string
	rounds        map[string]int
}

func (m *mix) note(what string, change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rounds[what]++
	change()
}

// sure makes a call until it has an answer; a refusal ends it with an error that names its status.
func (m *mix) sure(ctx context.Context, method, path string, in, out any) (repeated bool, err error) {
	for {
		err := m.s.call(ctx, method, path, in, out)
		if err == nil || !errors.Is(err, load.ErrDown) && !load.Retryable(err) || ctx.Err() != nil {
			return repeated, err
		}
		repeated = true
		time.Sleep(10 * time.Millisecond)
	}
}

func (m *mix) stopped() bool {
	select {
	case <-m.stop:
		return true
	case <-time.After(pace):
		return false
	}
}

func is(err error, status int) bool {
	return err != nil && strings.Contains(err.Error(), fmt.Sprintf(": %d ", status))
}

func (m *mix) setUp(ctx context.Context, t *testing.T) {
	t.Helper()
	m.acked, m.rounds = make(map[string]bool), make(map[string]int)
	two := &wire.Scaling{MinSegments: wire.Of(2)}
	for topic, cfg := range map[string]wire.TopicConfig{
		fragile: {Scaling: two}, dead: {}, churned: {Scaling: two}, edited: {Scaling: two, DefaultDelay: wire.Of(0.6), MaxDelay: wire.Of(60.0)},
	} {
		if err := m.s.call(ctx, http.MethodPut, "/v1/topics/"+topic, cfg, nil); err != nil {
			t.Fatal(err)
		}
	}
	sub := wire.SubscriptionConfig{VisibilityTimeout: wire.Of(1.0), MaxDeliveries: wire.Of(2), DeadLetterTopic: wire.Of(dead)}
	if err := m.s.call(ctx, http.MethodPut, "/v1/topics/"+fragile+"/subscriptions/s", sub, nil); err != nil {
		t.Fatal(err)
	}
}

// produce sends one message once; ok says that it was acknowledged.
func (m *mix) produce(ctx context.Context, topic, body string) (made wire.ProduceResult, ok bool) {
	var out wire.ProduceAnswer
	in := wire.ProduceRequest{Messages: []wire.MessageIn{{Key: body, Body: wire.Text(body)}}}
	err := m.s.call(ctx, http.MethodPost, "/v1/topics/"+topic+"/messages", in, &out)
	if err != nil || len(out.Results) != 1 || out.Results[0].Error != nil {
		return made, false
	}
	return out.Results[0], true
}

// deadLetters produces what failing consumes: every third message is poison.
func (m *mix) deadLetters(ctx context.Context, _ *rand.Rand) error {
	for n := 0; !m.stopped(); n++ {
		body := fmt.Sprintf("sound/%d", n)
		if n%3 == 0 {
			body = fmt.Sprintf("poison/%d", n)
		}
		if _, ok := m.produce(ctx, fragile, body); ok {
			m.note("dead letters", func() {
				if n%3 == 0 {
					m.poison = append(m.poison, body)
				} else {
					m.sound = append(m.sound, body)
				}
			})
		}
	}
	return nil
}

// quiet is how many empty claims in a row end the consumer: longer than any claim holds.
const quiet = 4

// failing acks what is sound and releases what is poison, until nothing has come for a while.
func (m *mix) failing(ctx context.Context, stop <-chan struct{}) error {
	path := "/v1/topics/" + fragile + "/subscriptions/s/"
	for empty := 0; empty < quiet; {
		var got wire.MessageList
		if _, err := m.sure(ctx, http.MethodPost, path+"claims", wire.ClaimRequest{MaxMessages: wire.Of(20), Wait: wire.Of(0.5)}, &got); err != nil {
			return err
		}
		var acks, releases []string
		m.mu.Lock()
		for _, msg := range got.Messages {
			if strings.HasPrefix(*msg.Body, "poison/") {
				releases = append(releases, msg.Receipt)
			} else {
				m.acked[*msg.Body] = true
				acks = append(acks, msg.Receipt)
			}
		}
		m.mu.Unlock()
		for verb, receipts := range map[string][]string{"ack": acks, "release": releases} {
			if len(receipts) > 0 {
				_ = m.s.call(ctx, http.MethodPost, path+verb, wire.ReceiptsRequest{Receipts: receipts}, nil)
			}
		}
		empty++
		if len(got.Messages) > 0 {
			empty = 0
		}
		select {
		case <-stop:
		default:
			empty = 0
		}
	}
	return nil
}

// edits produces delayed messages and edits, cancels or leaves each, before or after its promotion.
func (m *mix) edits(ctx context.Context, rng *rand.Rand) error {
	for n := 0; !m.stopped(); n++ {
		body := fmt.Sprintf("first/%d/%d", rng.Uint64(), n)
		made, ok := m.produce(ctx, edited, body)
		if !ok || made.DelayedID == "" {
			continue
		}
		if rng.IntN(4) == 0 {
			time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
		}
		at := "/v1/topics/" + edited + "/delayed/" + made.DelayedID
		changed := "second" + strings.TrimPrefix(body, "first")
		switch rng.IntN(3) {
		case 0:
			m.note("left alone", func() { m.must = append(m.must, body) })
		case 1:
			repeated, err := m.sure(ctx, http.MethodDelete, at, nil, nil)
			switch {
			case err == nil:
				m.note("cancelled", func() { m.mustNot = append(m.mustNot, body) })
			case is(err, http.StatusConflict):
				m.note("promoted before", func() { m.must = append(m.must, body) })
			case repeated && is(err, http.StatusNotFound): // the first try had cancelled it
				m.note("cancelled", func() { m.mustNot = append(m.mustNot, body) })
			default:
				return err
			}
		default:
			patch := wire.DelayedPatch{Body: wire.Text(changed), Delay: wire.Of(0.3 + float64(rng.IntN(8))/10)}
			repeated, err := m.sure(ctx, http.MethodPatch, at, patch, nil)
			switch {
			case err == nil:
				m.note("edited", func() { m.must, m.mustNot = append(m.must, changed), append(m.mustNot, body) })
			case is(err, http.StatusConflict) && !repeated:
				m.note("promoted before", func() { m.must, m.mustNot = append(m.must, body), append(m.mustNot, changed) })
			case is(err, http.StatusConflict): // the first try may have been in time
			default:
				return err
			}
		}
	}
	return nil
}

// subscriptions makes, moves and deletes one; what was acknowledged stays with it or is gone with it.
func (m *mix) subscriptions(ctx context.Context, rng *rand.Rand) error {
	const path = "/v1/topics/" + churned + "/subscriptions/s"
	count := 0
	for n := 0; !m.stopped(); n++ {
		if _, ok := m.produce(ctx, churned, fmt.Sprintf("churned/%d", n)); ok {
			count++
		}
		if _, err := m.sure(ctx, http.MethodPut, path, wire.SubscriptionConfig{}, nil); err != nil {
			return err
		}
		if _, err := m.sure(ctx, http.MethodPost, path+"/claims", wire.ClaimRequest{MaxMessages: wire.Of(5)}, nil); err != nil {
			return err
		}
		to, least := "earliest", count
		if rng.IntN(2) == 0 {
			to, least = "latest", 0
		}
		if _, err := m.sure(ctx, http.MethodPost, path+"/seek", map[string]any{"to": to}, nil); err != nil {
			return err
		}
		var st struct {
			Status struct {
				Ready    int `json:"ready"`
				InFlight int `json:"in_flight"`
			} `json:"status"`
		}
		if _, err := m.sure(ctx, http.MethodGet, path, nil, &st); err != nil {
			return err
		}
		if st.Status.Ready < least || to == "latest" && st.Status.Ready > 0 || st.Status.InFlight != 0 {
			return fmt.Errorf("after a seek to %s of %d messages: %+v", to, count, st.Status)
		}
		if rng.IntN(2) == 0 {
			continue
		}
		if repeated, err := m.sure(ctx, http.MethodDelete, path, nil, nil); err != nil && (!repeated || !is(err, http.StatusNotFound)) {
			return err
		}
		if _, err := m.sure(ctx, http.MethodGet, path, nil, nil); !is(err, http.StatusNotFound) {
			return fmt.Errorf("a deleted subscription is answered with %w", err)
		}
		m.note("subscriptions", func() {})
	}
	return nil
}

// topics makes and deletes one: a new one of its name holds nothing of the old one.
func (m *mix) topics(ctx context.Context, rng *rand.Rand) error {
	const path = "/v1/topics/passing"
	for n := 0; !m.stopped(); n++ {
		cfg := wire.TopicConfig{Scaling: &wire.Scaling{MinSegments: wire.Of(1 + rng.IntN(4))}}
		if _, err := m.sure(ctx, http.MethodPut, path, cfg, nil); err != nil {
			return err
		}
		ok := 0
		for i := range 3 {
			if _, made := m.produce(ctx, "passing", fmt.Sprintf("passing/%d/%d", n, i)); made {
				ok++
			}
		}
		var st wire.Topic
		if _, err := m.sure(ctx, http.MethodGet, path, nil, &st); err != nil {
			return err
		}
		if ready := int(st.Messages.Ready); ready < ok || ready > 3 {
			return fmt.Errorf("a new topic with %d to 3 messages has %d", ok, ready)
		}
		if repeated, err := m.sure(ctx, http.MethodDelete, path, nil, nil); err != nil && (!repeated || !is(err, http.StatusNotFound)) {
			return err
		}
		if _, err := m.sure(ctx, http.MethodGet, path, nil, nil); !is(err, http.StatusNotFound) {
			return fmt.Errorf("a deleted topic is answered with %w", err)
		}
		m.note("topics", func() {})
	}
	return nil
}

// bodies counts how often a topic holds each body.
func (m *mix) bodies(ctx context.Context, t *testing.T, topic string) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for _, r := range load.ReadTopic(ctx, t, m.s, topic) {
		out[r.Body]++
	}
	return out
}

func (m *mix) verify(ctx context.Context, t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var list wire.DelayedList
		if err := m.s.call(ctx, http.MethodGet, "/v1/topics/"+edited+"/delayed?limit=1", nil, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Messages) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("invariant 8: delayed messages are not promoted, which nobody claims")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t.Logf("%v; %d poison, %d sound", m.rounds, len(m.poison), len(m.sound))
	buried := m.bodies(ctx, t, dead)
	for body, n := range buried {
		if n != 1 {
			t.Errorf("invariant 7: %q is %d times in the dead-letter topic", body, n)
		}
	}
	for _, body := range m.poison {
		if buried[body] != 1 {
			t.Errorf("invariant 7: %q is %d times in the dead-letter topic", body, buried[body])
		}
	}
	for _, body := range m.sound {
		if !m.acked[body] && buried[body] == 0 {
			t.Errorf("invariant 7: %q was neither acked nor buried", body)
		}
	}
	there := m.bodies(ctx, t, edited)
	for _, body := range m.must {
		if there[body] != 1 {
			t.Errorf("invariant 8: %q is there %d times", body, there[body])
		}
	}
	for _, body := range m.mustNot {
		if there[body] != 0 {
			t.Errorf("invariant 8: %q was cancelled or edited, and is there %d times", body, there[body])
		}
	}
	for _, what := range kinds() {
		if m.rounds[what] == 0 {
			t.Errorf("%s: the load did nothing", what)
		}
	}
}
