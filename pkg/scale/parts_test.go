package scale_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Calls that come to their segments in several appends, of which a change lets some through.

// silent gives no answer for one segment's head, and carries nothing out.
type silent struct {
	meta.Store
	segment queue.SegmentID
}

func (s *silent) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	if key == meta.HeadKey(s.segment) {
		return meta.Item{}, &queue.Error{Op: "test", Kind: queue.KindUnavailable}
	}
	return s.Store.Get(ctx, key)
}

func (s *silent) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if op.Target() == meta.HeadKey(s.segment) {
		return meta.Result{}, &queue.Error{Op: "test", Kind: queue.KindOutcomeUnknown}
	}
	return s.Store.Apply(ctx, op)
}

// TestPartFailsAsSegmentsMerge: of a call to three segments one part gets no answer, and the others find
// their segments merged. The retry, which sends all of it to one segment, comes through, and nothing is
// there twice.
func TestPartFailsAsSegmentsMerge(t *testing.T) {
	for _, guard := range []produce.Guard{
		{ProducerID: "p", Sequence: 7}, {IdempotencyKey: "k", BodyHash: "h"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, true, topics.Config{})
			hush := &silent{s.store.Store, s.other.load("t").Open[1].ID}
			s.store.Store = hush
			s.store.change()
			if _, err := s.trySend(t.Context(), "t", guard, keys("k", 12)...); err == nil {
				t.Fatal("no error, though a part has no answer")
			}
			hush.segment = ""
			s.now = s.now.Add(queue.CommitTimeout + time.Second)
			ids := s.send("t", guard, keys("k", 12)...)
			s.owned(ids, 12)
			if n := s.other.messages("t"); n != 12 {
				t.Errorf("%+v: %d messages, want 12", guard, n)
			}
			s.now = s.now.Add(queue.CommitTimeout + time.Second)
			if again := s.send("t", guard, keys("k", 12)...); !slices.Equal(again, ids) {
				t.Errorf("%+v: the retry answers %v, not %v", guard, again, ids)
			}
		})
	}
}

// TestSplitBetweenAppendsOfACall: a call of more refs than one append takes finds its segment split before
// its second append. A retry knows both again, also when they have left the tails.
func TestSplitBetweenAppendsOfACall(t *testing.T) {
	const n = queue.MaxCommitRefs + 8
	for _, guard := range []produce.Guard{
		{ProducerID: "p", Sequence: 7}, {IdempotencyKey: "k", BodyHash: "h"},
	} {
		for at := 1; ; at++ {
			done := false
			synctest.Test(t, func(t *testing.T) { done = splitAtCall(t, guard, n, at) })
			if done {
				break
			}
		}
	}
}

// splitAtCall makes the call with a split at its at-th store call; true if it makes no such call.
func splitAtCall(t *testing.T, guard produce.Guard, n, at int) bool {
	s := newStage(t, false, topics.Config{})
	clock := queue.Clock(func() time.Time { return s.now })
	bodies := memblob.New(t, clock, memblob.Options{})
	p := produce.New(produce.Deps{
		Meta: s.store, Blob: bodies, Log: s.log, Topics: s.topics, Hub: notify.NewHub(), IDs: s.ids, Clock: clock,
	})
	req := produce.ReferencesRequest{Topic: "t", Guard: guard}
	for i := range n {
		object := fmt.Sprintf("%s%s/%016d", blob.PrefixUploads, s.other.load("t").ID(), i)
		if _, err := bodies.Put(t.Context(), object, bytes.NewReader([]byte("x")), blob.Terms{Size: 1}); err != nil {
			t.Fatal(err)
		}
		req.References = append(req.References, produce.Reference{Object: object, Key: []byte("one key")})
	}
	submit := func() []queue.MessageID {
		answer, err := p.References(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var ids []queue.MessageID
		for _, run := range answer.Runs {
			if run.Err != nil {
				t.Fatalf("change at call %d: %v", at, run.Err)
			}
			for i := range run.Count {
				ids = append(ids, queue.MessageID{Segment: run.ID.Segment, Offset: run.ID.Offset + queue.Offset(i)})
			}
		}
		return ids
	}
	s.store.calls, s.store.at, s.store.mishap = 0, at, justTheChange
	first := submit()
	if s.store.calls < at {
		return true
	}
	if !changesOnlyOnce(first) {
		t.Errorf("change at call %d: the messages of one key are at %v", at, first)
	}
	const more = 3 * queue.RollRefs
	for range more {
		s.send("t", produce.Guard{}, "one key")
	}
	s.now = s.now.Add(queue.CommitTimeout + time.Second)
	if guard.ProducerID == "" {
		// The answer is not there any more, as if the process had died before it put it.
		s.forgetAnswer(guard)
	}
	if again := submit(); !slices.Equal(again, first) {
		t.Errorf("change at call %d: the retry answers\n%v, not\n%v", at, again, first)
	}
	if total := s.other.messages("t"); total != uint64(n+more) {
		t.Errorf("change at call %d: %d messages, want %d", at, total, n+more)
	}
	return false
}

// changesOnlyOnce reports whether ids ascend within a segment, and then within another.
func changesOnlyOnce(ids []queue.MessageID) bool {
	changes := 0
	for i := 1; i < len(ids); i++ {
		switch {
		case ids[i].Segment != ids[i-1].Segment:
			changes++
		case ids[i].Offset <= ids[i-1].Offset:
			return false
		}
	}
	return changes <= 1
}

// forgetAnswer takes the answer out of the record of an Idempotency-Key.
func (s *stage) forgetAnswer(g produce.Guard) {
	s.t.Helper()
	sum := sha256.Sum256([]byte(g.IdempotencyKey))
	key := meta.AttemptKey(s.other.load("t").ID(), "k-"+hex.EncodeToString(sum[:]))
	a, _, err := meta.Fetch[*meta.Attempt](s.t.Context(), s.other.store, key)
	if err != nil {
		s.t.Fatal(err)
	}
	less := *a
	less.Answer = nil
	if _, err := s.other.store.Apply(s.t.Context(), meta.Put{Record: &less, Version: meta.NewVersion(s.ids)}); err != nil {
		s.t.Fatal(err)
	}
}
