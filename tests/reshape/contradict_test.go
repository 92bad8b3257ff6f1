package reshape

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const contested = "contested"

// TestContradictions makes changes that cannot all be: of the same segments at once, and of a topic that goes.
func TestContradictions(t *testing.T) {
	s := newServer(t)
	s.Start()
	t.Run("same segments", func(t *testing.T) { changeTheSame(t, s.client(1)) })
	t.Run("deleted topic", func(t *testing.T) { deleteUnderSplits(t, s.client(1)) })
}

// changeTheSame: of many who would change the same segments at once one does, others are told why not, and
// the ring is whole.
func changeTheSame(t *testing.T, c *client.Client) {
	if _, err := c.CreateTopic(t.Context(), contested, client.TopicConfig{Scaling: &client.Scaling{MinSegments: client.Of(4), MaxSegments: client.Of(9)}}); err != nil {
		t.Fatal(err)
	}
	for round := range 10 {
		open, err := openSegments(t.Context(), c, contested)
		if err != nil {
			t.Fatal(err)
		}
		var ids []queue.SegmentID
		for _, seg := range open {
			ids = append(ids, seg.ID)
		}
		n := len(ids)
		var changes []func() (*client.SegmentChange, error)
		merge := func(ids []queue.SegmentID) {
			changes = append(changes, func() (*client.SegmentChange, error) {
				return c.Merge(t.Context(), contested, ids, client.MergeOptions{})
			})
		}
		for i := range n - 1 {
			merge(ids[i : i+2])
			changes = append(changes, func() (*client.SegmentChange, error) {
				return c.Split(t.Context(), contested, ids[i], client.SplitOptions{Into: 2 + round%3})
			})
		}
		merge(ids)
		all := allAtOnce(t, changes)
		after, err := openSegments(t.Context(), c, contested)
		if err != nil {
			t.Fatal(err)
		}
		if err := tiles(after); err != nil {
			t.Fatal(err)
		}
		seen := map[queue.SegmentID]bool{}
		for _, made := range all {
			for _, id := range made.Segments {
				if seen[id] {
					t.Errorf("round %d: two changes say that they replaced %s", round, id)
				}
				seen[id] = true
			}
			n += len(made.Made) - len(made.Segments)
		}
		if n != len(after) || n < 4 || n > 9 {
			t.Errorf("round %d: %d segments, by the answers %d", round, len(after), n)
		}
		if len(all) == 0 {
			t.Errorf("round %d: nobody changed anything", round)
		}
	}
}

// allAtOnce makes changes at once and gives those that were made; the rest must be refused with a reason that
// says so.
func allAtOnce(t *testing.T, changes []func() (*client.SegmentChange, error)) []*client.SegmentChange {
	t.Helper()
	var mu sync.Mutex
	var made []*client.SegmentChange
	var wg sync.WaitGroup
	for _, change := range changes {
		wg.Go(func() {
			m, err := change()
			var api *client.APIError
			switch {
			case err == nil:
				mu.Lock()
				made = append(made, m)
				mu.Unlock()
			case !errors.As(err, &api) || !slices.Contains(mayRefuse, api.Code):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return made
}

// deleteUnderSplits deletes topics under splits, producers and a seek. A name that is made anew has
// nothing of the old one, and the deleted topic's calls are told that it is gone.
func deleteUnderSplits(t *testing.T, c *client.Client) {
	gone := []error{client.ErrTopicNotFound, client.ErrTopicSealed, client.ErrSubscriptionNotFound, client.ErrSegmentSealed, client.ErrSegmentNotFound, client.CodeError(queue.CodeConflict), client.ErrSegmentBounds}
	var unexpected atomic.Int32
	check := func(what string, err error) {
		if err != nil && !slices.ContainsFunc(gone, func(g error) bool { return errors.Is(err, g) }) && unexpected.Add(1) < 10 {
			t.Errorf("%s: %v", what, err)
		}
	}
	for round := range 8 {
		if _, err := c.CreateTopic(t.Context(), work, client.TopicConfig{}); err != nil {
			t.Fatal(err)
		}
		if open, err := openSegments(t.Context(), c, work); err != nil || len(open) != 1 || open[0].NextOffset != 0 {
			t.Fatalf("round %d: a new topic has %+v, %v", round, open, err)
		}
		if _, err := c.CreateSubscription(t.Context(), work, "sub", client.SubscriptionConfig{Ordering: client.Of(client.OrderingKey)}); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		calls := []func(n int){
			func(n int) {
				open, err := openSegments(t.Context(), c, work)
				check("list", err)
				for _, seg := range open {
					_, err := c.Split(t.Context(), work, seg.ID, client.SplitOptions{Into: 3})
					check("split", err)
				}
			},
			func(n int) {
				m := []client.Message{{Key: fmt.Append(nil, n), Body: []byte("x")}}
				_, err := c.Produce(t.Context(), work, m, client.Guard{ProducerID: "p", Sequence: uint64(n) + 1})
				check("produce", err)
			},
			func(n int) { check("seek", c.Seek(t.Context(), work, "sub", client.Position{Word: client.Earliest})) },
			func(n int) {
				_, err := c.CreateSubscription(t.Context(), work, fmt.Sprint("other", n), client.SubscriptionConfig{Start: &client.Position{Word: client.Latest}})
				check("create subscription", err)
			},
			func(n int) {
				_, err := c.Claim(t.Context(), work, "sub", client.ClaimOptions{MaxMessages: 5})
				check("claim", err)
			},
		}
		for _, f := range calls {
			wg.Go(func() {
				for n := 0; !closed(stop) && n < 1000; n++ {
					f(n)
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(time.Duration(20+15*round) * time.Millisecond)
		check("delete", c.DeleteTopic(t.Context(), work))
		close(stop)
		wg.Wait()
		// One may have been half-way when the topic went.
		if _, err := c.GetTopic(t.Context(), work); !errors.Is(err, client.ErrTopicNotFound) {
			t.Errorf("round %d: after the delete: %v", round, err)
		}
	}
}
