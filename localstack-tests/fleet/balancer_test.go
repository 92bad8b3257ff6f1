//go:build localstack

package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/tests/load"
)

// lookEvery is how often the balancer looks at /readyz; drainDelay gives it ten looks.
const (
	lookEvery  = 100 * time.Millisecond
	drainDelay = 10 * lookEvery
)

// balancer sends each call to one of the processes that are ready, as a load balancer would: whichever, so that
// a call that is made again most likely goes to another. It notes the calls that should not have failed.
type balancer struct {
	client *http.Client

	mu    sync.Mutex // guards all below
	rng   *rand.Rand
	all   []*process
	wrong []string
	// lost are calls to killed processes that had no answer; strained are answers of 500 and more.
	lost     int
	strained map[string]int
	// slowest is how long the slowest call took that was answered, the wait of a poll included.
	slowest time.Duration
}

// newBalancer looks at its processes until the test ends.
func newBalancer(t *testing.T, seed uint64) *balancer {
	t.Helper()
	b := &balancer{client: newClient(t), rng: rand.New(rand.NewPCG(seed, 7)), strained: make(map[string]int)}
	ctx, stop := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		for ticker := time.NewTicker(lookEvery); ctx.Err() == nil; <-ticker.C {
			for _, p := range b.processes() {
				p.green.Store(p.ready(ctx, b.client))
			}
		}
	})
	t.Cleanup(func() {
		stop()
		looking.Wait()
	})
	return b
}

func (b *balancer) processes() []*process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// add takes a process in and waits until calls may go to it.
func (b *balancer) add(t *testing.T, p *process) {
	t.Helper()
	b.mu.Lock()
	b.all = append(b.all, p)
	b.mu.Unlock()
	for deadline := time.Now().Add(patience); !p.green.Load(); time.Sleep(lookEvery / 4) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready", p.name)
		}
	}
}

// URL implements load.Target.
func (b *balancer) URL() string {
	for deadline := time.Now().Add(patience); ; time.Sleep(lookEvery / 4) {
		var green []*process
		for _, p := range b.processes() {
			if p.green.Load() {
				green = append(green, p)
			}
		}
		if len(green) > 0 {
			return green[b.below(len(green))].url
		}
		if time.Now().After(deadline) {
			return "http://127.0.0.1:1"
		}
	}
}

// below is a random number in [0, n).
func (b *balancer) below(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.IntN(n)
}

// Do implements load.Target. What is not for a process is a presigned URL.
func (b *balancer) Do(req *http.Request) ([]byte, int, error) {
	began := time.Now()
	data, status, err := load.Send(b.client, req)
	took := time.Since(began)
	var to *process
	for _, p := range b.processes() {
		if strings.HasPrefix(req.URL.String(), p.url) {
			to = p
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case to == nil:
	case err == nil:
		to.served.Add(1)
		b.slowest = max(b.slowest, took)
		if status >= http.StatusInternalServerError {
			b.strained[fmt.Sprintf("%s: %.150s", req.URL.Path, data)]++
		}
	case to.killed.Load():
		b.lost++
	case req.Context().Err() == nil:
		b.wrong = append(b.wrong, fmt.Sprintf("%s %s had no answer of %s, which was not killed", req.Method, req.URL.Path, to.name))
	}
	return data, status, err
}

func (b *balancer) slowestCall() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slowest
}

// check reports what went wrong between the balancer and the processes.
func (b *balancer) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrong {
		t.Error(w)
	}
	for _, p := range b.all {
		t.Logf("%s answered %d calls", p.name, p.served.Load())
		if p.served.Load() == 0 {
			t.Errorf("%s was sent nothing", p.name)
		}
	}
	t.Logf("%d calls were lost with the processes that were killed; answers of 500 and more: %v", b.lost, b.strained)
}
