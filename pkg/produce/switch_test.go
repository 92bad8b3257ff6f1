package produce_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// switched is a topic that was changed while a process had it in its cache.
type switched struct {
	*world
	// stale goes by the topic as it was before the change, knowing by what it is now.
	stale, knowing *produce.Service
}

// switchTopic makes a topic, changes its default_delay and has two processes look at it in between and
// after. Each has the stores that its plan breaks; nil for sound ones.
func switchTopic(t *testing.T, from, to time.Duration, segments int, stale, knowing *fault.Plan) *switched {
	t.Helper()
	s := &switched{world: newWorld(t)}
	s.topic("t", topics.Config{MinSegments: segments, DefaultDelay: from})
	look := func(plan *fault.Plan) *produce.Service {
		if plan == nil {
			plan = fault.Script(fault.Options{})
		}
		p := s.process(fault.Meta(s.world.meta, plan), fault.Blob(s.blob, plan))
		_, _ = s.topics.Open(t.Context(), "t") // one whose look fails looks again, later
		return p
	}
	s.stale = look(stale)
	s.now = s.now.Add(time.Second)
	change := topics.New(topics.Deps{Meta: s.world.meta, IDs: s.ids, Clock: s.clock})
	if _, err := change.Update(t.Context(), "t", topics.Patch{DefaultDelay: &to}); err != nil {
		t.Fatal(err)
	}
	s.knowing = look(knowing)
	return s
}

// places counts what is in the topic's segments and in its delayed index, and holds that nothing of it is
// there twice.
func (s *switched) places(t *testing.T) (inSegments, delayed int) {
	t.Helper()
	s.process(s.world.meta, s.blob)
	seen := make(map[string]bool)
	once := func(body string) {
		if seen[body] {
			t.Errorf("%q is there twice", body[:min(len(body), 20)])
		}
		seen[body] = true
	}
	for _, body := range s.bodies("t") {
		once(body)
		inSegments++
	}
	for _, d := range s.entries("t") {
		data, base, err := s.log.Data(t.Context(), &d.Ref, d.Ref.First, d.Ref.Count)
		if err != nil {
			t.Fatal(err)
		}
		r, err := batch.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seek(int(d.Ref.First-base), int(d.Ref.Count)); err != nil {
			t.Fatal(err)
		}
		for rec := (batch.Record{}); r.Next(&rec); delayed++ {
			once(string(rec.Body))
		}
	}
	return inSegments, delayed
}

// late are the rules by which a try's one request of a kind is on its way when its process ends.
func late(op string, guard produce.Guard) []fault.Rule {
	read := 2 // after the one that a producer's call begins with
	if guard.ProducerID == "" {
		read = 1
	}
	return []fault.Rule{
		{Op: op, Nth: 1, Fault: fault.Late},
		{Op: "get", Key: "s/", Nth: 1, Fault: fault.CrashBefore},
		{Op: "get", Key: "i/", Nth: read, Fault: fault.CrashBefore},
	}
}

// guardsOfSwitch are the guards of a call whose tries find a topic of two kinds. A second try under an
// Idempotency-Key waits for the first one's deadline.
var guardsOfSwitch = map[string]produce.Guard{ //checks:state it is never changed
	"producer": {ProducerID: "p", Sequence: 3}, "idempotency key": {IdempotencyKey: "k", BodyHash: "h"},
}

func (s *switched) answered(t *testing.T, p *produce.Service, req produce.Request) []string {
	t.Helper()
	a, err := p.Produce(t.Context(), req)
	if queue.CodeOf(err) == queue.CodeIdempotencyInProgress {
		s.now = s.now.Add(queue.CommitTimeout + time.Millisecond)
		a, err = p.Produce(t.Context(), req)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := ids(a)
	if slices.ContainsFunc(got, func(id string) bool { return strings.HasPrefix(id, "error") }) {
		t.Fatalf("answered %v", got)
	}
	return got
}

// TestLateAcrossSwitch: the request of a first try arrives after a second try, which found a topic of the other
// kind, has been acknowledged. It must be void, whichever of the two goes by an old map, whichever way the
// topic was changed.
func TestLateAcrossSwitch(t *testing.T) {
	for gname, guard := range guardsOfSwitch {
		for _, tc := range []struct {
			name        string
			from, to    time.Duration
			first       string // who makes the first try
			op          string // its request that is late
			wantDelayed bool
		}{
			{"entries late, the second try finds the topic not delayed yet", 0, time.Minute, "knowing", "transact", false},
			{"entries late, the second try finds the topic normal again", time.Minute, 0, "stale", "transact", false},
			{"append late, the second try finds the topic delayed", 0, time.Minute, "stale", "append", true},
			{"append late, the second try finds the topic still delayed", time.Minute, 0, "knowing", "append", false},
		} {
			t.Run(gname+": "+tc.name, func(t *testing.T) {
				plan := fault.Script(fault.Options{}, late(tc.op, guard)...)
				var stale, knowing *fault.Plan
				if tc.first == "stale" {
					stale = plan
				} else {
					knowing = plan
				}
				s := switchTopic(t, tc.from, tc.to, 1, stale, knowing)
				first, second := s.stale, s.knowing
				if tc.first == "knowing" {
					first, second = second, first
				}
				req := produce.Request{Topic: "t", Messages: messages(6, "x", 3), Guard: guard}
				if a, err := first.Produce(t.Context(), req); err == nil && a.Runs[0].Err == nil {
					t.Fatalf("the first try was to have no answer: %v", ids(a))
				}
				// Under a key the first try decides for all.
				wantDelayed := tc.wantDelayed
				if guard.ProducerID == "" {
					wantDelayed = tc.op == "transact"
				}
				got := s.answered(t, second, req)
				if strings.HasPrefix(got[0], "delayed") != wantDelayed {
					t.Errorf("answered %v", got)
				}
				plan.Release()
				inSegments, delayed := s.places(t)
				want := [2]int{6, 0}
				if wantDelayed {
					want = [2]int{0, 6}
				}
				if have := [2]int{inSegments, delayed}; have != want {
					t.Errorf("%d in segments and %d delayed, want %v", inSegments, delayed, want)
				}
				// Both processes now tell the same, whatever they know of the topic.
				for name, p := range map[string]*produce.Service{"the other try": second, "a new process": s.process(s.world.meta, s.blob)} {
					if again := s.answered(t, p, req); !slices.Equal(again, got) {
						t.Errorf("%s is answered %v, and the second try was %v", name, again, got)
					}
				}
			})
		}
	}
}

// TestFaultsAcrossSwitch breaks every store call of a first try in every way, then one that finds the topic of
// the other kind, and one more of each, make the call again; at last what is late arrives. Some of the messages
// go to segments on a delayed topic, too. Each must be there once.
func TestFaultsAcrossSwitch(t *testing.T) {
	for gname, guard := range guardsOfSwitch {
		for _, from := range []time.Duration{0, time.Minute} {
			for _, staleFirst := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, default_delay was %v, the first does not know: %v", gname, from, staleFirst), func(t *testing.T) {
					fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
						var stale, knowing *fault.Plan
						if stale = plan; !staleFirst {
							stale, knowing = nil, plan
						}
						s := switchTopic(t, from, time.Minute-from, 2, stale, knowing)
						first, second := s.stale, s.knowing
						if !staleFirst {
							first, second = second, first
						}
						req := produce.Request{Topic: "t", Messages: messages(8, "x", 8), Guard: guard}
						for i := range 3 {
							req.Messages[i].HasDelay = true // delay 0
						}
						_, _ = first.Produce(t.Context(), req)
						got := s.answered(t, second, req)
						plan.Release()
						if n, m := s.places(t); n+m != 8 || m != 0 && m != 5 {
							t.Errorf("%d messages are in segments and %d delayed", n, m)
						}
						for range 2 {
							if again := s.answered(t, second, req); !slices.Equal(again, got) {
								t.Errorf("answered %v, then %v", got, again)
							}
							second = s.process(s.world.meta, s.blob)
						}
						if n, m := s.places(t); n+m != 8 {
							t.Errorf("in the end %d messages are in segments and %d delayed", n, m)
						}
					}, append(fault.Standard(), fault.Late, fault.Repeat)...)
				})
			}
		}
	}
}

// TestSwitchVoidsShares: what a try on a normal topic would append in several head updates of one segment
// is void as a whole, and a call too wide for one transaction is refused.
func TestSwitchVoidsShares(t *testing.T) {
	s := switchTopic(t, 0, time.Minute, 1, nil, nil)
	guard := produce.Guard{ProducerID: "p", Sequence: 1}
	up, err := s.knowing.Uploads(t.Context(), "t", []blob.Terms{{Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.blob.Put(t.Context(), up[0].Object, strings.NewReader("x"), blob.Terms{Size: 1}); err != nil {
		t.Fatal(err)
	}
	a, err := s.knowing.References(t.Context(), produce.ReferencesRequest{
		Topic: "t", References: slices.Repeat([]produce.Reference{{Object: up[0].Object}}, queue.MaxCommitRefs+1), Guard: guard,
	})
	if err != nil || a.Runs[0].Delayed == nil {
		t.Fatal(a, err)
	}
	m, err := s.topics.Open(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	head, _, err := meta.Fetch[*meta.Head](t.Context(), s.world.meta, meta.HeadKey(m.Segments[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"p", "p/1"} {
		if p, known := head.Producers.Get(id); !known || !p.Voided() || p.Sequence != 1 {
			t.Errorf("of %s the head remembers %+v", id, p)
		}
	}

	wide := switchTopic(t, 0, time.Minute, 128, nil, nil)
	req := produce.Request{Topic: "t", Messages: messages(2000, "x", 2000), Guard: guard}
	if _, err := wide.knowing.Produce(t.Context(), req); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("a call that reaches more heads than a transaction has room for ended with %v", err)
	}
	wide.now = wide.now.Add(time.Hour)
	wide.answered(t, wide.process(wide.world.meta, wide.blob), req)
	if n, d := wide.places(t); n != 0 || d != 2000 {
		t.Errorf("%d in segments, %d delayed", n, d)
	}
}

// TestSwitchCosts: a producer's call on a topic that was not switched lately makes the store calls that it
// makes on one that never was.
func TestSwitchCosts(t *testing.T) {
	calls := func(from, to, later time.Duration) []string {
		plan := fault.Script(fault.Options{})
		s := switchTopic(t, from, to, 1, nil, plan)
		s.now = s.now.Add(later)
		p := s.process(fault.Meta(s.world.meta, plan), fault.Blob(s.blob, plan))
		if _, err := s.topics.Open(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		before := len(plan.Calls())
		s.answered(t, p, produce.Request{Topic: "t", Messages: messages(4, "x", 2), Guard: produce.Guard{ProducerID: "p", Sequence: 1}})
		var names []string
		for _, c := range plan.Calls()[before:] {
			names = append(names, c.Op)
		}
		return names
	}
	for name, tc := range map[string]struct {
		from, to, later time.Duration
		want            []string
	}{
		"delayed long ago":              {0, time.Minute, time.Hour, []string{"get", "put payload", "transact (put attempt, put delayed)"}},
		"delayed, and changed":          {time.Second, time.Minute, 0, []string{"get", "put payload", "transact (put attempt, put delayed)"}},
		"delayed lately":                {0, time.Minute, 0, []string{"get", "put payload", "transact (put attempt, put delayed, void)"}},
		"normal again since long ago":   {time.Minute, 0, time.Hour, []string{"get", "append"}},
		"normal again since lately":     {time.Minute, 0, 0, []string{"get", "put attempt", "append"}},
		"always normal, though changed": {0, 0, 0, []string{"append"}},
	} {
		if got := calls(tc.from, tc.to, tc.later); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
