package consume

import (
	"sync"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// cursorID names a cursor.
type cursorID struct {
	sub queue.SubscriptionID
	seg queue.SegmentID
}

// knowledge is what was seen of segments and cursors and cannot become wrong.
type knowledge struct {
	mu       sync.Mutex // guards all below
	segments map[queue.SegmentID]sight
	// drained cursors have nothing left in a sealed segment, so nobody need look there again.
	drained map[cursorID]struct{}
	// adopted is how many drained segments were taken from a subscription's record.
	adopted map[queue.SubscriptionID]int
}

// sight is what a segment's head said when it was last read.
type sight struct {
	start queue.Offset
	at    queue.Millis
}

// maxKnown bounds each of the maps; forgetting costs a read.
const maxKnown = 20_000

func newKnowledge() *knowledge {
	return &knowledge{
		segments: make(map[queue.SegmentID]sight), drained: make(map[cursorID]struct{}),
		adopted: make(map[queue.SubscriptionID]int),
	}
}

func (k *knowledge) see(h *meta.Head, at queue.Millis) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.segments[h.Segment]
	if len(k.segments) >= maxKnown {
		clear(k.segments)
	}
	k.segments[h.Segment] = sight{max(old.start, h.Start), max(old.at, at)}
}

func (k *knowledge) sight(id queue.SegmentID) sight {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.segments[id]
}

// drain notes that a cursor is drained; it reports whether that is news.
func (k *knowledge) drain(id cursorID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.drained[id]
	if !known {
		k.addDrained(id)
	}
	return !known
}

// addDrained is called under mu.
func (k *knowledge) addDrained(id cursorID) {
	if len(k.drained) >= maxKnown {
		clear(k.drained)
		clear(k.adopted)
	}
	k.drained[id] = struct{}{}
}

// adopt takes over what a subscription's record knows to be drained.
func (k *knowledge) adopt(sub *meta.Subscription) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(sub.Drained) == 0 || k.adopted[sub.ID] == len(sub.Drained) {
		return
	}
	for _, seg := range sub.Drained {
		k.addDrained(cursorID{sub.ID, seg})
	}
	k.adopted[sub.ID] = len(sub.Drained)
}

func (k *knowledge) isDrained(id cursorID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.drained[id]
	return ok
}
