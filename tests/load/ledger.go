package load

import (
	"fmt"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

// Ledger is the record kept outside the server: what was sent, what was acknowledged, who held what
// when. Bodies are unique, so a body names a message whatever its id. Safe for concurrent use.
type Ledger struct {
	mu sync.Mutex // guards all below
	// sent has every body ever sent.
	sent map[string]*sentMessage
	// bodies is the body that each id has been seen with.
	bodies map[string]string
	// holds is the last claim of each message by each subscription.
	holds map[string]hold
	// acked is when the ack of a message was confirmed, by subscription; asked are those that the
	// server was asked for, with or without an answer.
	acked      map[string]time.Time
	asked      map[string]bool
	violations []string
	// free is from when on a message can be delivered, as far as the client knows, by subscription.
	free map[string]time.Time
	// waited is the longest that one was free until it was delivered, and which.
	waited     time.Duration
	waitedMost string
	// history is what happened to each message, by subscription.
	history map[string][]event
}

type event struct {
	at   time.Time
	what string
}

// note is called under mu.
func (l *Ledger) note(key, format string, args ...any) {
	l.history[key] = append(l.history[key], event{time.Now(), fmt.Sprintf(format, args...)})
}

type sentMessage struct {
	topic string
	// exact: the call is repeated until it succeeds and guarded, so the message is there exactly
	// once. Otherwise a call whose answer was lost may have worked or not.
	exact bool
	// ordered: the calls of its producer follow one another, so that those of one key must be in order.
	ordered      bool
	acknowledged bool
	id           string
	visible      time.Time
}

type hold struct {
	granted, until time.Time
}

// NewLedger makes an empty one.
func NewLedger() *Ledger {
	return &Ledger{
		sent: make(map[string]*sentMessage), bodies: make(map[string]string),
		holds: make(map[string]hold), acked: make(map[string]time.Time), asked: make(map[string]bool),
		free: make(map[string]time.Time), history: make(map[string][]event),
	}
}

func (l *Ledger) violate(format string, args ...any) {
	const enough = 50
	if len(l.violations) < enough {
		l.violations = append(l.violations, fmt.Sprintf(format, args...))
	}
}

// send notes bodies before they are sent.
func (l *Ledger) send(topic string, exact bool, bodies []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range bodies {
		l.sent[b] = &sentMessage{topic: topic, exact: exact, ordered: exact && topic != Later}
	}
}

// acknowledge notes the server's answer for bodies.
func (l *Ledger) acknowledge(bodies []string, results []wire.ProduceResult) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(results) != len(bodies) {
		l.violate("%d results for %d messages", len(results), len(bodies))
		return nil
	}
	var err error
	for i, r := range results {
		if r.Error != nil {
			err = fmt.Errorf("message %q: %s: %s", bodies[i], r.Error.Code, r.Error.Message)
			continue
		}
		m := l.sent[bodies[i]]
		m.acknowledged, m.id, m.visible = true, r.ID, r.VisibleAt.Millis().Time()
		if r.ID != "" {
			l.identify(r.ID, bodies[i])
		}
		for _, sub := range Subscriptions()[m.topic] {
			key := m.topic + "/" + sub + " " + bodies[i]
			if _, ok := l.free[key]; !ok {
				l.free[key] = latest(time.Now(), m.visible)
				l.note(key, "acknowledged as %s, visible from %v on", r.ID, m.visible)
			}
		}
	}
	return err
}

// identify holds an id against what it was seen with before: invariant 2.
func (l *Ledger) identify(id, body string) {
	if was, ok := l.bodies[id]; ok && was != body {
		l.violate("invariant 2: id %s was %q and is %q", id, was, body)
	}
	l.bodies[id] = body
}

// deliver judges a claimed message. asked and answered are the times around the claim call, between
// which the server granted it.
func (l *Ledger) deliver(sub string, m *wire.Message, asked, answered time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	body := ""
	if m.Body != nil {
		body = *m.Body
	}
	sent, ok := l.sent[body]
	if !ok {
		l.violate("invariant 1: %s delivers %s with a body that nobody sent: %q", sub, m.ID, body)
		return
	}
	l.identify(m.ID, body)
	key := sub + " " + m.ID
	if at, ok := l.acked[key]; ok && at.Before(asked) {
		l.violate("invariant 7: %s delivers %s again, which was acked %v before", sub, m.ID, asked.Sub(at))
	}
	if h, ok := l.holds[key]; ok && h.granted.Before(asked) && h.until.After(answered) {
		l.violate("invariant 6: %s delivers %s while a claim holds it for another %v", sub, m.ID, h.until.Sub(answered))
	}
	if v := m.VisibleAt.Millis().Time(); answered.Before(v) || !sent.visible.IsZero() && answered.Before(sent.visible) {
		l.violate("invariant 6: %s delivers %s before its visible time", sub, m.ID)
	}
	until := m.ClaimExpiresAt.Millis().Time()
	l.holds[key] = hold{answered, until}
	free := sub + " " + body
	l.note(free, "delivered as %s, attempt %d, asked for %v before, until %v", m.ID, m.Attempt, answered.Sub(asked), until)
	if since, ok := l.free[free]; ok {
		if waited := answered.Sub(since); waited > l.waited {
			l.waited, l.waitedMost = waited, free
		}
	}
	l.free[free] = until // unless it is acked before, or released: then it may come earlier
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Waited is the longest time for which a message that could be delivered was not, and that one's history. A message
// is taken to be held as long as the last claim of it that a consumer heard of; so a claim whose answer was lost
// counts as waiting.
func (l *Ledger) Waited() (time.Duration, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	history := l.waitedMost
	for _, e := range l.history[l.waitedMost] {
		history += fmt.Sprintf("\n%s %s", e.at.Format(time.StampMilli), e.what)
	}
	return l.waited, history
}

// settle notes that a consumer gives its hold up; it is called before the server is asked to.
func (l *Ledger) settle(sub, id string, ack bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, sub+" "+id)
	l.note(sub+" "+l.bodies[id], "given up, ack: %t", ack)
	l.asked[sub+" "+id] = l.asked[sub+" "+id] || ack
}

// ack notes a confirmed ack.
func (l *Ledger) ack(sub, id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[sub+" "+id] = at
}

func (l *Ledger) report() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.violations...)
}

// Counts are messages sent and acknowledged to their producers, and acks confirmed.
func (l *Ledger) Counts() (sent, acknowledged, acks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.sent {
		if m.acknowledged {
			acknowledged++
		}
	}
	return len(l.sent), acknowledged, len(l.acked)
}
