package consume_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// keyed makes a topic of one segment whose subscription "sub" keeps each key's messages in order.
func (e *env) keyed(change func(*meta.Subscription)) (*topics.Map, *meta.Segment) {
	e.t.Helper()
	m := e.topic("a", 1, func(_ *meta.Topic, s *meta.Subscription) {
		s.Ordering = meta.OrderingKey
		if change != nil {
			change(s)
		}
	})
	return m, m.Open[0]
}

// keyOf is the key of a body as "a1": what stands before the digits. "-" is none.
func keyOf(body string) []byte {
	key := strings.TrimRight(body, "0123456789")
	if key == "-" {
		return nil
	}
	return []byte(key)
}

// addKeys appends one batch of messages with these bodies, separated by spaces.
func (e *env) addKeys(seg *meta.Segment, object bool, list string) {
	e.t.Helper()
	var recs []batch.Record
	for body := range strings.FieldsSeq(list) {
		recs = append(recs, batch.Record{Slot: queue.Slot(seg.Range.Lo), Key: keyOf(body), Body: []byte(body)})
	}
	e.addRecords(seg, object, recs)
}

// inOrder gives the bodies of an answer in its order.
func inOrder(t testing.TB, ds []consume.Delivery) string {
	t.Helper()
	var out []string
	for i := range ds {
		for _, m := range messages(t, ds[i:i+1]) {
			out = append(out, m.body)
		}
	}
	return strings.Join(out, " ")
}

// wantClaim claims up to n messages, and checks what comes and in which order.
func (e *env) wantClaim(what string, n int, want string) []msg {
	e.t.Helper()
	got, err := e.svc.Claim(e.t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxMessages: n})
	if err != nil {
		e.t.Fatalf("%s: %v", what, err)
	}
	if have := inOrder(e.t, got.Deliveries); have != want {
		e.t.Fatalf("%s: claimed %q, want %q", what, have, want)
	}
	return messages(e.t, got.Deliveries)
}

func pick(ms []msg, list string) []msg {
	var out []msg
	for _, m := range ms {
		if slices.Contains(strings.Fields(list), m.body) {
			out = append(out, m)
		}
	}
	return out
}

func TestKeyedWithinASegment(t *testing.T) {
	for _, object := range []bool{false, true} {
		t.Run(fmt.Sprintf("object %v", object), func(t *testing.T) {
			e := newEnv(t, options{})
			m, seg := e.keyed(nil)
			e.addKeys(seg, object, "a1 b1 a2 c1 a3 b2 -1 -2")
			first := e.wantClaim("the first two", 2, "a1 b1")
			other := e.wantClaim("others flow past", 10, "c1 -1 -2")
			if cur := e.cursor(m, seg); len(cur.Retries) != 2 || cur.Next != 8 {
				t.Errorf("what was passed over: %+v", cur)
			}
			e.wantClaim("all are held", 10, "")
			e.ack("a", pick(first, "a1"))
			run := e.wantClaim("the rest of a together", 10, "a2 a3")
			e.ack("a", run[:1])
			e.wantClaim("while its second is in flight", 10, "")
			e.ack("a", first[1:])
			last := e.wantClaim("b's turn", 10, "b2")
			e.ack("a", append(append(last, other...), run[1:]...))
			if cur := e.cursor(m, seg); cur.Floor != 8 || cur.Entries() != 0 {
				t.Errorf("something is left: %+v", cur)
			}
		})
	}
}

func TestKeyedAnswerIsInOrder(t *testing.T) {
	e := newEnv(t, options{})
	_, seg := e.keyed(nil)
	for i := range 6 {
		e.addKeys(seg, i%2 == 0, fmt.Sprintf("a%d b%d", i, i))
	}
	got := e.wantClaim("all", 100, "a0 b0 a1 b1 a2 b2 a3 b3 a4 b4 a5 b5")
	e.release("a", pick(got, "a3 a1 b5"), consume.Release{})
	e.ack("a", pick(got, "a0 a2 a4 a5 b0 b1 b2 b3 b4"))
	e.wantClaim("what was released", 100, "a1 a3 b5")
}

// TestKeyedWaits: what keeps a key back, and what lets it go on.
func TestKeyedWaits(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(e *env, got []msg)
		// wait is when the key goes on, and then is what comes then.
		wait time.Duration
		then string
	}{
		{"a claim that is held", func(*env, []msg) {}, 30 * time.Second, "a1 a2 a3"},
		{"a claim that was extended", func(e *env, got []msg) {
			errs, err := e.svc.Extend(e.t.Context(), "a", "sub", receipts(got), time.Minute)
			e.noErrors("extend", errs, err)
		}, time.Minute, "a1 a2 a3"},
		{"a release with delay", func(e *env, got []msg) {
			e.release("a", got, consume.Release{HasDelay: true, Delay: 7 * time.Second})
		}, 7 * time.Second, "a1 a2 a3"},
		{"a release of the first of a run", func(e *env, got []msg) {
			e.ack("a", got)
			run := e.wantClaim("the run", 10, "a2 a3")
			e.release("a", run[:1], consume.Release{HasDelay: true, Delay: 7 * time.Second})
			e.pass(10 * time.Second)
			e.wantClaim("while its second is in flight", 10, "")
			e.pass(-10 * time.Second)
			e.ack("a", run[1:])
		}, 7 * time.Second, "a2"},
		{"deliveries used up", func(e *env, got []msg) {
			e.release("a", got, consume.Release{HasDelay: true})
			e.release("a", e.wantClaim("again", 1, "a1"), consume.Release{HasDelay: true, Delay: time.Hour})
		}, 0, "a2 a3"},
		{"a rejection", func(e *env, got []msg) { e.release("a", got, consume.Release{DeadLetter: true}) }, 0, "a2 a3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, options{})
			e.topic("dead", 1, nil)
			_, seg := e.keyed(func(s *meta.Subscription) { s.MaxDeliveries, s.DeadLetterTopic = 2, "dead" })
			e.addKeys(seg, false, "a1 b1")
			e.addKeys(seg, false, "a2 a3 c1")
			got := e.wantClaim("the first", 1, "a1")
			e.ack("a", e.wantClaim("the others", 10, "b1 c1"))
			tc.do(e, got)
			if tc.wait > 0 {
				e.pass(tc.wait - time.Millisecond)
				e.wantClaim("too early", 10, "")
				e.pass(time.Millisecond)
			}
			e.wantClaim("then", 10, tc.then)
		})
	}
}

// TestKeyedExpiredClaimsComeApart: as without order, but what follows of their keys waits.
func TestKeyedExpiredClaimsComeApart(t *testing.T) {
	e := newEnv(t, options{})
	_, seg := e.keyed(nil)
	e.addKeys(seg, false, "a1 a2 b1 c1")
	e.addKeys(seg, false, "b2 d1 a3")
	e.wantClaim("a run", 4, "a1 a2 b1 c1")
	e.pass(30 * time.Second)
	half := e.wantClaim("half of it, and whom nobody holds up", 10, "a1 a2 d1 a3")
	e.wantClaim("the other half", 10, "b1 c1 b2")
	e.pass(30 * time.Second)
	e.wantClaim("one of the first half", 1, "a1")
	errs, err := e.svc.Ack(t.Context(), "a", "sub", receipts(half[:1]))
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, errs[0], queue.CodeClaimLost)
}

func TestKeyedWhatIsGoneHoldsNobodyUp(t *testing.T) {
	e := newEnv(t, options{})
	_, seg := e.keyed(nil)
	key := func(body string, ttl time.Duration) batch.Record {
		return batch.Record{Slot: queue.Slot(seg.Range.Lo), Key: keyOf(body), Body: []byte(body), TTL: ttl}
	}
	e.addRecords(seg, false, []batch.Record{key("a1", time.Minute), key("b1", time.Minute), key("a2", 0)})
	e.addRecords(seg, false, []batch.Record{key("b2", 0), key("c1", 0)})
	got := e.wantClaim("two", 2, "a1 b1")
	e.release("a", got, consume.Release{HasDelay: true, Delay: time.Hour})
	e.ack("a", e.wantClaim("c", 10, "c1"))
	e.pass(time.Minute)
	e.wantClaim("what expired while it was hidden", 10, "a2 b2")

	e = newEnv(t, options{})
	_, seg = e.keyed(nil)
	e.addKeys(seg, false, "a1 a2 a3 a4")
	e.wantClaim("one", 1, "a1")
	e.truncate(seg, 2)
	e.pass(30 * time.Second)
	e.wantClaim("after a truncation", 10, "a3 a4")
}

// TestKeyedStoreCalls: a claim costs what it does without order, once the keys in flight are known.
func TestKeyedStoreCalls(t *testing.T) {
	e := newEnv(t, options{})
	_, seg := e.keyed(nil)
	wantOps(t, "empty poll of a new subscription", e.spent(func() { e.claim("a", 10) }), "get 1, get head 1")
	e.addKeys(seg, false, "a1 b1 a2 c1")
	e.addKeys(seg, false, "a3 d1")
	var got []msg
	wantOps(t, "first claim", e.spent(func() { got = e.claim("a", 2) }), "get 1, get head 1, get payload 1, take 1")
	wantOps(t, "claim past what is blocked", e.spent(func() { got = append(got, e.claim("a", 1)...) }), "get cursor 1, get head 1, take 1")
	wantOps(t, "claim that looks on", e.spent(func() { got = append(got, e.claim("a", 2)...) }),
		"get cursor 1, get head 1, get payload 1, take 1")
	wantOps(t, "poll of what is all blocked", e.spent(func() { e.wantClaim("blocked", 10, "") }), "get cursor 1, get head 1")
	wantOps(t, "ack", e.spent(func() { e.ack("a", got[:1]) }), "settle 1")
	e.fresh()
	wantOps(t, "a new process reads the keys in flight", e.spent(func() { e.wantClaim("a", 10, "a2 a3") }),
		"get cursor 1, get head 1, get payload 2, take 1")
	wantOps(t, "empty poll", e.spent(func() { e.claim("a", 10) }), "get cursor 1, get head 1")
}

// TestHotKey: a key with a long backlog fills neither the cursor nor the time of a claim, and others get
// past it.
func TestHotKey(t *testing.T) {
	const batches, each = 100, 1000
	e := newEnv(t, options{})
	m, seg := e.keyed(nil)
	recs := make([]batch.Record, each)
	for i := range batches {
		for j := range recs {
			body := fmt.Sprintf("hot%d", i*each+j)
			recs[j] = batch.Record{Slot: queue.Slot(seg.Range.Lo), Key: []byte("hot"), Body: []byte(body)}
		}
		if i%5 == 0 { // some others among the hot ones
			recs[each/2].Key, recs[each/2].Body = fmt.Appendf(nil, "cold%d", i), fmt.Appendf(nil, "cold%d", i)
		}
		e.addRecords(seg, false, slices.Clone(recs))
	}
	hot := e.wantClaim("one of the hot", 1, "hot0")
	first := e.spent(func() { e.wantClaim("the others within the bound", 10, "cold0 cold5") })
	if calls := first.Calls(); calls > 20 {
		t.Errorf("the look past 10,000 messages made %d calls", calls)
	}
	wantOps(t, "a look that finds all blocked", e.spent(func() { e.wantClaim("nothing", 10, "") }), "get cursor 1")
	if cur := e.cursor(m, seg); cur.Entries() > 6 {
		t.Errorf("the cursor has %d entries", cur.Entries())
	}
	for i := 1; i < 10; i++ {
		e.ack("a", hot)
		if hot = e.claim("a", 1); len(hot) != 1 {
			t.Fatalf("hot message %d does not follow", i)
		}
	}
	e.ack("a", hot)
	if got := e.claim("a", 5000); len(got) != 5000 {
		t.Errorf("a run of %d", len(got))
	}
	if cur := e.cursor(m, seg); cur.Entries() > 20 {
		t.Errorf("the cursor has %d entries", cur.Entries())
	}
}

// TestKeyedLooksOn: where each message is a batch of its own, a look reads a bounded number of them, and the
// next goes on from there.
func TestKeyedLooksOn(t *testing.T) {
	e := newEnv(t, options{})
	_, seg := e.keyed(nil)
	for i := range 1500 {
		e.addKeys(seg, false, fmt.Sprintf("hot%d", i))
	}
	e.addKeys(seg, false, "cold1")
	hot := e.wantClaim("the first", 1, "hot0")
	first := e.spent(func() { e.wantClaim("too far", 10, "") })
	if calls := first.Calls(); calls < 1024 || calls > 1200 {
		t.Errorf("a look made %d calls", calls)
	}
	e.wantClaim("the next", 10, "cold1")
	wantOps(t, "all is known", e.spent(func() { e.wantClaim("nothing", 10, "") }), "get cursor 1, get head 1")
	e.ack("a", hot)
	e.wantClaim("the hot one's turn", 1, "hot1")
}

// TestHotKeyAmongOthers: hot messages that take turns with others fill the cursor in the end; then the
// answer is empty, and no error.
func TestHotKeyAmongOthers(t *testing.T) {
	e := newEnv(t, options{})
	m, seg := e.keyed(nil)
	for i := range 3 {
		var recs []batch.Record
		for j := range 1000 {
			for _, body := range []string{"hot0", fmt.Sprintf("cold%d", i*1000+j)} {
				recs = append(recs, batch.Record{Slot: queue.Slot(seg.Range.Lo), Key: []byte(body), Body: []byte(body)})
			}
		}
		e.addRecords(seg, false, recs)
	}
	hot := e.claim("a", 1)
	cold := 0
	for {
		got := e.claim("a", 500)
		if len(got) == 0 {
			break
		}
		cold += len(got)
		e.ack("a", got)
	}
	cur := e.cursor(m, seg)
	if cold < queue.MaxCursorEntries/4 || cur.Entries() > queue.MaxCursorEntries+10 {
		t.Errorf("%d others got past, the cursor has %d entries", cold, cur.Entries())
	}
	e.ack("a", hot)
	total := 1 + cold
	for range 40 {
		got := e.claim("a", 1000)
		total += len(got)
		if len(got) > 0 {
			e.ack("a", got)
		}
	}
	if total != 6000 {
		t.Errorf("%d messages came", total)
	}
}

func TestKeyedLimits(t *testing.T) {
	t.Run("messages in flight", func(t *testing.T) {
		e := newEnv(t, options{})
		_, seg := e.keyed(func(s *meta.Subscription) { s.MaxInFlight = 2 })
		e.addKeys(seg, false, "a1 b1 a2 c1")
		got := e.wantClaim("up to the limit", 10, "a1 b1")
		_, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub"})
		wantCode(t, err, queue.CodeTooManyInFlight)
		e.ack("a", pick(got, "b1"))
		e.wantClaim("after an ack", 10, "c1")
		e.pass(time.Minute)
		e.wantClaim("expired claims are in flight already", 10, "a1 c1")
	})
	t.Run("bytes", func(t *testing.T) {
		e := newEnv(t, options{})
		_, seg := e.keyed(nil)
		e.addKeys(seg, false, "a1111111 b1111111 c1111111")
		e.addKeys(seg, true, "a2222222 d1111111")
		claim := func(n int64, want string) {
			t.Helper()
			got, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", MaxBytes: n})
			if have := inOrder(t, got.Deliveries); err != nil || have != want {
				t.Fatalf("%d bytes: claimed %q, %v; want %q", n, have, err, want)
			}
		}
		claim(1, "a1111111")
		claim(16, "b1111111 c1111111")
		claim(100, "d1111111")
	})
	t.Run("by reference", func(t *testing.T) {
		e := newEnv(t, options{})
		_, seg := e.keyed(nil)
		e.addKeys(seg, true, "a1 b1 a2 c1")
		e.wantClaim("the first", 1, "a1")
		got, err := e.svc.Claim(t.Context(), consume.ClaimRequest{Topic: "a", Subscription: "sub", ByReference: true})
		if err != nil {
			t.Fatal(err)
		}
		wantOffsets(t, "by reference", messages(t, got.Deliveries), 1, 3)
	})
}

// TestKeyedUnreadable: a lost object's keys are unknown. It comes to the dead-letter topic as ever, and
// nobody waits for it. A damaged body's key is known, so its key waits, also within one answer.
func TestKeyedUnreadable(t *testing.T) {
	t.Run("index", func(t *testing.T) {
		e := newEnv(t, options{})
		dead := e.topic("dead", 1, nil)
		_, seg := e.keyed(func(s *meta.Subscription) { s.MaxDeliveries, s.DeadLetterTopic = 2, "dead" })
		e.addKeys(seg, true, "a1 a2")
		e.addKeys(seg, false, "a3")
		e.lose(seg)
		e.wantClaim("what is whole", 10, "a3")
		for range 8 {
			e.pass(time.Minute)
			e.claim("a", 10)
		}
		if h, err := e.log.Head(t.Context(), dead.Open[0].ID); err != nil || h.Next < 2 {
			t.Errorf("the dead-letter topic has %d, %v", h.Next, err)
		}
	})
	t.Run("body", func(t *testing.T) {
		e := newEnv(t, options{})
		_, seg := e.keyed(nil)
		e.addKeys(seg, false, "b1")
		e.addPayloadKeyed(seg, "a1", true)
		e.addKeys(seg, false, "a2 c1")
		e.wantClaim("what does not wait for it", 10, "b1 c1")
		e.pass(time.Minute)
		if got := e.claim("a", 10); len(got) != 1 || got[0].body != "b1" {
			t.Errorf("got %v", got)
		}
	})
}

// lose deletes the object of a segment's first ref.
func (e *env) lose(seg *meta.Segment) {
	e.t.Helper()
	h, err := e.log.Head(e.t.Context(), seg.ID)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := e.bareBlob.Delete(e.t.Context(), h.Tail[0].Object); err != nil {
		e.t.Fatal(err)
	}
}

// addPayloadKeyed appends one message whose body is an object, damaged if asked for.
func (e *env) addPayloadKeyed(seg *meta.Segment, body string, damaged bool) {
	e.t.Helper()
	key, err := e.bareBlob.Create(e.t.Context(), blob.PrefixUploads, []byte(body))
	if err != nil {
		e.t.Fatal(err)
	}
	sum := blob.CRC32C([]byte(body))
	if damaged {
		sum++
	}
	e.addRef(seg, meta.Ref{
		Kind: meta.RefPayload, ID: meta.RefID(e.ids.Nonce()), Object: key, Len: int64(len(body)), Count: 1,
		Bytes: int64(len(body)), Created: e.clock(), Slot: queue.Slot(seg.Range.Lo), Key: keyOf(body), CRC: sum, HasCRC: true,
	})
}
