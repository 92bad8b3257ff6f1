package metatest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// parallel runs fn n times at once and reports its errors.
func parallel(t *testing.T, n int, fn func(ctx context.Context, i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			if err := fn(t.Context(), i); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
}

// testRollRace rolls one head 16 times at once, again and again: exactly one wins, and every ref is in
// exactly one place afterwards.
func testRollRace(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead()))
	const rolls, refsEach = 10, 32
	for roll := range uint64(rolls) {
		s.must(appendOf(refs(roll*refsEach, refsEach)...))
		head := s.head(segID)
		var won atomic.Int32
		parallel(t, 16, func(ctx context.Context, i int) error {
			_, err := s.Transact(ctx, []meta.Op{
				meta.Put{
					Record: &meta.RefPage{Segment: segID, First: head.TailFirst, Refs: head.Tail}, If: meta.Absent(),
					Version: meta.Version(i + 1),
				},
				meta.Trim{Segment: segID, First: head.TailFirst, Count: len(head.Tail)},
			})
			if r, ok := meta.AsRefused(err); ok {
				if r.Index != 0 || r.Reason != meta.ReasonExists {
					return err
				}
				return nil
			}
			won.Add(1)
			return err
		})
		if won.Load() != 1 {
			t.Fatalf("%d rolls won", won.Load())
		}
	}
	var next queue.Offset
	page, err := s.Query(t.Context(), meta.PagesFrom(segID, 0, 100))
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range page.Items {
		p := item.Record.(*meta.RefPage)
		if p.First != next {
			t.Errorf("a page starts at %d, want %d", p.First, next)
		}
		next = p.Next()
	}
	if head := s.head(segID); head.TailFirst != next || next != rolls*refsEach {
		t.Errorf("pages end at %d, the tail starts at %d", next, head.TailFirst)
	}
}

// testAppendRace has 64 appenders on one head: no two conflict, and offsets are dense and unique.
func testAppendRace(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead()))
	offsets := make([]queue.Offset, 64)
	parallel(t, len(offsets), func(ctx context.Context, i int) error {
		res, err := s.Apply(ctx, appendOf(ref(uint64(i), 3)))
		offsets[i] = res.Offset
		return err
	})
	head := s.head(segID)
	seen := make(map[queue.Offset]bool)
	for i, off := range offsets {
		if off%3 != 0 || off >= 3*64 || seen[off] {
			t.Errorf("offset %d of append %d is out of place", off, i)
		}
		seen[off] = true
		if at, _, ok := head.Find(ref(uint64(i), 3).ID, 0); !ok || at != off {
			t.Errorf("append %d was answered %d and stands at %d", i, off, at)
		}
	}
}

// claimAll claims fresh messages in runs of 3 until there are no more, and tells each.
func claimAll(ctx context.Context, s meta.Store, worker int, end queue.Offset, got func(meta.Claim)) error {
	for n := byte(0); ; {
		c, _, err := meta.Fetch[*meta.Cursor](ctx, s, meta.CursorKey(subID, segID))
		if err != nil || c.Next >= end {
			return err
		}
		op := take(0, c.Next, min(c.Next+3, end))
		op.Add[0].ID = queue.ClaimID{byte(worker), n, 1}
		_, err = s.Apply(ctx, op)
		if meta.IsRefused(err, meta.ReasonNext) {
			continue
		}
		if err != nil {
			return err
		}
		got(op.Add[0])
		n++
	}
}

func putCursor(s store) {
	s.t.Helper()
	s.must(meta.Put{Record: &meta.Cursor{Subscription: subID, Segment: segID}, If: meta.Absent(), Version: 1})
}

// testClaimRace has 8 claimers: each offset ends in exactly one claim.
func testClaimRace(t *testing.T, h Harness) {
	s := open(t, h)
	putCursor(s)
	const end = 300
	var mu sync.Mutex
	owner := make(map[queue.Offset]queue.ClaimID)
	parallel(t, 8, func(ctx context.Context, i int) error {
		return claimAll(ctx, s.Store, i, end, func(c meta.Claim) {
			mu.Lock()
			defer mu.Unlock()
			for off := c.Parts[0].Lo; off < c.Parts[0].Hi; off++ {
				if was, ok := owner[off]; ok {
					t.Errorf("offset %d is in claims %v and %v", off, was, c.ID)
				}
				owner[off] = c.ID
			}
		})
	})
	if c := s.cursor(); len(owner) != end || c.InFlight() != end {
		t.Errorf("%d offsets were claimed, %d are in flight", len(owner), c.InFlight())
	}
}

// testSettleRace has 8 consumers that claim and ack at once: no settle of a live claim is refused, and
// in the end all is done.
func testSettleRace(t *testing.T, h Harness) {
	s := open(t, h)
	putCursor(s)
	const end = 240
	parallel(t, 8, func(ctx context.Context, i int) error {
		var failed error
		err := claimAll(ctx, s.Store, i, end, func(c meta.Claim) {
			st := settle(0)
			st.Claim, st.All, st.Done = c.ID, true, []meta.OffsetRange{c.Parts[0].OffsetRange}
			if _, err := s.Apply(ctx, st); err != nil {
				failed = err
			}
		})
		if failed != nil {
			return failed
		}
		return err
	})
	if c := s.cursor(); c.Floor != end || c.Entries() != 0 {
		t.Errorf("the cursor is %+v", c)
	}
}

// testCounterRace increments one record by compare-and-swap.
func testCounterRace(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(meta.Put{Record: &meta.Topic{ID: topID}, Version: 1})
	const workers, each = 8, 20
	var version atomic.Uint64
	version.Store(1)
	parallel(t, workers, func(ctx context.Context, _ int) error {
		for done := 0; done < each; {
			topic, at, err := meta.Fetch[*meta.Topic](ctx, s.Store, meta.TopicKey(topID))
			if err != nil {
				return err
			}
			_, err = s.Apply(ctx, meta.Put{
				Record: &meta.Topic{ID: topID, Epoch: topic.Epoch + 1}, If: meta.At(at), Version: meta.Version(version.Add(1)),
			})
			switch {
			case err == nil:
				done++
			case !meta.IsRefused(err, meta.ReasonVersion):
				return err
			}
		}
		return nil
	})
	if topic := s.find(meta.TopicKey(topID)).Record.(*meta.Topic); topic.Epoch != workers*each {
		t.Errorf("the counter is %d", topic.Epoch)
	}
}

// testReadYourWrites reads after each acknowledged write while others write, and holds that a query
// never shows a state that a later get takes back.
func testReadYourWrites(t *testing.T, h Harness) {
	s := open(t, h)
	for i := range 8 {
		s.must(meta.Put{Record: &meta.Head{Segment: queue.SegmentID(rune('a' + i)), Range: queue.Ring()}, Version: 1})
	}
	parallel(t, 8, func(ctx context.Context, i int) error {
		seg := queue.SegmentID(rune('a' + i))
		for n := range uint64(30) {
			if _, err := s.Apply(ctx, meta.Append{Segment: seg, Refs: []meta.Ref{ref(n, 1)}, At: 1}); err != nil {
				return err
			}
			page, err := s.Query(ctx, meta.Range{PK: meta.HeadPK(seg), Limit: 1})
			if err != nil {
				return err
			}
			seen := page.Items[0].Record.(*meta.Head).Next
			head, _, err := meta.Fetch[*meta.Head](ctx, s.Store, meta.HeadKey(seg))
			if err != nil {
				return err
			}
			if seen != queue.Offset(n)+1 || head.Next != seen {
				t.Errorf("after append %d a query shows next %d, a get %d", n, seen, head.Next)
			}
			other := queue.SegmentID(rune('a' + (i+1)%8))
			page, err = s.Query(ctx, meta.Range{PK: meta.HeadPK(other), Limit: 1})
			if err != nil {
				return err
			}
			head, _, err = meta.Fetch[*meta.Head](ctx, s.Store, meta.HeadKey(other))
			if err != nil {
				return err
			}
			if was := page.Items[0].Record.(*meta.Head).Next; head.Next < was {
				t.Errorf("a get shows next %d after a query had shown %d", head.Next, was)
			}
		}
		return nil
	})
}
