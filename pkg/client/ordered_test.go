package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestOrderedConsumer: of an ordered subscription a handler has one message of a key at a time, in order,
// though other keys are at work beside it; what follows one that failed goes back, and comes again.
func TestOrderedConsumer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys, each = 5, 12
		s := newFake(t)
		s.ordering = Of(OrderingKey)
		s.fill(keys * each)
		for i := range s.log {
			s.log[i].Key = fmt.Appendf(nil, "k%d", i%keys)
		}
		var mu sync.Mutex
		busy := make(map[string]bool)
		seen := make(map[string][]queue.Offset)
		most, failed := 0, false
		r := consume(t, s, ConsumerOptions{Parallelism: 8}, func(ctx context.Context, m *Received) error {
			key := string(m.Key)
			mu.Lock()
			if busy[key] && (key != "k1" || !failed) { // the fake's later answers know no order
				t.Errorf("two messages of %s at once", key)
			}
			busy[key] = true
			most = max(most, len(busy))
			seen[key] = append(seen[key], m.ID.Offset)
			fail := key == "k1" && len(seen[key]) == 4 && !failed
			failed = failed || fail
			mu.Unlock()
			sleepUntilDone(ctx, time.Millisecond)
			mu.Lock()
			delete(busy, key)
			mu.Unlock()
			if fail {
				return errors.New("not now")
			}
			return nil
		})
		r.until("all done", allDone(keys*each))
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if most != keys {
			t.Errorf("%d keys at work at once, want %d", most, keys)
		}
		for key, offsets := range seen {
			for i, off := range offsets {
				if (key != "k1" || i < 4) && off != queue.Offset(i*keys+int(key[1]-'0')) {
					t.Errorf("%s came as %v", key, offsets)
					break
				}
			}
		}
		back := 0
		for _, rel := range s.releases {
			if strings.Contains(rel.Reason, "earlier message") {
				for _, text := range rel.Receipts {
					receipt, err := queue.ParseReceipt(text)
					if err != nil {
						t.Fatal(err)
					}
					back += int(receipt.Hi - receipt.Lo)
				}
			}
		}
		if back != each-4 {
			t.Errorf("%d messages went back behind the one that failed, want %d", back, each-4)
		}
	})
}
