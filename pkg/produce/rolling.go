package produce

import (
	"context"
	"slices"
	"time"
)

// rollPatience bounds how long a call waits for the rolls that earlier calls of its process began. One that takes
// longer is met by the commit, which the store then refuses until it is over.
const rollPatience = 250 * time.Millisecond

// rolls lists the rolls under way of the segments that parts go to; none where a commit rolls before it answers.
func (c *call) rolls(parts []part) []<-chan struct{} {
	if !c.Log.AnyRolling() {
		return nil
	}
	var out []<-chan struct{}
	for _, sh := range c.shares(parts) {
		if r := c.Log.Rolling(sh.segment.ID); r != nil && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// await waits until rolls have ended, for rollPatience at most.
func (c *call) await(ctx context.Context, rolls []<-chan struct{}) {
	if len(rolls) == 0 {
		return
	}
	patience := time.NewTimer(rollPatience)
	defer patience.Stop()
	for _, r := range rolls {
		select {
		case <-r:
		case <-patience.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
