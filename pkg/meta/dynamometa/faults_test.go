package dynamometa_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// fault is what happens to one request on its way.
type fault func(next http.RoundTripper, r *http.Request) (*http.Response, error)

// wire carries requests and lets faults happen to those of the API's op.
type wire struct {
	mu     sync.Mutex // guards what is below
	op     string
	faults []fault // one for each request, in order; nil lets it pass
	last   bool    // the last fault happens to all that follow
	seen   []string
	// between runs before the n-th request of op is sent, 1 for the second.
	between func(n int)
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	op := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810.")
	w.mu.Lock()
	w.seen = append(w.seen, op)
	var f fault
	var between func(int)
	n := 0
	if op == w.op {
		for _, s := range w.seen {
			if s == op {
				n++
			}
		}
		between = w.between
		switch {
		case len(w.faults) > 1 || len(w.faults) == 1 && !w.last:
			f = w.faults[0]
			w.faults = w.faults[1:]
		case len(w.faults) == 1:
			f = w.faults[0]
		}
	}
	w.mu.Unlock()
	if between != nil {
		between(n)
	}
	if f == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return f(http.DefaultTransport, r)
}

// arm makes faults happen to the requests of op from now on.
func (w *wire) arm(op string, last bool, faults ...fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.op, w.faults, w.last, w.seen, w.between = op, faults, last, nil, nil
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

// lose has the request carried out and its answer lost.
func lose(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	res, err := next.RoundTrip(r)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		err = errors.Join(err, res.Body.Close())
	}
	return nil, errors.Join(errors.New("connection reset by peer"), err)
}

// lose500 has the request carried out and answers that the server failed.
func lose500(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	_, _ = lose(next, r)
	return answer(500, "InternalServerError", "it broke")(next, r)
}

// answer answers in the server's stead; the request is not carried out.
func answer(status int, code, message string) fault {
	return func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		rec.Header().Set("Content-Type", "application/x-amz-json-1.0")
		rec.WriteHeader(status)
		_, _ = rec.WriteString(`{"__type":"com.amazonaws.dynamodb.v20120810#` + code + `","message":"` + message + `"` + reasons(code, message) + `}`)
		res := rec.Result()
		res.Request = r
		return res, nil
	}
}

// reasons are a canceled transaction's; its message is then the code of the first.
func reasons(code, message string) string {
	if code != "TransactionCanceledException" {
		return ""
	}
	return `,"CancellationReasons":[{"Code":"` + message + `","Message":"Item size to update has exceeded the maximum allowed size"},{"Code":"None"}]`
}

var throttle = answer(400, "ProvisionedThroughputExceededException", "too fast")

// rig is a store behind a wire, and one in calm on the same table.
type rig struct {
	*testing.T
	wire        *wire
	store, calm *dynamometa.Store
}

func newRig(t *testing.T, attempts int) *rig {
	url := endpoint(t)
	w := &wire{}
	plain := client(url, nil)
	table := newTable(t, plain)
	quick := client(url, w, func(o *dynamodb.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.RateLimiter = attempts, ratelimit.None
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
		})
	})
	r := &rig{
		T: t, wire: w, store: dynamometa.New(quick, table, dynamometa.Options{Tries: 4}),
		calm: dynamometa.New(plain, table, dynamometa.Options{}),
	}
	r.must(meta.Put{Record: &meta.Head{Segment: segID, Range: queue.Ring()}, If: meta.Absent(), Version: 1})
	r.must(meta.Take{
		Subscription: subID, Segment: segID, To: 10, Create: &meta.Cursor{Subscription: subID, Segment: segID},
		Add: []meta.Claim{claimOf(1, 0, 10)},
	})
	return r
}

func claimOf(id byte, lo, hi queue.Offset) meta.Claim {
	return meta.Claim{ID: queue.ClaimID{id}, Attempt: 1, Parts: []meta.Part{{OffsetRange: meta.OffsetRange{Lo: lo, Hi: hi}, Expires: 9}}}
}

func (r *rig) must(op meta.Op) {
	r.Helper()
	if _, err := r.calm.Apply(r.Context(), op); err != nil {
		r.Fatal(err)
	}
}

var (
	topic     = &meta.Topic{ID: "topic"}
	putTopic  = meta.Put{Record: topic, If: meta.Absent(), Version: 7}
	appendOne = meta.Append{Segment: segID, Refs: []meta.Ref{refOf(1, 3)}, At: 1000}
	// appendSeq may be sent again by the client: the sequence keeps a late first copy out.
	appendSeq = meta.Append{
		Segment: segID, Refs: []meta.Ref{refOf(1, 3)}, At: 1000, Producer: &meta.Sequence{ID: "p", Number: 1},
	}
	// putEntry and another are of the delayed index.
	putEntry = meta.Put{Record: &meta.Delayed{Topic: "topic", Visible: 1000, ID: "e1", Ref: refOf(1, 1), Slots: []queue.Slot{0}}, If: meta.Absent(), Version: 8}
	another  = meta.Put{Record: &meta.Delayed{Topic: "topic", Visible: 1000, ID: "e2", Ref: refOf(2, 1), Slots: []queue.Slot{0}}, If: meta.Absent(), Version: 9}
	sealIt   = meta.Seal{Segment: segID}
	takeMore = meta.Take{Subscription: subID, Segment: segID, From: 10, To: 20, Add: []meta.Claim{claimOf(2, 10, 20)}}
	ackSome  = meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{1}, Done: []meta.OffsetRange{{Lo: 2, Hi: 5}}}
	giveBack = meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{1}, Release: []meta.Retry{{OffsetRange: meta.OffsetRange{Lo: 2, Hi: 5}}}}
)

// TestClientRetries has the client meet its own first try, whose answer was lost.
func TestClientRetries(t *testing.T) {
	for _, tc := range []struct {
		name, api string
		op        meta.Op
		check     func(res meta.Result, err error) bool
	}{
		{"put", "PutItem", putTopic, func(res meta.Result, err error) bool { return err == nil && res.Item.Version == 7 }},
		// An entry may be promoted and gone before a second copy arrives.
		{"put of a delayed entry", "PutItem", putEntry, isUnknown},
		{"put of an intent", "PutItem", meta.Put{Record: &meta.Drop{Due: 1, ID: "a", Intent: true}, If: meta.Absent(), Version: 8}, isUnknown},
		// Without a sequence, trying again is left to the caller, who marks it.
		{"append", "UpdateItem", appendOne, isUnknown},
		{"append of a producer", "UpdateItem", appendSeq, func(res meta.Result, err error) bool {
			return err == nil && res.Offset == 0 && res.Item.Record.(*meta.Head).Next == 3
		}},
		{"seal", "UpdateItem", sealIt, func(res meta.Result, err error) bool { return err == nil && res.Item.Record.(*meta.Head).Sealed }},
		{"take", "UpdateItem", takeMore, isUnknown},
		{"ack", "UpdateItem", ackSome, isUnknown},
		{"release", "UpdateItem", giveBack, isUnknown},
	} {
		for name, lost := range map[string]fault{"reset": lose, "500": lose500} {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				r := newRig(t, 3)
				r.wire.arm(tc.api, false, lost)
				if res, err := r.store.Apply(t.Context(), tc.op); !tc.check(res, err) {
					t.Errorf("ended with %+v, %v", res, err)
				}
			})
		}
	}
	t.Run("delete", func(t *testing.T) {
		r := newRig(t, 3)
		r.must(putTopic)
		r.wire.arm("DeleteItem", false, lose)
		if res, err := r.store.Apply(t.Context(), meta.Delete{Key: topic.Key(), If: meta.At(7)}); !isUnknown(res, err) {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("an append that is in is never told sealed", func(t *testing.T) {
		r := newRig(t, 3)
		r.wire.arm("UpdateItem", false, lose)
		r.wire.between = func(n int) {
			if n == 2 {
				more := appendOne
				more.Refs = []meta.Ref{refOf(2, 5)}
				r.must(more)
				r.must(sealIt)
			}
		}
		if res, err := r.store.Apply(t.Context(), appendSeq); err != nil || res.Offset != 0 {
			t.Errorf("ended with %+v, %v", res, err)
		}
	})
	t.Run("an append that may have been in and rolled is unknown", func(t *testing.T) {
		r := newRig(t, 3)
		r.wire.arm("UpdateItem", false, lose)
		r.wire.between = func(n int) {
			if n == 2 {
				r.must(meta.Trim{Segment: segID, Count: 1})
				r.must(sealIt)
			}
		}
		if res, err := r.store.Apply(t.Context(), appendSeq); !isUnknown(res, err) {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("transaction", func(t *testing.T) {
		r := newRig(t, 3)
		r.wire.arm("TransactWriteItems", false, lose)
		res, err := r.store.Transact(t.Context(), []meta.Op{putTopic, appendOne})
		if err != nil || res[1].Offset != 0 || res[1].Item.Record.(*meta.Head).Next != 3 {
			t.Errorf("ended with %+v, %v", res, err)
		}
	})
}

// TestDelayedAgain loses the answer to a put of the delayed index and promotes the entry before the client could
// send a copy, which must not bring it back.
func TestDelayedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		api string
		put func(s meta.Store) error
		// want is how it ends, 0: well.
		want queue.Kind
	}{
		"one": {"PutItem", func(s meta.Store) error {
			_, err := s.Apply(t.Context(), putEntry)
			return err
		}, queue.KindOutcomeUnknown},
		"several": {"TransactWriteItems", func(s meta.Store) error {
			_, err := s.Transact(t.Context(), []meta.Op{putEntry, another})
			return err
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 3)
			promoted := 0
			promote := func() {
				promoted++
				r.must(meta.Delete{Key: putEntry.Target(), If: meta.At(putEntry.Version)})
			}
			r.wire.arm(tc.api, false, func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				res, err := lose(next, req)
				promote()
				return res, err
			})
			if err := tc.put(r.store); tc.want == 0 && err != nil || tc.want != 0 && !queue.Is(err, tc.want) {
				t.Errorf("ended with %v", err)
			}
			if _, err := r.calm.Get(t.Context(), putEntry.Target()); !queue.Is(err, queue.KindNotFound) || promoted != 1 {
				t.Errorf("promoted %d times, and then it is there again: %v", promoted, err)
			}
		})
	}
}

func isUnknown(_ meta.Result, err error) bool { return queue.Is(err, queue.KindOutcomeUnknown) }

// TestErrorKinds has one thing go wrong, again and again, and holds the kind of the error, and that what
// is said to have changed nothing has changed nothing.
func TestErrorKinds(t *testing.T) {
	refuse := func(http.RoundTripper, *http.Request) (*http.Response, error) {
		_, err := (&http.Transport{}).RoundTrip(httptest.NewRequest(http.MethodPost, "http://127.0.0.1:1/", nil))
		return nil, err
	}
	tooLarge := answer(400, "ValidationException", "Item size to update has exceeded the maximum allowed size")
	for _, tc := range []struct {
		name  string
		fault fault
		write queue.Kind
		read  queue.Kind
	}{
		{"throttled", throttle, queue.KindThrottled, queue.KindThrottled},
		{"throttled otherwise", answer(400, "ThrottlingException", "slow"), queue.KindThrottled, queue.KindThrottled},
		{"failing", answer(500, "InternalServerError", "no"), queue.KindOutcomeUnknown, queue.KindUnavailable},
		{"unavailable", answer(503, "ServiceUnavailable", "no"), queue.KindOutcomeUnknown, queue.KindUnavailable},
		{"not speaking JSON", answer(502, "", `"<html>`), queue.KindOutcomeUnknown, queue.KindUnavailable},
		{"losing answers", lose, queue.KindOutcomeUnknown, queue.KindUnavailable},
		{"refusing connections", refuse, queue.KindUnavailable, queue.KindUnavailable},
		{"too large", tooLarge, queue.KindTooLarge, queue.KindTooLarge},
		{"too large for a request", answer(413, "", "no"), queue.KindTooLarge, queue.KindTooLarge},
		{"of another form", answer(400, "ValidationException", "what?"), queue.KindInternal, queue.KindInternal},
		{"without the table", answer(400, "ResourceNotFoundException", "no"), queue.KindUnavailable, queue.KindUnavailable},
		{"denied", answer(400, "AccessDeniedException", "no"), queue.KindUnavailable, queue.KindUnavailable},
		{"in conflict", answer(400, "TransactionConflictException", "busy"), queue.KindThrottled, queue.KindConflict},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 2)
			apply := func(op meta.Op) error { _, err := r.store.Apply(t.Context(), op); return err }
			for api, call := range map[string]func() error{
				"UpdateItem": func() error { return apply(appendOne) },
				"PutItem":    func() error { return apply(putTopic) },
				"DeleteItem": func() error { return apply(meta.Delete{Key: topic.Key()}) },
				"TransactWriteItems": func() error {
					_, err := r.store.Transact(t.Context(), []meta.Op{putTopic, appendOne})
					return err
				},
			} {
				r.wire.arm(api, true, tc.fault)
				if err := call(); !queue.Is(err, tc.write) {
					t.Errorf("%s ended with %v, want %v", api, err, tc.write)
				}
			}
			r.wire.arm("GetItem", true, tc.fault)
			if _, err := r.store.Get(t.Context(), topic.Key()); !queue.Is(err, tc.read) {
				t.Errorf("get ended with %v, want %v", err, tc.read)
			}
			r.wire.arm("Query", true, tc.fault)
			if _, err := r.store.Query(t.Context(), meta.Range{PK: "a", Limit: 1}); !queue.Is(err, tc.read) {
				t.Errorf("query ended with %v, want %v", err, tc.read)
			}
			if tc.write == queue.KindOutcomeUnknown {
				return
			}
			head, _, err := meta.Fetch[*meta.Head](t.Context(), r.calm, meta.HeadKey(segID))
			if err != nil || head.Next != 0 {
				t.Errorf("the head is %+v, %v", head, err)
			}
		})
	}
}

// TestFaultsThatPass recovers from what does not last.
func TestFaultsThatPass(t *testing.T) {
	conflict := answer(400, "TransactionConflictException", "busy")
	progress := answer(400, "TransactionInProgressException", "wait")
	canceled := answer(400, "TransactionCanceledException", "TransactionConflict")
	for name, tc := range map[string]struct {
		api    string
		faults []fault
		want   queue.Kind // 0: none
	}{
		"throttled once":                {"UpdateItem", []fault{throttle}, queue.KindInternal},
		"a conflict twice":              {"UpdateItem", []fault{conflict, conflict}, queue.KindInternal},
		"lost, then throttled for good": {"UpdateItem", []fault{lose, throttle, throttle, throttle}, queue.KindOutcomeUnknown},
		"a transaction's conflict":      {"TransactWriteItems", []fault{canceled, canceled}, queue.KindInternal},
		"a transaction throttled":       {"TransactWriteItems", []fault{answer(400, "TransactionCanceledException", "ThrottlingError")}, queue.KindThrottled},
		"a transaction too large":       {"TransactWriteItems", []fault{answer(400, "TransactionCanceledException", "ValidationError")}, queue.KindTooLarge},
		"a transaction in progress":     {"TransactWriteItems", []fault{progress, progress, progress}, queue.KindOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 3)
			r.wire.arm(tc.api, false, tc.faults...)
			var err error
			if tc.api == "UpdateItem" {
				_, err = r.store.Apply(t.Context(), appendOne)
			} else {
				_, err = r.store.Transact(t.Context(), []meta.Op{putTopic, appendOne})
			}
			if tc.want == queue.KindInternal && err != nil || tc.want != queue.KindInternal && !queue.Is(err, tc.want) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// TestPayloadLost loses the answer to a payload's put: the head is not touched, so nothing is unknown.
func TestPayloadLost(t *testing.T) {
	r := newRig(t, 1)
	r.wire.arm("PutItem", false, lose)
	a := appendOne
	a.Payload = &meta.Payload{ID: "0001", Data: []byte("x")}
	if _, err := r.store.Apply(t.Context(), a); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("ended with %v", err)
	}
	if _, err := r.store.Apply(t.Context(), a); err != nil {
		t.Errorf("the second try ended with %v", err)
	}
}

// TestGoingAway ends the caller's context at different moments.
func TestGoingAway(t *testing.T) {
	r := newRig(t, 3)
	hang := func(cancel func()) fault {
		return func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			cancel()
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.wire.arm("UpdateItem", false, hang(cancel))
	if _, err := r.store.Apply(ctx, appendOne); !queue.Is(err, queue.KindOutcomeUnknown) {
		t.Errorf("a write on its way ended with %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	r.wire.arm("GetItem", false, hang(cancel))
	if _, err := r.store.Get(ctx, topic.Key()); !queue.Is(err, queue.KindCanceled) {
		t.Errorf("a read on its way ended with %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	r.wire.arm("UpdateItem", false, func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		cancel()
		return throttle(next, req)
	})
	if _, err := r.store.Apply(ctx, appendOne); !queue.Is(err, queue.KindCanceled) {
		t.Errorf("a write that was throttled ended with %v", err)
	}
	if n := r.wire.count(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestNoCredentials sends nothing.
func TestNoCredentials(t *testing.T) {
	c := client("http://127.0.0.1:1", nil, func(o *dynamodb.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("none")
		})
	})
	s := dynamometa.New(c, "table", dynamometa.Options{})
	if _, err := s.Apply(t.Context(), putTopic); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("ended with %v", err)
	}
}
