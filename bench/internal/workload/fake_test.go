package workload

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/peer"
)

// fake is a peer in memory, with faults on order.
type fake struct {
	// on changes what a group gets in place of the n-th body that was sent, from 0; nil leaves it.
	on func(n int, body []byte) [][]byte
	// stall holds one Send up.
	stall time.Duration
	// start and queue, if set, are the errors of making a server and a queue.
	start, queue error
	// closing is how long a sender takes to close.
	closing time.Duration
	// early takes delays for shorter than they are.
	early time.Duration

	mu      sync.Mutex
	sent    int
	waiting [][]late
	senders map[int]bool
	reused  bool
	spec    peer.Spec
}

// late is a message and when it may be seen.
type late struct {
	body []byte
	at   time.Time
}

func (f *fake) peer() peer.Peer {
	return peer.Peer{Name: "fake", Start: func(context.Context, peer.StartOptions) (peer.Server, error) { return f, f.start }}
}

func (f *fake) Version() string { return "1" }
func (f *fake) Pids() []int     { return []int{os.Getpid()} }
func (f *fake) Stop()           {}

func (f *fake) Queue(_ context.Context, spec peer.Spec) (peer.Queue, error) {
	f.waiting, f.senders, f.spec = make([][]late, spec.Groups), map[int]bool{}, spec
	return f, f.queue
}

func (f *fake) Receivers(n int) int { return n }

func (f *fake) Sender(_ context.Context, i int) (peer.Sender, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reused = f.reused || f.senders[i]
	f.senders[i] = true
	return fakeSender{f}, nil
}

func (f *fake) Receiver(_ context.Context, group, _ int) (peer.Receiver, error) {
	return fakeReceiver{f, group}, nil
}

type fakeSender struct{ *fake }

func (s fakeSender) Close() { time.Sleep(s.closing) }

func (s fakeSender) Send(_ context.Context, bodies [][]byte, delay time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stall > 0 && s.sent > 100 {
		time.Sleep(s.stall)
		s.stall = 0
	}
	for _, body := range bodies {
		out := [][]byte{body}
		if s.on != nil {
			out = s.on(s.sent, body)
		}
		s.sent++
		for group := range s.waiting {
			for _, each := range out {
				s.waiting[group] = append(s.waiting[group], late{slices.Clone(each), time.Now().Add(delay - s.early)})
			}
		}
	}
	return nil
}

type fakeReceiver struct {
	*fake
	group int
}

func (fakeReceiver) Close() {}

func (r fakeReceiver) Receive(_ context.Context, take func([]byte)) (int, error) {
	r.mu.Lock()
	var got [][]byte
	r.waiting[r.group] = slices.DeleteFunc(r.waiting[r.group], func(l late) bool {
		if len(got) == 50 || time.Now().Before(l.at) {
			return false
		}
		got = append(got, l.body)
		return true
	})
	r.mu.Unlock()
	for _, body := range got {
		take(body)
	}
	if len(got) == 0 {
		time.Sleep(time.Millisecond)
	}
	return len(got), nil
}
