package consume_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// withDead makes topic "a", whose messages go to "dead" after max deliveries.
func (e *env) withDead(maxDeliveries, deadSegments int) (m, dead *topics.Map) {
	dead = e.topic("dead", deadSegments, nil)
	m = e.topic("a", 1, func(_ *meta.Topic, s *meta.Subscription) {
		s.MaxDeliveries, s.DeadLetterTopic = maxDeliveries, "dead"
	})
	return m, dead
}

func wantLetter(t *testing.T, got msg, body string, headers map[string]string) {
	t.Helper()
	if got.body != body {
		t.Errorf("body is %q, want %q", got.body, body)
	}
	for name, want := range headers {
		if got.headers[name] != want {
			t.Errorf("header %s is %q, want %q", name, got.headers[name], want)
		}
	}
}

func TestDeadLetterAfterExpiry(t *testing.T) {
	e := newEnv(t, options{})
	m, _ := e.withDead(2, 2)
	seg := m.Open[0]
	e.add(seg, false, numbered(3)...)
	first := e.claim("a", 3)
	e.ack("a", []msg{first[0], first[2]})
	e.pass(30 * time.Second)
	wantOffsets(t, "second delivery", e.claim("a", 10), 1)
	e.pass(30 * time.Second)
	s := e.spent(func() { wantOffsets(t, "after the last delivery", e.claim("a", 10)) })
	wantOps(t, "moving", s, "append 1, get cursor 1, get head 1, put hold 1, take 1, transact 1, trim 1")
	got := e.claim("dead", 10)
	if len(got) != 1 {
		t.Fatalf("dead letters: %v", got)
	}
	wantLetter(t, got[0], "m1", map[string]string{
		consume.HeaderReason: consume.ReasonMaxDeliveries, consume.HeaderSourceTopic: "a",
		consume.HeaderSourceID:     queue.MessageID{Segment: seg.ID, Offset: 1}.String(),
		consume.HeaderSubscription: "sub", consume.HeaderAttempts: "2",
	})
	if cur := e.cursor(m, seg); cur.Floor != 3 {
		t.Errorf("cursor is %+v", cur)
	}
	if got[0].attempt != 1 {
		t.Errorf("the dead letter's attempt is %d", got[0].attempt)
	}
}

func TestDeadLetterAtRelease(t *testing.T) {
	for _, tc := range []struct {
		name   string
		max    int
		how    consume.Release
		dead   bool
		reason string
	}{
		{"last delivery fails", 1, consume.Release{Reason: "no such customer"}, true, "no such customer"},
		{"last delivery fails without a reason", 1, consume.Release{}, true, consume.ReasonMaxDeliveries},
		{"last delivery does not count", 1, consume.Release{Uncounted: true}, false, ""},
		{"not the last", 2, consume.Release{}, false, ""},
		{"at once", 9, consume.Release{DeadLetter: true, Reason: "malformed"}, true, "malformed"},
		{"at once without a reason", 9, consume.Release{DeadLetter: true}, true, consume.ReasonRejected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			m, _ := e.withDead(tc.max, 1)
			e.add(m.Open[0], false, numbered(3)...)
			got := e.claim("a", 3)
			s := e.spent(func() { e.release("a", got[1:2], tc.how) })
			letters := e.claim("dead", 10)
			if !tc.dead {
				if len(letters) != 0 {
					t.Errorf("dead letters: %v", letters)
				}
				wantOffsets(t, "again", e.claim("a", 10), 1)
				return
			}
			wantOps(t, "release", s, "append 1, get cursor 1, get head 1, put hold 1, settle 1, transact 1, trim 1")
			if len(letters) != 1 {
				t.Fatalf("dead letters: %v", letters)
			}
			wantLetter(t, letters[0], "m1", map[string]string{consume.HeaderReason: tc.reason})
			wantOffsets(t, "again", e.claim("a", 10))
			e.ack("a", []msg{got[0], got[2]})
			if cur := e.cursor(m, m.Open[0]); cur.Floor != 3 {
				t.Errorf("cursor is %+v", cur)
			}
		})
	}
}

func TestDeadLetterWithoutATopicIsInvalid(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	e.add(m.Open[0], false, numbered(1)...)
	_, err := e.svc.Release(t.Context(), "a", "sub", receipts(e.claim("a", 1)), consume.Release{DeadLetter: true})
	wantCode(t, err, queue.CodeInvalidArgument)
}

func TestManyDeadLetters(t *testing.T) {
	const n = 200
	e := newEnv(t, options{})
	m, dead := e.withDead(9, 3)
	e.add(m.Open[0], false, numbered(n)...)
	got := e.claim("a", n)
	e.release("a", got, consume.Release{DeadLetter: true})
	if cur := e.cursor(m, m.Open[0]); cur.Floor != n {
		t.Errorf("cursor is %+v", cur)
	}
	bodies := make(map[string]int)
	for _, l := range e.claim("dead", 2*n) {
		bodies[l.body]++
		if want := fmt.Sprintf("%s-%s", m.Open[0].ID, strings.TrimPrefix(l.body, "m")); l.headers[consume.HeaderSourceID] != want {
			t.Errorf("source id of %s is %s", l.body, l.headers[consume.HeaderSourceID])
		}
	}
	if len(bodies) != n {
		t.Errorf("%d dead letters, want %d", len(bodies), n)
	}
	_ = dead
}

func TestDeadLetterTopicIsGone(t *testing.T) {
	e := newEnv(t, options{})
	m, dead := e.withDead(1, 1)
	e.names.drop("dead")
	e.add(m.Open[0], false, numbered(4)...)
	got := e.claim("a", 2)
	errs, err := e.svc.Release(t.Context(), "a", "sub", receipts(got[:1]), consume.Release{DeadLetter: true})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, errs[0], queue.CodeTopicNotFound)
	e.release("a", got[:1], consume.Release{}) // its last delivery: kept
	e.pass(30 * time.Second)
	wantOffsets(t, "others", e.claim("a", 10), 2, 3)
	wantOps(t, "poll while they are kept back", e.spent(func() { e.claim("a", 10) }), "get cursor 1, get head 1")
	e.names.maps["dead"] = dead
	e.pass(2 * time.Minute)
	e.claim("a", 10)
	letters := e.claim("dead", 10)
	if len(letters) != 4 {
		t.Fatalf("dead letters once the topic is back: %v", letters)
	}
}

func TestDeadLetterTopicIsSealed(t *testing.T) {
	e := newEnv(t, options{})
	m, dead := e.withDead(1, 1)
	dead.Topic.State = meta.TopicSealed
	dead.Open = nil
	e.add(m.Open[0], false, numbered(2)...)
	e.claim("a", 1)
	e.pass(30 * time.Second)
	wantOffsets(t, "others", e.claim("a", 10), 1)
	if cur := e.cursor(m, m.Open[0]); cur.Floor != 0 || len(cur.Retries) != 1 {
		t.Errorf("the message was lost: %+v", cur)
	}
}

func TestDeadLetterFollowsASplit(t *testing.T) {
	e := newEnv(t, options{})
	m, dead := e.withDead(1, 1)
	if _, err := e.bare.Apply(context.Background(), meta.Seal{Segment: dead.Open[0].ID, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	split := e.topic("split", 2, nil)
	after := *dead
	after.Segments, after.Open = append(slices.Clone(dead.Segments), split.Segments...), split.Open
	e.names.onReload = func() { e.names.maps["dead"] = &after }
	e.add(m.Open[0], false, numbered(1)...)
	e.release("a", e.claim("a", 1), consume.Release{})
	if got := e.claim("dead", 10); len(got) != 1 {
		t.Errorf("dead letters: %v", got)
	}
}

func TestDeadLetterExpiry(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ttl    time.Duration
		expiry time.Duration
	}{{"none in a topic without default", 0, 0}, {"the dead-letter topic's", time.Hour, time.Hour}} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			m, dead := e.withDead(1, 1)
			dead.Topic.Config.DefaultTTL = tc.ttl
			e.add(m.Open[0], false, rec{"x", time.Minute}, rec{"y", 2 * time.Minute})
			e.pass(10 * time.Second)
			e.release("a", e.claim("a", 2), consume.Release{})
			e.pass(30 * time.Minute)
			got, err := e.svc.Peek(t.Context(), consume.PeekRequest{Topic: "dead"})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(messages(t, got.Deliveries)); n != 2 {
				t.Fatalf("%d dead letters after their own ttl", n)
			}
			ref := got.Deliveries[0].Ref
			if want := e.clock().Add(tc.expiry - 30*time.Minute); tc.expiry != 0 && ref.MaxExpires != want || tc.expiry == 0 && ref.MaxExpires != 0 {
				t.Errorf("expires %v", ref.MaxExpires)
			}
			if ref.Created >= ref.Visible {
				t.Errorf("created %v, visible %v", ref.Created, ref.Visible)
			}
			e.pass(31 * time.Minute)
			if n := len(e.claim("dead", 10)); (n == 0) != (tc.expiry != 0) {
				t.Errorf("%d dead letters after an hour", n)
			}
		})
	}
}

// TestExpiredIsNoDeadLetter: what has expired leaves by its expiry.
func TestExpiredIsNoDeadLetter(t *testing.T) {
	e := newEnv(t, options{})
	m, _ := e.withDead(1, 1)
	e.add(m.Open[0], false, rec{"x", 20 * time.Second}, rec{"y", 0})
	e.claim("a", 2)
	e.pass(30 * time.Second)
	e.claim("a", 10)
	if got := e.claim("dead", 10); len(got) != 1 || got[0].body != "y" {
		t.Errorf("dead letters: %v", got)
	}
	if cur := e.cursor(m, m.Open[0]); cur.Floor != 2 {
		t.Errorf("cursor is %+v", cur)
	}
}

// TestDeadLetterTwice: after a seek the same message may be moved again, in the same millisecond.
func TestDeadLetterTwice(t *testing.T) {
	e := newEnv(t, options{})
	m, _ := e.withDead(1, 1)
	e.add(m.Open[0], false, numbered(1)...)
	for range 2 {
		e.release("a", e.claim("a", 1), consume.Release{})
		m.Subscriptions["sub"].ID = e.ids.Subscription()
	}
	if got := e.claim("dead", 10); len(got) != 2 {
		t.Errorf("dead letters: %v", got)
	}
}

func TestDeadLettersOfPayloads(t *testing.T) {
	e := newEnv(t, options{})
	m, _ := e.withDead(1, 1)
	e.addPayload(m.Open[0], "a body of its own")
	e.add(m.Open[0], true, bodies("x", "an object")...)
	e.add(m.Open[0], false, bodies("inline")...)
	got := e.claim("a", 10)
	e.release("a", []msg{got[0], got[2], got[3]}, consume.Release{})
	var have []string
	for _, l := range e.claim("dead", 10) {
		have = append(have, l.body)
		if l.body == "a body of its own" && l.headers["kind"] != "payload" {
			t.Errorf("own headers are lost: %v", l.headers)
		}
	}
	slices.Sort(have)
	if !slices.Equal(have, []string{"a body of its own", "an object", "inline"}) {
		t.Errorf("dead letters: %q", have)
	}
}

func TestMoreDeadLettersThanOneClaimMoves(t *testing.T) {
	const n = 300
	e := newEnv(t, options{})
	m, _ := e.withDead(1, 1)
	e.add(m.Open[0], false, numbered(n)...)
	e.claim("a", n)
	e.add(m.Open[0], false, numbered(5)...)
	e.pass(30 * time.Second)
	wantOffsets(t, "fresh ones meanwhile", e.claim("a", 10), span(n, n+5)...)
	for range 5 {
		e.claim("a", 10)
	}
	if got := e.claim("dead", 2*n); len(got) != n {
		t.Errorf("%d dead letters, want %d", len(got), n)
	}
}
