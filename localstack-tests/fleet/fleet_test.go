//go:build localstack

package fleet

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/tests/load"
)

const (
	// visibility is how long a claim of the load holds; longestPause is between two looks of a long poll
	// (pollMax of pkg/consume); slack is for the calls in between.
	visibility   = 4 * time.Second
	longestPause = 5 * time.Second
	slack        = 6 * time.Second
	// pace is what the emulator can take beside the consumers: messages must wait for nothing but leases.
	pace = 600 * time.Millisecond
)

// TestFleet is one story: four processes, a load through all; two are killed and replaced while it runs, and the
// others rolled one by one. Then all that was acknowledged is there, once and in order, and was consumed; no
// message waited longer than a lease; and no call failed but of those that were killed. SPILLWAY_SEED decides the
// load.
func TestFleet(t *testing.T) {
	seed := uint64(time.Now().UnixNano() & 0xffffff)
	if text := os.Getenv("SPILLWAY_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SPILLWAY_SEED=%d", seed)
	w, b := newWorks(t), newBalancer(t, seed)
	var fleet []*process
	add := func() {
		p := w.start(t)
		b.add(t, p)
		fleet = append(fleet, p)
	}
	for range 4 {
		add()
	}
	l := &load.Load{Target: b, Ledger: load.NewLedger(), Seed: seed, Pace: pace, Visibility: visibility, Claim: 200}
	l.SetUp(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	t.Run("a poll hears of other processes", func(t *testing.T) { foreignMessage(t, fleet[0], fleet[1]) })
	t.Run("what is refused", func(t *testing.T) { refused(t, w) })
	t.Run("presigned", func(t *testing.T) { presigned(t, b) })

	began := time.Now()
	l.Start(ctx, t)
	var returns sync.WaitGroup
	for _, victim := range fleet[:2] { // the first leads
		time.Sleep(2 * time.Second)
		orphaned := claimAndForget(t, victim)
		victim.kill()
		add()
		heir := direct{fleet[len(fleet)-1], b.client} // which stays to the end
		returns.Go(func() {
			t.Run("claims of "+victim.name+" come back", func(t *testing.T) { orphaned.comeBack(t, heir, b) })
		})
	}
	for _, old := range fleet[2:4] {
		add()
		old.stop(t)
		time.Sleep(time.Second)
	}
	returns.Wait()
	l.Finish(ctx, t)
	b.check(t)
	waited, history := l.Ledger.Waited()
	// An emulator on a busy machine takes seconds for a call, and a message waits for some of them: the poll that
	// is under way; the claim and the ack of each half that comes before it, as what an expired claim held
	// comes back in ever smaller runs; and its own claim.
	const calls = 6
	bound := visibility + longestPause + slack + calls*b.slowestCall()
	t.Logf("the load took %v; the slowest call %v; the longest that a message waited though it could be delivered: %v", time.Since(began), b.slowestCall(), waited)
	if waited > bound {
		t.Errorf("a message waited %v, longer than a lease of %v and the longest pause of a poll: %s", waited, visibility, history)
	}
}
