package demo

import (
	"sync"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/digest"
	"github.com/spillway-mq/spillway/pkg/client"
)

// entry is one message as its producer knows it.
type entry struct {
	producer, sequence int
	body               []byte
}

// ledger is the record kept outside of the queue.
type ledger struct {
	mu   sync.Mutex // guards what follows
	sent digest.Sum
	got  digest.Sum
	// tracks has one list for each producer, by sequence.
	tracks [][]track
	// working are messages that were handled and whose acknowledgement is not confirmed yet.
	working map[client.Receipt]work
	strange uint64
}

// track is what is known of one message.
type track struct {
	due      time.Time // zero for at once
	produced bool
	acked    uint8
}

type work struct {
	producer, sequence int
	sum                digest.Sum
}

func newLedger(producers int) *ledger {
	return &ledger{tracks: make([][]track, producers), working: map[client.Receipt]work{}}
}

// at gives the track of a message; nil for one that cannot be ours. The caller holds mu.
func (l *ledger) at(producer, sequence int) *track {
	const most = 1 << 30
	if producer < 0 || producer >= len(l.tracks) || sequence < 0 || sequence > most {
		return nil
	}
	for len(l.tracks[producer]) <= sequence {
		l.tracks[producer] = append(l.tracks[producer], track{})
	}
	return &l.tracks[producer][sequence]
}

func (l *ledger) dueAt(e entry, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at(e.producer, e.sequence).due = due
}

// isEarly allows for the milliseconds that times are rounded to.
func (l *ledger) isEarly(e entry, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.at(e.producer, e.sequence)
	return t != nil && !t.due.IsZero() && now.Before(t.due.Add(-time.Millisecond))
}

func (l *ledger) produced(e entry) {
	var one digest.Sum
	one.Add(e.body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at(e.producer, e.sequence).produced = true
	l.sent.Merge(one)
}

// handled notes the content that a delivery had.
func (l *ledger) handled(r client.Receipt, e entry) {
	w := work{producer: e.producer, sequence: e.sequence}
	w.sum.Add(e.body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working[r] = w
}

// consumed counts a delivery that was acknowledged.
func (l *ledger) consumed(r client.Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.working[r]
	t := l.at(w.producer, w.sequence)
	if !ok || t == nil {
		l.strange++
		return
	}
	delete(l.working, r)
	l.got.Merge(w.sum)
	if t.acked < 255 {
		t.acked++
	}
}

// balance counts what was produced and never acknowledged, and what was acknowledged twice or never
// produced.
func (l *ledger) balance() (sent, got digest.Sum, lost, doubled uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	doubled = l.strange
	for _, tracks := range l.tracks {
		for _, t := range tracks {
			switch {
			case t.produced && t.acked == 0:
				lost++
			case t.acked > 1, t.acked > 0 && !t.produced:
				doubled++
			}
		}
	}
	return l.sent, l.got, lost, doubled
}
