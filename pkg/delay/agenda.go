package delay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// retryAfter is when the backstop looks again at a topic that it could not promote.
const retryAfter = time.Second

// Agenda knows which topics have something due and when, so that the backstop asks the store nothing
// while nothing is due, however many topics there are. It hears of entries by watching what the process
// writes (Watch), and of those that were there before, that other processes wrote, or whose write was of
// unknown outcome, from Service.Review.
//
// It is a memory aid only: what it misses waits for the next review, or for a claim. Safe for
// concurrent use.
//
// A due time is noted after the entry was written and taken off before the index is read, so that
// neither order loses one:
//
//	writer:   entry written │           noted ─ found by the next look
//	backstop:               │ reads it        (a look too many)
type Agenda struct {
	mu  sync.Mutex // guards what follows
	due map[queue.TopicID]queue.Millis
	// names are the topics by id, seen since the last review began; before are those seen earlier,
	// kept until the review under way has ended well: so what was deleted is forgotten in the end.
	names, before map[queue.TopicID]string
}

// NewAgenda makes an agenda that knows nothing: have it reviewed first.
func NewAgenda() *Agenda {
	return &Agenda{due: make(map[queue.TopicID]queue.Millis), names: make(map[queue.TopicID]string)}
}

// Watch gives a store whose writes the agenda hears of. All writers of the process must go through it.
func (a *Agenda) Watch(s meta.Store) meta.Store { return &watched{s, a} }

type watched struct {
	meta.Store
	agenda *Agenda
}

// Apply implements meta.Store.
func (w *watched) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	res, err := w.Store.Apply(ctx, op)
	if err == nil || queue.Is(err, queue.KindOutcomeUnknown) {
		w.agenda.hear(op)
	}
	return res, err
}

// Transact implements meta.Store.
func (w *watched) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	res, err := w.Store.Transact(ctx, ops)
	if err == nil || queue.Is(err, queue.KindOutcomeUnknown) {
		for _, op := range ops {
			w.agenda.hear(op)
		}
	}
	return res, err
}

func (a *Agenda) hear(op meta.Op) {
	put, ok := op.(meta.Put)
	if !ok {
		return
	}
	switch r := put.Record.(type) {
	case *meta.Delayed:
		a.note(r.Topic, r.Visible)
	case *meta.Name:
		a.name(r.Topic, r.Name)
	}
}

// note takes a time down at which something of the topic becomes due; 0 is none.
func (a *Agenda) note(topic queue.TopicID, at queue.Millis) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at = earlier(a.due[topic], at); at != 0 {
		a.due[topic] = at
	}
}

func (a *Agenda) name(topic queue.TopicID, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names[topic] = name
}

// Forget forgets all that was heard: an agenda that nobody goes by for now would only grow. Have it reviewed
// before it is gone by again.
func (a *Agenda) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.due)
	clear(a.names)
	a.before = nil
}

// begin and end enclose a review.
func (a *Agenda) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.before == nil {
		a.before, a.names = a.names, make(map[queue.TopicID]string)
	}
}

func (a *Agenda) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before = nil
}

type appointment struct {
	topic queue.TopicID
	name  string // empty for one whose name was never heard of
}

// take takes off, and gives, the topics that have something due at now.
func (a *Agenda) take(now queue.Millis) []appointment {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []appointment
	for topic, at := range a.due {
		if at > now {
			continue
		}
		name := a.names[topic]
		if name == "" {
			name = a.before[topic]
		}
		delete(a.due, topic)
		out = append(out, appointment{topic, name})
	}
	return out
}

// PromoteDue is PromoteAll for the topics that have something due by the agenda. It asks the store
// nothing if there are none.
func (s *Service) PromoteDue(ctx context.Context, a *Agenda) (promoted int, err error) {
	var errs []error
	now := s.Clock.Millis()
	for _, one := range a.take(now) {
		if one.name == "" {
			continue // the next review lists it, if it is still there
		}
		n, err := s.keep(ctx, a, one.topic, one.name)
		promoted += n
		if err != nil {
			errs = append(errs, err)
			a.note(one.topic, now.Add(retryAfter))
		}
	}
	return promoted, errors.Join(errs...)
}

// Review is PromoteAll, and tells the agenda of all topics and of what waits in them.
func (s *Service) Review(ctx context.Context, a *Agenda) (promoted int, err error) {
	a.begin()
	promoted, err = s.eachTopic(ctx, func(id queue.TopicID, name string) (int, error) {
		a.name(id, name)
		n, err := s.keep(ctx, a, id, name)
		if err != nil {
			a.note(id, s.Clock.Millis().Add(retryAfter))
		}
		return n, err
	})
	if err == nil {
		a.end()
	}
	return promoted, err
}

// keep promotes what is due in one topic and takes down what waits.
func (s *Service) keep(ctx context.Context, a *Agenda, id queue.TopicID, name string) (int, error) {
	n, next, err := s.backstop(ctx, id, name)
	a.note(id, next)
	return n, err
}
