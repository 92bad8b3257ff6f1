package delay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

func TestEdit(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 2*queue.InlinePayloadBytes/16)
	for _, c := range []struct {
		name    string
		edits   []Edit
		body    string
		headers map[string]string
		visible int // seconds from creation
	}{
		{name: "body", edits: []Edit{{Body: ptr([]byte("new"))}}, body: "new", headers: map[string]string{"kind": "test"}, visible: 60},
		{name: "empty body", edits: []Edit{{Body: ptr([]byte{})}}, headers: map[string]string{"kind": "test"}, visible: 60},
		{name: "large body", edits: []Edit{{Body: &large}}, body: string(large), headers: map[string]string{"kind": "test"}, visible: 60},
		{name: "headers", edits: []Edit{{Headers: &map[string]string{"a": "b"}}}, body: "a-1", headers: map[string]string{"a": "b"}, visible: 60},
		{name: "no headers", edits: []Edit{{Headers: &map[string]string{}}}, body: "a-1", visible: 60},
		{name: "later", edits: []Edit{{Delay: ptr(90 * time.Second)}}, body: "a-1", headers: map[string]string{"kind": "test"}, visible: 90},
		{name: "sooner", edits: []Edit{{Delay: ptr(20 * time.Second)}}, body: "a-1", headers: map[string]string{"kind": "test"}, visible: 20},
		{name: "in the past is now", edits: []Edit{{Delay: ptr(time.Duration(0))}}, body: "a-1", headers: map[string]string{"kind": "test"}, visible: 10},
		{name: "the same", edits: []Edit{{Delay: ptr(60 * time.Second)}}, body: "a-1", headers: map[string]string{"kind": "test"}, visible: 60},
		{
			name: "all, then again", visible: 70, body: "two", headers: map[string]string{"n": "1"},
			edits: []Edit{
				{Body: ptr([]byte("one")), Headers: &map[string]string{"n": "1"}, Delay: ptr(80 * time.Second)},
				{Body: ptr([]byte("two"))},
				{Delay: ptr(30 * time.Second)},
				{Delay: ptr(70 * time.Second)},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, delayedTopic(2))
			start := r.millis()
			ids := r.put(t, group{visible: r.in(60), expires: r.in(500), slots: spread(3), name: "a"})
			r.pass(10 * time.Second)
			var got Message
			for _, e := range c.edits {
				var err error
				if got, err = r.Edit(t.Context(), topicName, ids[1], e); err != nil {
					t.Fatal(err)
				}
			}
			visible := start.Add(time.Duration(c.visible) * time.Second)
			check := func(m Message, bodyToo bool) {
				t.Helper()
				if m.ID != ids[1] || m.Visible != visible || m.Created != start || m.Expires != start.Add(500*time.Second) ||
					string(m.Key) != "a-1" || !maps.Equal(m.Headers, c.headers) || m.Size != int64(len(c.body)) || m.Err != nil {
					t.Errorf("%+v", m)
				}
				if bodyToo && string(m.Body) != c.body {
					t.Errorf("body %.20q", m.Body)
				}
			}
			check(got, false)
			read, err := r.Get(t.Context(), topicName, ids[1])
			if err != nil {
				t.Fatal(err)
			}
			check(read, true)
			if n := len(r.waiting(t)); n != 3 || r.forwards(t) != 1 || r.entries(t) != 2 {
				t.Errorf("%d wait, %d forwards, %d entries", n, r.forwards(t), r.entries(t))
			}
			r.pass(visible.Sub(r.millis()))
			r.promote(t)
			i := slices.IndexFunc(r.contents(t), func(m promotedMessage) bool {
				return m.body == c.body && m.visible == visible && m.slot == spread(3)[1] && maps.Equal(m.headers, c.headers)
			})
			if i < 0 {
				t.Errorf("not promoted as edited: %v", r.contents(t))
			}
			_, err = r.Edit(t.Context(), topicName, ids[1], c.edits[0])
			wantCode(t, err, queue.CodeAlreadyPromoted)
			r.pass(2 * time.Minute)
			if _, _, err := r.PromoteAll(t.Context()); err != nil {
				t.Error(err)
			}
			if got := bodies(r.contents(t)); len(got) != 3 || r.forwards(t) != 0 || r.index(t) != 0 {
				t.Errorf("%.40v, %d forwards, %d entries left", got, r.forwards(t), r.index(t))
			}
		})
	}
}

// putsOnly is a store for a process that has no right to delete.
type putsOnly struct {
	meta.Store
	t *testing.T
}

func (p putsOnly) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	for _, op := range ops {
		if _, ok := op.(meta.Delete); ok {
			p.t.Errorf("an edit deletes %v", op.Target())
		}
	}
	return p.Store.Transact(ctx, ops)
}

// TestEditDeletesNothing: in AWS edits are made by the function that may not. What an edit leaves behind holds no
// message, is not waited for, and goes when it is due.
func TestEditDeletesNothing(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	id := r.put(t, group{visible: r.in(60), name: "a"})[0]
	s := r.on(putsOnly{r.store, t}, r.blobs)
	for _, e := range []Edit{
		{Delay: ptr(20 * time.Second)},
		{Body: ptr([]byte("b")), Delay: ptr(30 * time.Second)},
		{Delay: ptr(10 * time.Second)},
		{Delay: ptr(50 * time.Second), Headers: &map[string]string{"h": "1"}},
	} {
		if _, err := s.Edit(t.Context(), topicName, id, e); err != nil {
			t.Fatal(err)
		}
	}
	if n, _, err := r.Count(t.Context(), topicName, 10); err != nil || n != 1 || r.index(t) != 5 {
		t.Errorf("%d wait in %d entries, %v", n, r.index(t), err)
	}
	r.pass(15 * time.Second)
	if n, next := r.promote(t); n != 0 || next != r.in(35) {
		t.Errorf("promoted %d, next %v", n, next)
	}
	if m, err := r.Get(t.Context(), topicName, id); err != nil || string(m.Body) != "b" || r.index(t) != 4 {
		t.Errorf("%+v, %v, %d entries", m, err, r.index(t))
	}
	r.pass(40 * time.Second)
	if n, next := r.promote(t); n != 1 || next != 0 {
		t.Errorf("promoted %d, next %v", n, next)
	}
	wantCode(t, r.Cancel(t.Context(), topicName, id), queue.CodeAlreadyPromoted)
	r.pass(2 * time.Minute)
	if _, _, err := r.PromoteAll(t.Context()); err != nil {
		t.Error(err)
	}
	if got := bodies(r.contents(t)); !slices.Equal(got, []string{"b"}) || r.index(t) != 0 || r.forwards(t) != 0 {
		t.Errorf("%v, %d entries, %d forwards", got, r.index(t), r.forwards(t))
	}
}

func TestEditRefuses(t *testing.T) {
	r := newRig(t, topics.Config{DefaultDelay: time.Second, MaxDelay: time.Minute, MaxMessageBytes: 4})
	ids := r.put(t, group{visible: r.in(60), slots: spread(2), name: "a"})
	for _, c := range []struct {
		name, field string
		code        queue.Code
		edit        Edit
	}{
		{"nothing", "body", queue.CodeInvalidArgument, Edit{}},
		{"body too large", "body", queue.CodeTooLarge, Edit{Body: ptr([]byte("12345"))}},
		{"headers", "headers", queue.CodeInvalidArgument, Edit{Headers: &map[string]string{"": "x"}}},
		{"delay too long", "delay", queue.CodeInvalidArgument, Edit{Delay: ptr(time.Minute + time.Millisecond)}},
		{"negative delay", "delay", queue.CodeInvalidArgument, Edit{Delay: ptr(-1 * time.Second)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := r.Edit(t.Context(), topicName, ids[0], c.edit)
			wantCode(t, err, c.code)
			var e *queue.Error
			if errors.As(err, &e); e == nil || e.Field != c.field {
				t.Errorf("%v, want field %s", err, c.field)
			}
		})
	}
	if n := r.forwards(t); n != 0 {
		t.Errorf("a refused edit moved a message")
	}
}

func TestUnknownIDs(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	ids := r.put(t, group{visible: r.in(60), slots: spread(2), name: "a"})
	id := ids[0]
	if _, err := r.Edit(t.Context(), topicName, id, Edit{Delay: ptr(90 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	m := r.open(t)
	page, err := r.store.Query(t.Context(), meta.Range{PK: meta.DelayedPK(m.ID(), shard), From: meta.DelayedSK(r.in(90), ""), Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	moved, _ := page.Items[0].Record.(*meta.Delayed)
	for name, c := range map[string]struct {
		id   queue.DelayedID
		code queue.Code
	}{
		"past the end":     {queue.DelayedID{Visible: id.Visible, Entry: id.Entry, Index: 2}, queue.CodeDelayedNotFound},
		"other entry":      {queue.DelayedID{Visible: id.Visible, Entry: r.IDs.Entry()}, queue.CodeDelayedNotFound},
		"other time":       {queue.DelayedID{Visible: id.Visible + 1, Entry: id.Entry}, queue.CodeDelayedNotFound},
		"visible before":   {queue.DelayedID{Visible: r.in(-1), Entry: id.Entry}, queue.CodeAlreadyPromoted},
		"place of an edit": {queue.DelayedID{Visible: moved.Visible, Entry: moved.ID}, queue.CodeDelayedNotFound},
	} {
		_, err := r.Get(t.Context(), topicName, c.id)
		if queue.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		wantCode(t, r.Cancel(t.Context(), topicName, c.id), c.code)
	}
	_, err = r.Get(t.Context(), "none", id)
	wantCode(t, err, queue.CodeTopicNotFound)
}

func TestCancel(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	ids := r.put(t, group{visible: r.in(60), slots: spread(4), name: "a"})
	if _, err := r.Edit(t.Context(), topicName, ids[1], Edit{Delay: ptr(90 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids[:3] {
		if err := r.Cancel(t.Context(), topicName, id); err != nil {
			t.Fatal(err)
		}
		wantCode(t, r.Cancel(t.Context(), topicName, id), queue.CodeDelayedNotFound)
	}
	if got := bodiesOf(r.waiting(t)); !slices.Equal(got, []string{"a-3"}) || r.forwards(t) != 0 {
		t.Errorf("waiting %v, %d forwards", got, r.forwards(t))
	}
	r.pass(2 * time.Minute)
	r.promote(t)
	if got := bodies(r.contents(t)); !slices.Equal(got, []string{"a-3"}) {
		t.Errorf("promoted %v", got)
	}
	for _, id := range ids {
		wantCode(t, r.Cancel(t.Context(), topicName, id), queue.CodeAlreadyPromoted)
	}
}

func TestCancelTheLastOfAGroupRemovesIt(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	for _, id := range r.put(t, group{visible: r.in(60), slots: spread(3), name: "a"}) {
		if err := r.Cancel(t.Context(), topicName, id); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.entries(t); n != 0 {
		t.Errorf("%d entries left", n)
	}
}

// A message that was made visible sooner and promoted leaves a tombstone until its first visible time:
// without it a late edit would be told that the message never was.
func TestTombstone(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	ids := r.put(t, group{visible: r.in(60), name: "a"})
	if _, err := r.Edit(t.Context(), topicName, ids[0], Edit{Delay: ptr(time.Second)}); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Second)
	r.promote(t)
	for range 2 {
		wantCode(t, r.Cancel(t.Context(), topicName, ids[0]), queue.CodeAlreadyPromoted)
		if _, _, err := r.PromoteAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := r.forwards(t); n != 1 {
			t.Errorf("%d forwards before the first visible time", n)
		}
	}
	r.pass(time.Minute)
	if _, _, err := r.PromoteAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.forwards(t); n != 0 {
		t.Errorf("%d tombstones left", n)
	}
	wantCode(t, r.Cancel(t.Context(), topicName, ids[0]), queue.CodeAlreadyPromoted)
}

// putReference puts an entry whose message is an uploaded object.
func (r *rig) putReference(t tester, data string) queue.DelayedID {
	t.Helper()
	headers, _ := batch.MakeHeaders(map[string]string{"kind": "test"})
	d := &meta.Delayed{
		Topic: r.open(t).ID(), Visible: r.in(60), ID: r.IDs.Entry(), Slots: []queue.Slot{5}, Sizes: []uint32{uint32(len(data))},
		Ref: meta.Ref{
			Kind: meta.RefPayload, ID: r.IDs.Nonce(), Object: r.object(t, data), Len: int64(len(data)), Count: 1,
			CRC: blob.CRC32C([]byte(data)), HasCRC: true, Created: r.millis(), Visible: r.in(60), Bytes: int64(len(data)),
			MinExpires: r.in(100), MaxExpires: r.in(100), Slot: 5, Key: []byte("k"), Headers: headers,
		},
	}
	r.putEntry(t, d)
	return queue.DelayedID{Visible: d.Visible, Entry: d.ID}
}

func TestEditOfAReference(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	start := r.millis()
	id := r.putReference(t, "uploaded")
	before := r.meter.Snapshot()
	got, err := r.Edit(t.Context(), topicName, id, Edit{Headers: &map[string]string{"a": "b"}})
	if err != nil || got.Headers["a"] != "b" || got.Size != 8 {
		t.Fatal(got, err)
	}
	if n := r.meter.Snapshot().Sub(before).Row("get object").Ops; n != 0 {
		t.Errorf("new headers cost %d reads of the payload", n)
	}
	if got, err = r.Get(t.Context(), topicName, id); err != nil || string(got.Body) != "uploaded" {
		t.Fatal(got, err)
	}
	if _, err = r.Edit(t.Context(), topicName, id, Edit{Body: ptr([]byte("typed"))}); err != nil {
		t.Fatal(err)
	}
	got, err = r.Get(t.Context(), topicName, id)
	if err != nil || string(got.Body) != "typed" || got.Headers["a"] != "b" || string(got.Key) != "k" ||
		got.Expires != start.Add(100*time.Second) || got.Slot != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	r.pass(time.Minute)
	r.promote(t)
	if got := r.contents(t); len(got) != 1 || got[0].body != "typed" || got[0].slot != 5 {
		t.Errorf("%+v", got)
	}
}

func TestListPages(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	var want []string
	for i := range 5 {
		r.put(t, group{visible: r.in(60 + i), slots: spread(5), name: fmt.Sprint(i)})
		for j := range 5 {
			want = append(want, fmt.Sprintf("%d-%d", i, j))
		}
	}
	for _, limit := range []int{1, 2, 5, 7, 24, 25, 26} {
		var got []string
		for cursor := ""; ; {
			page, next, err := r.List(t.Context(), topicName, Listing{Cursor: cursor, Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page {
				got = append(got, string(m.Key))
				if m.Body != nil {
					t.Error("a body that nobody asked for")
				}
			}
			if cursor = next; cursor == "" {
				break
			}
			if len(page) != limit {
				t.Errorf("%d in a page of %d", len(page), limit)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	if n, more, err := r.Count(t.Context(), topicName, 7); n != 7 || !more || err != nil {
		t.Errorf("Count = %d %v %v", n, more, err)
	}
	for _, l := range []Listing{{Limit: 0}, {Limit: queue.MaxPageSize + 1}, {Limit: 1, Cursor: "x"}} {
		_, _, err := r.List(t.Context(), topicName, l)
		wantCode(t, err, queue.CodeInvalidArgument)
	}
}

func TestListBoundsBodies(t *testing.T) {
	r := newRig(t, topics.Config{DefaultDelay: time.Minute, MaxMessageBytes: queue.MaxInlineMessageBytes})
	for i := range 4 {
		ids := r.put(t, group{visible: r.in(60), name: fmt.Sprint(i)})
		body := []byte(strings.Repeat("x", queue.DefaultClaimBytes/2+1))
		if _, err := r.Edit(t.Context(), topicName, ids[0], Edit{Body: &body}); err != nil {
			t.Fatal(err)
		}
	}
	page, next, err := r.List(t.Context(), topicName, Listing{Limit: 100, Bodies: true})
	if err != nil || len(page) != 2 || next == "" {
		t.Errorf("%d messages, cursor %q: %v", len(page), next, err)
	}
}

// One message whose bytes are lost does not hide the others.
func TestListWithMissingObject(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	id := r.putReference(t, "lost")
	lost := r.put(t, group{visible: r.in(60), name: "lost"})
	r.put(t, group{visible: r.in(61), name: "kept"})
	for _, d := range []queue.DelayedID{id, lost[0]} {
		e, _, err := meta.Fetch[*meta.Delayed](t.Context(), r.store, meta.DelayedKey(r.open(t).ID(), shard, d.Visible, d.Entry))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.blobs.Delete(t.Context(), e.Ref.Object); err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := r.List(t.Context(), topicName, Listing{Limit: 10, Bodies: true})
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	if got[0].Err == nil || got[1].Err == nil || got[2].Err != nil || string(got[2].Body) != "kept-0" {
		t.Errorf("%+v", got)
	}
	_, err = r.Get(t.Context(), topicName, lost[0])
	if !queue.Is(err, queue.KindNotFound) {
		t.Errorf("Get: %v", err)
	}
}
