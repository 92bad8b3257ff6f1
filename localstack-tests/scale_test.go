//go:build localstack

package localstack

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// scaled: a topic that takes more than its segment should carry is split, by a leader that a producer has
// woken; nothing is lost, and a subscription in order by key has each key's messages in order across the
// change.
func scaled(t *testing.T, d *deployment) {
	d.topic(t, "flood", object{"scaling": object{"target_messages_per_second": 1}}, object{"ordering": "key"})
	const keys, patience = 5, 120 * time.Second
	sent := 0
	eventually(t, patience, "a split by the leader", func() bool {
		for range 5 {
			var messages []object
			for i := range 4 * keys {
				messages = append(messages, object{"key": fmt.Sprintf("k%d", i%keys), "body": strconv.Itoa(sent)})
				sent++
			}
			d.produce(t, "flood", messages...)
		}
		var events struct {
			Events []struct{ Action, Reason string }
		}
		d.call(t, "GET", "/v1/events?topic=flood", nil).into(t, &events)
		return len(events.Events) > 0 && events.Events[len(events.Events)-1].Action == "split"
	})
	var open struct{ Segments []struct{ ID string } }
	d.call(t, "GET", "/v1/topics/flood/segments?state=open", nil).into(t, &open)
	if len(open.Segments) < 2 {
		t.Fatalf("%d open segments", len(open.Segments))
	}
	// What the new segments take comes after the old one's.
	d.produce(t, "flood", object{"key": "k0", "body": strconv.Itoa(sent)}, object{"key": "k1", "body": strconv.Itoa(sent + 1)})
	sent += 2
	last, got := make(map[string]int), 0
	for got < sent {
		messages := d.claim(t, "flood", object{"max_messages": 1000, "wait": 5})
		if len(messages) == 0 {
			t.Fatalf("%d of %d messages came", got, sent)
		}
		var receipts []string
		for _, m := range messages {
			n, err := strconv.Atoi(m.Body)
			if before, known := last[m.Key]; err != nil || known && n <= before {
				t.Errorf("key %s: %s after %d", m.Key, m.Body, before)
			}
			last[m.Key] = n
			receipts = append(receipts, m.Receipt)
			got++
		}
		d.settle(t, "flood", "ack", object{"receipts": receipts})
	}
	t.Logf("%d messages, %d open segments", got, len(open.Segments))
}
