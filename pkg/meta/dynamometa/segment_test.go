package dynamometa_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// weather loses answers, fails and throttles at random.
type weather struct {
	mu   sync.Mutex // guards rand
	rand *rand.Rand
}

func (w *weather) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	n := w.rand.IntN(100)
	w.mu.Unlock()
	switch {
	case n < 8:
		return lose(http.DefaultTransport, r)
	case n < 12:
		return lose500(http.DefaultTransport, r)
	case n < 18:
		return throttle(http.DefaultTransport, r)
	case n < 22:
		return answer(500, "InternalServerError", "no")(http.DefaultTransport, r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestSegmentInBadWeather commits to one segment from several writers, rolls included, while a fifth of
// all requests go wrong: every commit is in the segment once.
func TestSegmentInBadWeather(t *testing.T) {
	url := endpoint(t)
	plain := client(url, nil)
	table := newTable(t, plain)
	c := client(url, &weather{rand: rand.New(rand.NewPCG(1, 2))}, func(o *dynamodb.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.RateLimiter = 2, ratelimit.None
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
		})
	})
	store := dynamometa.New(c, table, dynamometa.Options{})
	calm := dynamometa.New(plain, table, dynamometa.Options{})
	desc := &meta.Segment{ID: segID, Range: queue.Ring(), Epoch: 1}
	if _, err := calm.Apply(t.Context(), meta.Put{Record: &meta.Head{Segment: segID, Epoch: 1, Range: queue.Ring()}, Version: 1}); err != nil {
		t.Fatal(err)
	}
	const writers, each = 6, 30
	var wg sync.WaitGroup
	for i := range writers {
		log := newLog(t, store)
		wg.Go(func() {
			for n := range each {
				commitUntilDone(t, log, desc, uint64(i*each+n))
			}
		})
	}
	wg.Wait()
	log := newLog(t, calm)
	head, err := log.Head(t.Context(), segID)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[meta.RefID]bool)
	next := queue.Offset(0)
	for loc, err := range log.Refs(t.Context(), head, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if loc.Offset != next || seen[loc.Ref.ID] {
			t.Errorf("ref %x stands at %d, after [.., %d); seen before: %v", loc.Ref.ID, loc.Offset, next, seen[loc.Ref.ID])
		}
		seen[loc.Ref.ID], next = true, loc.End()
	}
	if len(seen) != writers*each || head.Next != next {
		t.Errorf("the segment holds %d commits of %d, up to %d of %d", len(seen), writers*each, next, head.Next)
	}
}

func newLog(t *testing.T, store meta.Store) *segment.Log {
	t.Helper()
	return segment.New(segment.Deps{Meta: store, Blob: memblob.New(t, time.Now, memblob.Options{}), IDs: queue.NewIDs(nil), Clock: time.Now})
}

func commitUntilDone(t *testing.T, log *segment.Log, desc *meta.Segment, n uint64) {
	t.Helper()
	at := queue.MillisOf(time.Now())
	c := segment.Commit{Segment: desc, At: at, Deadline: at.Add(queue.CommitTimeout), Refs: []meta.Ref{{
		Kind: meta.RefBatch, Object: fmt.Sprintf("batches/%d", n), Len: 1, Count: uint32(n%3 + 1), Created: at, Bytes: 5,
	}}}
	binary.BigEndian.PutUint64(c.Refs[0].ID[:], n+1)
	for range 100 {
		_, err := log.Append(t.Context(), c)
		if err == nil {
			return
		}
		if !queue.Retryable(err) {
			t.Errorf("commit %d: %v", n, err)
			return
		}
		c.Again = true
	}
	t.Errorf("commit %d was never done", n)
}
