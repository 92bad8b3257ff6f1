package delay

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// watchedRig is a rig whose own process has an agenda that was reviewed once.
func watchedRig(t *testing.T) (*rig, *Agenda) {
	t.Helper()
	r := newRig(t, delayedTopic(1))
	a := NewAgenda()
	r.writer = a.Watch(r.meter.Meta(r.store))
	r.Service = r.on(r.writer, r.blobs)
	if _, err := r.Review(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return r, a
}

func (r *rig) due(t *testing.T, a *Agenda, want int) {
	t.Helper()
	if n, err := r.PromoteDue(t.Context(), a); n != want || err != nil {
		t.Errorf("promoted %d, want %d: %v", n, want, err)
	}
}

// TestIdleBackstopAsksNothing: with nothing due, the backstop makes no store call, however many topics
// there are and whether or not they are delayed.
func TestIdleBackstopAsksNothing(t *testing.T) {
	r, a := watchedRig(t)
	for i := range 20 {
		cfg := topics.Config{}
		if i%2 == 0 {
			cfg = delayedTopic(1)
		}
		if _, _, err := r.Topics.Create(t.Context(), fmt.Sprintf("topic.%d", i), cfg); err != nil {
			t.Fatal(err)
		}
	}
	r.put(t, group{visible: r.in(60), name: "a"})
	before := r.meter.Snapshot()
	for range 59 {
		r.pass(time.Second)
		r.due(t, a, 0)
	}
	if rows := r.meter.Snapshot().Sub(before).Rows; len(rows) != 0 {
		t.Errorf("59 idle seconds cost %+v", rows)
	}
	r.pass(time.Second)
	r.due(t, a, 1)
}

func TestAgendaHears(t *testing.T) {
	r, a := watchedRig(t)
	// Of a topic made later, of several times, of an edit that moves one forward.
	if _, _, err := r.Topics.Create(t.Context(), "later", delayedTopic(1)); err != nil {
		t.Fatal(err)
	}
	ids := r.put(t, group{visible: r.in(60), name: "a"})
	r.put(t, group{visible: r.in(30), name: "b"})
	delay := 5 * time.Second
	if _, err := r.Edit(t.Context(), topicName, ids[0], Edit{Delay: &delay}); err != nil {
		t.Fatal(err)
	}
	m, err := r.Topics.Open(t.Context(), "later")
	if err != nil {
		t.Fatal(err)
	}
	entry := &meta.Delayed{
		Topic: m.ID(), Visible: r.in(10), ID: r.IDs.Entry(), Slots: []queue.Slot{1},
		Ref: meta.Ref{Kind: meta.RefPayload, ID: r.IDs.Nonce(), Object: "uploads/x", Len: 1, Count: 1, Created: r.millis()},
	}
	if _, err := r.Meta.Apply(t.Context(), meta.Put{Record: entry, If: meta.Absent(), Version: 1}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{4 * time.Second, 0}, {time.Second, 1}, {5 * time.Second, 1}, {19 * time.Second, 0}, {time.Second, 1}, {time.Hour, 0}} {
		r.pass(step.pass)
		r.due(t, a, step.want)
	}
}

// TestAgendaAfterRestart: a review finds what was put before the process began.
func TestAgendaAfterRestart(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	r.put(t, group{visible: r.in(60), name: "a"})
	a := NewAgenda()
	r.Service = r.on(a.Watch(r.store), r.blobs)
	if _, err := r.Review(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Minute)
	r.due(t, a, 1)
}

// lossy answers every write with OutcomeUnknown after having carried it out, and fails every query
// while down.
type lossy struct {
	meta.Store
	lose, down bool
}

func (l *lossy) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	res, err := l.Store.Apply(ctx, op)
	if err == nil && l.lose {
		return meta.Result{}, &queue.Error{Kind: queue.KindOutcomeUnknown}
	}
	return res, err
}

func (l *lossy) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	if l.down {
		return meta.Page{}, &queue.Error{Kind: queue.KindUnavailable}
	}
	return l.Store.Query(ctx, q)
}

// TestAgendaSurvivesFailures: neither a lost answer nor a promotion that fails loses an appointment.
func TestAgendaSurvivesFailures(t *testing.T) {
	r := newRig(t, delayedTopic(1))
	a, store := NewAgenda(), &lossy{Store: r.store}
	r.Service = r.on(a.Watch(store), r.blobs)
	if _, err := r.Review(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	m := r.open(t)
	entry := &meta.Delayed{
		Topic: m.ID(), Visible: r.in(10), ID: r.IDs.Entry(), Slots: []queue.Slot{1},
		Ref: meta.Ref{Kind: meta.RefPayload, ID: r.IDs.Nonce(), Object: "uploads/x", Len: 1, Count: 1, Created: r.millis()},
	}
	store.lose = true
	if _, err := r.Meta.Apply(t.Context(), meta.Put{Record: entry, If: meta.Absent(), Version: 1}); !queue.Is(err, queue.KindOutcomeUnknown) {
		t.Fatal(err)
	}
	store.lose, store.down = false, true
	r.pass(10 * time.Second)
	if _, err := r.PromoteDue(t.Context(), a); err == nil {
		t.Fatal("a store that is down promotes")
	}
	store.down = false
	r.pass(retryAfter)
	r.due(t, a, 1)
}

// TestAgendaForgetsTopics: what was deleted is not remembered for ever, nor promoted under a name that
// another topic has now.
func TestAgendaForgetsTopics(t *testing.T) {
	r, a := watchedRig(t)
	r.put(t, group{visible: r.in(10), name: "a"})
	if err := r.Topics.Delete(t.Context(), topicName); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Topics.Create(t.Context(), topicName, delayedTopic(1)); err != nil {
		t.Fatal(err)
	}
	r.put(t, group{visible: r.in(20), name: "b"})
	r.pass(10 * time.Second)
	r.due(t, a, 0)
	r.pass(10 * time.Second)
	r.due(t, a, 1)
	for range 2 {
		if _, err := r.Review(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.names) != 1 || a.before != nil || len(a.due) != 0 {
		t.Errorf("the agenda knows %v, %v, %v", a.names, a.before, a.due)
	}
}

// TestAgendaForget: a forgotten agenda is as a new one: a review fills it.
func TestAgendaForget(t *testing.T) {
	r, a := watchedRig(t)
	r.put(t, group{visible: r.in(10), name: "a"})
	a.begin()
	a.Forget()
	if len(a.names) != 0 || a.before != nil || len(a.due) != 0 {
		t.Errorf("the agenda knows %v, %v, %v", a.names, a.before, a.due)
	}
	if _, err := r.Review(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.pass(10 * time.Second)
	r.due(t, a, 1)
}
