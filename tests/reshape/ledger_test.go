package reshape

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// sent is what is known of a message that was sent.
type sent struct {
	key string
	n   int // its place among those of the key, from 0; the key's are sent one after another
	// id is the answer's; acked says that there was one. due is when a delayed one may be seen.
	id    client.MessageID
	acked bool
	due   time.Time
	// from and to are when it was sent for the first time, and when it was answered.
	from, to time.Time
	guarded  bool
}

// ledger is the record of a topic, kept outside of the server. Safe for concurrent use.
type ledger struct {
	topic string
	mu    sync.Mutex // guards all
	sent  map[string]*sent
	subs  map[string]*seen
	wrong []string
}

// seen is what a subscription gave.
type seen struct {
	keyed bool
	// claims are the unsettled deliveries by body; done those whose ack was sent; acked those whose ack was
	// answered; got the number of deliveries.
	claims map[string]client.Received
	done   map[string]queue.ClaimID
	acked  map[string]bool
	got    map[string]int
	// next is, by key, the first message that is not done.
	next map[string]int
}

func newLedger(topic string) *ledger {
	return &ledger{topic: topic, sent: map[string]*sent{}, subs: map[string]*seen{}}
}

func newSeen(keyed bool) *seen {
	return &seen{
		keyed: keyed, claims: map[string]client.Received{}, done: map[string]queue.ClaimID{}, acked: map[string]bool{},
		got: map[string]int{}, next: map[string]int{},
	}
}

func (l *ledger) subscribe(name string, keyed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs[name] = newSeen(keyed)
}

const maxWrong = 30

// fault notes what breaks a promise. The caller has the lock.
func (l *ledger) fault(format string, args ...any) {
	if len(l.wrong) < maxWrong {
		l.wrong = append(l.wrong, l.topic+": "+fmt.Sprintf(format, args...))
	}
}

func bodyOf(key string, n int) string { return fmt.Sprintf("%s/%d", key, n) }

func (l *ledger) send(key string, n int, guarded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[bodyOf(key, n)] = &sent{key: key, n: n, guarded: guarded, from: time.Now()}
}

func (l *ledger) answer(key string, n int, r *client.Result, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.sent[bodyOf(key, n)]
	if r.Err != nil {
		l.fault("message %s/%d was refused: %v", key, n, r.Err)
		return
	}
	m.acked, m.to, m.id = true, time.Now(), r.ID
	m.due = m.from.Add(delay)
}

// deliver judges a claim's messages.
func (l *ledger) deliver(sub string, got []*client.Received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := l.subs[sub]
	here := map[string]bool{}
	for _, m := range got {
		body := string(m.Body)
		of := l.sent[body]
		switch {
		case m.Err != nil:
			l.fault("%s: message %s: %v", sub, m.ID, m.Err)
			continue
		case of == nil:
			l.fault("%s: a message that nobody sent: %q", sub, body)
			continue
		case of.key[0] != '-' && of.key != string(m.Key):
			l.fault("%s: %s has the key %q", sub, body, m.Key)
		case of.acked && of.id != (client.MessageID{}) && of.id != m.ID:
			l.fault("%s: %s is %s, was acknowledged as %s", sub, body, m.ID, of.id)
		case now.Before(of.due):
			l.fault("%s: %s came %v early", sub, body, of.due.Sub(now))
		}
		if s.acked[body] {
			l.fault("%s: %s comes again after its ack", sub, body)
		}
		if c, held := s.claims[body]; held && c.Receipt.Claim != m.Receipt.Claim && c.ClaimExpires.After(now) {
			l.fault("%s: %s is in two claims", sub, body)
		}
		if s.keyed && of.key[0] != '-' {
			l.inOrder(sub, s, of, m, here, now)
		}
		s.claims[body] = *m
		s.got[body]++
		here[body] = true
	}
}

// inOrder judges a delivery to a subscription in order by key. here are the messages that came before it in
// the same answer.
func (l *ledger) inOrder(sub string, s *seen, of *sent, m *client.Received, here map[string]bool, now time.Time) {
	for s.done[bodyOf(of.key, s.next[of.key])] != (queue.ClaimID{}) {
		s.next[of.key]++
	}
	for n := s.next[of.key]; n < of.n; n++ {
		earlier := bodyOf(of.key, n)
		if s.done[earlier] == (queue.ClaimID{}) && !here[earlier] && l.sent[earlier] != nil {
			l.fault("%s: %s comes before %s is done (deliveries of that: %d)", sub, m.Body, earlier, s.got[earlier])
		}
	}
	for n := s.next[of.key]; n <= of.n+64; n++ {
		other := bodyOf(of.key, n)
		// Several of a key may come together, in one answer.
		if c, held := s.claims[other]; held && !here[other] && c.Receipt.Claim != m.Receipt.Claim && c.ClaimExpires.After(now) {
			l.fault("%s: %s comes while %s of its key is claimed", sub, m.Body, other)
		}
	}
}

// settle notes that a message is about to be acked or released.
func (l *ledger) settle(sub string, m *client.Received, ack bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.subs[sub]
	delete(s.claims, string(m.Body))
	if ack {
		s.done[string(m.Body)] = m.Receipt.Claim
	}
}

// ack notes the answer to an ack. One that did not count is as if it had not been sent, so that the message is
// to come again.
func (l *ledger) ack(sub string, m *client.Received, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, body := l.subs[sub], string(m.Body)
	if err == nil {
		s.acked[body] = true
	} else if s.done[body] == m.Receipt.Claim {
		delete(s.done, body)
		if of := l.sent[body]; of != nil {
			s.next[of.key] = min(s.next[of.key], of.n)
		}
	}
}

// missing gives the messages that were acknowledged to their producers and are not done.
func (l *ledger) missing(sub string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for body, m := range l.sent {
		if m.acked && !l.subs[sub].acked[body] && l.subs[sub].done[body] == (queue.ClaimID{}) {
			out = append(out, body)
		}
	}
	slices.Sort(out)
	return out
}

// found is a message of the log.
type found struct {
	id    client.MessageID
	epoch queue.Epoch
}

// balance holds the log against what was sent.
func (l *ledger) balance(log map[string][]found) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for body, places := range log {
		switch m := l.sent[body]; {
		case m == nil:
			l.fault("the log has %q, which nobody sent", body)
		case len(places) > 1:
			l.fault("%s is in the log %d times: %v", body, len(places), places)
		case m.acked && m.id != (client.MessageID{}) && m.id != places[0].id:
			l.fault("%s is at %v, was acknowledged as %v", body, places[0].id, m.id)
		}
	}
	last := map[string]found{}
	inOrder := slices.SortedFunc(maps.Keys(l.sent), func(a, b string) int { return l.sent[a].n - l.sent[b].n })
	for _, body := range inOrder {
		m, places := l.sent[body], log[body]
		if len(places) == 0 {
			if m.acked {
				l.fault("%s was acknowledged as %v and is lost", body, m.id)
			}
			continue
		}
		at, before := places[0], last[m.key]
		same := at.id.Segment == before.id.Segment
		if m.key[0] != '-' && m.due.Equal(m.from) && (at.epoch < before.epoch || same && at.id.Offset <= before.id.Offset) {
			l.fault("%s is at %v of epoch %d, the one before it at %v of epoch %d", body, at.id, at.epoch, before.id, before.epoch)
		}
		last[m.key] = at
	}
}
