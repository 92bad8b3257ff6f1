package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/local"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// These tests run against a whole server in this process.

func start(t testing.TB) *client.Client {
	t.Helper()
	srv, err := local.Start(t.Context(), local.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(srv.URL(), client.Options{Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func topic(t testing.TB, c *client.Client, name string, config client.TopicConfig) {
	t.Helper()
	if _, err := c.CreateTopic(t.Context(), name, config); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSubscription(t.Context(), name, "billing", client.SubscriptionConfig{Start: &client.Position{Word: client.Earliest}}); err != nil {
		t.Fatal(err)
	}
}

func TestSystemAdmin(t *testing.T) {
	t.Parallel()
	c, ctx := start(t), t.Context()
	for _, name := range []string{"shop.a", "shop.b", "other"} {
		topic(t, c, name, client.TopicConfig{Scaling: &client.Scaling{MinSegments: client.Of(2), MaxSegments: client.Of(2)}})
	}
	var names []string
	for entry, err := range c.ListTopics(ctx, "shop.") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.Name)
	}
	if !slices.Equal(names, []string{"shop.a", "shop.b"}) {
		t.Errorf("topics %v", names)
	}
	got, err := c.UpdateTopic(ctx, "shop.a", client.TopicPatch{DefaultTTL: client.Seconds(time.Hour), Attributes: map[string]*string{"team": client.Of("x")}})
	if err != nil || *got.Config.DefaultTTL != 3600 || got.Config.Attributes["team"] != "x" {
		t.Errorf("updated topic %+v, %v", got, err)
	}
	if _, err := c.CreateTopic(ctx, "shop.a", client.TopicConfig{}); !errors.Is(err, client.ErrTopicExists) {
		t.Errorf("another config: %v", err)
	}
	segments := 0
	for s, err := range c.Segments(ctx, "shop.a") {
		if err != nil || s.State != "open" {
			t.Fatal(s, err)
		}
		segments++
	}
	if got, err := c.GetTopic(ctx, "shop.a"); err != nil || segments != 2 || got.Segments.Open != 2 {
		t.Errorf("%d segments, status %+v, %v", segments, got, err)
	}
	sub, err := c.UpdateSubscription(ctx, "shop.a", "billing", client.SubscriptionConfig{VisibilityTimeout: client.Seconds(time.Minute)})
	if err != nil || *sub.Config.VisibilityTimeout != 60 {
		t.Errorf("updated subscription %+v, %v", sub, err)
	}
	for s, err := range c.ListSubscriptions(ctx, "shop.a") {
		if err != nil || s.Name != "billing" {
			t.Error(s, err)
		}
	}
	if err := c.DeleteSubscription(ctx, "shop.a", "billing"); err != nil {
		t.Error(err)
	}
	if _, err := c.GetSubscription(ctx, "shop.a", "billing"); !errors.Is(err, client.ErrSubscriptionNotFound) {
		t.Errorf("deleted subscription: %v", err)
	}
	if err := c.DeleteTopic(ctx, "shop.a"); err != nil {
		t.Error(err)
	}
	var api *client.APIError
	if _, err := c.GetTopic(ctx, "shop.a"); !errors.Is(err, client.ErrTopicNotFound) || !errors.As(err, &api) || api.RequestID == "" || api.Status != 404 {
		t.Errorf("deleted topic: %v", err)
	}
}

// TestSystemProduceConsume sends through a Producer and reads with a Consumer, both codecs, with
// headers, keys and bodies that go by reference.
func TestSystemProduceConsume(t *testing.T) {
	t.Parallel()
	c, ctx := start(t), t.Context()
	for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecZstd} {
		for _, byReference := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%v", codec, byReference), func(t *testing.T) {
				name := fmt.Sprintf("orders-%v-%v", codec, byReference)
				topic(t, c, name, client.TopicConfig{Scaling: &client.Scaling{MinSegments: client.Of(4), MaxSegments: client.Of(4)}})
				p, err := client.NewProducer(c, name, client.ProducerOptions{Codec: codec, MaxBatchMessages: 50, ReferenceAbove: 10_000})
				if err != nil {
					t.Fatal(err)
				}
				const total = 400
				want := map[string]string{}
				ids := map[string]string{}
				var futures []*client.Future
				var bodies []string
				for i := range total {
					body := fmt.Sprintf("%d:%s", i, strings.Repeat("x", i%50))
					if i%100 == 99 {
						body += strings.Repeat("large", 4000)
					}
					f, err := p.Send(ctx, client.Message{
						Key: fmt.Appendf(nil, "key-%d", i%9), Body: []byte(body), Headers: map[string]string{"n": strconv.Itoa(i)},
					})
					if err != nil {
						t.Fatal(err)
					}
					want[body], futures, bodies = strconv.Itoa(i), append(futures, f), append(bodies, body)
				}
				if err := p.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				for i, f := range futures {
					r, _ := f.Result()
					ids[bodies[i]] = r.ID.String()
				}
				got := consumeAll(t, c, name, total, client.ConsumerOptions{ByReference: byReference, FetchBelow: 15_000}, func(m *client.Received, body string) {
					if n, _ := m.Header("n"); n != want[body] || m.ID.String() != ids[body] {
						t.Errorf("message %s (%s) has header %q, want %q and id %s", m.ID, m.Key, n, want[body], ids[body])
					}
				})
				if len(got) != total {
					t.Errorf("%d different messages, want %d", len(got), total)
				}
				if err := p.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// consumeAll runs a consumer until it has handled total messages, and gives them by body.
func consumeAll(t *testing.T, c *client.Client, name string, total int, o client.ConsumerOptions, check func(*client.Received, string)) map[string]bool {
	t.Helper()
	o.OnError = func(err error) { t.Error(err) }
	consumer, err := client.NewConsumer(c, name, "billing", o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var mu sync.Mutex
	got := map[string]bool{}
	err = consumer.Run(ctx, func(ctx context.Context, m *client.Received) error {
		r, err := m.Open(ctx)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		check(m, string(body))
		if got[string(body)] = true; len(got) == total {
			cancel()
		}
		return r.Close()
	})
	if err != nil {
		t.Error(err)
	}
	// What was acked is done: nothing is in flight or comes again.
	s, err := c.GetSubscription(t.Context(), name, "billing")
	if err != nil || s.Status.InFlight != 0 || s.Status.Ready != 0 {
		t.Errorf("after the run: %+v, %v", s.Status, err)
	}
	return maps.Clone(got)
}

func TestSystemRaw(t *testing.T) {
	t.Parallel()
	c, ctx := start(t), t.Context()
	topic(t, c, "orders", client.TopicConfig{})
	guard := client.Guard{IdempotencyKey: "once"}
	messages := []client.Message{{Body: []byte("a")}, {Key: []byte("k"), Body: []byte{0xff}}, {Headers: map[string]string{"": ""}}}
	results, err := c.Produce(ctx, "orders", messages, guard)
	if err != nil || results[0].Err != nil || results[1].Err != nil || !queue.Is(results[2].Err, queue.KindInvalid) {
		t.Fatalf("%+v, %v", results, err)
	}
	again, err := c.Produce(ctx, "orders", messages, guard)
	if err != nil || again[0].ID != results[0].ID || again[1].ID != results[1].ID {
		t.Errorf("the same call under the same key: %+v, %v, want %+v", again, err, results)
	}
	other := []client.Message{{Body: []byte("other")}}
	if _, err := c.Produce(ctx, "orders", other, guard); queue.CodeOf(err) != queue.CodeIdempotencyMismatch {
		t.Errorf("another call under the same key: %v", err)
	}
	object, err := c.Upload(ctx, "orders", strings.NewReader("uploaded"), 8)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.Upload(ctx, "orders", io.MultiReader(strings.NewReader("str"), strings.NewReader("eam")), 6)
	if err != nil {
		t.Fatal(err)
	}
	refs, err := c.Reference(ctx, "orders", []client.Reference{
		{Object: object, Message: client.Message{Key: []byte("u")}}, {Object: stream}, {Object: client.Object{Name: "uploads/none"}},
	}, client.Guard{ProducerID: "p", Sequence: 1})
	if err != nil || refs[0].Results[0].Err != nil || refs[1].Results[0].Err != nil || refs[2].Results[0].Err == nil {
		t.Fatalf("%+v, %v", refs, err)
	}
	claimed, err := c.Claim(ctx, "orders", "billing", client.ClaimOptions{MaxMessages: 10, Wait: time.Second})
	if err != nil || len(claimed) != 4 {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	var receipts []client.Receipt
	for _, m := range claimed {
		receipts = append(receipts, m.Receipt)
	}
	if bad, err := c.Extend(ctx, "orders", "billing", receipts, time.Minute); err != nil || errors.Join(bad...) != nil {
		t.Errorf("extend: %v, %v", bad, err)
	}
	if bad, err := c.Release(ctx, "orders", "billing", receipts[:1], client.ReleaseOptions{Reason: "why not", HasDelay: true, Delay: time.Hour}); err != nil || bad[0] != nil {
		t.Errorf("release: %v, %v", bad, err)
	}
	bad, err := c.Ack(ctx, "orders", "billing", receipts)
	if err != nil || !errors.Is(bad[0], client.ErrClaimLost) || errors.Join(bad[1:]...) != nil {
		t.Errorf("ack: %v, %v", bad, err)
	}
	page, err := c.Peek(ctx, "orders", client.PeekOptions{Limit: 10})
	if err != nil || len(page.Messages) != 4 {
		t.Fatalf("peek: %+v, %v", page, err)
	}
	one, err := c.GetMessage(ctx, "orders", results[1].ID)
	if err != nil || string(one.Key) != "k" || !bytes.Equal(one.Body, []byte{0xff}) {
		t.Errorf("get: %+v, %v", one, err)
	}
	records, err := c.ReadRecords(ctx, "orders", client.RecordsOptions{Segment: results[0].ID.Segment})
	if err != nil || len(records.Messages) != 4 || records.NextOffset != 4 || records.EndOfSegment {
		t.Fatalf("records: %+v, %v", records, err)
	}
	if body, err := records.Messages[2].Bytes(ctx); err != nil || string(body) != "uploaded" {
		t.Errorf("body of the reference: %q, %v", body, err)
	}
	if err := c.Seek(ctx, "orders", "billing", client.Position{Word: client.Earliest}); err != nil {
		t.Error(err)
	}
	if again, err := c.Claim(ctx, "orders", "billing", client.ClaimOptions{MaxMessages: 10, Wait: time.Second}); err != nil || len(again) != 4 {
		t.Errorf("after the seek: %v, %v", again, err)
	}
}

func TestSystemBatchFile(t *testing.T) {
	t.Parallel()
	c, ctx := start(t), t.Context()
	topic(t, c, "orders", client.TopicConfig{})
	p, err := client.NewProducer(c, "orders", client.ProducerOptions{MaxBatchBytes: 64 << 20, ReferenceAbove: 4 << 20, Linger: time.Minute, Lanes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := p.Send(ctx, client.Message{Key: fmt.Appendf(nil, "%d", i), Body: bytes.Repeat([]byte{byte(i)}, 3<<20)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	got := consumeAll(t, c, "orders", 4, client.ConsumerOptions{}, func(*client.Received, string) {})
	if len(got) != 4 {
		t.Errorf("%d messages, want 4", len(got))
	}
}

// TestSystemRestart: a server that goes away and comes back costs a producer time, and neither a
// message nor a duplicate.
func TestSystemRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	options := local.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}
	srv, err := local.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	options.Listen = strings.TrimPrefix(srv.URL(), "http://")
	c, err := client.New(srv.URL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topic(t, c, "orders", client.TopicConfig{Scaling: &client.Scaling{MinSegments: client.Of(3), MaxSegments: client.Of(3)}})
	p, err := client.NewProducer(c, "orders", client.ProducerOptions{MaxBatchMessages: 20, Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	const total = 3000
	restarted := make(chan *local.Server, 1)
	for i := range total {
		if i == total/2 {
			if err := srv.Close(ctx); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(300*time.Millisecond, func() {
				again, err := local.Start(ctx, options)
				if err != nil {
					t.Error(err)
				}
				restarted <- again
			})
		}
		if _, err := p.Send(ctx, client.Message{Key: fmt.Appendf(nil, "k%d", i%50), Body: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	status, err := c.GetTopic(ctx, "orders")
	if err != nil || status.Messages.Ready != total {
		t.Errorf("%+v, %v, want %d messages", status, err, total)
	}
	inOrder(t, c, total)
	if err := (<-restarted).Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// inOrder reads all segments as logs, and holds each key to the order in which it was sent.
func inOrder(t *testing.T, c *client.Client, total int) {
	t.Helper()
	last, seen := map[string]int{}, 0
	for s, err := range c.Segments(t.Context(), "orders") {
		if err != nil {
			t.Fatal(err)
		}
		for offset := s.FirstOffset; offset < s.NextOffset; {
			records, err := c.ReadRecords(t.Context(), "orders", client.RecordsOptions{Segment: s.ID, Offset: offset})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range records.Messages {
				n, _ := strconv.Atoi(string(m.Body))
				if before, ok := last[string(m.Key)]; ok && n <= before {
					t.Errorf("message %d of %s comes after %d", n, m.Key, before)
				}
				last[string(m.Key)] = n
				seen++
			}
			offset = records.NextOffset
		}
	}
	if seen != total {
		t.Errorf("the logs hold %d messages, want %d", seen, total)
	}
}

func TestSystemDelayed(t *testing.T) {
	t.Parallel()
	c, ctx := start(t), t.Context()
	topic(t, c, "later", client.TopicConfig{DefaultDelay: client.Seconds(time.Minute)})
	p, err := client.NewProducer(c, "later", client.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waits, err := p.SendSync(ctx, client.Message{Body: []byte("waits")})
	if err != nil || waits.Delayed == (client.DelayedID{}) || waits.ID != (client.MessageID{}) {
		t.Fatalf("%+v, %v", waits, err)
	}
	if now, err := p.SendSync(ctx, client.Message{Body: []byte("now"), Delay: client.Of(time.Duration(0))}); err != nil || now.ID.Segment == "" {
		t.Fatalf("%+v, %v", now, err)
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	id := waits.Delayed.String()
	edited, err := c.EditDelayed(ctx, "later", id, client.DelayedEdit{Body: []byte("edited"), Headers: map[string]string{"a": "b"}})
	if err != nil || edited.Size != 6 || edited.DelayedID != id {
		t.Errorf("%+v, %v", edited, err)
	}
	for m, err := range c.ListDelayed(ctx, "later") {
		if err != nil || m.DelayedID != id || string(m.Body) != "edited" {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if got, err := c.GetDelayed(ctx, "later", id); err != nil || got.Headers()["a"] != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := c.CancelDelayed(ctx, "later", id); err != nil {
		t.Error(err)
	}
	if _, err := c.GetDelayed(ctx, "later", id); !errors.Is(err, client.ErrDelayedNotFound) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestSystemSegments changes segments by hand, and reads what became of them.
func TestSystemSegments(t *testing.T) {
	t.Parallel()
	c, ctx := start(t), t.Context()
	topic(t, c, "orders", client.TopicConfig{Scaling: &client.Scaling{MaxSegments: client.Of(3)}})
	first := func() queue.SegmentID {
		for s, err := range c.OpenSegments(ctx, "orders") {
			if err != nil {
				t.Fatal(err)
			}
			return s.ID
		}
		t.Fatal("no open segment")
		return ""
	}
	whole := first()
	plan, err := c.Split(ctx, "orders", whole, client.SplitOptions{At: []queue.Slot{100, 1000}, DryRun: true})
	if err != nil || !plan.DryRun || len(plan.Made) != 0 || len(plan.Ranges) != 3 || first() != whole {
		t.Fatalf("dry run %+v, %v", plan, err)
	}
	made, err := c.Split(ctx, "orders", whole, client.SplitOptions{At: []queue.Slot{100, 1000}})
	if err != nil || !slices.Equal(made.Ranges, plan.Ranges) || len(made.Made) != 3 {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := c.Split(ctx, "orders", whole, client.SplitOptions{}); !errors.Is(err, client.ErrSegmentSealed) || !queue.Is(err, queue.KindConflict) {
		t.Errorf("a sealed segment: %v", err)
	}
	if _, err := c.Split(ctx, "orders", made.Made[2], client.SplitOptions{}); !errors.Is(err, client.ErrSegmentBounds) {
		t.Errorf("above the maximum: %v", err)
	}
	if _, err := c.Split(ctx, "orders", "x", client.SplitOptions{}); !queue.Is(err, queue.KindInvalid) {
		t.Errorf("no id: %v", err)
	}
	merged, err := c.Merge(ctx, "orders", []queue.SegmentID{made.Made[1], made.Made[0]}, client.MergeOptions{})
	if err != nil || len(merged.Made) != 1 || merged.Ranges[0] != (queue.SlotRange{Hi: 1000}) {
		t.Fatalf("%+v, %v", merged, err)
	}
	var actions []string
	for e, err := range c.Events(ctx, "orders") {
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, e.Action)
	}
	slices.Sort(actions) // both may be of one millisecond
	latest, err := c.LatestEvents(ctx, "", 1)
	if err != nil || len(latest) != 1 || !slices.Equal(actions, []string{"merge", "split"}) {
		t.Errorf("events %v, latest %+v, %v", actions, latest, err)
	}
	states := map[string]int{}
	for s, err := range c.Segments(ctx, "orders") {
		if err != nil {
			t.Fatal(err)
		}
		states[s.State]++
	}
	got, err := c.UpdateTopic(ctx, "orders", client.TopicPatch{Scaling: &client.Scaling{MaxSegments: client.Of(0), TargetMessagesPerSecond: client.Of(int64(7))}})
	if err != nil || got.Scaling.MaxSegments != 256 || got.Scaling.TargetMessagesPerSecond != 7 || states["open"] != 2 || states["sealed"] != 3 {
		t.Errorf("%+v, %v, %v", got, err, states)
	}
}
