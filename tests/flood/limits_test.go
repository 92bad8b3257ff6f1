package flood_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/later"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// afterwards runs what a process leaves for later, until the test's end at the latest.
func afterwards(t *testing.T) func(func()) {
	work := new(later.Work)
	t.Cleanup(func() {
		if err := work.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return work.Go
}

// over assembles a process on a strict store.
func over(t *testing.T, store meta.Store) *assembly.System {
	return assembly.New(assembly.Deps{
		Meta: store, Blob: memblob.New(t, time.Now, memblob.Options{}), IDs: newIDs(7), Later: afterwards(t),
	})
}

// TestThroughputIsProportional: the commits that a topic takes grow with its segments, at least 0.9 times as
// fast: writers ask for more than the store allows on each head. From 1 to 64 segments; with
// SPILLWAY_FLOOD=full to 256.
func TestThroughputIsProportional(t *testing.T) {
	one := 0.0
	counts := []int{1, 16, 64}
	if os.Getenv("SPILLWAY_FLOOD") == "full" {
		counts = append(counts, 256)
	}
	for _, n := range counts {
		// One segment takes some 150 commits in the time: the mean of many such runs tells what one takes.
		rate, runs := 0.0, max(1, 128/n)
		for i := range runs {
			synctest.Test(t, func(t *testing.T) { rate += commits(t, n, uint64(n+1000*i)) / float64(runs) }) // #nosec G115 -- small
		}
		if n == 1 {
			one = rate
		}
		t.Logf("%3d segments: %6.0f commits/s, %.2f times what one takes for each", n, rate, rate/one/float64(n))
		if rate < 0.9*one*float64(n) {
			t.Errorf("%d segments take %.0f commits/s, one takes %.0f", n, rate, one)
		}
	}
}

// commits is the rate at which a topic of n segments takes commits of one message.
func commits(t *testing.T, n int, seed uint64) float64 {
	const (
		limit   = 100 // write units: a tenth of DynamoDB's, for fewer commits to simulate
		writers = 2   // for each segment: one alone does not ask for more than it can serve
		settle  = 3 * time.Second
		measure = 6 * time.Second
	)
	store := newStrict(t, limit, seed)
	if _, _, err := over(t, store.Store).Topics.Create(t.Context(), topic, topics.Config{MinSegments: n, MaxSegments: n}); err != nil {
		t.Fatal(err)
	}
	sys := over(t, store)
	m, err := sys.Topics.Open(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[queue.SegmentID]string)
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprintf("key %d", i)
		keys[m.Route(queue.SlotOf([]byte(key))).ID] = key
	}
	var done atomic.Int64
	var work sync.WaitGroup
	end := time.Now().Add(settle + measure)
	for i := range n * writers {
		key := []byte(keys[m.Open[i%n].ID])
		work.Go(func() {
			for time.Now().Before(end) {
				req := produce.Request{Topic: topic, Messages: []produce.Message{{Key: key, Body: binary.BigEndian.AppendUint64(nil, 0)}}}
				answer, err := sys.Produce.Produce(context.Background(), req)
				if err == nil && answer.Runs[0].Err == nil {
					done.Add(1)
				}
			}
		})
	}
	time.Sleep(settle)
	before := done.Load()
	time.Sleep(measure)
	after := done.Load()
	work.Wait()
	return float64(after-before) / measure.Seconds()
}

// TestLeaderOfManySegments: a run over a topic of 5,000 segments takes the leader less than 10 s.
func TestLeaderOfManySegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStrict(t, 1000, 3)
		bare := over(t, store.Store)
		if _, _, err := bare.Topics.Create(t.Context(), topic, topics.Config{MinSegments: queue.MaxSegments}); err != nil {
			t.Fatal(err)
		}
		m, err := bare.Topics.Open(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		bare.Topics.Alert(t.Context(), m, false)
		sys := over(t, store)
		for range 3 {
			time.Sleep(time.Minute)
			began, calls := time.Now(), store.Counts().Requests
			rep, err := sys.Scale.Run(t.Context())
			if err != nil || rep.Watched != 1 {
				t.Fatalf("%+v, %v", rep, err)
			}
			took := time.Since(began)
			t.Logf("a run over %d segments: %v, %d calls", queue.MaxSegments, took.Round(time.Millisecond), store.Counts().Requests-calls)
			if took > 10*time.Second {
				t.Errorf("a run took %v", took)
			}
		}
	})
}
