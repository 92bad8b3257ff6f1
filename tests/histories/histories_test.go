//go:build unix

package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/tests/process"
	"github.com/spillway-mq/spillway/tests/proxy"
)

// drawings is where histories that are not right are drawn.
var drawings = filepath.Join("..", "..", "out", "histories") //checks:state it is never changed

// round is how long one of a test's rounds is disturbed and then left alone.
const round = 800 * time.Millisecond

// TestServer kills, stops and cuts off one server on the embedded store for SPILLWAY_HISTORY_ROUNDS rounds (6), while
// clients, each behind a proxy of its own, record what they are answered. SPILLWAY_SEED decides what they do, and
// the faults; their moments are the machine's.
func TestServer(t *testing.T) {
	t.Parallel()
	seed := process.Number(t, "SPILLWAY_SEED", int(time.Now().UnixNano()&0xffffff))
	rounds := process.Number(t, "SPILLWAY_HISTORY_ROUNDS", 6)
	t.Logf("SPILLWAY_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 1<<32))
	s := process.New(t)
	s.Start()
	const each = 3
	proxies := make([]*proxy.Proxy, Kinds*each+1)
	for i := range proxies {
		proxies[i] = proxy.New(t, s.Addr)
	}
	c := New(Options{
		Subscribers: true,
		Seed:        uint64(seed), Endpoint: func(i int) string { return "http://" + proxies[i].Addr },
		Pace: 15 * time.Millisecond, Patience: time.Second, Visibility: time.Second, Era: time.Second,
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds)*time.Minute)
	defer cancel()
	c.SetUp(ctx, t, 2)
	c.Start(ctx, each)
	for i := range rounds {
		time.Sleep(round / 2)
		switch what := (i + seed) % 4; what {
		case 0:
			s.Kill()
			s.Start()
		case 1:
			signal(t, s, syscall.SIGSTOP)
			time.Sleep(round)
			signal(t, s, syscall.SIGCONT)
		default:
			some := rng.Perm(len(proxies))[:len(proxies)/2]
			for _, n := range some {
				switch n % 3 {
				case 0:
					proxies[n].Cut()
				case 1:
					proxies[n].Hold(proxy.ToServer)
				default:
					proxies[n].Hold(proxy.ToClient)
				}
			}
			time.Sleep(round)
			if what == 3 {
				s.Kill() // while it is cut off from some
				s.Start()
			}
			for _, n := range some {
				proxies[n].Heal()
			}
		}
		if i == rounds/2 {
			c.Split(ctx, t)
		}
	}
	c.Stop()
	h := c.Judge(ctx, t, history.Options{Tolerance: clocks, Dir: drawings, Label: fmt.Sprintf("server-%d", seed)},
		fmt.Sprintf("repeat: SPILLWAY_SEED=%d SPILLWAY_HISTORY_ROUNDS=%d go test ./tests/histories -run TestServer", seed, rounds))
	wanted(t, h)
}

func signal(t *testing.T, s *process.Server, sig syscall.Signal) {
	t.Helper()
	if err := s.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// clocks is how far the times of one machine are apart: the server tells milliseconds.
const clocks = 5 * time.Millisecond

// wanted holds that the run was worth something: calls of all kinds were answered, and some were not.
func wanted(t *testing.T, h *history.History) {
	t.Helper()
	lost := 0
	for _, p := range h.Produces {
		for _, m := range p.Messages {
			if m.Answer == history.Unknown {
				lost++
			}
		}
	}
	for _, c := range h.Claims {
		if c.Answer == history.Unknown {
			lost++
		}
	}
	if len(h.Produces) < 50 || len(h.Reads) < 50 || len(h.Claims) < 50 || len(h.Settles) < 50 || lost == 0 {
		t.Errorf("%d produces, %d reads, %d claims, %d settles, and %d answers were lost", len(h.Produces), len(h.Reads), len(h.Claims), len(h.Settles), lost)
	}
}
