package cost

import (
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Workload is how messages come and go, steadily.
type Workload struct {
	// Batch is messages of a produce call, Size bytes of a body.
	Batch int `json:"batch_messages"`
	Size  int `json:"size_bytes"`
	// Segments of the topic. Keyed: each message has a key of its own, so that a call of many goes to
	// many segments; without keys a call goes to one.
	Segments int  `json:"segments"`
	Keyed    bool `json:"keyed"`
	// Groups are subscriptions: each takes every message, by claims of up to Claim messages (0: Batch).
	Groups int `json:"groups"`
	Claim  int `json:"claim_messages"`
	// Producers write with an id and a sequence each; 0 for calls without.
	Producers int `json:"producers"`
	// Delayed is the share of messages, 0 to 1, that are delayed by a minute.
	Delayed float64 `json:"delayed_share"`
	// Rate is messages a second.
	Rate float64 `json:"rate_per_second"`
	// Keep is how long bytes are kept.
	Keep time.Duration `json:"-"`
}

// maxCallBytes is the most of bodies in a call: Lambda takes 6 MB, of which base 64 leaves three quarters,
// and an answer goes by reference above 3 MiB (functions/internal/host). A larger batch is several calls.
const maxCallBytes = 3 << 20

// The bounds of a workload, so that a run takes seconds.
const (
	maxSegments  = 64
	maxGroups    = 32
	maxProducers = 256
	maxRate      = 1e7
	maxKeep      = 10 * 366 * 24 * time.Hour
)

// Check tells what is out of bounds: the flag, its bounds and its value.
func (w *Workload) Check() error {
	for _, r := range []struct {
		flag        string
		got, lo, hi int
	}{
		{"--batch", w.Batch, 1, queue.MaxBatchRecords},
		{"--size", w.Size, 1, queue.DefaultMaxMessageBytes},
		{"--segments", w.Segments, 1, maxSegments},
		{"--groups", w.Groups, 0, maxGroups},
		{"--claim", w.Claim, 0, queue.MaxClaimMessages},
		{"--producers", w.Producers, 0, maxProducers},
	} {
		if r.got < r.lo || r.got > r.hi {
			return fmt.Errorf("%s: must be %d to %d, not %d", r.flag, r.lo, r.hi, r.got)
		}
	}
	switch {
	case !(w.Delayed >= 0 && w.Delayed <= 1): // NaN is neither
		return fmt.Errorf("--delayed: must be 0 to 1, not %g", w.Delayed)
	case !(w.Rate >= 0.001 && w.Rate <= maxRate):
		return fmt.Errorf("--rate: must be 0.001 to %g messages a second, not %g", float64(maxRate), w.Rate)
	case w.Keep < 0 || w.Keep > maxKeep:
		return fmt.Errorf("--keep: must be 0 to 10 years, not %s", w.Keep)
	}
	if calls, _ := w.perRoll(); calls*w.work() > mostWork {
		return fmt.Errorf("--batch, --claim, --groups, --segments: together they are too large for a run of some seconds; make the batch smaller or the claim larger")
	}
	return nil
}

// call is how many messages one produce call carries.
func (w *Workload) call() int { return min(w.Batch, max(1, maxCallBytes/w.Size)) }

// claim is how many one claim asks for.
func (w *Workload) claim() int {
	n := w.Claim
	if n == 0 {
		n = w.Batch
	}
	return min(n, max(1, maxCallBytes/w.Size))
}
