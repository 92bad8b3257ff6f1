//go:build linux

package soak

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// ledger is the record of one topic, kept outside of the server. What was verified is forgotten (settled). Safe for
// concurrent use.
type ledger struct {
	topic string
	clock *clock
	// delayed: messages wait, so that their order is that of their visible times.
	delayed bool

	mu    sync.Mutex // guards all below
	sent  map[string]*sent
	subs  map[string]*seen
	base  map[string]int // by key: the first number that is not forgotten
	wrong []string
	// in and out are messages acknowledged to their producers, and acks confirmed.
	in, out int
}

// sent is what is known of a message that was sent.
type sent struct {
	key     string
	n       int // its place among those of the key; they are sent one after another
	id      client.MessageID
	acked   bool // it was acknowledged to its producer
	visible time.Time
	from    time.Time // when it was sent first
	// loose: a call without a guard, which may have worked although it was not acknowledged. It is never made again.
	loose bool
	// twice: its call was tried over a jump of the clock that is longer than retries are known for, so that it may be
	// there twice. The promise ends with that time (queue.IdempotencyWindow, queue.MinProducerWindow).
	twice bool
}

// seen is what a subscription gave.
type seen struct {
	keyed bool
	// replayed: it is set back now and then, so that what was acked comes again.
	replayed bool
	holds    map[string]hold
	done     map[string]queue.ClaimID // by which claim an ack was sent
	acked    map[string]time.Time     // an ack was confirmed
	dead     map[string]bool          // it came to the dead-letter topic
	next     map[string]int           // by key: the first that is not done
}

// hold is a claim as its consumer knows it.
type hold struct {
	receipt client.Receipt
	granted time.Time // by this machine's clock
	until   time.Time // by the server's
}

func newLedger(topic string, c *clock) *ledger {
	return &ledger{topic: topic, clock: c, sent: map[string]*sent{}, subs: map[string]*seen{}, base: map[string]int{}}
}

func (l *ledger) subscribe(name string, keyed, replayed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs[name] = &seen{
		keyed: keyed, replayed: replayed, holds: map[string]hold{}, done: map[string]queue.ClaimID{}, acked: map[string]time.Time{},
		dead: map[string]bool{}, next: map[string]int{},
	}
}

const maxWrong = 20

// fault notes what breaks a promise. The caller has the lock.
func (l *ledger) fault(format string, args ...any) {
	if len(l.wrong) < maxWrong {
		l.wrong = append(l.wrong, time.Now().Format(time.TimeOnly)+" "+l.topic+": "+fmt.Sprintf(format, args...))
	}
}

func (l *ledger) send(of name, loose bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[of.String()] = &sent{key: of.key, n: of.n, loose: loose, from: time.Now()}
}

// answer notes a message's result. tried is when its call was tried first.
func (l *ledger) answer(of name, r *client.Result, tried time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.sent[of.String()]
	m.acked, m.id, m.visible = true, r.ID, r.Visible
	m.twice = l.clock.spread(tried) >= remembered
	l.in++
}

// remembered is how long a retry is known for sure, with a margin: queue.MinProducerWindow is 4 minutes.
const remembered = 3 * time.Minute

// deliver judges a claim's messages. asked is when the call began.
func (l *ledger) deliver(sub string, got []delivered, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := l.subs[sub]
	here := map[string]bool{}
	for i := range got {
		m := &got[i]
		if m.wrong != "" {
			l.fault("%s: message %s: %s", sub, m.ID, m.wrong)
			continue
		}
		of := l.known(sub, s, m)
		if of == nil {
			continue
		}
		body, twice := m.name.String(), l.twice(of)
		latest := l.clock.latest(of.from, now)
		if latest.Before(m.Visible) || latest.Before(of.visible) {
			l.fault("%s: %s came before its time: visible at %v, the server's clock was at most %v", sub, body, m.Visible, latest)
		}
		if at, ok := s.acked[body]; ok && at.Before(asked) && !s.replayed && !twice {
			l.fault("%s: %s (%s) comes again %v after its ack", sub, body, m.ID, now.Sub(at))
		}
		if h, held := s.holds[body]; held && h.receipt.Claim != m.Receipt.Claim && !s.replayed && !twice && l.clock.latest(h.granted, now).Before(h.until) {
			l.fault("%s: %s is in two claims: one holds it until %v, the server's clock was at most %v", sub, body, h.until, l.clock.latest(h.granted, now))
		}
		if s.keyed {
			l.inOrder(sub, s, of, m, here)
		}
		s.holds[body] = hold{m.Receipt, asked, m.ClaimExpires}
		here[body] = true
	}
}

// twice reports whether a message may be there twice. A call that has no answer yet may have been carried out in part,
// and is still being tried again.
func (l *ledger) twice(of *sent) bool {
	return of.twice || !of.loose && !of.acked && l.clock.spread(of.from) >= remembered
}

// known gives the message that was sent, if it may come.
func (l *ledger) known(sub string, s *seen, m *delivered) *sent {
	of := l.sent[m.name.String()]
	switch {
	case of == nil && m.name.n < l.base[m.name.key]:
		if !s.replayed {
			l.fault("%s: %s (%s) comes again, which was done in a round before", sub, m.name, m.ID)
		}
	case of == nil:
		l.fault("%s: %s (%s), which nobody sent", sub, m.name, m.ID)
	case string(m.Key) != of.key && of.key[0] != '-':
		l.fault("%s: %s has the key %q", sub, m.name, m.Key)
	case of.acked && of.id != (client.MessageID{}) && of.id != m.ID && !of.twice && !l.delayed:
		l.fault("%s: %s is %s, was acknowledged as %s", sub, m.name, m.ID, of.id)
	}
	return of
}

// inOrder judges a delivery to a subscription in order by key. here are the messages that came before it in the same
// answer.
func (l *ledger) inOrder(sub string, s *seen, of *sent, m *delivered, here map[string]bool) {
	if of.key[0] == '-' {
		return
	}
	at := func(n int) string { return name{of.key, n}.String() }
	over := func(n int) bool { _, done := s.done[at(n)]; return done || s.dead[at(n)] }
	s.next[of.key] = max(s.next[of.key], l.base[of.key])
	for over(s.next[of.key]) {
		s.next[of.key]++
	}
	for n := s.next[of.key]; n < of.n; n++ {
		// A loose one that was not acknowledged may not be there at all.
		if before := l.sent[at(n)]; before != nil && before.acked && !over(n) && !here[at(n)] {
			l.fault("%s: %s (%s) comes before %s (%s) is done", sub, m.name, m.ID, at(n), before.id)
		}
	}
}

// settle notes that messages are about to be acked or given back.
func (l *ledger) settle(sub string, m *delivered, ack bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, body := l.subs[sub], m.name.String()
	delete(s.holds, body)
	if ack {
		s.done[body] = m.Receipt.Claim
	}
}

// extended notes that a claim was extended, or may have been.
func (l *ledger) extended(sub string, m *delivered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subs[sub].holds, m.name.String()) // it holds for at least as long; how long is not told
}

// ack notes the answer to an ack. What was not confirmed is to come again, unless nobody knows.
func (l *ledger) ack(sub string, m *delivered, err error, unknown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, body := l.subs[sub], m.name.String()
	switch {
	case err == nil:
		if s.dead[body] && l.sent[body] != nil && !l.sent[body].twice {
			l.fault("%s: %s was acked and is in the dead-letter topic", sub, body)
		}
		s.acked[body] = time.Now()
		l.out++
	case !unknown && s.done[body] == m.Receipt.Claim:
		delete(s.done, body)
		if of := l.sent[body]; of != nil {
			s.next[of.key] = min(s.next[of.key], of.n)
		}
	}
}

// bury notes that a message of sub came to its dead-letter topic.
func (l *ledger) bury(sub string, of name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.sent[of.String()]
	if m == nil {
		if of.n >= l.base[of.key] {
			l.fault("%s: %s is in the dead-letter topic, and nobody sent it", sub, of)
		}
		return
	}
	if _, ok := l.subs[sub].acked[of.String()]; ok && !m.twice {
		l.fault("%s: %s is in the dead-letter topic, and was acked", sub, of)
	}
	l.subs[sub].dead[of.String()] = true
}

// seek notes that a subscription is about to be set back to its beginning: nothing is done any more. What is acked from
// now on may be so before or after that; it need not come again. back takes it back, for a seek that may not have taken
// effect.
func (l *ledger) seek(sub string) (back func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.subs[sub]
	done, acked := s.done, s.acked
	s.done, s.acked = map[string]queue.ClaimID{}, map[string]time.Time{}
	clear(s.holds)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		maps.Copy(done, s.done)
		maps.Copy(acked, s.acked)
		s.done, s.acked = done, acked
	}
}

// missing gives the messages that were acknowledged to their producers and are neither acked nor dead.
func (l *ledger) missing(sub string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	s := l.subs[sub]
	for body, m := range l.sent {
		_, done := s.done[body]
		if _, acked := s.acked[body]; m.acked && !acked && !done && !s.dead[body] {
			out = append(out, fmt.Sprintf("%s (%s, visible %s)", body, m.id, m.visible.Format(time.TimeOnly)))
		}
	}
	slices.Sort(out)
	return out
}

// found is a message of the log.
type found struct {
	id client.MessageID
	// at is its place in the order in which the log was read: segments after their predecessors.
	at int
}

// balance holds the log since the last round against what was sent, and forgets it.
func (l *ledger) balance(log map[string][]found) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for body, places := range log {
		switch m := l.sent[body]; {
		case m == nil:
			l.fault("the log has %q, which nobody sent in this round", body)
		case len(places) > 1 && !m.twice:
			l.fault("%s is in the log %d times: %v", body, len(places), places)
		case m.acked && m.id != (client.MessageID{}) && !slices.ContainsFunc(places, func(f found) bool { return f.id == m.id }):
			l.fault("%s is at %v, was acknowledged as %v", body, places[0].id, m.id)
		}
	}
	byKey := map[string][]*sent{}
	for body, m := range l.sent {
		if m.acked && len(log[body]) == 0 {
			l.fault("%s was acknowledged as %v and is lost", body, m.id)
		}
		byKey[m.key] = append(byKey[m.key], m)
		l.base[m.key] = max(l.base[m.key], m.n+1)
	}
	for key, list := range byKey {
		if key[0] != '-' && !l.delayed {
			l.ordered(list, log)
		}
	}
	clear(l.sent)
	for _, s := range l.subs {
		clear(s.holds)
		clear(s.done)
		clear(s.acked)
		clear(s.dead)
	}
	wrong := l.wrong
	l.wrong = nil
	return wrong
}

// ordered judges the order of one key's messages in the log.
func (l *ledger) ordered(list []*sent, log map[string][]found) {
	slices.SortFunc(list, func(a, b *sent) int { return a.n - b.n })
	last, before := -1, name{}
	for _, m := range list {
		of := name{m.key, m.n}
		places := log[of.String()]
		if len(places) != 1 {
			continue // lost, not acknowledged, or there twice for a reason
		}
		if places[0].at < last {
			l.fault("%s at %v is before %s in the log", of, places[0].id, before)
		}
		last, before = places[0].at, of
	}
}
