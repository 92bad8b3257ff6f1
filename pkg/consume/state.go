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

func (k *knowledge) drain(id cursorID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.drained) >= maxKnown {
		clear(k.drained)
	}
	k.drained[id] = struct{}{}
}

func (k *knowledge) isDrained(id cursorID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.drained[id]
	return ok
}
