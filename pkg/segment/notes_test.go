package segment

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestNotes: whatever the length of a segment's pages, about one in queue.WorkRolls leaves a note, and
// no stretch is long without one.
func TestNotes(t *testing.T) {
	for _, step := range []queue.Offset{1, 32, 64, 100, 320, 3200, 32_000, 320_000} {
		n, gap, most := 0, 0, 0
		for i := range queue.Offset(8000) {
			if gap++; notes(i * step) {
				n, gap = n+1, 0
			}
			most = max(most, gap)
		}
		if n < 800 || n > 1200 || most > 120 {
			t.Errorf("with pages of %d: %d of 8000 rolls leave a note, at most %d in a row none", step, n, most)
		}
	}
}
