package demo

import (
	"bytes"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestLedger: the verdict must be able to be bad.
func TestLedger(t *testing.T) {
	receipt := func(n int) client.Receipt { return client.Receipt{Lo: queue.Offset(n)} }
	e := func(sequence int) entry { return entry{0, sequence, []byte{byte(sequence)}} }
	deliver := func(l *ledger, n int, e entry) {
		l.handled(receipt(n), e)
		l.consumed(receipt(n))
	}
	for _, c := range []struct {
		name          string
		do            func(*ledger)
		lost, doubled uint64
		equal         bool
	}{
		{"each once", func(l *ledger) {
			l.produced(e(0))
			l.produced(e(1))
			deliver(l, 1, e(1))
			deliver(l, 0, e(0))
		}, 0, 0, true},
		{"acknowledged before its producer knew", func(l *ledger) {
			deliver(l, 0, e(0))
			l.produced(e(0))
		}, 0, 0, true},
		{"lost", func(l *ledger) {
			l.produced(e(0))
			l.produced(e(1))
			deliver(l, 0, e(0))
		}, 1, 0, false},
		{"handled and never acknowledged", func(l *ledger) {
			l.produced(e(0))
			l.handled(receipt(0), e(0))
		}, 1, 0, false},
		{"doubled", func(l *ledger) {
			l.produced(e(0))
			deliver(l, 0, e(0))
			deliver(l, 1, e(0))
		}, 0, 1, false},
		{"never produced", func(l *ledger) { deliver(l, 0, e(5)) }, 0, 1, false},
		{"of a producer that is none of ours", func(l *ledger) { deliver(l, 0, entry{9, 0, nil}) }, 0, 1, true},
		{"another body", func(l *ledger) {
			l.produced(e(0))
			deliver(l, 0, entry{0, 0, []byte("other")})
		}, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(1)
			c.do(l)
			sent, got, lost, doubled := l.balance()
			if lost != c.lost || doubled != c.doubled || (sent == got) != c.equal {
				t.Errorf("lost %d, doubled %d, equal %v", lost, doubled, sent == got)
			}
		})
	}
}

func TestEarly(t *testing.T) {
	l := newLedger(1)
	due := time.Now()
	late, soon := entry{0, 0, nil}, entry{0, 1, nil}
	l.dueAt(late, due)
	l.produced(soon)
	for _, c := range []struct {
		e    entry
		at   time.Time
		want bool
	}{
		{late, due.Add(-5 * time.Millisecond), true},
		{late, due, false},
		{soon, due.Add(-time.Hour), false},
	} {
		if got := l.isEarly(c.e, c.at); got != c.want {
			t.Errorf("%v at %v: %v", c.e, c.at, got)
		}
	}
}

func TestBodiesNameThemselves(t *testing.T) {
	a, b := newSource(3), newSource(3)
	for want := range 3 {
		body, sequence := a.body(600)
		same, _ := b.body(600)
		producer, parsed, err := parse(body)
		if err != nil || producer != 3 || parsed != want || sequence != want || len(body) != 600 || !bytes.Equal(body, same) {
			t.Errorf("%d %d %v of %q", producer, parsed, err, body)
		}
	}
	if _, _, err := parse([]byte("x")); err == nil {
		t.Error("x names a producer")
	}
}
