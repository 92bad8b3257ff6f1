package kill

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/tests/load"
	"github.com/spillway-mq/spillway/tests/process"
)

// TestKillLoop ends the server SPILLWAY_KILLS times (4 unless set; CI sets 30) while producers and
// consumers work, and then checks invariants 1 to 3 and 6 to 8. The seed is printed; SPILLWAY_SEED
// sets it (the moments of the kills remain the machine's).
func TestKillLoop(t *testing.T) {
	kills := process.Number(t, "SPILLWAY_KILLS", 4)
	seed := uint64(process.Number(t, "SPILLWAY_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("%d kills, SPILLWAY_SEED=%d", kills, seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	s := newServer(t)
	s.Start()
	l := &load.Load{Target: s, Ledger: load.NewLedger(), Seed: seed, Pace: pace, Visibility: 2 * time.Second, Claim: 30}
	l.SetUp(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l.Start(ctx, t)
	for range kills {
		time.Sleep(time.Duration(50+rng.IntN(400)) * time.Millisecond)
		s.Kill()
		s.Start()
	}
	l.Finish(ctx, t)
}

// pace keeps the load to what the final check can read quickly.
const pace = 4 * time.Millisecond
