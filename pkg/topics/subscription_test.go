package topics

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var e *queue.Error
	if !errors.As(err, &e) || e.Field != field {
		t.Errorf("error %v, want one on field %q", err, field)
	}
}

func TestCreateSubscription(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{MinSegments: 2})
	r.create(t, "dead", Config{})
	cfg := SubscriptionConfig{MaxDeliveries: 3, DeadLetterTopic: "dead", Backoff: []time.Duration{time.Second}, Start: Start{Kind: StartLatest}}
	sub, created, err := r.CreateSubscription(t.Context(), "a", "s", cfg)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if sub.VisibilityTimeout != queue.DefaultVisibilityTimeout || sub.MaxInFlight != queue.DefaultMaxInFlight || len(sub.Cut) != 2 {
		t.Errorf("defaults: %+v", sub)
	}
	again, created, err := r.CreateSubscription(t.Context(), "a", "s", cfg)
	if err != nil || created || again.ID != sub.ID {
		t.Errorf("same config: %v %v", created, err)
	}
	cfg.Ordering = meta.OrderingKey
	_, _, err = r.CreateSubscription(t.Context(), "a", "s", cfg)
	wantCode(t, err, queue.CodeSubscriptionExists)
	cfg.Start, cfg.Ordering = Start{}, meta.OrderingNone
	_, _, err = r.CreateSubscription(t.Context(), "a", "s", cfg)
	wantCode(t, err, queue.CodeSubscriptionExists)
	_, _, err = r.CreateSubscription(t.Context(), "none", "s", cfg)
	wantCode(t, err, queue.CodeTopicNotFound)
	got, err := r.Subscription(t.Context(), "a", "s")
	if err != nil || got.ID != sub.ID {
		t.Errorf("Subscription = %v, %v", got, err)
	}
	_, err = r.Subscription(t.Context(), "a", "other")
	wantCode(t, err, queue.CodeSubscriptionNotFound)
}

func TestCreateSubscriptionRefuses(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	for _, c := range []struct {
		name, field string
		cfg         SubscriptionConfig
	}{
		{"visibility_timeout", "visibility_timeout", SubscriptionConfig{VisibilityTimeout: time.Millisecond}},
		{"max_in_flight", "max_in_flight", SubscriptionConfig{MaxInFlight: queue.MaxMaxInFlight + 1}},
		{"max_deliveries", "max_deliveries", SubscriptionConfig{MaxDeliveries: -1}},
		{"only max_deliveries", "dead_letter_topic", SubscriptionConfig{MaxDeliveries: 1}},
		{"only dead_letter_topic", "max_deliveries", SubscriptionConfig{DeadLetterTopic: "b"}},
		{"dead_letter_topic absent", "dead_letter_topic", SubscriptionConfig{MaxDeliveries: 1, DeadLetterTopic: "b"}},
		{"dead_letter_topic itself", "dead_letter_topic", SubscriptionConfig{MaxDeliveries: 1, DeadLetterTopic: "a"}},
		{"dead_letter_topic no name", "dead_letter_topic", SubscriptionConfig{MaxDeliveries: 1, DeadLetterTopic: "a b"}},
		{"backoff step", "backoff", SubscriptionConfig{Backoff: []time.Duration{-1 * time.Second}}},
		{"backoff length", "backoff", SubscriptionConfig{Backoff: make([]time.Duration, queue.MaxBackoffSteps+1)}},
		{"ordering", "ordering", SubscriptionConfig{Ordering: "random"}},
		{"start time", "start", SubscriptionConfig{Start: Start{Kind: StartTime}}},
		{"start kind", "start", SubscriptionConfig{Start: Start{Kind: 99}}},
		{"cut of unknown segment", "start", SubscriptionConfig{Start: Start{Kind: StartCut, Cut: map[queue.SegmentID]queue.Offset{"x": 0}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := r.CreateSubscription(t.Context(), "a", "s", c.cfg)
			wantCode(t, err, queue.CodeInvalidArgument)
			wantField(t, err, c.field)
		})
	}
	_, _, err := r.CreateSubscription(t.Context(), "a", "", SubscriptionConfig{})
	wantField(t, err, "subscription")
}

func TestSubscriptionLimit(t *testing.T) {
	r := newRig(t)
	st := r.create(t, "a", Config{})
	for i := range queue.MaxSubscriptions {
		sub := &meta.Subscription{Topic: st.ID, Name: fmt.Sprintf("s%04d", i), ID: r.ids.Subscription()}
		if _, err := r.store.Apply(t.Context(), meta.Put{Record: sub, Version: 1}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := r.CreateSubscription(t.Context(), "a", "one-more", SubscriptionConfig{})
	wantField(t, err, "subscription")
	n := 0
	for cursor := ""; ; {
		page, next, err := r.ListSubscriptions(t.Context(), "a", cursor, 300)
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range page {
			if want := fmt.Sprintf("s%04d", n); sub.Name != want {
				t.Fatalf("got %s, want %s", sub.Name, want)
			}
			n++
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if n != queue.MaxSubscriptions {
		t.Errorf("listed %d", n)
	}
}

func TestUpdateAndDeleteSubscription(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	first, _, err := r.CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.UpdateSubscription(t.Context(), "a", "s", SubscriptionPatch{
		VisibilityTimeout: ptr(time.Minute), MaxInFlight: ptr(7), Backoff: &[]time.Duration{time.Second},
	})
	if err != nil || got.VisibilityTimeout != time.Minute || got.MaxInFlight != 7 || len(got.Backoff) != 1 || got.ID != first.ID {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = r.UpdateSubscription(t.Context(), "a", "s", SubscriptionPatch{MaxDeliveries: ptr(2)})
	wantField(t, err, "dead_letter_topic")
	_, err = r.UpdateSubscription(t.Context(), "a", "none", SubscriptionPatch{})
	wantCode(t, err, queue.CodeSubscriptionNotFound)
	if err := r.DeleteSubscription(t.Context(), "a", "s"); err != nil {
		t.Error(err)
	}
	wantCode(t, r.DeleteSubscription(t.Context(), "a", "s"), queue.CodeSubscriptionNotFound)
	_, err = r.Seek(t.Context(), "a", "s", Start{})
	wantCode(t, err, queue.CodeSubscriptionNotFound)
}

// log appends refs that become visible at given times, in seconds after base; a roll is -1.
func (r *rig) log(t *testing.T, id queue.SegmentID, base queue.Millis, visible ...int) {
	t.Helper()
	var at queue.Millis
	for i, sec := range visible {
		v := base.Add(time.Duration(sec) * time.Second)
		if sec >= 0 {
			at = max(at, v)
			op := meta.Append{Segment: id, Epoch: 1, At: at, Refs: []meta.Ref{{
				Kind: meta.RefBatch, ID: meta.RefID{byte(i)}, Object: "o", Count: 2, Created: base, Visible: v,
			}}}
			if _, err := r.store.Apply(t.Context(), op); err != nil {
				t.Fatal(err)
			}
			continue
		}
		h, _, err := meta.Fetch[*meta.Head](t.Context(), r.store, meta.HeadKey(id))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.store.Transact(t.Context(), []meta.Op{
			meta.Put{Record: &meta.RefPage{Segment: id, First: h.TailFirst, Refs: h.Tail, Rolled: h.LastAppend}, Version: 1},
			meta.Trim{Segment: id, First: h.TailFirst, Count: len(h.Tail)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSeek(t *testing.T) {
	r := newRig(t)
	st := r.create(t, "a", Config{})
	id := st.Segments[0].ID
	base := queue.MillisOf(r.clock())
	// Two messages each: 0-11 in three pages, 12-15 in the tail. The one visible at 6 was promoted
	// late: it stands behind one of 15.
	r.log(t, id, base, 1, 2, -1, 10, 15, -1, 6, 20, -1, 30, 40)
	sub, _, err := r.CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{})
	if err != nil || sub.Cut != nil {
		t.Fatal(sub, err)
	}
	at := func(sec int) Start {
		return Start{Kind: StartTime, Time: base.Add(time.Duration(sec) * time.Second)}
	}
	for _, c := range []struct {
		name  string
		start Start
		want  queue.Offset
	}{
		{"before all", at(-5), 0},
		{"exactly the first", at(1), 0},
		{"second", at(2), 2},
		{"between pages", at(3), 4},
		{"in a page", at(11), 6},
		{"behind a late one", at(16), 10},
		{"in the tail", at(21), 12},
		{"last", at(40), 14},
		{"after all", at(41), 16},
		{"latest", Start{Kind: StartLatest}, 16},
		{"cut", Start{Kind: StartCut, Cut: map[queue.SegmentID]queue.Offset{id: 7}}, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := r.Seek(t.Context(), "a", "s", c.start)
			if err != nil || got.Cut[id] != c.want {
				t.Errorf("cut %v, want %d: %v", got, c.want, err)
			}
			if got != nil && got.ID == sub.ID {
				t.Error("the id stayed, so old receipts live on")
			}
		})
	}
	_, err = r.Seek(t.Context(), "a", "s", Start{Kind: StartCut, Cut: map[queue.SegmentID]queue.Offset{id: 17}})
	wantField(t, err, "start")
	if _, created, err := r.CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{}); created || err != nil {
		t.Errorf("the same creation after a seek: %v %v", created, err)
	}
}

func TestStartTexts(t *testing.T) {
	one := Start{Kind: StartCut, Cut: map[queue.SegmentID]queue.Offset{"a": 1, "b": 2}}
	two := Start{Kind: StartCut, Cut: map[queue.SegmentID]queue.Offset{"b": 2, "a": 1}}
	three := Start{Kind: StartCut, Cut: map[queue.SegmentID]queue.Offset{"a": 1, "b": 3}}
	if one.text() != two.text() || one.text() == three.text() {
		t.Error(one.text(), two.text(), three.text())
	}
	if (Start{}).text() != "earliest" || (Start{Kind: StartLatest}).text() != "latest" {
		t.Error("texts of fixed starts")
	}
}

func TestConcurrentSubscriptionsAllCount(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, _, err := r.CreateSubscription(t.Context(), "a", fmt.Sprint(i), SubscriptionConfig{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if m, _ := r.Open(t.Context(), "a"); len(m.Subscriptions) != 8 {
		t.Errorf("%d subscriptions", len(m.Subscriptions))
	}
}
