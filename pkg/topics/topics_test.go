package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// rig is a service on a memory store, with a clock that stands still unless it is moved.
type rig struct {
	*Service
	store *memmeta.Store
	meter *meter.Meter

	mu  sync.Mutex // guards now
	now time.Time
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func newRig(t *testing.T) *rig {
	r := &rig{store: memmeta.New(t), meter: meter.New(), now: time.UnixMilli(1_700_000_000_000)}
	r.Service = New(Deps{Meta: r.meter.Meta(r.store), IDs: queue.NewIDs(nil), Clock: r.clock})
	return r
}

func (r *rig) create(t *testing.T, name string, c Config) Status {
	t.Helper()
	st, created, err := r.Create(t.Context(), name, c)
	if err != nil || !created {
		t.Fatalf("Create(%q) = %v, %v", name, created, err)
	}
	return st
}

func wantCode(t *testing.T, err error, code queue.Code) {
	t.Helper()
	if err == nil || queue.CodeOf(err) != code {
		t.Errorf("error %v, want code %s", err, code)
	}
}

func ptr[T any](v T) *T { return &v }

func TestCreate(t *testing.T) {
	r := newRig(t)
	cfg := Config{DefaultDelay: time.Minute, MinSegments: 3, Attributes: map[string]string{"team": "a"}}
	st := r.create(t, "shop.orders", cfg)
	if st.Config.MaxDelay != queue.DefaultMaxDelay || st.Config.MaxMessageBytes != queue.DefaultMaxMessageBytes {
		t.Errorf("defaults: %+v", st.Config)
	}
	if len(st.Segments) != 3 || st.State != meta.TopicOpen || st.Created == 0 {
		t.Errorf("status: %+v", st)
	}
	read, err := r.Status(t.Context(), "shop.orders")
	if err != nil || fmt.Sprint(read.Config) != fmt.Sprint(st.Config) || len(read.Segments) != 3 || read.ID != st.ID {
		t.Errorf("Status = %+v, %v", read, err)
	}
	again, created, err := r.Create(t.Context(), "shop.orders", cfg)
	if err != nil || created || again.ID != st.ID {
		t.Errorf("same config: %v %v %v", again.ID, created, err)
	}
	_, _, err = r.Create(t.Context(), "shop.orders", Config{})
	wantCode(t, err, queue.CodeTopicExists)
}

func TestCreateRefuses(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name, topic, field string
		cfg                Config
	}{
		{"name", "a..b", "topic", Config{}},
		{"default_delay over the default max_delay", "t", "default_delay", Config{DefaultDelay: time.Hour}},
		{"default_delay over max_delay", "t", "default_delay", Config{DefaultDelay: 2 * time.Second, MaxDelay: time.Second}},
		{"negative default_delay", "t", "default_delay", Config{DefaultDelay: -1 * time.Second}},
		{"max_delay", "t", "max_delay", Config{MaxDelay: queue.MaxMaxDelay + time.Second}},
		{"default_ttl", "t", "default_ttl", Config{DefaultTTL: queue.MaxTTL + time.Second}},
		{"max_message_bytes", "t", "max_message_bytes", Config{MaxMessageBytes: queue.MaxInlineMessageBytes + 1}},
		{"negative max_message_bytes", "t", "max_message_bytes", Config{MaxMessageBytes: -1}},
		{"partition_key", "t", "partition_key", Config{PartitionKey: "id"}},
		{"min_segments", "t", "scaling.min_segments", Config{MinSegments: queue.MaxSegments + 1}},
		{"attributes", "t", "attributes", Config{Attributes: map[string]string{"a": string(make([]byte, queue.MaxAttributesBytes))}}},
		{"attribute not UTF-8", "t", "attributes", Config{Attributes: map[string]string{"a": "\xff"}}},
		{"attribute name", "t", "attributes", Config{Attributes: map[string]string{"": "x"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := r.Create(t.Context(), c.topic, c.cfg)
			wantCode(t, err, queue.CodeInvalidArgument)
			wantField(t, err, c.field)
		})
	}
}

func TestCreateOfManySegments(t *testing.T) {
	r := newRig(t)
	for _, n := range []int{1, 48, 49, 50, 51, 100, 101, queue.MaxSegments} {
		name := fmt.Sprintf("t%d", n)
		r.create(t, name, Config{MinSegments: n})
		m, err := r.Open(t.Context(), name)
		if err != nil || len(m.Open) != n || !m.tiles() {
			t.Fatalf("%d segments: %v", n, err)
		}
		last := m.Open[n-1]
		if got := m.Route(queue.Slots - 1); got != last || m.Segment(last.ID) != last || m.Segment("none") != nil {
			t.Errorf("%d segments: the last slot goes to %v", n, got)
		}
	}
}

func TestOpenIsCached(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	open := func() *Map {
		t.Helper()
		m, err := r.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := open()
	before := r.meter.Snapshot()
	r.pass(defaultCacheTTL - time.Millisecond)
	if open() != first {
		t.Error("not the cached Map")
	}
	if n := r.meter.Snapshot().Sub(before).Calls(); n != 0 {
		t.Errorf("a cached Open makes %d store calls", n)
	}
	r.pass(time.Millisecond)
	if open() == first {
		t.Error("the Map lived longer than the TTL")
	}
	if n := r.meter.Snapshot().Sub(before).Calls(); n != 2 {
		t.Errorf("a miss makes %d store calls, want 2", n)
	}
	if m, err := r.Reload(t.Context(), "a"); err != nil || m == first {
		t.Errorf("Reload gave the cached Map: %v", err)
	}
}

func TestOpenDoesNotRememberAbsence(t *testing.T) {
	r := newRig(t)
	_, err := r.Open(t.Context(), "a")
	wantCode(t, err, queue.CodeTopicNotFound)
	// Another process makes it.
	other := New(Deps{Meta: r.store, IDs: queue.NewIDs(nil), Clock: r.clock})
	if _, _, err := other.Create(t.Context(), "a", Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	_, err = r.Open(t.Context(), "not a name")
	wantCode(t, err, queue.CodeInvalidArgument)
}

func TestOwnChangesShowAtOnce(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	if _, err := r.Open(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Update(t.Context(), "a", Patch{DefaultTTL: ptr(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if m, _ := r.Open(t.Context(), "a"); m.Topic.Config.DefaultTTL != time.Hour {
		t.Error("an update does not show")
	}
	if _, _, err := r.CreateSubscription(t.Context(), "a", "s", SubscriptionConfig{}); err != nil {
		t.Fatal(err)
	}
	if m, _ := r.Open(t.Context(), "a"); m.Subscriptions["s"] == nil {
		t.Error("a new subscription does not show")
	}
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	_, err := r.Open(t.Context(), "a")
	wantCode(t, err, queue.CodeTopicNotFound)
}

// A load that began before a change must not put what it read into the cache after it.
func TestSlowLoadDoesNotHideAChange(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	_, err := r.cache.fill(t.Context(), "a", func(ctx context.Context, name string) (*Map, error) {
		m, err := r.load(ctx, name)
		if _, err := r.Update(ctx, "a", Patch{DefaultTTL: ptr(time.Hour)}); err != nil {
			t.Error(err)
		}
		return m, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := r.Open(t.Context(), "a"); err != nil || m.Topic.Config.DefaultTTL != time.Hour {
		t.Errorf("the old config came back: %v", err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	r := newRig(t)
	r.cache.limit = 2
	for _, name := range []string{"a", "b", "c"} {
		r.create(t, name, Config{})
		if _, err := r.Open(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if r.cache.get("a") != nil || r.cache.get("b") == nil || r.cache.get("c") == nil || len(r.cache.entries) != 2 {
		t.Error("the cache does not hold just the two used last")
	}
}

func TestConcurrentReloadsShareReads(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	before := r.meter.Snapshot()
	const callers = 64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if _, err := r.Reload(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := r.meter.Snapshot().Sub(before).Calls(); n > 2*callers || r.cache.turns.Held() != 0 {
		t.Errorf("%d calls, %d turns left", n, r.cache.turns.Held())
	}
}

func TestCanceledCallerDoesNotEndASharedLoad(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Reload(ctx, "a"); err != nil && !queue.Is(err, queue.KindCanceled) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := r.Reload(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestUpdate(t *testing.T) {
	r := newRig(t)
	st := r.create(t, "a", Config{MinSegments: 2, Attributes: map[string]string{"x": "1", "y": "2"}})
	r.pass(time.Second)
	got, err := r.Update(t.Context(), "a", Patch{
		DefaultDelay: ptr(5 * time.Second), MaxMessageBytes: ptr(int64(100)), PartitionKey: ptr("$.id"),
		MinSegments: ptr(2), Attributes: map[string]*string{"x": nil, "z": ptr("3")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		DefaultDelay: 5 * time.Second, MaxDelay: queue.DefaultMaxDelay, MaxMessageBytes: 100,
		PartitionKey: "$.id", MinSegments: 2, Attributes: map[string]string{"y": "2", "z": "3"},
	}
	if fmt.Sprint(got.Config) != fmt.Sprint(want) || got.Modified <= st.Modified || got.Created != st.Created {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for field, p := range map[string]Patch{
		"scaling.min_segments":               {MinSegments: ptr(0)},
		"scaling.max_segments":               {MaxSegments: ptr(1)},
		"scaling.target_messages_per_second": {TargetMessages: ptr(int64(-1))},
		"scaling.target_bytes_per_second":    {TargetBytes: ptr(int64(1) << 50)},
		"default_delay":                      {MaxDelay: ptr(time.Second)},
		"max_delay":                          {MaxDelay: ptr(time.Duration(0)), DefaultDelay: ptr(time.Duration(0))},
		"max_message_bytes":                  {MaxMessageBytes: ptr(int64(0))},
	} {
		_, err := r.Update(t.Context(), "a", p)
		wantCode(t, err, queue.CodeInvalidArgument)
		wantField(t, err, field)
	}
	_, err = r.Update(t.Context(), "none", Patch{})
	wantCode(t, err, queue.CodeTopicNotFound)
}

// What was put under an old config must be looked for as long as it may wait.
func TestDelayedUntil(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{DefaultDelay: time.Second, MaxDelay: 100 * time.Hour})
	steps := []Patch{{MaxDelay: ptr(time.Minute)}, {DefaultDelay: ptr(time.Duration(0))}, {DefaultTTL: ptr(time.Hour)}}
	start := queue.MillisOf(r.clock())
	for _, p := range steps {
		r.pass(time.Minute)
		if _, err := r.Update(t.Context(), "a", p); err != nil {
			t.Fatal(err)
		}
	}
	m, err := r.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	// The last put under the long max_delay may have come with the first update.
	last := start.Add(time.Minute + 100*time.Hour)
	if !m.Topic.Promotes(last) || m.Topic.Promotes(last.Add(2*delayedSlack)) || !m.Topic.EverDelayed() {
		t.Errorf("delayed until %v, want a little after %v", m.Topic.DelayedUntil, last)
	}
	r.create(t, "normal", Config{})
	if m, _ := r.Open(t.Context(), "normal"); m.Topic.Promotes(start) || m.Topic.EverDelayed() {
		t.Error("a normal topic promotes")
	}
}

func TestConcurrentUpdatesAllCount(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := r.Update(t.Context(), "a", Patch{Attributes: map[string]*string{fmt.Sprint(i): ptr("x")}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if m, _ := r.Open(t.Context(), "a"); len(m.Topic.Config.Attributes) != 8 {
		t.Errorf("attributes: %v", m.Topic.Config.Attributes)
	}
}

func TestConcurrentCreatesMakeOne(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	ids := map[queue.TopicID]bool{}
	for range 8 {
		wg.Go(func() {
			st, created, err := r.Create(t.Context(), "a", Config{MinSegments: 60})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[st.ID] = true
			if created {
				made++
			}
		})
	}
	wg.Wait()
	if made != 1 || len(ids) != 1 {
		t.Errorf("%d made, ids %v", made, ids)
	}
}

func TestDeleteSealsAndFreesTheName(t *testing.T) {
	r := newRig(t)
	first := r.create(t, "a", Config{MinSegments: 3})
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, seg := range first.Segments {
		_, err := r.store.Apply(t.Context(), meta.Append{Segment: seg.ID, Epoch: 1, Refs: []meta.Ref{{Count: 1}}})
		if !meta.IsRefused(err, meta.ReasonSealed) {
			t.Errorf("a commit after the delete: %v", err)
		}
	}
	wantCode(t, r.Delete(t.Context(), "a"), queue.CodeTopicNotFound)
	if second := r.create(t, "a", Config{}); second.ID == first.ID {
		t.Error("a new topic has the old one's id")
	}
}

func TestList(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"b", "a", "a.x", "a-b", "a_b", "aZ", "az"} {
		r.create(t, name, Config{})
	}
	for _, c := range []struct {
		prefix string
		limit  int
		want   []string
	}{
		{"", 100, []string{"a", "a-b", "a.x", "aZ", "a_b", "az", "b"}},
		{"", 2, []string{"a", "a-b", "a.x", "aZ", "a_b", "az", "b"}},
		{"a", 3, []string{"a", "a-b", "a.x", "aZ", "a_b", "az"}},
		{"a.", 1, []string{"a.x"}},
		{"c", 1, nil},
	} {
		var got []string
		cursor := ""
		for range 10 {
			page, next, err := r.List(t.Context(), c.prefix, cursor, c.limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > c.limit {
				t.Errorf("%d in a page of %d", len(page), c.limit)
			}
			for _, l := range page {
				got = append(got, l.Name)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("prefix %q: %v, want %v", c.prefix, got, c.want)
		}
	}
	for field, args := range map[string][2]string{"prefix": {"a\x00", ""}, "cursor": {"", "a b"}} {
		_, _, err := r.List(t.Context(), args[0], args[1], 10)
		wantField(t, err, field)
	}
	_, _, err := r.List(t.Context(), "", "", 0)
	wantField(t, err, "limit")
}

// deletedAfter deletes a topic right after its record has been read as often as reads says.
type deletedAfter struct {
	meta.Store
	other *Service
	reads int
}

// Get implements meta.Store.
func (d *deletedAfter) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	item, err := d.Store.Get(ctx, key)
	if _, isTopic := item.Record.(*meta.Topic); isTopic {
		if d.reads--; d.reads == 0 {
			if derr := d.other.Delete(ctx, "a"); derr != nil {
				return item, derr
			}
		}
	}
	return item, err
}

// TestCreateWhileDeleted: a topic that goes between the look at it and the answer is created anew; to
// say "no such topic" to who creates it would be nonsense.
func TestCreateWhileDeleted(t *testing.T) {
	r := newRig(t)
	r.create(t, "a", Config{})
	s := New(Deps{Meta: &deletedAfter{Store: r.store, other: r.Service, reads: 1}, IDs: queue.NewIDs(nil), Clock: r.clock})
	if st, created, err := s.Create(t.Context(), "a", Config{}); err != nil || !created || st.Name != "a" {
		t.Errorf("%+v, %v, %v", st, created, err)
	}
}

func TestListRefusesALongPrefix(t *testing.T) {
	r := newRig(t)
	_, _, err := r.List(t.Context(), strings.Repeat("a", queue.MaxNameBytes+1), "", 10)
	var e *queue.Error
	if !errors.As(err, &e) || e.Field != "prefix" || e.Limit != queue.MaxNameBytes {
		t.Errorf("%#v", err)
	}
}
