package kill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

// TestKillLoop ends the server SPILLWAY_KILLS times (4 unless set; CI sets 30) while producers and
// consumers work, and then checks invariants 1 to 3 and 6 to 8. The seed is printed; SPILLWAY_SEED
// sets it (the moments of the kills remain the machine's).
func TestKillLoop(t *testing.T) {
	kills := envInt(t, "SPILLWAY_KILLS", 4)
	seed := uint64(envInt(t, "SPILLWAY_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("%d kills, SPILLWAY_SEED=%d", kills, seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	s := newServer(t)
	s.start()
	setUp(t, s)
	l := newLedger()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	stopProducers, stopConsumers := make(chan struct{}), make(chan struct{})
	var producers, consumers sync.WaitGroup
	for _, p := range loadProducers(s, l, seed) {
		producers.Go(func() {
			if err := p.run(ctx, stopProducers); err != nil {
				t.Error(err)
			}
		})
	}
	for topic, subs := range subscriptions {
		for _, sub := range subs {
			for i := range 2 {
				c := &consumer{s: s, l: l, topic: topic, sub: sub, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
				consumers.Go(func() {
					if err := c.run(ctx, stopConsumers); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	for range kills {
		time.Sleep(time.Duration(50+rng.IntN(400)) * time.Millisecond)
		s.kill()
		s.start()
	}
	close(stopProducers)
	producers.Wait()
	awaitPromotion(ctx, t, s)
	close(stopConsumers)
	consumers.Wait()

	verify(ctx, t, s, l)
	sent, acknowledged, acks := l.counts()
	t.Logf("%d messages sent, %d acknowledged, %d acks, %d kills", sent, acknowledged, acks, kills)
	if acknowledged == 0 || acks == 0 {
		t.Error("the load did nothing: the test shows nothing")
	}
}

func envInt(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func setUp(t *testing.T, s *server) {
	t.Helper()
	for topic, cfg := range map[string]wire.TopicConfig{
		plain: {Scaling: &wire.Scaling{MinSegments: wire.Of(3)}},
		later: {Scaling: &wire.Scaling{MinSegments: wire.Of(2)}, DefaultDelay: wire.Of(1.0), MaxDelay: wire.Of(10.0)},
	} {
		if err := s.call(t.Context(), http.MethodPut, "/v1/topics/"+topic, nil, cfg, nil); err != nil {
			t.Fatal(err)
		}
		for _, sub := range subscriptions[topic] {
			path := "/v1/topics/" + topic + "/subscriptions/" + sub
			in := map[string]any{"visibility_timeout": 2}
			if err := s.call(t.Context(), http.MethodPut, path, nil, in, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func loadProducers(s *server, l *ledger, seed uint64) []*producer {
	ps := []*producer{
		{name: "sequence-1", topic: plain, guard: bySequence("sequence-1")},
		{name: "sequence-2", topic: plain, guard: bySequence("sequence-2")},
		{name: "key", topic: plain, guard: byKey("key")},
		{name: "bare", topic: plain},
		{name: "reference", topic: plain, guard: bySequence("reference"), upload: true},
		{name: "later-sequence", topic: later, guard: bySequence("later-sequence")},
		{name: "later-key", topic: later, guard: byKey("later-key")},
		{name: "later-bare", topic: later},
	}
	for i, p := range ps {
		p.s, p.l, p.rng = s, l, rand.New(rand.NewPCG(seed, uint64(100+i)))
	}
	return ps
}

// awaitPromotion waits until no message is delayed any more.
func awaitPromotion(ctx context.Context, t *testing.T, s *server) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var list wire.DelayedList
		if err := s.call(ctx, http.MethodGet, "/v1/topics/"+later+"/delayed?limit=1", nil, nil, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Messages) == 0 {
			return
		}
	}
	t.Error("invariant 8: delayed messages are not promoted")
}

// verify reads everything back and holds it against the ledger.
func verify(ctx context.Context, t *testing.T, s *server, l *ledger) {
	t.Helper()
	copies := make(map[string][]string) // body to ids
	for topic := range subscriptions {
		for id, body := range readTopic(ctx, t, s, topic) {
			copies[body] = append(copies[body], id)
			l.mu.Lock()
			if _, known := l.sent[body]; !known {
				l.violate("invariant 1: %s holds a body that nobody sent: %q", id, body)
			}
			l.identify(id, body)
			for _, sub := range subscriptions[topic] {
				if !l.asked[topic+"/"+sub+" "+id] {
					l.violate("invariant 7: %s (%q) was never delivered to be acked by %s/%s", id, body, topic, sub)
				}
			}
			l.mu.Unlock()
		}
	}
	l.mu.Lock()
	for body, m := range l.sent {
		ids := copies[body]
		switch {
		case m.acknowledged && len(ids) == 0:
			l.violate("invariant 1: %q was acknowledged (id %q) and is gone", body, m.id)
		case m.exact && len(ids) != 1:
			l.violate("invariant 3: %q is there %d times: %v", body, len(ids), ids)
		case len(ids) > 1:
			l.violate("invariant 3: %q was sent once and is there %d times: %v", body, len(ids), ids)
		case m.acknowledged && m.id != "" && ids[0] != m.id:
			l.violate("invariant 1: %q was acknowledged as %s and is %s", body, m.id, ids[0])
		}
	}
	l.mu.Unlock()
	for _, v := range l.report() {
		t.Error(v)
	}
}

// readTopic reads all segments of a topic as logs: the body of each id. It checks that offsets are
// dense.
func readTopic(ctx context.Context, t *testing.T, s *server, topic string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	var list wire.SegmentList
	if err := s.call(ctx, http.MethodGet, "/v1/topics/"+topic+"/segments", nil, nil, &list); err != nil {
		t.Fatal(err)
	}
	for _, seg := range list.Segments {
		next := seg.FirstOffset
		for next < seg.NextOffset {
			var page wire.RecordList
			q := url.Values{"offset": {fmt.Sprint(next)}, "limit": {"500"}}
			path := "/v1/topics/" + topic + "/segments/" + string(seg.ID) + "/records?" + q.Encode()
			if err := s.call(ctx, http.MethodGet, path, nil, nil, &page); err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Records {
				if want := fmt.Sprintf("%s-%d", seg.ID, next); m.ID != want || m.Body == nil {
					t.Fatalf("invariant 2: offset %d of segment %s reads as %+v", next, seg.ID, m)
				}
				out[m.ID] = *m.Body
				next++
			}
			if len(page.Records) == 0 {
				t.Fatalf("invariant 1: segment %s ends at %d, its next offset is %d", seg.ID, next, seg.NextOffset)
			}
		}
	}
	return out
}
