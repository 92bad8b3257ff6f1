package consume_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// inHand is what consumers have in hand: from the answer of a claim to just before its ack.
type inHand struct {
	t    *testing.T
	mu   sync.Mutex // guards what follows
	held map[string]int
	next map[string]int
	done int
}

// take checks that nobody else has one of the keys, and that each key goes on where it was.
func (h *inHand) take(who int, ms []msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range ms {
		key := string(keyOf(m.body))
		if other, ok := h.held[key]; ok && other != who {
			h.t.Errorf("%s came to consumer %d while %d has its key in hand", m.body, who, other)
		}
		h.held[key] = who
		if want := fmt.Sprintf("%s%d", key, h.next[key]); m.body != want {
			h.t.Errorf("%s came, want %s", m.body, want)
		}
		h.next[key]++
	}
}

func (h *inHand) drop(ms []msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range ms {
		delete(h.held, string(keyOf(m.body)))
	}
	h.done += len(ms)
}

func (h *inHand) finished(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.done >= n || h.t.Failed()
}

// TestKeyedConsumersAtOnce: consumers of three processes claim and ack at once, across a split.
func TestKeyedConsumersAtOnce(t *testing.T) {
	const keys, rounds, consumers = 12, 60, 6
	e := newEnv(t, options{})
	m, _ := e.keyed(nil)
	e.put(m.Subscriptions["sub"])
	for i := range rounds {
		list := ""
		for k := range keys {
			list += fmt.Sprintf("%c%d ", 'a'+k, i)
		}
		if i == rounds/2 {
			m = e.show(e.split(m, m.Open[0]))
		}
		e.send(m, list)
	}
	hand := &inHand{t: t, held: make(map[string]int), next: make(map[string]int)}
	var services []*consume.Service
	for range 3 {
		e.fresh()
		services = append(services, e.svc)
	}
	var wg sync.WaitGroup
	for who := range consumers {
		svc := services[who%len(services)]
		wg.Go(func() {
			for !hand.finished(keys * rounds) {
				got, err := svc.Claim(context.Background(), consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxMessages: 1 + who})
				if err != nil {
					if !queue.Is(err, queue.KindThrottled) { // too many at once
						t.Error(err)
					}
					continue
				}
				ms := messages(t, got.Deliveries)
				hand.take(who, ms)
				hand.drop(ms)
				if len(ms) == 0 {
					continue
				}
				if errs, err := svc.Ack(context.Background(), "a", "sub", receipts(ms)); err != nil || errs[0] != nil {
					t.Errorf("ack: %v, %v", errs, err)
				}
			}
		})
	}
	wg.Wait()
}
