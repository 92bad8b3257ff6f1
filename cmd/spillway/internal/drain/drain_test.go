package drain_test

import (
	"slices"
	"testing"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/drain"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestMerge(t *testing.T) {
	a, b := queue.ClaimID{1}, queue.ClaimID{2}
	r := func(claim queue.ClaimID, lo, hi queue.Offset) client.Receipt {
		return client.Receipt{Segment: "0123456789abcdef", Claim: claim, Lo: lo, Hi: hi}
	}
	got := drain.Merge([]client.Receipt{r(a, 0, 1), r(a, 1, 2), r(a, 2, 3), r(b, 3, 4), r(b, 5, 6), r(a, 6, 7)})
	want := []client.Receipt{r(a, 0, 3), r(b, 3, 4), r(b, 5, 6), r(a, 6, 7)}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := drain.Merge(nil); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
