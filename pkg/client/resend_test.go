package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/blob/signedurl"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// door is a whole server without a network. Of the produce call that it is armed for it fails the first
// try, and holds the second one until it is let in.
type door struct {
	handler http.Handler
	// fail carries out the first try, or does not, and gives what the client sees of it.
	fail func(send func() *http.Response) (*http.Response, error)

	armed  atomic.Bool
	tries  atomic.Int64
	failed chan struct{} // closed after the first try
	again  chan struct{} // closed when the second one is at the door
	letIn  chan struct{}
}

func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	in := httptest.NewRequest(r.Method, r.URL.String(), bytes.NewReader(body)).WithContext(r.Context())
	in.Header = r.Header.Clone()
	send := func() *http.Response {
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, in)
		return w.Result()
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/messages") || !d.armed.Load() {
		return send(), nil
	}
	switch d.tries.Add(1) {
	case 1:
		defer close(d.failed)
		return d.fail(send)
	case 2:
		close(d.again)
		select {
		case <-d.letIn:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return send(), nil
}

// refusing is a store that refuses, while it is told to, commits to one segment.
type refusing struct {
	meta.Store
	segment atomic.Pointer[queue.SegmentID]
}

func (s *refusing) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if id := s.segment.Load(); id != nil && op.Target() == meta.HeadKey(*id) {
		return meta.Result{}, &queue.Error{Op: "apply", Kind: queue.KindThrottled}
	}
	return s.Store.Apply(ctx, op)
}

// TestFlushWaitsForTheResend: a call fails in one of the ways in which it can, the segments that it was for
// are split or merged, and only then is it made again. Flush must not come back before that second call has
// its answer: others' clients took a sealed segment's calls off their list, and let Flush go, before they had
// sent them to its successors. And when it comes back, each message is stored once, in its key's order, under
// the id of its result.
func TestFlushWaitsForTheResend(t *testing.T) {
	t.Parallel()
	const total, keys = 120, 10
	answer := func(status int, code queue.Code) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"error":{"code":%q,"message":"scripted","retryable":true}}`, code)
		return w.Result(), nil
	}
	lost := errors.New("connection reset")
	for name, how := range map[string]struct {
		// stored is how many of the messages the first try stores; -1 for some.
		stored int
		fail   func(refuse func(bool), send func() *http.Response) (*http.Response, error)
	}{
		"lost on its way": {0, func(func(bool), func() *http.Response) (*http.Response, error) { return nil, lost }},
		"answer lost": {total, func(_ func(bool), send func() *http.Response) (*http.Response, error) {
			_ = send().Body.Close()
			return nil, lost
		}},
		"throttled": {0, func(func(bool), func() *http.Response) (*http.Response, error) {
			return answer(429, queue.CodeThrottled)
		}},
		"unavailable": {0, func(func(bool), func() *http.Response) (*http.Response, error) {
			return answer(503, queue.CodeUnavailable)
		}},
		"outcome unknown": {total, func(_ func(bool), send func() *http.Response) (*http.Response, error) {
			_ = send().Body.Close()
			return answer(503, queue.CodeOutcomeUnknown)
		}},
		"one segment refuses": {-1, func(refuse func(bool), send func() *http.Response) (*http.Response, error) {
			refuse(true)
			defer refuse(false)
			return send(), nil
		}},
	} {
		for guard, warm := range map[string]int{"first call": 0, "with a sequence": 1} {
			for change, apply := range map[string]func(*testing.T, *client.Client){"split": splitAll, "merge": mergeAll} {
				t.Run(name+"/"+guard+"/"+change, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						d, store, c := newDoor(t)
						var second queue.SegmentID
						for s, err := range c.OpenSegments(t.Context(), "orders") {
							if err != nil {
								t.Fatal(err)
							}
							second = s.ID
						}
						d.fail = func(send func() *http.Response) (*http.Response, error) {
							return how.fail(func(on bool) {
								if store.segment.Store(nil); on {
									store.segment.Store(&second)
								}
							}, send)
						}
						p, err := client.NewProducer(c, "orders", client.ProducerOptions{Lanes: 1})
						if err != nil {
							t.Fatal(err)
						}
						for range warm { // a lane's first call goes under an Idempotency-Key
							if _, err := p.SendSync(t.Context(), client.Message{Key: []byte("warm"), Body: []byte("0")}); err != nil {
								t.Fatal(err)
							}
						}
						d.armed.Store(true)
						futures := make([]*client.Future, total)
						for i := range futures {
							futures[i], err = p.Send(t.Context(), client.Message{Key: fmt.Appendf(nil, "key-%d", i%keys), Body: []byte(strconv.Itoa(i))})
							if err != nil {
								t.Fatal(err)
							}
						}
						flushed := make(chan error, 1)
						go func() { flushed <- p.Flush(t.Context()) }()
						<-d.failed
						apply(t, c)
						<-d.again
						time.Sleep(10 * time.Second)
						synctest.Wait()
						select {
						case err := <-flushed:
							t.Fatalf("Flush came back before the call was made again: %v", err)
						default:
						}
						before := len(storedAt(t, c)) - warm
						if how.stored >= 0 && before != how.stored || how.stored < 0 && (before == 0 || before == total) {
							t.Fatalf("%d messages are stored before the second try, want %d", before, how.stored)
						}
						close(d.letIn)
						if err := <-flushed; err != nil {
							t.Fatal(err)
						}
						stored := storedAt(t, c)
						if len(stored) != total+warm {
							t.Errorf("%d messages are stored after Flush, want %d", len(stored), total+warm)
						}
						last := map[queue.SegmentID]map[int]queue.Offset{}
						for i, f := range futures {
							r, ok := f.Result()
							if !ok || r.Err != nil || stored[r.ID] != strconv.Itoa(i) {
								t.Fatalf("message %d after Flush: ready %v, %v, and %s holds %q", i, ok, r.Err, r.ID, stored[r.ID])
							}
							in := last[r.ID.Segment]
							if in == nil {
								in = map[int]queue.Offset{}
								last[r.ID.Segment] = in
							}
							if before, ok := in[i%keys]; ok && before >= r.ID.Offset {
								t.Errorf("message %d is before an earlier one of its key", i)
							}
							in[i%keys] = r.ID.Offset
						}
						if err := p.Close(t.Context()); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

func newDoor(t *testing.T) (*door, *refusing, *client.Client) {
	store := &refusing{Store: memmeta.New(t)}
	system := assembly.New(assembly.Deps{
		Meta: store, Blob: memblob.New(t, time.Now, memblob.Options{}), Presigner: signedurl.NewSigner([signedurl.KeyBytes]byte{1}),
	})
	d := &door{
		handler: system.Handler(httpapi.Deps{}),
		failed:  make(chan struct{}), again: make(chan struct{}), letIn: make(chan struct{}),
	}
	c, err := client.New("http://queue.test", client.Options{HTTPClient: &http.Client{Transport: d}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CreateTopic(t.Context(), "orders", client.TopicConfig{Scaling: &client.Scaling{MinSegments: client.Of(2)}})
	if err != nil {
		t.Fatal(err)
	}
	// So that the two can be merged.
	if _, err := c.UpdateTopic(t.Context(), "orders", client.TopicPatch{Scaling: &client.Scaling{MinSegments: client.Of(1)}}); err != nil {
		t.Fatal(err)
	}
	return d, store, c
}

func openIDs(t *testing.T, c *client.Client) (ids []queue.SegmentID) {
	t.Helper()
	for s, err := range c.OpenSegments(t.Context(), "orders") {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	return ids
}

func splitAll(t *testing.T, c *client.Client) {
	t.Helper()
	for _, id := range openIDs(t, c) {
		if made, err := c.Split(t.Context(), "orders", id, client.SplitOptions{Into: 3}); err != nil || len(made.Made) < 2 {
			t.Fatalf("%+v, %v", made, err)
		}
	}
}

func mergeAll(t *testing.T, c *client.Client) {
	t.Helper()
	if made, err := c.Merge(t.Context(), "orders", openIDs(t, c), client.MergeOptions{}); err != nil || len(made.Made) != 1 {
		t.Fatalf("%+v, %v", made, err)
	}
}

// storedAt reads all that the topic holds.
func storedAt(t *testing.T, c *client.Client) map[client.MessageID]string {
	t.Helper()
	out := map[client.MessageID]string{}
	for s, err := range c.Segments(t.Context(), "orders") {
		if err != nil {
			t.Fatal(err)
		}
		for at := s.FirstOffset; at < s.NextOffset; {
			page, err := c.ReadRecords(t.Context(), "orders", client.RecordsOptions{Segment: s.ID, Offset: at, Limit: queue.MaxPageSize})
			if err != nil || page.NextOffset <= at {
				t.Fatalf("segment %s at %d: %v", s.ID, at, err)
			}
			for _, m := range page.Messages {
				out[m.ID] = string(m.Body)
			}
			at = page.NextOffset
		}
	}
	return out
}
