package sim

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
)

// Mutation is a deliberate fault between the network and the truth: the checks must find it.
type Mutation struct {
	Name string
	// Records and Objects wrap the stores; nil for none. rng is the mutation's own.
	Records func(meta.Store, *rand.Rand) meta.Store
	Objects func(blob.Store, *rand.Rand) blob.Store
	// ClockAhead lets every instance's clock run ahead, past what the model tolerates.
	ClockAhead time.Duration
}
