package scale_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// mishap is what happens to one store call, beside a change of the topic's segments at that moment.
type mishap string

const (
	justTheChange mishap = "nothing"
	changeFails   mishap = "it fails"
	answerLost    mishap = "carried out before the change, answer lost"
	arrivesLater  mishap = "no answer, arrives at the end"
)

// interrupted lets the segments change at the n-th call.
type interrupted struct {
	meta.Store
	at     int
	mishap mishap
	change func()
	later  []func() // set by the one call that has the mishap

	mu    sync.Mutex // guards calls: a call commits to several segments at once
	calls int
}

// isIt counts a call, and says whether it is the one.
func (s *interrupted) isIt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.calls == s.at
}

// turn does what is due before or around a call; done means that it has no answer of its own.
func (s *interrupted) turn(write bool, do func() error) error {
	if !s.isIt() {
		return nil
	}
	unknown := &queue.Error{Op: "test", Kind: queue.KindUnavailable}
	if write {
		unknown.Kind = queue.KindOutcomeUnknown
	}
	switch s.mishap {
	case changeFails:
		s.change()
		return &queue.Error{Op: "test", Kind: queue.KindUnavailable}
	case answerLost:
		_ = do() // whatever it says is lost
		s.change()
		return unknown
	case arrivesLater:
		s.change()
		if write {
			s.later = append(s.later, func() { _ = do() })
		}
		return unknown
	default:
		s.change()
		return nil
	}
}

func (s *interrupted) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	if err := s.turn(false, func() error { return nil }); err != nil {
		return meta.Item{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *interrupted) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	if err := s.turn(false, func() error { return nil }); err != nil {
		return meta.Page{}, err
	}
	return s.Store.Query(ctx, q)
}

func (s *interrupted) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	err := s.turn(true, func() error {
		_, err := s.Store.Apply(context.WithoutCancel(ctx), op)
		return err
	})
	if err != nil {
		return meta.Result{}, err
	}
	return s.Store.Apply(ctx, op)
}

func (s *interrupted) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	err := s.turn(true, func() error {
		_, err := s.Store.Transact(context.WithoutCancel(ctx), ops)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.Store.Transact(ctx, ops)
}

// stage is a topic, the process under test behind an interrupted store, and another process that changes
// the topic's segments meanwhile.
type stage struct {
	*rig
	store *interrupted
	other *rig
}

// newStage sets a scene; merge says that three segments become one, and not one four.
func newStage(t *testing.T, merge bool, cfg topics.Config) *stage {
	s := &stage{rig: newRig(t)}
	bare := s.rig.store
	s.other = &rig{t: t, store: bare, now: s.now}
	s.other.assemble(bare)
	if merge {
		cfg.MinSegments = 3
	}
	s.other.create("t", cfg)
	s.store = &interrupted{Store: bare}
	s.assemble(s.store)
	least := 1
	if _, err := s.other.topics.Update(t.Context(), "t", topics.Patch{MinSegments: &least}); err != nil {
		t.Fatal(err)
	}
	s.store.change = func() {
		s.other.now = s.now
		open := s.other.load("t").Open
		var err error
		if merge {
			_, err = s.other.scale.Merge(t.Context(), scale.MergeRequest{Topic: "t", Segments: []queue.SegmentID{open[0].ID, open[1].ID, open[2].ID}})
		} else {
			_, err = s.other.scale.Split(t.Context(), scale.SplitRequest{Topic: "t", Segment: open[0].ID, Into: 4})
		}
		if err != nil {
			t.Fatalf("the change: %v", err)
		}
	}
	// The map is cached from before.
	if _, err := s.topics.Open(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	s.store.calls = 0
	return s
}

// each runs a scene once for every call that it makes without mishap, every mishap, and a split and a merge.
func each(t *testing.T, scene func(t *testing.T, merge bool, at int, m mishap) (calls int)) {
	t.Helper()
	for _, merge := range []bool{false, true} {
		calls := 0
		synctest.Test(t, func(t *testing.T) { calls = scene(t, merge, 0, justTheChange) })
		if calls == 0 {
			t.Fatal("the scene makes no call")
		}
		for at := 1; at <= calls; at++ {
			for _, m := range []mishap{justTheChange, changeFails, answerLost, arrivesLater} {
				name := fmt.Sprintf("merge %v, call %d, %s", merge, at, m)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { scene(t, merge, at, m) })
				})
			}
		}
	}
}

// TestProduceAcrossChange lets the segments change at every store call of a produce call, along with what
// else can happen to that call: whatever was acknowledged is there once, whatever was not, at most once, and
// a guarded call comes through.
func TestProduceAcrossChange(t *testing.T) {
	const n = 12
	for _, guard := range []produce.Guard{
		{}, {ProducerID: "p", Sequence: 7}, {IdempotencyKey: "k", BodyHash: "h"},
	} {
		t.Run(fmt.Sprintf("%+v", guard), func(t *testing.T) {
			each(t, func(t *testing.T, merge bool, at int, m mishap) int {
				s := newStage(t, merge, topics.Config{})
				s.store.at, s.store.mishap = at, m
				var first []queue.MessageID
				err := error(nil)
				for try := range 4 {
					first, err = s.trySend(t.Context(), "t", guard, keys("k", n)...)
					if err == nil || guard == (produce.Guard{}) {
						break
					}
					if try == 3 || !queue.Retryable(err) && !queue.Is(err, queue.KindOutcomeUnknown) {
						t.Fatalf("try %d: %v", try, err)
					}
					s.now = s.now.Add(queue.CommitTimeout + time.Second)
				}
				calls := s.store.calls
				for _, arrive := range s.store.later {
					arrive()
				}
				total := s.other.messages("t")
				switch {
				case err == nil && total != n, total > n:
					t.Errorf("%d messages, want %d (%v)", total, n, err)
				case err != nil && !queue.Is(err, queue.KindOutcomeUnknown) && !queue.Retryable(err):
					t.Errorf("a call fails because of a change: %v", err)
				}
				s.other.tiles("t")
				s.owned(first, n)
				if guard != (produce.Guard{}) {
					s.now = s.now.Add(queue.CommitTimeout + time.Second)
					if again := s.send("t", guard, keys("k", n)...); !slices.Equal(again, first) {
						t.Errorf("the retry answers %v, not %v", again, first)
					}
				}
				return calls
			})
		})
	}
}

// owned holds that each message is in a segment that owns its slot, and at a place of its own.
func (s *stage) owned(ids []queue.MessageID, n int) {
	m := s.other.load("t")
	for i, id := range ids {
		key := keys("k", n)[i]
		if seg := m.Segment(id.Segment); seg == nil || !seg.Range.Contains(queue.SlotOf([]byte(key))) {
			s.t.Errorf("%s is at %s, which does not own its slot", key, id)
		}
		if slices.Contains(ids[:i], id) {
			s.t.Errorf("two messages are at %s", id)
		}
	}
}

// TestPromoteAcrossChange: the same for the promotion of delayed messages. It ends in segments that are
// open, each message once.
func TestPromoteAcrossChange(t *testing.T) {
	const n = 12
	each(t, func(t *testing.T, merge bool, at int, m mishap) int {
		s := newStage(t, merge, topics.Config{DefaultDelay: 5 * time.Second})
		ids := keys("k", n)
		req := produce.Request{Topic: "t"}
		for _, k := range ids {
			req.Messages = append(req.Messages, produce.Message{Key: []byte(k), Body: []byte(k)})
		}
		if _, err := s.produce.Produce(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(6 * time.Second)
		clock := queue.Clock(func() time.Time { return s.now })
		promoter := delay.New(delay.Deps{
			Meta: s.store, Blob: memblob.New(t, clock, memblob.Options{}), Log: s.log, Topics: s.topics, IDs: s.ids, Clock: clock, Hub: notify.NewHub(),
		})
		s.store.calls, s.store.at, s.store.mishap = 0, at, m
		for try := range 4 {
			_, next, err := promoter.PromoteAll(t.Context())
			if err == nil && next == 0 {
				break
			}
			if try == 3 {
				t.Fatalf("next %v, %v", next, err)
			}
		}
		calls := s.store.calls
		for _, arrive := range s.store.later {
			arrive()
		}
		if total := s.other.messages("t"); total != n {
			t.Errorf("%d messages, want %d", total, n)
		}
		m2 := s.other.load("t")
		heads, err := s.other.topics.Heads(t.Context(), m2.Segments)
		if err != nil {
			t.Fatal(err)
		}
		for i, seg := range m2.Segments {
			if m == justTheChange && at == 1 && seg.Sealed != 0 && heads[i].Next > 0 {
				t.Errorf("%d messages are in %s, which was sealed before", heads[i].Next, seg.ID)
			}
		}
		s.other.tiles("t")
		return calls
	})
}
