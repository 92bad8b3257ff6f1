package httpapi_test

import (
	"context"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

const (
	segmentA = queue.SegmentID("0123456789abcdef")
	segmentB = queue.SegmentID("fedcba9876543210")
	topicID  = queue.TopicID("00000000000000tt")
	now      = queue.Millis(1_790_000_000_123)
)

func delayedID() queue.DelayedID {
	return queue.DelayedID{Visible: now + 30_000, Entry: "00000000000000dd", Index: 2}
}

// fakes implement every use case. They keep the last requests, and answer what a test sets.
type fakes struct {
	// err, if set, is what every method answers.
	err error

	created  topics.Config
	patched  topics.Patch
	sub      topics.SubscriptionConfig
	subPatch topics.SubscriptionPatch
	start    topics.Start

	produced   produce.Request
	batched    produce.BatchRequest
	referenced produce.ReferencesRequest
	terms      []blob.Terms
	answer     *produce.Answer

	claimed    consume.ClaimRequest
	deliveries []consume.Delivery
	onClaim    func(ctx context.Context)
	receipts   []queue.Receipt
	results    []error
	how        consume.Release
	released   chan []queue.Receipt
	peeked     consume.PeekRequest
	next       string
	records    consume.RecordsRequest
	listing    delay.Listing
	edit       delay.Edit
	delayed    []delay.Message
	exists     bool

	page     scale.Page
	split    scale.SplitRequest
	merge    scale.MergeRequest
	eventsOf [2]string // topic and cursor
}

func (f *fakes) deps() httpapi.Deps {
	return httpapi.Deps{
		Topics: topicFakes{f}, Subscriptions: f, Produce: f, Consume: f, Reading: f, Delayed: delayedFakes{f}, Scale: scaleFakes{f},
		IDs: queue.NewIDs(nil), Clock: now.Time,
		Spec: []byte("openapi: 3.1.0\n"),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte("up 1\n"))
		}),
		Objects: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) }),
	}
}

func (f *fakes) status() topics.Status {
	return topics.Status{
		Name: "orders", ID: topicID, State: meta.TopicOpen, Created: now, Modified: now, Messages: 7, Bytes: 99,
		Config: topics.Config{MaxDelay: 900 * time.Second, MaxMessageBytes: 1 << 20, MinSegments: 2, TargetMessages: 100, Attributes: map[string]string{"team": "a"}},
		Policy: topics.Policy{Min: 2, Max: 256, Messages: 100, Bytes: 5 << 20},
		Segments: []topics.SegmentStatus{
			{ID: segmentA, Range: queue.SlotRange{Hi: 32768}, Created: now, Next: 7, Bytes: 99},
			{ID: segmentB, Range: queue.SlotRange{Lo: 32768, Hi: 65536}, Created: now, Sealed: true, Successors: []queue.SegmentID{segmentA}},
		},
	}
}

func (f *fakes) Create(_ context.Context, _ string, cfg topics.Config) (topics.Status, bool, error) {
	f.created = cfg
	return f.status(), !f.exists, f.err
}

func (f *fakes) Update(_ context.Context, _ string, patch topics.Patch) (topics.Status, error) {
	f.patched = patch
	return f.status(), f.err
}
func (f *fakes) Delete(context.Context, string) error { return f.err }
func (f *fakes) Status(_ context.Context, _, _ string) (consume.Status, error) {
	return consume.Status{
		Ready: 3, InFlight: 2, OldestAge: 1500 * time.Millisecond, HasOldest: true,
		Segments: []consume.SegmentStatus{{Segment: segmentA, Floor: 1, Next: 4, End: 7, Ready: 3, InFlight: 2}},
	}, f.err
}

func (f *fakes) List(_ context.Context, _, _ string, limit int) ([]topics.Listed, string, error) {
	return []topics.Listed{{Name: "orders", ID: topicID, Created: now}}, map[bool]string{true: "orders"}[limit == 1], f.err
}

// topicFakes has the Status of topics, which fakes has for subscriptions.
type topicFakes struct{ *fakes }

func (f topicFakes) Status(context.Context, string) (topics.Status, error) {
	return f.status(), f.err
}

func (f *fakes) subscription() *meta.Subscription {
	return &meta.Subscription{
		Topic: topicID, Name: "billing", Ordering: f.sub.Ordering, VisibilityTimeout: 30 * time.Second, MaxInFlight: 20_000,
		Backoff: []time.Duration{time.Second, 1500 * time.Millisecond}, Created: now, Modified: now, Start: "latest",
	}
}

func (f *fakes) CreateSubscription(_ context.Context, _, _ string, cfg topics.SubscriptionConfig) (*meta.Subscription, bool, error) {
	f.sub = cfg
	return f.subscription(), !f.exists, f.err
}

func (f *fakes) UpdateSubscription(_ context.Context, _, _ string, patch topics.SubscriptionPatch) (*meta.Subscription, error) {
	f.subPatch = patch
	return f.subscription(), f.err
}
func (f *fakes) DeleteSubscription(context.Context, string, string) error { return f.err }
func (f *fakes) Subscription(context.Context, string, string) (*meta.Subscription, error) {
	return f.subscription(), f.err
}

func (f *fakes) ListSubscriptions(context.Context, string, string, int) ([]*meta.Subscription, string, error) {
	return []*meta.Subscription{f.subscription()}, "billing", f.err
}

func (f *fakes) Seek(_ context.Context, _, _ string, start topics.Start) (*meta.Subscription, error) {
	f.start = start
	return f.subscription(), f.err
}

// answerFor is one run for all messages without an error, and one for each that has one.
func (f *fakes) answerFor(n int, errs []error) produce.Answer {
	if f.answer != nil {
		return *f.answer
	}
	var a produce.Answer
	for i := range n {
		run := produce.Run{First: i, Count: 1, ID: queue.MessageID{Segment: segmentA, Offset: queue.Offset(17 + i)}, Created: now, Visible: now}
		if i < len(errs) && errs[i] != nil {
			run = produce.Run{First: i, Count: 1, Err: errs[i]}
		}
		a.Runs = append(a.Runs, run)
	}
	return a
}

func (f *fakes) Produce(_ context.Context, req produce.Request) (produce.Answer, error) {
	f.produced = req
	return f.answerFor(len(req.Messages), req.Errors), f.err
}

func (f *fakes) ProduceBatch(_ context.Context, req produce.BatchRequest) (produce.Answer, error) {
	f.batched = req
	f.batched.Data = append([]byte(nil), req.Data...)
	if f.answer != nil {
		return *f.answer, f.err
	}
	return produce.Answer{Runs: []produce.Run{{Count: 100, ID: queue.MessageID{Segment: segmentA, Offset: 17}, Created: now, Visible: now}}}, f.err
}

func (f *fakes) References(_ context.Context, req produce.ReferencesRequest) (produce.Answer, error) {
	f.referenced = req
	return f.answerFor(len(req.References), req.Errors), f.err
}

func (f *fakes) Uploads(_ context.Context, _ string, terms []blob.Terms) ([]produce.Upload, error) {
	f.terms = terms
	out := make([]produce.Upload, len(terms))
	for i := range out {
		out[i] = produce.Upload{Object: "uploads/t/1", Request: blob.Request{Method: "PUT", URL: "/v1/objects/uploads/t/1?sig=s", Headers: map[string]string{"x-a": "b"}}, Expires: now}
	}
	return out, f.err
}

func (f *fakes) Claim(ctx context.Context, req consume.ClaimRequest) (consume.Claimed, error) {
	f.claimed = req
	if f.onClaim != nil {
		f.onClaim(ctx)
	}
	return consume.Claimed{Deliveries: f.deliveries}, f.err
}

func (f *fakes) settled(receipts []queue.Receipt) ([]error, error) {
	f.receipts = receipts
	out := make([]error, len(receipts))
	copy(out, f.results)
	return out, f.err
}

func (f *fakes) Ack(_ context.Context, _, _ string, receipts []queue.Receipt) ([]error, error) {
	return f.settled(receipts)
}

func (f *fakes) Release(ctx context.Context, _, _ string, receipts []queue.Receipt, how consume.Release) ([]error, error) {
	if f.released != nil {
		if ctx.Err() == nil && how.Uncounted {
			f.released <- receipts
		}
		return make([]error, len(receipts)), nil
	}
	f.how = how
	return f.settled(receipts)
}

func (f *fakes) Extend(_ context.Context, _, _ string, receipts []queue.Receipt, d time.Duration) ([]error, error) {
	f.how = consume.Release{Delay: d}
	return f.settled(receipts)
}

func (f *fakes) Peek(_ context.Context, req consume.PeekRequest) (consume.Peeked, error) {
	f.peeked = req
	return consume.Peeked{Deliveries: f.deliveries, Next: f.next}, f.err
}

func (f *fakes) Message(context.Context, string, queue.MessageID) (consume.Delivery, error) {
	if len(f.deliveries) > 0 {
		return f.deliveries[0], f.err
	}
	return consume.Delivery{Segment: segmentA, Count: 1, Ref: &meta.Ref{Kind: meta.RefPayload, Count: 1, Created: now}, Data: []byte("x")}, f.err
}

func (f *fakes) Records(_ context.Context, req consume.RecordsRequest) (consume.Records, error) {
	f.records = req
	return consume.Records{Deliveries: f.deliveries, Next: 7, End: true, Successors: []queue.SegmentID{segmentB}}, f.err
}

// delayedFakes has the List and Count of delayed messages.
type delayedFakes struct{ f *fakes }

func (d delayedFakes) message() delay.Message {
	return delay.Message{
		ID: delayedID(), Key: []byte("c42"), Headers: map[string]string{"kind": "new"}, Size: 2, Body: []byte("{}"),
		Created: now, Visible: now + 30_000, Expires: now + 90_000,
	}
}

func (d delayedFakes) List(_ context.Context, _ string, l delay.Listing) ([]delay.Message, string, error) {
	d.f.listing = l
	if d.f.delayed != nil {
		return d.f.delayed, "", d.f.err
	}
	return []delay.Message{d.message()}, delayedID().String(), d.f.err
}

func (d delayedFakes) Get(context.Context, string, queue.DelayedID) (delay.Message, error) {
	return d.message(), d.f.err
}

func (d delayedFakes) Edit(_ context.Context, _ string, _ queue.DelayedID, e delay.Edit) (delay.Message, error) {
	d.f.edit = e
	m := d.message()
	m.Body = nil
	return m, d.f.err
}
func (d delayedFakes) Cancel(context.Context, string, queue.DelayedID) error { return d.f.err }
func (d delayedFakes) Count(context.Context, string, int) (int, bool, error) { return 4, false, nil }

// scaleFakes shows two segments and one event.
type scaleFakes struct{ f *fakes }

func (s scaleFakes) SegmentsPage(_ context.Context, _ string, p scale.Page) (scale.View, error) {
	s.f.page = p
	load := meta.Rate{Messages: 250, Bytes: 1000, Commits: 10}
	v := scale.View{
		Topic: "orders", Epoch: 2, Policy: topics.Policy{Min: 1, Max: 256, Messages: 100, Bytes: 5 << 20}, Measured: now + 2,
		Segments: []scale.SegmentView{
			{
				Segment: &meta.Segment{ID: segmentB, Range: queue.SlotRange{Hi: 65536}, Created: now - 9000, Sealed: now, Epoch: 1, Successors: []queue.SegmentID{segmentA}},
				Next:    90, Bytes: 900, Commits: 9, Life: 9 * time.Second, Mean: meta.Rate{Messages: 10, Bytes: 100, Commits: 1},
			},
			{
				Segment: &meta.Segment{ID: segmentA, Range: queue.SlotRange{Hi: 65536}, Created: now, Epoch: 2, Predecessors: []queue.SegmentID{segmentB}},
				First:   1, Next: 7, Bytes: 99, Commits: 2, Measured: true, Last: load, Score: 2.5, Hot: true,
				Rates: [queue.RateWindowCount]meta.Rate{load, {}, {Messages: float32(math.Inf(1))}, {Messages: float32(math.NaN())}},
			},
		},
	}
	if p.Limit == 1 {
		i := 0
		if p.Cursor != "" {
			i = 1
		} else {
			v.Next = "17/" + string(segmentB)
		}
		v.Segments = v.Segments[i : i+1]
	}
	return v, s.f.err
}

func (s scaleFakes) Split(_ context.Context, req scale.SplitRequest) (scale.Planned, error) {
	s.f.split = req
	p := scale.Planned{
		Topic: req.Topic, Action: meta.ActionSplit, Segments: []queue.SegmentID{req.Segment}, DryRun: req.DryRun,
		Ranges: []queue.SlotRange{{Hi: 32768}, {Lo: 32768, Hi: 65536}},
	}
	if !req.DryRun {
		p.Made = []queue.SegmentID{segmentA, segmentB}
	}
	return p, s.f.err
}

func (s scaleFakes) Merge(_ context.Context, req scale.MergeRequest) (scale.Planned, error) {
	s.f.merge = req
	return scale.Planned{
		Topic: req.Topic, Action: meta.ActionMerge, Segments: req.Segments, Made: []queue.SegmentID{segmentA},
		Ranges: []queue.SlotRange{queue.Ring()}, DryRun: req.DryRun,
	}, s.f.err
}

func (s scaleFakes) Events(_ context.Context, topic, cursor string, _ int) ([]*meta.Event, string, error) {
	s.f.eventsOf = [2]string{topic, cursor}
	return []*meta.Event{
		{
			At: now, ID: "00000000000000ee", Topic: topicID, Name: "orders", Action: meta.ActionSplit, By: 3, Reason: "much load",
			Segments: []queue.SegmentID{segmentB}, Made: []queue.SegmentID{segmentA}, Ranges: []queue.SlotRange{queue.Ring()},
		},
		{At: now - 1, ID: "00000000000000ed", Topic: topicID, Name: "orders", Action: meta.ActionHot, Segments: []queue.SegmentID{segmentB}},
	}, "17/x", s.f.err
}

// encoded makes a batch.
func encoded(t testing.TB, codec batch.Codec, records ...batch.Record) []byte {
	t.Helper()
	e := batch.NewEncoder(batch.Options{Codec: codec})
	for i := range records {
		if err := e.Add(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	data, err := e.Finish(nil, [batch.NonceSize]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// deliver makes a claimed delivery of a whole batch.
func deliver(data []byte, count int) consume.Delivery {
	return consume.Delivery{
		Segment: segmentA, Offset: 17, Count: count, Claim: queue.ClaimID{1, 2, 3}, Attempt: 1, ClaimExpires: now + 30_000,
		Ref:  &meta.Ref{Kind: meta.RefBatch, Count: uint32(count), Len: int64(len(data)), Created: now, MinExpires: 1, MaxExpires: 0}, // some expire, some never
		Data: data,
	}
}
