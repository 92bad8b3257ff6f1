package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/blob/signedurl"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// newSystem is the handler over the real use cases on memory drivers.
func newSystem(t *testing.T) *api {
	var clock queue.Clock = time.Now
	ids, hub := queue.NewIDs(nil), notify.NewHub()
	store, objects := memmeta.New(t), memblob.New(t, clock, memblob.Options{})
	signer := signedurl.NewSigner([signedurl.KeyBytes]byte{1})
	log := segment.New(segment.Deps{Meta: store, Blob: objects, IDs: ids, Clock: clock})
	top := topics.New(topics.Deps{Meta: store, IDs: ids, Clock: clock})
	late := delay.New(delay.Deps{Meta: store, Blob: objects, Log: log, Topics: top, IDs: ids, Clock: clock, Hub: hub})
	out := consume.New(consume.Deps{Meta: store, Presigner: signer, Log: log, Topics: top, Delay: late, Hub: hub, IDs: ids, Clock: clock})
	in := produce.New(produce.Deps{Meta: store, Blob: objects, Presigner: signer, Log: log, Topics: top, Hub: hub, IDs: ids, Clock: clock})
	follow := scale.New(scale.Deps{Meta: store, Topics: top, Lease: lease.New(store, ids, clock), IDs: ids, Clock: clock})
	return &api{new(fakes), httpapi.New(httpapi.Deps{
		Scale: follow, Topics: top, Subscriptions: top, Produce: in, Consume: out, Reading: out, Delayed: late,
		IDs: ids, Clock: clock, Objects: signedurl.Handler(objects, signer, clock),
	})}
}

// ok makes a call that must succeed.
func (a *api) ok(t *testing.T, into any, method, target, body string, headers ...string) reply {
	t.Helper()
	got := a.do(t, method, target, body, headers...)
	if got.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, target, got.StatusCode, got.body)
	}
	if into != nil {
		got.into(t, into)
	}
	return got
}

// TestSystem drives the real use cases through the edge: what they answer must fit the spec, too.
func TestSystem(t *testing.T) {
	a := newSystem(t)
	var topic wire.Topic
	a.ok(t, &topic, "PUT", "/v1/topics/orders", `{"attributes":{"team":"a"}}`)
	a.ok(t, nil, "PUT", "/v1/topics/orders", `{"attributes":{"team":"a"}}`)
	if got := a.do(t, "PUT", "/v1/topics/orders", `{"max_delay":5}`); got.fault().Code != queue.CodeTopicExists {
		t.Errorf("%s", got.body)
	}
	sub := "/v1/topics/orders/subscriptions/billing"
	a.ok(t, nil, "PUT", sub, `{"backoff":[1,2],"start":"earliest"}`)
	a.ok(t, nil, "PUT", sub, `{"backoff":[1,2],"start":"earliest"}`)

	var made wire.ProduceAnswer
	a.ok(t, &made, "POST", "/v1/topics/orders/messages", `{"messages":[{"key":"c42","body":"{}","headers":{"kind":"new"},"delay":30,"ttl":3600},
		{"body_base64":"/w=="},{"body":"ok"}]}`, "Idempotency-Key", "k1")
	if len(made.Results) != 3 || made.Results[0].Warnings[0] != "delay_ignored" {
		t.Fatalf("%+v", made)
	}
	var again wire.ProduceAnswer
	a.ok(t, &again, "POST", "/v1/topics/orders/messages", `{"messages":[{"key":"c42","body":"{}","headers":{"kind":"new"},"delay":30,"ttl":3600},
		{"body_base64":"/w=="},{"body":"ok"}]}`, "Idempotency-Key", "k1")
	if again.Results[0].ID != made.Results[0].ID {
		t.Errorf("the same key gave another answer: %+v", again)
	}
	if got := a.do(t, "POST", "/v1/topics/orders/messages", `{"messages":[{}]}`, "Idempotency-Key", "k1"); got.StatusCode != 422 {
		t.Errorf("the key with another body: %d %s", got.StatusCode, got.body)
	}
	big := send(a, "/v1/topics/orders/messages", `{"messages":[{"body":"`+strings.Repeat("x", 1<<20+1)+`"},{"body":"fits"}]}`)
	if !strings.Contains(string(big), `"field":"body","limit":1048576`) || !strings.Contains(string(big), `"id":`) {
		t.Errorf("%s", big)
	}

	var list wire.MessageList
	a.ok(t, &list, "POST", sub+"/claims", `{"max_messages":10,"wait":1}`)
	at := slices.IndexFunc(list.Messages, func(m wire.Message) bool { return m.ID == made.Results[0].ID })
	if len(list.Messages) != 4 || at < 0 || *list.Messages[at].Body != "{}" || list.Messages[at].Headers["kind"] != "new" {
		t.Fatalf("%+v", list)
	}
	var settled wire.ReceiptsAnswer
	a.ok(t, &settled, "POST", sub+"/ack", `{"receipts":["`+list.Messages[0].Receipt+`"]}`)
	a.ok(t, &settled, "POST", sub+"/extend", `{"receipts":["`+list.Messages[1].Receipt+`"],"visibility_timeout":60}`)
	a.ok(t, &settled, "POST", sub+"/release", `{"receipts":["`+list.Messages[1].Receipt+`"],"delay":0,"reason":"later"}`)
	if !settled.Results[0].OK {
		t.Errorf("%+v", settled)
	}
	a.ok(t, &settled, "POST", sub+"/ack", `{"receipts":["`+list.Messages[1].Receipt+`"]}`)
	if settled.Results[0].Error == nil || settled.Results[0].Error.Code != queue.CodeClaimLost {
		t.Errorf("%+v", settled.Results[0])
	}
	var st wire.Subscription
	a.ok(t, &st, "GET", sub, "")
	if st.Status.Ready != 1 || st.Status.InFlight != 2 {
		t.Errorf("%+v", st.Status)
	}
	a.ok(t, nil, "POST", sub+"/seek", `{"to":"earliest"}`)
	seg, _, _ := strings.Cut(made.Results[0].ID, "-")
	var records wire.RecordList
	a.ok(t, &records, "GET", "/v1/topics/orders/segments/"+seg+"/records", "")
	if len(records.Records) != 4 || records.NextOffset != 4 || records.EndOfSegment {
		t.Errorf("%+v", records)
	}
	a.ok(t, nil, "GET", "/v1/topics/orders/messages/"+made.Results[2].ID, "")
	a.ok(t, nil, "GET", "/v1/topics/orders/messages?limit=1&include_delayed=true", "")
	a.ok(t, nil, "GET", "/v1/topics/orders/segments", "")
	for target, code := range map[string]queue.Code{
		"/v1/topics/none": queue.CodeTopicNotFound, "/v1/topics/orders/subscriptions/none": queue.CodeSubscriptionNotFound,
		"/v1/topics/orders/messages/" + seg + "-99": queue.CodeMessageNotFound, "/v1/topics/orders/segments/0000000000000000/records": queue.CodeSegmentNotFound,
		"/v1/topics/orders/delayed/9000000000000-00000000000000dd-0": queue.CodeDelayedNotFound,
	} {
		if got := a.do(t, "GET", target, ""); got.fault().Code != code {
			t.Errorf("%s: %s", target, got.body)
		}
	}
	a.ok(t, nil, "DELETE", sub, "")
	a.ok(t, nil, "DELETE", "/v1/topics/orders", "")
}

// TestSystemBatch produces an encoded batch and claims it back as frames and by reference.
func TestSystemBatch(t *testing.T) {
	a := newSystem(t)
	a.ok(t, nil, "PUT", "/v1/topics/orders", "")
	sub := "/v1/topics/orders/subscriptions/billing"
	a.ok(t, nil, "PUT", sub, "")
	var in []batch.Record
	for i := range 100 {
		key := []byte("k" + strconv.Itoa(i))
		in = append(in, batch.Record{Slot: queue.SlotOf(key), Key: key, Body: noise(1000)})
	}
	data := encoded(t, batch.CodecNone, in...)
	var runs wire.RunsAnswer
	a.ok(t, &runs, "POST", "/v1/topics/orders/messages", string(data), "Content-Type", wire.MediaTypeBatch, "Spillway-Producer-Id", "p", "Spillway-Producer-Sequence", "1")
	if len(runs.Runs) != 1 || runs.Runs[0].Count != 100 {
		t.Fatalf("%+v", runs)
	}
	got := a.ok(t, nil, "POST", sub+"/claims", `{"max_messages":40}`, "Accept", wire.MediaTypeBatch)
	n := 0
	for _, f := range frames(t, got.body) {
		for d, err := range f.Messages() {
			if err != nil || len(d.Body) != 1000 {
				t.Errorf("%v %v", d.ID, err)
			}
			n++
		}
		a.ok(t, nil, "POST", sub+"/ack", `{"receipts":["`+f.Receipt().String()+`"]}`)
	}
	if n != 40 {
		t.Errorf("%d messages", n)
	}
	var list wire.MessageList
	a.ok(t, &list, "POST", sub+"/claims", `{"max_messages":100,"deliver":"reference"}`)
	if len(list.Messages) != 60 {
		t.Fatalf("%d messages", len(list.Messages))
	}
	ref := list.Messages[7].Reference
	body := a.fetch(t, ref)
	if blob.FormatChecksum(blob.CRC32C(body)) != ref.Checksum {
		t.Errorf("%d bytes by %+v", len(body), ref)
	}
}

// fetch reads what a reference leads to, as a client without credentials.
func (a *api) fetch(t *testing.T, ref *wire.Reference) []byte {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, ref.URL, nil)
	r.Header.Set("Range", "bytes="+strconv.FormatInt(ref.Offset, 10)+"-"+strconv.FormatInt(ref.Offset+ref.Length-1, 10))
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if w.Code >= 300 {
		t.Fatalf("%s: %d %s", ref.URL, w.Code, w.Body)
	}
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSystemUpload puts a payload by URL, submits it and reads it by URL.
func TestSystemUpload(t *testing.T) {
	a := newSystem(t)
	a.ok(t, nil, "PUT", "/v1/topics/orders", "")
	sub := "/v1/topics/orders/subscriptions/billing"
	a.ok(t, nil, "PUT", sub, "")
	body := noise(100_000)
	var up wire.UploadsAnswer
	a.ok(t, &up, "POST", "/v1/topics/orders/uploads", `{"objects":[{"size":100000,"checksum":"`+blob.FormatChecksum(blob.CRC32C(body))+`"}]}`)
	r := httptest.NewRequest(up.Uploads[0].Method, up.Uploads[0].URL, strings.NewReader(string(body)))
	for name, value := range up.Uploads[0].Headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if w.Code >= 300 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var made wire.ProduceAnswer
	a.ok(t, &made, "POST", "/v1/topics/orders/references", `{"references":[{"object":"`+up.Uploads[0].Object+`","format":"payload","key":"k"},
		{"object":"uploads/none","format":"batch"}]}`)
	if len(made.Results) != 2 || made.Results[0].ID == "" || made.Results[1].Error == nil {
		t.Fatalf("%+v", made)
	}
	var list wire.MessageList
	a.ok(t, &list, "POST", sub+"/claims", `{"deliver":"reference"}`)
	if len(list.Messages) != 1 || !bytes.Equal(a.fetch(t, list.Messages[0].Reference), body) || list.Messages[0].Key != "k" {
		t.Errorf("%+v", list)
	}
}

// TestSystemDelayed follows a delayed message through the edge.
func TestSystemDelayed(t *testing.T) {
	a := newSystem(t)
	a.ok(t, nil, "PUT", "/v1/topics/late", `{"default_delay":60}`)
	var made wire.ProduceAnswer
	a.ok(t, &made, "POST", "/v1/topics/late/messages", `{"messages":[{"body":"a"},{"body":"b","ttl":1},{"body":"now","delay":0}]}`)
	if made.Results[0].DelayedID == "" || made.Results[1].Warnings[0] != "expires_before_visible" || made.Results[2].ID == "" {
		t.Fatalf("%+v", made)
	}
	path := "/v1/topics/late/delayed/" + made.Results[0].DelayedID
	a.ok(t, nil, "GET", "/v1/topics/late/delayed", "")
	a.ok(t, nil, "PATCH", path, `{"body":"changed","headers":{"a":"b"},"delay":30}`)
	var m wire.Message
	a.ok(t, &m, "GET", path, "")
	if *m.Body != "changed" || m.Headers["a"] != "b" {
		t.Errorf("%+v", m)
	}
	var topic wire.Topic
	a.ok(t, &topic, "GET", "/v1/topics/late", "")
	if topic.Messages.Ready != 1 || topic.Messages.Delayed == 0 {
		t.Errorf("%+v", topic.Messages)
	}
	var list wire.MessageList
	a.ok(t, &list, "GET", "/v1/topics/late/messages?include_delayed=true", "")
	if len(list.Messages) < 2 || list.Messages[0].ID == "" || list.Messages[1].DelayedID == "" {
		t.Errorf("%+v", list)
	}
	a.ok(t, nil, "DELETE", path, "")
	if got := a.do(t, "GET", path, ""); got.StatusCode != 404 {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
}

// TestSystemSegments splits and merges through the edge, with messages that go on coming.
func TestSystemSegments(t *testing.T) {
	a := newSystem(t)
	var topic wire.Topic
	a.ok(t, &topic, "PUT", "/v1/topics/orders", `{"scaling":{"max_segments":4,"target_bytes_per_second":1000}}`)
	if want := (wire.Policy{MinSegments: 1, MaxSegments: 4, TargetMessagesPerSecond: 5000, TargetBytesPerSecond: 1000}); topic.Scaling != want {
		t.Errorf("policy %+v, want %+v", topic.Scaling, want)
	}
	produce := func() {
		a.ok(t, nil, "POST", "/v1/topics/orders/messages", `{"messages":[{"key":"a"},{"key":"b"},{"key":"c"},{"key":"d"}]}`)
	}
	produce()
	segments := func(query string) []wire.Segment {
		var page wire.SegmentList
		a.ok(t, &page, "GET", "/v1/topics/orders/segments"+query, "")
		return page.Segments
	}
	first := segments("")[0]
	split := "/v1/topics/orders/segments/" + string(first.ID) + "/split"
	var made wire.SegmentChange
	a.ok(t, &made, "POST", split, `{"at":[16384,49152],"dry_run":true}`)
	if len(made.Made) != 0 || len(segments("")) != 1 {
		t.Errorf("the dry run did %+v", made)
	}
	a.ok(t, &made, "POST", split, `{"at":[16384,49152]}`)
	produce()
	open := segments("?state=open")
	if len(open) != 3 || len(made.Made) != 3 || open[0].Epoch != 2 {
		t.Fatalf("%+v after %+v", open, made)
	}
	for body, field := range map[string]string{`{"at":[16384]}`: "at", `{"into":17}`: "into", `{"at":[1],"into":2}`: "at"} {
		got := a.do(t, "POST", "/v1/topics/orders/segments/"+string(made.Made[0])+"/split", body)
		if e := got.fault(); e.Code != queue.CodeInvalidArgument || e.Details.Field != field {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	for _, c := range []struct {
		target, body string
		code         queue.Code
	}{
		{split, `{}`, queue.CodeSegmentSealed},
		{"/v1/topics/orders/segments/" + string(made.Made[1]) + "/split", `{"into":3}`, queue.CodeSegmentBounds},
		{"/v1/topics/orders/segments/0123456789abcdef/split", `{}`, queue.CodeSegmentNotFound},
		{"/v1/topics/nope/segments/0123456789abcdef/split", `{}`, queue.CodeTopicNotFound},
	} {
		if got := a.do(t, "POST", c.target, c.body); got.fault().Code != c.code {
			t.Errorf("%s %s: %s", c.target, c.body, got.body)
		}
	}
	merge := `{"segments":["` + string(made.Made[2]) + `","` + string(made.Made[1]) + `"]}`
	var merged wire.SegmentChange
	a.ok(t, &merged, "POST", "/v1/topics/orders/segments/merge", merge)
	if got := a.do(t, "POST", "/v1/topics/orders/segments/merge", merge); got.fault().Code != queue.CodeSegmentSealed {
		t.Errorf("the same merge again: %s", got.body)
	}
	a.ok(t, &topic, "PATCH", "/v1/topics/orders", `{"scaling":{"min_segments":2,"max_segments":0,"target_bytes_per_second":0}}`)
	if topic.Scaling.MinSegments != 2 || topic.Scaling.MaxSegments != 256 || topic.Scaling.TargetBytesPerSecond != 5<<20 {
		t.Errorf("policy %+v", topic.Scaling)
	}
	two := `{"segments":["` + string(made.Made[0]) + `","` + string(merged.Made[0]) + `"]}`
	if got := a.do(t, "POST", "/v1/topics/orders/segments/merge", two); got.fault().Code != queue.CodeSegmentBounds {
		t.Errorf("below the minimum: %s", got.body)
	}
	if got := a.do(t, "PATCH", "/v1/topics/orders", `{"scaling":{"max_segments":1}}`); got.fault().Details.Field != "scaling.max_segments" {
		t.Errorf("a maximum below the minimum: %s", got.body)
	}
	total := uint64(0)
	for _, s := range segments("") {
		total += uint64(s.NextOffset)
		if (s.State == "sealed") != (s.SealedAt != 0) || s.Commits > 0 && s.Mean.MessagesPerSecond == 0 {
			t.Errorf("%+v", s)
		}
	}
	if total != 8 {
		t.Errorf("%d messages", total)
	}
	var events wire.EventList
	a.ok(t, &events, "GET", "/v1/events?topic=orders&limit=1", "")
	cursor := events.NextCursor
	events = wire.EventList{}
	a.ok(t, &events, "GET", "/v1/events?topic=orders&limit=1&cursor="+cursor, "")
	if len(events.Events) != 1 || events.NextCursor != "" || events.Events[0].Reason != "by hand" {
		t.Errorf("%+v", events)
	}
	if a.ok(t, &events, "GET", "/v1/events?topic=other", ""); len(events.Events) != 0 {
		t.Errorf("events of another topic: %+v", events)
	}
}
