package cli

import (
	"fmt"
	"slices"
	"testing"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestSeenEvents follows a listing into which processes whose clocks differ put events: each is shown once,
// also one that comes late, and none that is older than what was shown first.
func TestSeenEvents(t *testing.T) {
	const minute = queue.Millis(60_000)
	page := func(minutes ...float64) (out []client.Event) {
		for _, m := range minutes {
			out = append(out, client.Event{ID: fmt.Sprint(m), At: wire.Time(1_790_000_000_000 + queue.Millis(m*float64(minute)))})
		}
		return out
	}
	s := &seenEvents{at: make(map[string]queue.Millis)}
	for i, c := range []struct {
		page []client.Event
		want []string
	}{
		{nil, nil},
		{page(12, 11, 10), []string{"10", "11", "12"}},
		{page(12, 11, 10, 9, 8), nil},
		{page(12.5, 12, 11.8, 11, 10, 9), []string{"11.8", "12.5"}},
		{page(13, 12.5, 12.2, 12, 11.8, 11), []string{"12.2", "13"}},
		{page(20, 13, 12.9, 12.5), []string{"12.9", "20"}},
		{page(20, 13, 12.9), nil},
	} {
		var got []string
		for _, e := range s.fresh(c.page) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("page %d: %v, want %v", i, got, c.want)
		}
	}
	if len(s.at) > 2 {
		t.Errorf("%d events are remembered", len(s.at))
	}
}
