//go:build linux

package soak

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// story is a topic with a keyed subscription and a loose one, and what happens to it.
type story struct {
	*ledger
	t *testing.T
}

func (s story) id(n int) client.MessageID {
	return client.MessageID{Segment: "0123456789abcdef", Offset: queue.Offset(n)}
}

// sends has messages 0 to n-1 of key k sent and acknowledged, visible at once.
func (s story) sends(n int) {
	for i := range n {
		of := name{"k", i}
		s.send(of, false)
		now := s.clock.latest(time.Now(), time.Now())
		s.answer(of, &client.Result{ID: s.id(i), Created: now, Visible: now}, time.Now())
	}
}

// comes delivers a message under a claim of its own.
func (s story) comes(sub string, n int, claim byte) delivered {
	now := s.clock.latest(time.Now(), time.Now())
	d := delivered{name: name{"k", n}, Received: &client.Received{
		ID: s.id(n), Key: []byte("k"), Visible: s.sent[name{"k", n}.String()].visible,
		Receipt: client.Receipt{Claim: queue.ClaimID{claim}}, ClaimExpires: now.Add(time.Minute),
	}}
	s.deliver(sub, []delivered{d}, time.Now())
	return d
}

func (s story) acks(sub string, d delivered) {
	s.settle(sub, &d, true)
	s.ack(sub, &d, nil, false)
}

// log is what the log has if all is well.
func (s story) log(n int) map[string][]found {
	out := map[string][]found{}
	for i := range n {
		out[name{"k", i}.String()] = []found{{s.id(i), i}}
	}
	return out
}

// TestLedger: each broken promise is found, and what may happen is not taken for one.
func TestLedger(t *testing.T) {
	for want, play := range map[string]func(s story) []string{
		"": func(s story) []string {
			s.sends(2)
			s.acks("keyed", s.comes("keyed", 0, 1))
			s.acks("keyed", s.comes("keyed", 1, 2))
			s.comes("loose", 0, 3)
			s.clock.set(time.Hour) // its claim is over
			s.acks("loose", s.comes("loose", 0, 4))
			s.clock.set(-time.Hour)
			s.acks("loose", s.comes("loose", 1, 5))
			s.send(name{"k", 2}, false) // its call has no answer yet, and is tried over a long jump
			s.acks("loose", s.comes("loose", 2, 6))
			s.clock.set(time.Hour)
			s.comes("loose", 2, 7)
			return s.balance(s.log(2))
		},
		"is lost": func(s story) []string { s.sends(2); return s.balance(s.log(1)) },
		"in the log 2 times": func(s story) []string {
			s.sends(1)
			log := s.log(1)
			log["k#0"] = append(log["k#0"], found{s.id(7), 7})
			return s.balance(log)
		},
		"which nobody sent in this round": func(s story) []string { s.sends(1); return s.balance(s.log(2)) },
		"was acknowledged as": func(s story) []string {
			s.sends(1)
			return s.balance(map[string][]found{"k#0": {{s.id(5), 0}}})
		},
		"is before k#0 in the log": func(s story) []string {
			s.sends(2)
			log := s.log(2)
			log["k#0"][0].at, log["k#1"][0].at = 1, 0
			return s.balance(log)
		},
		"after its ack": func(s story) []string {
			s.sends(1)
			s.acks("loose", s.comes("loose", 0, 1))
			s.comes("loose", 0, 2)
			return s.wrong
		},
		"in two claims": func(s story) []string {
			s.sends(1)
			s.comes("loose", 0, 1)
			s.comes("loose", 0, 2)
			return s.wrong
		},
		"before k#0": func(s story) []string { s.sends(2); s.comes("keyed", 1, 1); return s.wrong },
		"before its time": func(s story) []string {
			s.sends(1)
			s.sent["k#0"].visible = time.Now().Add(time.Minute)
			s.comes("loose", 0, 1)
			return s.wrong
		},
		"done in a round before": func(s story) []string {
			s.sends(1)
			d := s.comes("loose", 0, 1)
			s.balance(s.log(1))
			s.deliver("loose", []delivered{d}, time.Now())
			return s.wrong
		},
		"was acked and is in the dead-letter topic": func(s story) []string {
			s.sends(1)
			s.bury("loose", name{"k", 0})
			s.acks("loose", s.comes("loose", 0, 1))
			return s.wrong
		},
	} {
		t.Run(want, func(t *testing.T) {
			s := story{newLedger("t", newClock(t)), t}
			s.subscribe("keyed", true, false)
			s.subscribe("loose", false, false)
			switch wrong := play(s); {
			case want == "" && len(wrong) > 0:
				t.Errorf("nothing is wrong, but the ledger says %q", wrong)
			case want != "" && (len(wrong) == 0 || !strings.Contains(wrong[0], want)):
				t.Errorf("the ledger says %q", wrong)
			}
		})
	}
}

// TestMissing: what was acknowledged and has not come is missing, until it is acked or dead.
func TestMissing(t *testing.T) {
	s := story{newLedger("t", newClock(t)), t}
	s.subscribe("loose", false, false)
	s.sends(3)
	s.acks("loose", s.comes("loose", 0, 1))
	s.bury("loose", name{"k", 1})
	d := s.comes("loose", 2, 2)
	s.settle("loose", &d, true)
	s.ack("loose", &d, client.ErrClaimLost, false)
	if got := s.missing("loose"); len(got) != 1 || !strings.HasPrefix(got[0], "k#2 ") {
		t.Errorf("missing: %q", got)
	}
}

// TestSeek: after a seek everything has to come again, but for what is acked while it is made; after one that may not
// have taken effect nothing has to.
func TestSeek(t *testing.T) {
	for name, worked := range map[string]bool{"worked": true, "perhaps not": false} {
		t.Run(name, func(t *testing.T) {
			s := story{newLedger("t", newClock(t)), t}
			s.subscribe("again", false, true)
			s.sends(2)
			s.acks("again", s.comes("again", 0, 1))
			back := s.seek("again")
			s.acks("again", s.comes("again", 1, 2))
			want := 1
			if !worked {
				back()
				want = 0
			}
			if got := s.missing("again"); len(got) != want {
				t.Errorf("missing: %q", got)
			}
		})
	}
}

func TestClock(t *testing.T) {
	c := newClock(t)
	start := time.Now()
	c.set(time.Hour)
	c.set(-time.Minute)
	if got := time.Until(c.latest(start, time.Now())); got < 59*time.Minute || got > time.Hour {
		t.Errorf("at most %v ahead", got)
	}
	after := time.Now().Add(time.Millisecond)
	if got := c.latest(after, after).Sub(after); got != -time.Minute {
		t.Errorf("afterwards %v ahead", got)
	}
	if got := c.spread(start); got != time.Hour+time.Minute {
		t.Errorf("spread %v", got)
	}
	c.forget(after)
	if now, most := c.shift(); now != -time.Minute || most != time.Hour || len(c.shifts) != 1 {
		t.Errorf("after forgetting: %v, %v, %d", now, most, len(c.shifts))
	}
}

// TestDisk: a full disk takes nothing, and takes it again afterwards.
func TestDisk(t *testing.T) {
	d := newDisk(t, 1<<20)
	if !d.mounted {
		return // it has said so; a limit is of a server's process
	}
	put := func() error { return os.WriteFile(filepath.Join(d.dir, "file"), make([]byte, 64<<10), 0o600) }
	for range 2 {
		if err := d.fill(0, 0); err != nil {
			t.Fatal(err)
		}
		if err := put(); err == nil {
			t.Error("a full disk took a file")
		}
		if err := d.free(0); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Errorf("after the room came back: %v", err)
		}
		if err := os.Remove(filepath.Join(d.dir, "file")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBody(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	of := name{"a.1", 7}
	body := bodyOf(of, 100, rng)
	if got, err := parseBody(body); err != nil || got != of {
		t.Errorf("%v, %v", got, err)
	}
	for i := range body {
		bad := append([]byte(nil), body...)
		bad[i] ^= 1
		if got, err := parseBody(bad); err == nil {
			t.Fatalf("byte %d changed: taken for %v", i, got)
		}
	}
}
