//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// healed bounds how long it may take after a fault until messages go through again.
	healed = 20 * time.Second
	// stopPatience bounds an ordered stop.
	stopPatience = 20 * time.Second
)

// fault is a kind of fault. A restarting one ends the process, which begins the compactor's interval anew.
type fault struct {
	name     string
	restarts bool
	do       func(*soak) string // what it did, for the list of faults
}

func faults() []fault {
	return []fault{
		{"kill", true, (*soak).kill},
		{"restart", true, (*soak).restart},
		{"stop", false, (*soak).freeze},
		{"full", false, (*soak).fillUp},
		{"full-restart", true, (*soak).fillAndRestart},
		{"jump", false, (*soak).jump},
		{"jump", false, (*soak).jump}, // twice as likely
		{"jump-down", true, (*soak).jumpWhileDown},
	}
}

// strike carries a fault out, notes it, and sees that messages go through afterwards.
func (s *soak) strike(f fault) {
	at, in, out := time.Now(), s.in(), s.out()
	what := f.do(s)
	s.note(f.name, fmt.Sprintf("%s %s%s", at.Format(time.TimeOnly), f.name, what))
	if err := s.probe(); err != nil {
		now, _ := s.clock.shift()
		s.fail("after %s%s, with the clock at %v: no message goes through: %v", f.name, what, now, err)
		return
	}
	// The load goes through, too: producers are answered and consumers acked.
	in, out = max(in, s.in()), max(out, s.out())
	for end := time.Now().Add(healed); s.in() == in || s.out() == out; time.Sleep(retryPause) {
		if time.Now().After(end) {
			s.fail("after %s%s: %v later the load stands still: %d more messages in, %d out", f.name, what, healed, s.in()-in, s.out()-out)
			return
		}
	}
}

func (s *soak) kill() string {
	s.server.Kill()
	s.startServer()
	return ""
}

func (s *soak) startServer() {
	if err := s.server.TryStart(); err != nil {
		s.t.Fatalf("the server does not start: %v\n%s", err, s.story())
	}
}

func (s *soak) restart() string {
	if err := s.server.Stop(stopPatience); err != nil {
		s.fail("ordered stop: %v", err)
	}
	s.startServer()
	return ""
}

// freeze stops the process in the middle of whatever it does.
func (s *soak) freeze() string {
	d := time.Duration(500+s.dice.IntN(int(s.longest/time.Millisecond))) * time.Millisecond
	s.must(s.server.Signal(syscall.SIGSTOP))
	_ = pause(s.ctx, d)
	s.must(s.server.Signal(syscall.SIGCONT))
	return " for " + d.String()
}

// steps are by how much the clock jumps.
var steps = []time.Duration{3 * time.Second, 90 * time.Second, 20 * time.Minute, time.Hour, 5 * time.Hour}

// jump sets the clock forward or back, from where the round began.
func (s *soak) jump() string {
	before, _ := s.clock.shift()
	by := steps[s.dice.IntN(len(steps))]
	if s.dice.IntN(2) == 0 {
		by = -by
	}
	if s.dice.IntN(10) == 0 {
		by = 26 * time.Hour // past the time that uploads are kept
	}
	s.clock.set(s.began + by)
	return fmt.Sprintf(" by %v", s.began+by-before)
}

func (s *soak) jumpWhileDown() string {
	s.server.Kill()
	what := s.jump()
	s.startServer()
	return what
}

// fillUp leaves little or no room on the disk for some seconds.
func (s *soak) fillUp() string {
	spare := []int64{0, 0, 4 << 10, 64 << 10, 1 << 20}[s.dice.IntN(5)]
	s.must(s.disk.fill(s.server.PID(), spare))
	s.whileFull(time.Duration(2000+s.dice.IntN(4000)) * time.Millisecond)
	s.must(s.disk.free(s.server.PID()))
	return fmt.Sprintf(" but for %d bytes", spare)
}

// fillAndRestart starts the server on a full disk: it may refuse to start, but not damage anything.
func (s *soak) fillAndRestart() string {
	s.must(s.disk.fill(s.server.PID(), 0))
	s.whileFull(time.Second)
	what := " killed"
	if s.dice.IntN(2) == 0 {
		s.server.Kill()
	} else {
		what = " stopped"
		if err := s.server.Stop(stopPatience); err != nil {
			s.fail("ordered stop on a full disk: %v", err)
		}
	}
	s.must(s.disk.fill(0, 0)) // the rest that its end may have left
	if err := s.server.TryStart(); err != nil {
		what += ", does not start: " + err.Error()
	} else {
		s.must(s.disk.fill(s.server.PID(), 0))
		s.whileFull(time.Second)
	}
	s.must(s.disk.free(s.server.PID()))
	if s.server.PID() == 0 {
		s.startServer()
	}
	return what
}

// beginFull starts the server for the first time, on a disk that has no room for a data folder: it says so and ends,
// and what it has left is no hindrance once there is room.
func (s *soak) beginFull() {
	if !s.disk.mounted {
		s.server.Start()
		return
	}
	s.must(s.disk.fill(0, int64(s.dice.IntN(5))<<12)) // none, or some of the first pages
	if err := s.server.TryStart(); err == nil {
		s.fail("it started a new data folder on a full disk")
		s.server.Kill()
	}
	if log, err := os.ReadFile(s.server.Log()); err != nil || !strings.Contains(string(log), "the disk has no room") {
		s.fail("it does not say why it cannot start on a full disk: %s, %v", log, err)
	}
	s.must(s.disk.free(0))
	s.server.Start()
}

// whileFull sees for a time how the server answers on a full disk: what is there is read, what is new is taken or
// refused by its name.
func (s *soak) whileFull(d time.Duration) {
	c, refused, out := s.client(), 0, s.out()
	defer func() { s.acked += s.out() - out }()
	for end := time.Now().Add(d); time.Now().Before(end) && s.ctx.Err() == nil; _ = pause(s.ctx, 200*time.Millisecond) {
		results, err := c.Produce(s.ctx, s.probeTopic, []client.Message{{Body: make([]byte, 100<<10)}}, client.Guard{})
		if err == nil {
			err = firstOf(results)
		}
		var api *client.APIError
		switch {
		case err == nil:
		case errors.As(err, &api) && api.Code == queue.CodeStorageFull && api.Status == queue.CodeStorageFull.Status() && api.Retryable:
			refused++
		default:
			s.fail("a produce on a full disk is answered with: %v", err)
		}
		page, err := c.Peek(s.ctx, s.probeTopic, client.PeekOptions{Limit: 1})
		if err != nil || len(page.Messages) == 0 {
			s.fail("a peek on a full disk is answered with: %v", err)
		}
	}
	s.full += refused
}

const probeSub = "probe"

// renewProbe has the probes go to a topic of their own for each round: kept for ever, they would hold the files that they share
// with what is deleted.
func (s *soak) renewProbe(name string) {
	old := s.probeTopic
	s.probeTopic = name
	_, err := s.admin.CreateTopic(s.ctx, name, client.TopicConfig{})
	s.must(err)
	_, err = s.admin.CreateSubscription(s.ctx, name, probeSub, client.SubscriptionConfig{})
	s.must(err)
	s.must(s.probe())
	if old != "" {
		s.must(s.admin.DeleteTopic(s.ctx, old))
	}
}

// probe sends a message and waits until it comes and is acked, all within healed.
func (s *soak) probe() error {
	ctx, cancel := context.WithTimeout(s.ctx, healed)
	defer cancel()
	s.probes++
	body := fmt.Sprintf("probe %d", s.probes)
	c := s.client()
	again := func(what string, f func() error) error {
		for {
			err := f()
			if err == nil || !passing(err) {
				return err
			}
			if pause(ctx, retryPause) != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	err := again("produce", func() error {
		results, err := c.Produce(ctx, s.probeTopic, []client.Message{{Body: []byte(body)}}, client.Guard{})
		return errors.Join(err, firstOf(results))
	})
	for found := false; err == nil && !found; {
		err = again("claim", func() error {
			got, err := c.Claim(ctx, s.probeTopic, probeSub, client.ClaimOptions{MaxMessages: 100, Wait: claimWait, VisibilityTimeout: visibility})
			if err != nil {
				return err
			}
			var all []client.Receipt
			for _, m := range got {
				found = found || string(m.Body) == body
				all = append(all, m.Receipt)
			}
			if len(all) > 0 {
				_, err = c.Ack(ctx, s.probeTopic, probeSub, all)
			}
			return err
		})
		if ctx.Err() != nil && !found {
			return fmt.Errorf("it was sent and does not come: %w", ctx.Err())
		}
	}
	return err
}
