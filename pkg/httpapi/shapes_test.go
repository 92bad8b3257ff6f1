package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

const claims = "/v1/topics/orders/subscriptions/billing/claims"

// The JSON in these tests is what the contract prints, word for word.

func TestProduceShape(t *testing.T) {
	a := newAPI()
	delayed := delayedID()
	a.answer = &produce.Answer{Runs: []produce.Run{
		{First: 0, Count: 2, ID: queue.MessageID{Segment: segmentA, Offset: 17}, Created: now, Visible: now, Expires: now + 3_600_000, Warnings: []produce.Warning{produce.WarnDelayIgnored}},
		{First: 2, Count: 1, Err: &queue.Error{Kind: queue.KindTooLarge, Code: queue.CodeTooLarge, Field: "messages[2].body", Limit: 1048576, Message: "body: too large"}},
		{First: 3, Count: 2, Delayed: &delayed, Created: now, Visible: now + 30_000},
	}}
	got := a.do(t, "POST", "/v1/topics/orders/messages", `{"messages":[
		{"key":"c42","body":"{…}","headers":{"kind":"new"},"delay":30,"ttl":3600,"dedup_id":"…"},
		{"body_base64":"/w=="},{},{"delay":0},{"body":""}],
		"producer":{"id":"p-1","sequence":17}}`, "Content-Type", "application/json; charset=utf-8")
	var out wire.ProduceAnswer
	got.into(t, &out)
	want := []wire.ProduceResult{
		{ID: string(segmentA) + "-17", CreatedAt: wire.Time(now), VisibleAt: wire.Time(now), ExpiresAt: wire.Time(now + 3_600_000), Warnings: []string{"delay_ignored"}},
		{ID: string(segmentA) + "-18", CreatedAt: wire.Time(now), VisibleAt: wire.Time(now), ExpiresAt: wire.Time(now + 3_600_000), Warnings: []string{"delay_ignored"}},
		{Error: &wire.Error{Code: queue.CodeTooLarge, Message: "body: too large", Details: &wire.Details{Field: "body", Limit: 1048576.0}}},
		{DelayedID: "1790000030123-00000000000000dd-2", CreatedAt: wire.Time(now), VisibleAt: wire.Time(now + 30_000)},
		{DelayedID: "1790000030123-00000000000000dd-3", CreatedAt: wire.Time(now), VisibleAt: wire.Time(now + 30_000)},
	}
	if !reflect.DeepEqual(out.Results, want) {
		t.Errorf("got %s", got.body)
	}
	first := a.produced.Messages[0]
	if string(first.Key) != "c42" || string(first.Body) != "{…}" || first.Headers["kind"] != "new" || !first.HasDelay ||
		first.Delay != 30*time.Second || first.TTL != time.Hour || first.DedupID != "…" {
		t.Errorf("%+v", first)
	}
	if m := a.produced.Messages; string(m[1].Body) != "\xff" || m[2].HasDelay || !m[3].HasDelay || m[3].Delay != 0 || len(m[4].Body) != 0 {
		t.Errorf("%+v", m)
	}
	if a.produced.Guard != (produce.Guard{ProducerID: "p-1", Sequence: 17}) {
		t.Errorf("%+v", a.produced.Guard)
	}
}

func TestIdempotencyKey(t *testing.T) {
	a := newAPI()
	a.do(t, "POST", "/v1/topics/orders/messages", `{"messages":[{}]}`, "Idempotency-Key", "k1")
	sum := sha256.Sum256([]byte(`{"messages":[{}]}`))
	if a.produced.Guard != (produce.Guard{IdempotencyKey: "k1", BodyHash: hex.EncodeToString(sum[:])}) {
		t.Errorf("%+v", a.produced.Guard)
	}
	first := a.produced.Guard.BodyHash
	a.do(t, "POST", "/v1/topics/orders/messages", `{"messages":[{} ]}`, "Idempotency-Key", "k1")
	if a.produced.Guard.BodyHash == first {
		t.Error("another body has the same hash")
	}
	for _, row := range []struct{ body, key string }{
		{`{"messages":[{}],"producer":{"id":"p","sequence":1}}`, "k"},
		{`{"messages":[{}]}`, string(make([]byte, 256))},
	} {
		if got := a.do(t, "POST", "/v1/topics/orders/messages", row.body, "Idempotency-Key", row.key); got.fault().Details == nil || got.fault().Details.Field != "Idempotency-Key" {
			t.Errorf("%s", got.body)
		}
	}
}

func TestBatchProduce(t *testing.T) {
	a := newAPI()
	data := string(encoded(t, batch.CodecNone, batch.Record{Body: []byte("x")}))
	got := a.do(t, "POST", "/v1/topics/orders/messages", data, "Content-Type", wire.MediaTypeBatch,
		"Spillway-Producer-Id", "p-1", "Spillway-Producer-Sequence", "9007199254740991")
	var out wire.RunsAnswer
	got.into(t, &out)
	if len(out.Runs) != 1 || out.Runs[0].Count != 100 || out.Runs[0].Segment != segmentA || out.Runs[0].Offset != 17 {
		t.Errorf("%s", got.body)
	}
	if string(a.batched.Data) != data || a.batched.Guard != (produce.Guard{ProducerID: "p-1", Sequence: 1<<53 - 1}) {
		t.Errorf("%+v", a.batched)
	}
}

func TestClaimShape(t *testing.T) {
	a := newAPI()
	a.deliveries = []consume.Delivery{deliver(encoded(t, batch.CodecZstd,
		batch.Record{Slot: 1, Key: []byte("c42"), Body: []byte("{…}"), TTL: time.Minute},
		batch.Record{Slot: 2, Key: []byte{0xff}, Body: []byte{0xfe, 0}},
		batch.Record{Slot: 3}), 3)}
	got := a.do(t, "POST", claims, `{"max_messages":10,"wait":5,"visibility_timeout":30,"deliver":"inline"}`)
	var out wire.MessageList
	got.into(t, &out)
	receipt := queue.Receipt{Segment: segmentA, Claim: queue.ClaimID{1, 2, 3}, Lo: 17, Hi: 18}.String()
	want := wire.Message{
		ID: string(segmentA) + "-17", Key: "c42", Body: wire.Of("{…}"), Attempt: 1, Receipt: receipt,
		CreatedAt: wire.Time(now), VisibleAt: wire.Time(now), ExpiresAt: wire.Time(now + 60_000), ClaimExpiresAt: wire.Time(now + 30_000),
	}
	if len(out.Messages) != 3 || !reflect.DeepEqual(out.Messages[0], want) {
		t.Fatalf("got %s", got.body)
	}
	if m := out.Messages[1]; m.KeyBase64 != "/w==" || *m.BodyBase64 != "/gA=" || m.Body != nil {
		t.Errorf("bytes that are no text: %+v", m)
	}
	if m := out.Messages[2]; m.Body == nil || *m.Body != "" || m.ExpiresAt != 0 {
		t.Errorf("an empty body: %+v", m)
	}
	wantRequest := consume.ClaimRequest{Topic: "orders", Subscription: "billing", MaxMessages: 10, Wait: 5 * time.Second, Visibility: 30 * time.Second}
	if a.claimed != wantRequest {
		t.Errorf("%+v", a.claimed)
	}
	a.deliveries = nil
	if got := a.do(t, "POST", claims, ""); string(got.body) != "{\"messages\":[]}\n" || got.StatusCode != 200 {
		t.Errorf("nothing to claim: %d %s", got.StatusCode, got.body)
	}
}

func TestSettleShapes(t *testing.T) {
	a := newAPI()
	good := queue.Receipt{Segment: segmentA, Claim: queue.ClaimID{1}, Lo: 1, Hi: 5}
	a.results = []error{nil, &queue.Error{Kind: queue.KindConflict, Code: queue.CodeClaimLost, Message: "gone"}}
	body := `{"receipts":["` + good.String() + `","…","` + good.String() + `"]`
	for path, rest := range map[string]string{
		"ack": `}`, "release": `,"delay":5,"count_delivery":false,"reason":"busy"}`, "extend": `,"visibility_timeout":60}`,
	} {
		var out wire.ReceiptsAnswer
		got := a.do(t, "POST", "/v1/topics/orders/subscriptions/billing/"+path, body+rest)
		got.into(t, &out)
		r := out.Results
		if len(r) != 3 || !r[0].OK || r[1].Error == nil || r[1].Error.Code != queue.CodeInvalidArgument ||
			r[1].Error.Details.Field != "receipts[1]" || r[2].Error == nil || r[2].Error.Code != queue.CodeClaimLost {
			t.Errorf("%s: %s", path, got.body)
		}
		if !reflect.DeepEqual(a.receipts, []queue.Receipt{good, good}) {
			t.Errorf("%s: %v", path, a.receipts)
		}
		switch {
		case path == "release" && a.how != (consume.Release{Delay: 5 * time.Second, HasDelay: true, Uncounted: true, Reason: "busy"}),
			path == "extend" && a.how.Delay != time.Minute:
			t.Errorf("%s: %+v", path, a.how)
		}
	}
}

func TestUploadAndReferenceShapes(t *testing.T) {
	a := newAPI()
	var up wire.UploadsAnswer
	got := a.do(t, "POST", "/v1/topics/orders/uploads", `{"objects":[{"size":5242880,"checksum":"crc32c:0000abcd"},{"size":5368709120}]}`)
	if got.StatusCode != 200 {
		t.Fatalf("%s", got.body)
	}
	a.do(t, "POST", "/v1/topics/orders/uploads", `{"objects":[{"size":5242880,"checksum":"crc32c:0000abcd"},{"size":1}]}`).into(t, &up)
	if !reflect.DeepEqual(a.terms, []blob.Terms{{Size: 5242880, CRC32C: 0xabcd, HasCRC32C: true}, {Size: 1}}) {
		t.Errorf("%+v", a.terms)
	}
	if u := up.Uploads[1]; len(up.Uploads) != 2 || u.URL != "http://queue.test/v1/objects/uploads/t/1?sig=s" || u.Method != "PUT" || u.Headers["x-a"] != "b" || u.ExpiresAt != wire.Time(now) {
		t.Errorf("%+v", up)
	}
	var refs wire.ProduceAnswer
	got = a.do(t, "POST", "/v1/topics/orders/references", `{"references":[
		{"object":"uploads/t/1","format":"payload","key":"c42","headers":{"a":"b"},"delay":0,"size":7,"checksum":"crc32c:00000001"},
		{"object":"uploads/t/2","format":"batch"}]}`)
	got.into(t, &refs)
	if len(refs.Results) != 2 || refs.Results[1].ID != string(segmentA)+"-18" {
		t.Errorf("%s", got.body)
	}
	want := []produce.Reference{
		{Object: "uploads/t/1", Key: []byte("c42"), Headers: map[string]string{"a": "b"}, HasDelay: true, Checked: true, Terms: blob.Terms{Size: 7, CRC32C: 1, HasCRC32C: true}},
		{Object: "uploads/t/2", Batch: true},
	}
	if !reflect.DeepEqual(a.referenced.References, want) {
		t.Errorf("%+v", a.referenced.References)
	}
}

// TestFieldOfAReferenceAfterABatch: the results of a batch before it shift its place, which its field's name must
// not depend on.
func TestFieldOfAReferenceAfterABatch(t *testing.T) {
	a := newAPI()
	id := queue.MessageID{Segment: segmentA, Offset: 17}
	missing := &queue.Error{Kind: queue.KindNotFound, Code: queue.CodeObjectNotFound, Field: "references[1].object", Message: "no such upload"}
	a.answer = &produce.Answer{Runs: []produce.Run{{Count: 3, ID: id, Created: now, Visible: now}, {First: 3, Count: 1, Err: missing}}}
	var out wire.ProduceAnswer
	got := a.do(t, "POST", "/v1/topics/orders/references", `{"references":[{"object":"b","format":"batch"},{"object":"x","format":"payload"}]}`)
	got.into(t, &out)
	if len(out.Results) != 4 || out.Results[3].Error == nil || out.Results[3].Error.Details.Field != "object" {
		t.Errorf("%s", got.body)
	}
}

// TestOneBadEntryDoesNotFailTheOthers, in any of the calls that answer per entry.
func TestOneBadEntryDoesNotFailTheOthers(t *testing.T) {
	for name, c := range map[string]struct{ path, list, bad, good, field string }{
		"both bodies":       {"messages", "messages", `{"body":"a","body_base64":"YQ=="}`, `{"body":"a"}`, "body_base64"},
		"not base64":        {"messages", "messages", `{"body_base64":"?"}`, `{}`, "body_base64"},
		"unpadded base64":   {"messages", "messages", `{"body_base64":"YQ"}`, `{}`, "body_base64"},
		"both keys":         {"messages", "messages", `{"key":"a","key_base64":"YQ=="}`, `{}`, "key_base64"},
		"negative ttl":      {"messages", "messages", `{"ttl":-1}`, `{}`, "ttl"},
		"no ttl":            {"messages", "messages", `{"ttl":0}`, `{}`, "ttl"},
		"huge delay":        {"messages", "messages", `{"delay":1e308}`, `{"delay":0}`, "delay"},
		"infinite delay":    {"messages", "messages", `{"delay":1e999}`, `{}`, "delay"},
		"control in name":   {"messages", "messages", `{"headers":{"a\u0000":"b"}}`, `{"headers":{"a":"b"}}`, "headers"},
		"absent size":       {"uploads", "objects", `{}`, `{"size":0}`, "size"},
		"null size":         {"uploads", "objects", `{"size":null}`, `{"size":0}`, "size"},
		"negative size":     {"uploads", "objects", `{"size":-1}`, `{"size":0}`, "size"},
		"huge size":         {"uploads", "objects", `{"size":99999999999999999999}`, `{"size":1}`, "size"},
		"checksum":          {"uploads", "objects", `{"size":1,"checksum":"md5:00"}`, `{"size":1}`, "checksum"},
		"object name":       {"references", "references", `{"object":"../x","format":"batch"}`, `{"object":"x","format":"batch"}`, "object"},
		"format":            {"references", "references", `{"object":"x","format":"zip"}`, `{"object":"x","format":"payload"}`, "format"},
		"key of a batch":    {"references", "references", `{"object":"x","format":"batch","key":"k"}`, `{"object":"x","format":"batch"}`, "format"},
		"checksum, no size": {"references", "references", `{"object":"x","format":"batch","checksum":"crc32c:00000000"}`, `{"object":"x","format":"batch"}`, "size"},
	} {
		a := newAPI()
		r := a.do(t, "POST", "/v1/topics/orders/"+c.path, `{"`+c.list+`":[`+c.good+`]}`)
		if r.StatusCode != 200 {
			t.Errorf("%s: the good one: %s", name, r.body)
		}
		w := send(a, "/v1/topics/orders/"+c.path, `{"`+c.list+`":[`+c.good+`,`+c.bad+`]}`)
		var lists map[string][]struct {
			ID     string      `json:"id"`
			Object string      `json:"object"`
			Error  *wire.Error `json:"error"`
		}
		if err := json.Unmarshal(w, &lists); err != nil {
			t.Errorf("%s: %s", name, w)
			continue
		}
		list := slices.Concat(lists["results"], lists["uploads"])
		if len(list) != 2 || list[0].Error != nil || list[0].ID+list[0].Object == "" || list[1].Error == nil || list[1].Error.Details.Field != c.field {
			t.Errorf("%s: %s", name, w)
		}
	}
}

// gone has no topic any more.
type gone struct{ httpapi.Delayed }

// Count implements httpapi.Delayed.
func (gone) Count(context.Context, string, int) (int, bool, error) {
	return 0, false, &queue.Error{Kind: queue.KindNotFound, Code: queue.CodeTopicNotFound}
}

// TestCreatedAndDeletedAtOnce: a topic that is gone when its delayed messages are counted was created.
func TestCreatedAndDeletedAtOnce(t *testing.T) {
	d := new(fakes).deps()
	d.Delayed = gone{d.Delayed}
	w := httptest.NewRecorder()
	httpapi.New(d).ServeHTTP(w, httptest.NewRequest("PUT", "/v1/topics/orders", nil))
	if w.Code != 201 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTopicShapes(t *testing.T) {
	a := newAPI()
	got := a.do(t, "PUT", "/v1/topics/shop.orders.eu", `{"default_delay":1.5,"max_delay":60,"default_ttl":3600,"max_message_bytes":4096,
		"partition_key":"$.customer","dedup_window":0,"compaction":"none","scaling":{"min_segments":4,"max_segments":9,"target_messages_per_second":1000,"target_bytes_per_second":1048576},"attributes":{"team":"a"}}`)
	if got.StatusCode != 201 {
		t.Fatalf("%d %s", got.StatusCode, got.body)
	}
	want := topics.Config{
		DefaultDelay: 1500 * time.Millisecond, MaxDelay: time.Minute, DefaultTTL: time.Hour, MaxMessageBytes: 4096,
		PartitionKey: "$.customer", MinSegments: 4, MaxSegments: 9, TargetMessages: 1000, TargetBytes: 1 << 20, Attributes: map[string]string{"team": "a"},
	}
	if !reflect.DeepEqual(a.created, want) {
		t.Errorf("%+v", a.created)
	}
	var st wire.Topic
	a.exists = true
	got = a.do(t, "PUT", "/v1/topics/orders", "")
	got.into(t, &st)
	if got.StatusCode != 200 || st.Messages != (wire.MessageCounts{Ready: 7, Delayed: 4, Bytes: 99}) || st.Segments != (wire.SegmentCounts{Open: 1, Sealed: 1}) {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	if st.Scaling != (wire.Policy{MinSegments: 2, MaxSegments: 256, TargetMessagesPerSecond: 100, TargetBytesPerSecond: 5 << 20}) ||
		*st.Config.Scaling.MaxSegments != 0 || *st.Config.Scaling.TargetMessagesPerSecond != 100 {
		t.Errorf("scaling: %s", got.body)
	}
	// What a status says of the config can be put again.
	config, err := json.Marshal(st.Config)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.do(t, "PUT", "/v1/topics/orders", string(config)); got.StatusCode != 200 {
		t.Errorf("%s", got.body)
	}
	a.do(t, "PATCH", "/v1/topics/orders", `{"attributes":{"team":null,"cost":"7"},"scaling":{"max_segments":2,"target_bytes_per_second":0}}`)
	if p := a.patched; p.Attributes["team"] != nil || *p.Attributes["cost"] != "7" || len(p.Attributes) != 2 ||
		p.MinSegments != nil || *p.MaxSegments != 2 || p.TargetMessages != nil || *p.TargetBytes != 0 {
		t.Errorf("%+v", p)
	}
	a.do(t, "GET", "/v1/topics?prefix=o&limit=1", "")
	a.do(t, "GET", "/v1/topics/orders", "")
	if got := a.do(t, "DELETE", "/v1/topics/orders", ""); got.StatusCode != 204 {
		t.Errorf("%d", got.StatusCode)
	}
}

// TestPaging walks listings to their end by the cursors that they give.
func TestPaging(t *testing.T) {
	a := newAPI()
	var page wire.SegmentList
	a.do(t, "GET", "/v1/topics/orders/segments?limit=1&state=open", "").into(t, &page)
	if len(page.Segments) != 1 || page.NextCursor == "" || a.page != (scale.Page{Limit: 1, State: scale.SegmentOpen}) {
		t.Fatalf("%+v after %+v", page, a.page)
	}
	cursor := page.NextCursor
	page = wire.SegmentList{}
	a.do(t, "GET", "/v1/topics/orders/segments?limit=1&cursor="+cursor, "").into(t, &page)
	if len(page.Segments) != 1 || page.NextCursor != "" || a.page != (scale.Page{Limit: 1, Cursor: "17/" + string(segmentB)}) {
		t.Errorf("%+v after %+v", page, a.page)
	}
	var events wire.EventList
	a.do(t, "GET", "/v1/events?limit=2", "").into(t, &events)
	a.do(t, "GET", "/v1/events?topic=orders&cursor="+events.NextCursor, "")
	if a.eventsOf != [2]string{"orders", "17/x"} {
		t.Errorf("%q", a.eventsOf)
	}
	var list wire.DelayedList
	a.do(t, "GET", "/v1/topics/orders/delayed?limit=1", "").into(t, &list)
	a.do(t, "GET", "/v1/topics/orders/delayed?cursor="+list.NextCursor, "")
	if a.listing.Cursor != delayedID().String() {
		t.Errorf("%+v", a.listing)
	}
}

func TestSubscriptionShapes(t *testing.T) {
	a := newAPI()
	sub := "/v1/topics/orders/subscriptions/billing"
	got := a.do(t, "PUT", sub, `{"ordering":"none","visibility_timeout":10,"max_deliveries":5,"dead_letter_topic":"dead",
		"max_in_flight":7,"backoff":[1,2.5],"start":{"`+string(segmentA)+`":5}}`)
	if got.StatusCode != 201 {
		t.Fatalf("%d %s", got.StatusCode, got.body)
	}
	want := topics.SubscriptionConfig{
		VisibilityTimeout: 10 * time.Second, MaxDeliveries: 5, DeadLetterTopic: "dead", MaxInFlight: 7,
		Backoff: []time.Duration{time.Second, 2500 * time.Millisecond},
		Start:   topics.Start{Kind: topics.StartCut, Cut: map[queue.SegmentID]queue.Offset{segmentA: 5}},
	}
	if !reflect.DeepEqual(a.sub, want) {
		t.Errorf("%+v", a.sub)
	}
	var out wire.Subscription
	a.do(t, "GET", sub, "").into(t, &out)
	if *out.Config.Ordering != wire.OrderingNone {
		t.Errorf("ordering %q", *out.Config.Ordering)
	}
	var made wire.Subscription
	a.do(t, "PUT", sub, `{"ordering":"key"}`).into(t, &made)
	if a.sub.Ordering != meta.OrderingKey || *made.Config.Ordering != wire.OrderingKey {
		t.Errorf("%+v, %+v", a.sub, made)
	}
	if out.Status.Ready != 3 || *out.Status.OldestAge != 1.5 || out.Config.Start.Word != "latest" || (*out.Config.Backoff)[1] != 1.5 {
		t.Errorf("%+v", out)
	}
	a.do(t, "PATCH", sub, `{"backoff":[]}`)
	if a.subPatch.Backoff == nil || len(*a.subPatch.Backoff) != 0 || a.subPatch.MaxDeliveries != nil {
		t.Errorf("%+v", a.subPatch)
	}
	a.do(t, "GET", "/v1/topics/orders/subscriptions", "")
	for body, kind := range map[string]topics.StartKind{
		`{"to":"earliest"}`: topics.StartEarliest, `{"to":"latest"}`: topics.StartLatest,
		`{"to":"2026-01-31T12:00:00+02:00"}`: topics.StartTime, `{"to":{}}`: topics.StartCut,
	} {
		if got := a.do(t, "POST", sub+"/seek", body); got.StatusCode != 200 || a.start.Kind != kind {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	a.err = queue.Invalid("start", nil, "is not there")
	if e := a.do(t, "POST", sub+"/seek", `{"to":"latest"}`).fault(); e.Details.Field != "to" || e.Message != "to: is not there" {
		t.Errorf("%+v", e)
	}
}

func TestDelayedShapes(t *testing.T) {
	a := newAPI()
	path := "/v1/topics/orders/delayed/" + delayedID().String()
	var m wire.Message
	a.do(t, "GET", path, "").into(t, &m)
	if m.DelayedID != delayedID().String() || *m.Body != "{}" || m.ID != "" || m.VisibleAt != wire.Time(now+30_000) {
		t.Errorf("%+v", m)
	}
	got := a.do(t, "PATCH", path, `{"body":"new","headers":{},"delay":5}`)
	if got.StatusCode != 200 || string(*a.edit.Body) != "new" || len(*a.edit.Headers) != 0 || *a.edit.Delay != 5*time.Second {
		t.Errorf("%s %+v", got.body, a.edit)
	}
	if got := a.do(t, "DELETE", path, ""); got.StatusCode != 204 {
		t.Errorf("%d", got.StatusCode)
	}
}
