package consume_test

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestBacklog follows the messages of one place, and what each look costs.
func TestBacklog(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	sub, seg := m.Subscriptions["sub"], m.Open[0]
	began := e.clock()
	check := func(what string, settled queue.Offset, want consume.Backlog, ops string) {
		t.Helper()
		spent := e.spent(func() {
			got, err := e.svc.Backlog(t.Context(), sub, seg, settled)
			if err != nil || got != want {
				t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
			}
		})
		wantOps(t, what, spent, ops)
	}
	check("empty", 0, consume.Backlog{Settled: true}, "get head 1")
	e.add(seg, false, numbered(4)...)
	check("no cursor yet", 0, consume.Backlog{Oldest: began, End: 4}, "get 1, get head 1")
	e.pass(5 * time.Second)
	e.add(seg, false, numbered(4)...)
	first := e.claim("a", 4)
	check("the first in flight", 0, consume.Backlog{Oldest: began.Add(5 * time.Second), End: 8}, "get cursor 1, get head 1")
	second := e.claim("a", 4)
	check("all in flight", 0, consume.Backlog{End: 8}, "get cursor 1, get head 1")
	e.release("a", first[:1], consume.Release{Delay: 10 * time.Second, HasDelay: true})
	check("one released for later", 0, consume.Backlog{End: 8}, "get cursor 1, get head 1")
	e.pass(10 * time.Second)
	check("its time has come", 0, consume.Backlog{Oldest: began, End: 8}, "get cursor 1, get head 1")
	e.ack("a", first[1:])
	e.ack("a", second)
	e.ack("a", e.claim("a", 1))
	check("done", 0, consume.Backlog{End: 8, Settled: true}, "get cursor 1, get head 1")
	check("as it was", 8, consume.Backlog{End: 8, Settled: true}, "get head 1")
	at := e.clock()
	e.add(seg, false, numbered(1)...)
	check("more than it was", 8, consume.Backlog{Oldest: at, End: 9}, "get cursor 1, get head 1")
}

// TestBacklogExpired: expired messages wait for nobody; those before one that does not expire do not hide it.
func TestBacklogExpired(t *testing.T) {
	e := newEnv(t, options{})
	m := e.topic("a", 1, nil)
	sub, seg := m.Subscriptions["sub"], m.Open[0]
	look := func() consume.Backlog {
		t.Helper()
		got, err := e.svc.Backlog(t.Context(), sub, seg, 0)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for range 50 { // some of them in a page
		e.add(seg, false, rec{body: "x", ttl: time.Second})
	}
	if got := look(); got.Oldest != e.clock() {
		t.Errorf("before: %+v", got)
	}
	e.pass(2 * time.Second)
	if got := look(); got.Oldest != 0 || got.Settled {
		t.Errorf("all expired: %+v", got)
	}
	e.add(seg, false, rec{body: "stays"})
	if got := look(); got.Oldest != e.clock() {
		t.Errorf("one that stays: %+v, now %d", got, e.clock())
	}
}
