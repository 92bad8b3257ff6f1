package produce_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// TestGuardedFaults breaks every store call of a guarded produce call, in every way; then the next
// process makes the same call again, and once more. Each message must be there exactly once, and all
// answers that name messages must name the same.
func TestGuardedFaults(t *testing.T) {
	guards := map[string]produce.Guard{
		"producer":        {ProducerID: "p", Sequence: 3},
		"idempotency key": {IdempotencyKey: "k", BodyHash: "h"},
	}
	configs := map[string]topics.Config{
		"normal":  {MinSegments: 2},
		"delayed": {MinSegments: 2, DefaultDelay: time.Minute},
	}
	for gname, guard := range guards {
		for cname, cfg := range configs {
			for sname, size := range map[string]string{"inline": "x", "object": strings.Repeat("x", 3000)} {
				t.Run(gname+" "+cname+" "+sname, func(t *testing.T) {
					fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
						checkGuarded(t, plan, guard, cfg, size)
					})
				})
			}
		}
	}
}

func checkGuarded(t *testing.T, plan *fault.Plan, guard produce.Guard, cfg topics.Config, body string) {
	w := newWorld(t)
	w.topic("t", cfg)
	req := produce.Request{Topic: "t", Messages: messages(6, body, 6), Guard: guard}
	for i := range 3 {
		req.Messages[i].HasDelay = true // delay 0: these go to segments at once
	}
	first := w.process(fault.Meta(w.meta, plan), fault.Blob(w.blob, plan))
	a1, err1 := first.Produce(t.Context(), req)
	second := w.process(w.meta, w.blob)
	again := func() (produce.Answer, error) {
		a, err := second.Produce(t.Context(), req)
		if queue.CodeOf(err) == queue.CodeIdempotencyInProgress {
			// The first process held the key when it died.
			w.now = w.now.Add(queue.CommitTimeout + time.Millisecond)
			a, err = second.Produce(t.Context(), req)
		}
		return a, err
	}
	a2, err := again()
	if err != nil {
		t.Fatalf("made again: %v (first: %v)", err, err1)
	}
	a3, err := again()
	if err != nil {
		t.Fatal(err)
	}
	got := ids(a2)
	if slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "error") }) {
		t.Fatalf("made again it is answered %v (first: %v %v)", got, ids(a1), err1)
	}
	if !slices.Equal(got, ids(a3)) {
		t.Errorf("the third answer is %v, the second %v", ids(a3), got)
	}
	if err1 == nil {
		for i, id := range ids(a1) {
			if !strings.HasPrefix(id, "error") && id != got[i] {
				t.Errorf("message %d was answered %s, then %s", i, id, got[i])
			}
		}
	}
	checkOnce(t, w, req, cfg)
}

func checkOnce(t *testing.T, w *world, req produce.Request, cfg topics.Config) {
	t.Helper()
	count := make(map[string]int)
	for _, b := range w.bodies("t") {
		count[b]++
	}
	want := len(req.Messages)
	if cfg.DefaultDelay > 0 {
		want = 3
		n := 0
		for _, d := range w.entries("t") {
			n += len(d.Slots)
		}
		if n != 3 {
			t.Errorf("%d messages are delayed, want 3", n)
		}
	}
	for i := range want {
		if n := count[string(req.Messages[i].Body)]; n != 1 {
			t.Errorf("message %d is there %d times", i, n)
		}
	}
	if len(count) != want {
		t.Errorf("%d different messages in segments, want %d", len(count), want)
	}
}

// TestDoubledRequests: a request that the store's client sends twice, giving the second answer, fails no
// call, guarded or not, and puts nothing there twice.
func TestDoubledRequests(t *testing.T) {
	for gname, guard := range map[string]produce.Guard{
		"unguarded": {}, "producer": {ProducerID: "p", Sequence: 3}, "idempotency key": {IdempotencyKey: "k", BodyHash: "h"},
	} {
		for cname, cfg := range map[string]topics.Config{"normal": {MinSegments: 2}, "delayed": {MinSegments: 2, DefaultDelay: time.Minute}} {
			t.Run(gname+" "+cname, func(t *testing.T) {
				fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
					w := newWorld(t)
					w.topic("t", cfg)
					req := produce.Request{Topic: "t", Messages: messages(6, "x", 6), Guard: guard}
					for i := range 3 {
						req.Messages[i].HasDelay = true // delay 0: these go to segments at once
					}
					a, err := w.process(fault.Meta(w.meta, plan), fault.Blob(w.blob, plan)).Produce(t.Context(), req)
					if err != nil {
						t.Fatal(err)
					}
					for i, id := range ids(a) {
						if strings.HasPrefix(id, "error") {
							t.Errorf("message %d is answered %s", i, id)
						}
					}
					checkOnce(t, w, req, cfg)
				}, fault.Repeat)
			})
		}
	}
}

// TestFirstTryArrivesLast: the head update of a first try arrives after a second try, by another process,
// has made its own. The head must know it, though the second try has put the bytes anew.
func TestFirstTryArrivesLast(t *testing.T) {
	for gname, guard := range map[string]produce.Guard{
		"producer": {ProducerID: "p", Sequence: 3}, "idempotency key": {IdempotencyKey: "k", BodyHash: "h"},
	} {
		for sname, size := range map[string]string{"inline": "x", "object": strings.Repeat("x", 3000)} {
			t.Run(gname+" "+sname, func(t *testing.T) {
				w := newWorld(t)
				w.topic("t", topics.Config{})
				req := produce.Request{Topic: "t", Messages: messages(6, size, 1), Guard: guard}
				plan := fault.Script(fault.Options{},
					fault.Rule{Op: "append", Nth: 1, Fault: fault.Late}, fault.Rule{Op: "get", Key: "s/", Nth: 1, Fault: fault.FailBefore})
				a, err := w.process(fault.Meta(w.meta, plan), fault.Blob(w.blob, plan)).Produce(t.Context(), req)
				if err != nil || !queue.Is(a.Runs[0].Err, queue.KindOutcomeUnknown) {
					t.Fatal(a, err)
				}
				second := w.process(w.meta, w.blob)
				if a, err = second.Produce(t.Context(), req); err != nil || a.Runs[0].Err != nil {
					t.Fatal(a, err)
				}
				plan.Release()
				checkOnce(t, w, req, topics.Config{})
			})
		}
	}
}

// TestUnguardedFaults: without a guard an answer without error still means that the message is there
// once.
func TestUnguardedFaults(t *testing.T) {
	for cname, cfg := range map[string]topics.Config{"normal": {MinSegments: 2}, "delayed": {DefaultDelay: time.Minute}} {
		t.Run(cname, func(t *testing.T) {
			fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
				w := newWorld(t)
				w.topic("t", cfg)
				s := w.process(fault.Meta(w.meta, plan), fault.Blob(w.blob, plan))
				req := produce.Request{Topic: "t", Messages: messages(6, "x", 6)}
				a, err := s.Produce(t.Context(), req)
				if err != nil {
					return
				}
				w.process(w.meta, w.blob)
				have := w.bodies("t")
				seen := make(map[string]int)
				for _, b := range have {
					seen[b]++
				}
				for i, id := range ids(a) {
					if strings.HasPrefix(id, "error") || strings.HasPrefix(id, "delayed") {
						continue
					}
					if b := string(req.Messages[i].Body); have[id] != b || seen[b] != 1 {
						t.Errorf("message %d is answered %s, where %q stands (%d times in all)", i, id, have[id], seen[b])
					}
				}
				if cfg.DefaultDelay > 0 && len(w.entries("t")) != 1 {
					t.Errorf("%d entries", len(w.entries("t")))
				}
			})
		})
	}
}

func TestIdempotencyKey(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{})
	call := func(key, hash string) ([]string, error) {
		a, err := w.Produce(t.Context(), produce.Request{
			Topic: "t", Messages: messages(2, "x", 0), Guard: produce.Guard{IdempotencyKey: key, BodyHash: hash},
		})
		return ids(a), err
	}
	first, err := call("k", "h")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := call("k", "h"); err != nil || !slices.Equal(again, first) {
		t.Errorf("the same call gives %v, %v, want %v", again, err, first)
	}
	if _, err := call("k", "other"); queue.CodeOf(err) != queue.CodeIdempotencyMismatch {
		t.Errorf("another body: %v", err)
	}
	if other, err := call("k2", "h"); err != nil || slices.Equal(other, first) {
		t.Errorf("another key gives %v, %v", other, err)
	}
	w.now = w.now.Add(queue.IdempotencyWindow + time.Millisecond)
	if later, err := call("k", "other"); err != nil || slices.Equal(later, first) {
		t.Errorf("after its window the key gives %v, %v, want new messages", later, err)
	}
}

// TestKeyClockSetBack: a process dies in the middle of a call, and the clock turns out to have been ahead. The
// key is free as soon as after any other crash.
func TestKeyClockSetBack(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{})
	req := produce.Request{Topic: "t", Messages: messages(2, "x", 0), Guard: produce.Guard{IdempotencyKey: "k", BodyHash: "h"}}
	right := w.now
	w.now = right.Add(time.Hour)
	plan := fault.Script(fault.Options{}, fault.Rule{Op: "append", Nth: 1, Fault: fault.CrashAfter})
	if a, err := w.process(fault.Meta(w.meta, plan), w.blob).Produce(t.Context(), req); err == nil && a.Runs[0].Err == nil {
		t.Fatal("the call worked, though its process died")
	}
	second := w.process(w.meta, w.blob)
	if _, err := second.Produce(t.Context(), req); queue.CodeOf(err) != queue.CodeIdempotencyInProgress {
		t.Fatalf("within the call's time: %v", err)
	}
	w.now = right
	for range 2 {
		a, err := second.Produce(t.Context(), req)
		if err != nil || a.Runs[0].Err != nil {
			t.Fatal(a, err)
		}
	}
	checkOnce(t, w, req, topics.Config{})
}

// TestRepeatedTimes: a retry is told the times that the messages have, which are the first try's; a
// time of the retry would promise a life that ends later than the message does.
func TestRepeatedTimes(t *testing.T) {
	for name, guard := range map[string]produce.Guard{
		"producer": {ProducerID: "p", Sequence: 1},
		"key":      {IdempotencyKey: "k"},
	} {
		for cname, cfg := range map[string]topics.Config{"normal": {DefaultTTL: time.Hour}, "delayed": {DefaultDelay: time.Minute, DefaultTTL: time.Hour}} {
			t.Run(name+" "+cname, func(t *testing.T) {
				w := newWorld(t)
				w.topic("t", cfg)
				req := produce.Request{Topic: "t", Messages: messages(3, "x", 0), Guard: guard}
				req.Messages[1].HasDelay = true // of 0: to the segment at once
				first, err := w.Produce(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				w.now = w.now.Add(30 * time.Second)
				again, err := w.Produce(t.Context(), req)
				if err != nil || !slices.Equal(times(again), times(first)) {
					t.Errorf("%+v, %v, want %+v", again, err, first)
				}
			})
		}
	}
}

// times says of each run when its messages were made, become visible and end.
func times(a produce.Answer) []string {
	out := ids(a)
	for _, r := range a.Runs {
		out = append(out, fmt.Sprint(r.Count, r.Created, r.Visible, r.Expires, r.Warnings))
	}
	return out
}

func TestProducerSequence(t *testing.T) {
	for cname, cfg := range map[string]topics.Config{"normal": {}, "delayed": {DefaultDelay: time.Minute}} {
		t.Run(cname, func(t *testing.T) {
			w := newWorld(t)
			w.topic("t", cfg)
			call := func(seq uint64, n int) []string {
				w.now = w.now.Add(time.Millisecond)
				a, err := w.Produce(t.Context(), produce.Request{
					Topic: "t", Messages: messages(n, "x", 0), Guard: produce.Guard{ProducerID: "p", Sequence: seq},
				})
				if err != nil {
					return []string{"error " + string(queue.CodeOf(err))}
				}
				return ids(a)
			}
			first := call(1, 3)
			if again := call(1, 3); !slices.Equal(again, first) {
				t.Errorf("sequence 1 again: %v, want %v", again, first)
			}
			second := call(2, 3)
			if strings.HasPrefix(second[0], "error") || second[0] == first[0] {
				t.Errorf("sequence 2: %v", second)
			}
			if old := call(1, 3); old[0] != "error sequence_out_of_order" {
				t.Errorf("sequence 1 after 2: %v", old)
			}
			if other := call(2, 4); !slices.Contains(other, "error sequence_out_of_order") {
				t.Errorf("sequence 2 with other messages: %v", other)
			}
		})
	}
}

func TestGuardRules(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{})
	for name, g := range map[string]produce.Guard{
		"sequence 0":         {ProducerID: "p"},
		"huge sequence":      {ProducerID: "p", Sequence: 1 << 63},
		"long producer":      {ProducerID: strings.Repeat("p", 200), Sequence: 1},
		"control characters": {IdempotencyKey: "a\nb"},
		"both":               {ProducerID: "p", Sequence: 1, IdempotencyKey: "k"},
	} {
		_, err := w.Produce(t.Context(), produce.Request{Topic: "t", Messages: messages(1, "x", 0), Guard: g})
		if queue.CodeOf(err) != queue.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestManyRefs: more refs go to one segment than one head update takes; a retry must not
// append any of them twice.
func TestManyRefs(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topics.Config{DefaultDelay: time.Minute, MaxDelay: time.Hour})
	// Alternating delays in one batch make as many runs as messages.
	req := produce.Request{Topic: "t", Guard: produce.Guard{ProducerID: "p", Sequence: 1}}
	for i := range 90 {
		req.Messages = append(req.Messages, produce.Message{
			Body: []byte(fmt.Sprint(i)), HasDelay: true, Delay: time.Duration(i) * time.Second,
		})
	}
	first := ids(w.produce(req))
	if again := ids(w.produce(req)); !slices.Equal(first, again) {
		t.Errorf("answered %v, then %v", first, again)
	}
}

// TestConfigChangesBetweenTries: the topic becomes a delayed one, or a normal one, between the tries of one
// guarded call, of which the first died after it had committed. The messages must not go to both places.
func TestConfigChangesBetweenTries(t *testing.T) {
	guards := map[string]produce.Guard{
		"producer": {ProducerID: "p", Sequence: 3}, "idempotency key": {IdempotencyKey: "k", BodyHash: "h"},
	}
	for gname, guard := range guards {
		for name, first := range map[string]time.Duration{"normal, then delayed": 0, "delayed, then normal": time.Minute} {
			t.Run(gname+", "+name, func(t *testing.T) {
				w := newWorld(t)
				w.topic("t", topics.Config{MinSegments: 2, DefaultDelay: first})
				w.now = w.now.Add(time.Second)
				plan := fault.Script(fault.Options{}, fault.Rule{Op: "append", Nth: 2, Fault: fault.CrashAfter})
				if first > 0 {
					plan = fault.Script(fault.Options{}, fault.Rule{Op: "transact", Nth: 1, Fault: fault.CrashAfter})
				}
				dying := w.process(fault.Meta(w.meta, plan), fault.Blob(w.blob, plan))
				req := produce.Request{Topic: "t", Messages: messages(12, "x", 12), Guard: guard}
				_, _ = dying.Produce(t.Context(), req)
				if !plan.Crashed() {
					t.Fatal("the first try did not die")
				}
				again := w.process(w.meta, w.blob)
				second := time.Minute - first
				if _, err := w.topics.Update(t.Context(), "t", topics.Patch{DefaultDelay: &second}); err != nil {
					t.Fatal(err)
				}
				w.now = w.now.Add(queue.CommitTimeout + time.Second)
				a, err := again.Produce(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				delayed := 0
				for _, d := range w.entries("t") {
					delayed += len(d.Slots)
				}
				inSegments := len(w.bodies("t"))
				if want := len(req.Messages); first == 0 && (inSegments != want || delayed != 0) || first > 0 && (delayed != want || inSegments != 0) {
					t.Errorf("%d messages in segments, %d delayed; answered %v", inSegments, delayed, ids(a))
				}
			})
		}
	}
}
