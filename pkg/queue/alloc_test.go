//go:build !race

// Under the race detector pools drop what they hold at random, so allocations are no fixed number there.

package queue_test

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestAllocations holds what runs once for each message of a call to one allocation, its result.
func TestAllocations(t *testing.T) {
	ids := queue.NewIDs(nil)
	id := queue.MessageID{Segment: ids.Segment(), Offset: queue.MaxOffset}
	receipt := queue.Receipt{Segment: id.Segment, Claim: ids.Claim(), Lo: queue.MaxOffset - 1, Hi: queue.MaxOffset}
	text := receipt.String()
	var err error = &queue.Error{Kind: queue.KindSealed}
	for name, c := range map[string]struct {
		most float64
		do   func() bool
	}{
		"make an id":        {1, func() bool { return ids.ID() != "" }},
		"make a nonce":      {0, func() bool { return ids.Nonce() != [16]byte{} }},
		"check an id":       {0, func() bool { return queue.ValidID(string(id.Segment)) }},
		"render a message":  {1, func() bool { return id.String() != "" }},
		"render a receipt":  {1, func() bool { return receipt.String() == text }},
		"read a receipt":    {1, func() bool { r, err := queue.ParseReceipt(text); return err == nil && r == receipt }},
		"judge an error":    {0, func() bool { return queue.Is(err, queue.KindSealed) && queue.KindOf(err) == queue.KindSealed }},
		"judge a success":   {0, func() bool { return !queue.Is(nil, queue.KindSealed) && !queue.Retryable(nil) }},
		"code of a failure": {0, func() bool { return queue.CodeOf(err) != "" }},
	} {
		if got := testing.AllocsPerRun(100, func() {
			if !c.do() {
				t.Error(name, "is wrong")
			}
		}); got > c.most {
			t.Errorf("%s: %v allocations, more than %v", name, got, c.most)
		}
	}
}
