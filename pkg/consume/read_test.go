package consume_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// peekAll follows a peek to its end and renders what it saw as "segment.offset".
func (e *env) peekAll(req consume.PeekRequest) []string {
	e.t.Helper()
	var out []string
	index := make(map[queue.SegmentID]int)
	for i, seg := range e.names.maps[req.Topic].Segments {
		index[seg.ID] = i
	}
	for range 1000 {
		got, err := e.svc.Peek(e.t.Context(), req)
		if err != nil {
			e.t.Fatal(err)
		}
		ms := messages(e.t, got.Deliveries)
		if req.Limit != 0 && len(ms) > req.Limit {
			e.t.Fatalf("%d messages, the limit is %d", len(ms), req.Limit)
		}
		slices.SortStableFunc(ms, func(a, b msg) int { return index[a.seg] - index[b.seg] })
		for _, m := range ms {
			out = append(out, fmt.Sprintf("%d.%d", index[m.seg], m.off))
		}
		if got.Next == "" {
			return out
		}
		req.Cursor = got.Next
	}
	e.t.Fatal("the peek does not end")
	return nil
}

func TestPeek(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 2, nil)
	e.add(m.Open[0], false, numbered(3)...)
	e.pass(time.Minute)
	from := e.clock()
	e.add(m.Open[0], false, rec{"x", 0}, rec{"gone", time.Second})
	e.add(m.Open[1], false, numbered(2)...)
	e.pass(time.Minute)
	e.claim("a", 100) // makes no difference
	first, second := m.Open[0].ID, m.Open[1].ID
	for _, tc := range []struct {
		name string
		req  consume.PeekRequest
		want string
	}{
		{"all", consume.PeekRequest{}, "0.0 0.1 0.2 0.3 1.0 1.1"},
		{"in small pages", consume.PeekRequest{Limit: 1}, "0.0 0.1 0.2 0.3 1.0 1.1"},
		{"in pages of two", consume.PeekRequest{Limit: 2}, "0.0 0.1 0.2 0.3 1.0 1.1"},
		{"in pages that end with a segment", consume.PeekRequest{Limit: 4}, "0.0 0.1 0.2 0.3 1.0 1.1"},
		{"one segment", consume.PeekRequest{Segment: first}, "0.0 0.1 0.2 0.3"},
		{"from an offset", consume.PeekRequest{Segment: first, Offset: 2}, "0.2 0.3"},
		{"the other segment", consume.PeekRequest{Segment: second, Offset: 1}, "1.1"},
		{"past the end", consume.PeekRequest{Segment: second, Offset: 10}, ""},
		{"from a time", consume.PeekRequest{From: from}, "0.3 1.0 1.1"},
		{"from a time, in small pages", consume.PeekRequest{From: from, Limit: 1}, "0.3 1.0 1.1"},
		{"from a time to come", consume.PeekRequest{From: from + 10}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.req.Topic = "a"
			var got []string
			s := e.spent(func() { got = e.peekAll(tc.req) })
			if have := strings.Join(got, " "); have != tc.want {
				t.Errorf("got %q, want %q", have, tc.want)
			}
			if n := s.Total().WriteUnits; n != 0 {
				t.Errorf("a peek wrote %d units", n)
			}
		})
	}
	for name, tc := range map[string]struct {
		req  consume.PeekRequest
		code queue.Code
	}{
		"limit":           {consume.PeekRequest{Topic: "a", Limit: queue.MaxPageSize + 1}, queue.CodeInvalidArgument},
		"cursor":          {consume.PeekRequest{Topic: "a", Cursor: "x"}, queue.CodeInvalidArgument},
		"foreign cursor":  {consume.PeekRequest{Topic: "a", Cursor: string(e.ids.Segment()) + "-1"}, queue.CodeInvalidArgument},
		"foreign segment": {consume.PeekRequest{Topic: "a", Segment: e.ids.Segment()}, queue.CodeSegmentNotFound},
		"topic":           {consume.PeekRequest{Topic: "b"}, queue.CodeTopicNotFound},
	} {
		if _, err := e.svc.Peek(t.Context(), tc.req); queue.CodeOf(err) != tc.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPeekFromATimeInPages(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	const n = 5*queue.RollRefs + 3
	var times []queue.Millis
	for range n {
		times = append(times, e.clock())
		e.add(m.Open[0], false, numbered(1)...)
		e.pass(time.Second)
	}
	for i := 0; i < n; i += 7 {
		for _, from := range []queue.Millis{times[i], times[i] - 1, times[i] + 1} {
			got, err := e.svc.Peek(t.Context(), consume.PeekRequest{Topic: "a", From: from, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			want := queue.Offset(i)
			if from > times[i] {
				want++
			}
			if want == n {
				continue
			}
			if ms := messages(t, got.Deliveries); len(ms) != 1 || ms[0].off != want {
				t.Errorf("from %d: got %v, want %d", i, ms, want)
			}
		}
	}
}

func TestMessage(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	for range 2 * queue.RollRefs {
		e.add(seg, false, numbered(2)...)
	}
	last := e.add(seg, false, rec{"keep", 0}, rec{"gone", time.Minute})
	e.truncate(seg, 3)
	e.pass(time.Minute)
	for _, tc := range []struct {
		name string
		id   queue.MessageID
		body string
		code queue.Code
	}{
		{"in a page", queue.MessageID{Segment: seg.ID, Offset: 3}, "m1", ""},
		{"in the tail", queue.MessageID{Segment: seg.ID, Offset: last}, "keep", ""},
		{"truncated", queue.MessageID{Segment: seg.ID, Offset: 2}, "", queue.CodeMessageNotFound},
		{"expired", queue.MessageID{Segment: seg.ID, Offset: last + 1}, "", queue.CodeMessageNotFound},
		{"to come", queue.MessageID{Segment: seg.ID, Offset: last + 2}, "", queue.CodeMessageNotFound},
		{"of another topic", queue.MessageID{Segment: e.ids.Segment()}, "", queue.CodeMessageNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := e.svc.Message(t.Context(), "a", tc.id)
			if tc.code != "" {
				wantCode(t, err, tc.code)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			ms := messages(t, []consume.Delivery{d})
			if len(ms) != 1 || ms[0].off != tc.id.Offset || ms[0].body != tc.body || ms[0].seg != seg.ID {
				t.Errorf("got %+v", ms)
			}
		})
	}
	_, err := e.svc.Message(t.Context(), "x", queue.MessageID{Segment: seg.ID})
	wantCode(t, err, queue.CodeTopicNotFound)
}

func TestRecords(t *testing.T) {
	e, damage := withSpoiled(t)
	m := e.topic("a", 1, nil)
	seg := m.Open[0]
	e.add(seg, false, numbered(3)...)
	e.add(seg, false, rec{"gone", time.Second}, rec{"gone", time.Second})
	e.add(seg, true, numbered(2)...) // 5, 6
	e.pass(time.Second)
	read := func(from queue.Offset, limit int) (consume.Records, []msg) {
		t.Helper()
		got, err := e.svc.Records(t.Context(), consume.RecordsRequest{Topic: "a", Segment: seg.ID, Offset: from, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return got, messages(t, got.Deliveries)
	}
	got, ms := read(0, 2)
	wantOffsets(t, "first", ms, 0, 1)
	if got.Next != 2 || got.End {
		t.Errorf("next is %d, end %v", got.Next, got.End)
	}
	got, ms = read(2, 10)
	wantOffsets(t, "past what expired", ms, 2, 5, 6)
	if got.Next != 7 || got.End {
		t.Errorf("next is %d, end %v", got.Next, got.End)
	}
	if got, ms = read(7, 10); len(ms) != 0 || got.Next != 7 {
		t.Errorf("at the end: %v, next %d", ms, got.Next)
	}
	_, err := e.svc.Records(t.Context(), consume.RecordsRequest{Topic: "a", Segment: seg.ID, Offset: 8})
	wantCode(t, err, queue.CodeInvalidArgument)
	e.truncate(seg, 2)
	if _, ms = read(0, 1); len(ms) != 1 || ms[0].off != 2 {
		t.Errorf("a reader of truncated messages is stuck: %v", ms)
	}
	e.add(seg, true, numbered(2)...)
	damage[e.objectOf(seg, 7)] = gone
	if got, ms = read(2, 10); len(ms) != 3 || got.Next != 7 {
		t.Errorf("before a damaged message: %v, next %d", ms, got.Next)
	}
	_, err = e.svc.Records(t.Context(), consume.RecordsRequest{Topic: "a", Segment: seg.ID, Offset: 7})
	wantCode(t, err, queue.CodeCorrupt)
}

func TestRecordsOfASealedSegment(t *testing.T) {
	for _, n := range []int{0, 3} {
		e := newEnv(t, options{})
		m := e.topic("a", 1, nil)
		seg := m.Open[0]
		if n > 0 {
			e.add(seg, false, numbered(n)...)
		}
		if _, err := e.bare.Apply(t.Context(), meta.Seal{Segment: seg.ID, Epoch: 1}); err != nil {
			t.Fatal(err)
		}
		after := *seg
		after.Sealed, after.Successors = 1, []queue.SegmentID{e.ids.Segment(), e.ids.Segment()}
		e.names.onReload = func() {
			next := *m
			next.Segments = []*meta.Segment{&after}
			e.names.maps["a"] = &next
		}
		got, err := e.svc.Records(t.Context(), consume.RecordsRequest{Topic: "a", Segment: seg.ID, Wait: queue.MaxWait})
		if err != nil {
			t.Fatal(err)
		}
		if !got.End || !slices.Equal(got.Successors, after.Successors) || got.Next != queue.Offset(n) {
			t.Errorf("%d messages: %+v", n, got)
		}
	}
}

func TestRecordsWait(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		m := e.topic("a", 1, nil)
		req := consume.RecordsRequest{Topic: "a", Segment: m.Open[0].ID, Wait: queue.MaxWait}
		s := e.spent(func() {
			if got, err := e.svc.Records(t.Context(), req); err != nil || len(got.Deliveries) != 0 {
				t.Errorf("got %v, %v", got, err)
			}
		})
		wantOps(t, "20 s without a message", s, "get head 43")
		start := time.Now()
		go func() {
			time.Sleep(time.Second / 3)
			e.add(m.Open[0], false, numbered(1)...)
			e.hub.Signal(m.ID())
		}()
		got, err := e.svc.Records(t.Context(), req)
		if err != nil || len(got.Deliveries) != 1 || time.Since(start) != time.Second/3 {
			t.Errorf("got %v, %v after %v", got, err, time.Since(start))
		}
	})
}

func TestStatus(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 2, nil)
	check := func(what string, want consume.Status) {
		t.Helper()
		got, err := e.svc.Status(t.Context(), "a", "sub")
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Segments) != 2 {
			t.Fatalf("%d segments", len(got.Segments))
		}
		if want.Segments == nil {
			got.Segments = nil
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	check("empty", consume.Status{})
	e.add(m.Open[0], false, numbered(10)...)
	e.pass(5 * time.Second)
	check("unclaimed", consume.Status{Ready: 10, OldestAge: 5 * time.Second, HasOldest: true})
	got := e.claim("a", 6)
	check("claimed", consume.Status{Ready: 4, InFlight: 6, OldestAge: 5 * time.Second, HasOldest: true})
	e.release("a", got[:2], consume.Release{HasDelay: true, Delay: time.Minute})
	e.ack("a", got[2:3])
	check("released", consume.Status{Ready: 4, InFlight: 3, Delayed: 2, OldestAge: 5 * time.Second, HasOldest: true})
	e.pass(30 * time.Second)
	check("expired", consume.Status{Ready: 7, Delayed: 2, OldestAge: 35 * time.Second, HasOldest: true})
	e.pass(30 * time.Second)
	check("delay is over", consume.Status{Ready: 9, OldestAge: 65 * time.Second, HasOldest: true})
	_, err := e.svc.Status(t.Context(), "a", "x")
	wantCode(t, err, queue.CodeSubscriptionNotFound)
}
