package meta

import (
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// The records by which segments follow their load (docs/decisions/0009). Nothing that the leader knows is
// anywhere else.

// Watch asks the leader to look at a topic. A producer that meets much load or pressure puts it; the
// leader deletes it once the topic is calm and at its minimum. So an idle system has none.
type Watch struct {
	Topic queue.TopicID `json:"topic"`
	Name  string        `json:"name"`
	// Pressed says when a producer last found the store refusing or a segment contended; 0 for never.
	Pressed queue.Millis `json:"pressed,omitempty"`
	// Put is when the record was put.
	Put queue.Millis `json:"put"`
}

// WatchPK is the partition of all watches.
const WatchPK = "watch"

// Key implements Record.
func (w *Watch) Key() Key { return Key{WatchPK, string(w.Topic)} }

// Kind implements Record.
func (w *Watch) Kind() Kind { return KindWatch }

// Gauge is what the leader last measured of some of a topic's open segments.
type Gauge struct {
	Topic queue.TopicID `json:"topic"`
	// Number tells a topic's gauges apart, from 0.
	Number   int            `json:"number"`
	At       queue.Millis   `json:"at"`
	Segments []SegmentGauge `json:"segments"`
}

// GaugeSegments is how many segments one gauge holds.
const GaugeSegments = 500

// SegmentGauge is the measure of one segment.
type SegmentGauge struct {
	ID queue.SegmentID `json:"id"`
	// Messages, Bytes and Commits are the head's counters at the time of the gauge.
	Messages uint64 `json:"m"`
	Bytes    uint64 `json:"b"`
	Commits  uint64 `json:"c"`
	// Last is the rate since the measure before.
	Last Rate `json:"l"`
	// Rates are moving averages over queue.RateWindows.
	Rates [queue.RateWindowCount]Rate `json:"r"`
	// Base are the head's histogram buckets at BaseAt: where the load lies is judged by what came since.
	Base   [queue.LoadBuckets]uint64 `json:"h"`
	BaseAt queue.Millis              `json:"a"`
	// Hot says that most of the load is of one slot, which no split can part.
	Hot bool `json:"hot,omitempty"`
}

// Rate is load a second.
type Rate struct {
	Messages float32 `json:"m"`
	Bytes    float32 `json:"b"`
	Commits  float32 `json:"c"`
}

// Pace is the rate at which what stands behind the first ref of the tail came in until now; not ok for a tail
// that is too short to say.
func (h *Head) Pace(now queue.Millis) (pace Rate, ok bool) {
	const (
		least   = 8                      // refs
		minSpan = 500 * time.Millisecond // that they are taken to have come in, at the least
	)
	if len(h.Tail) < least {
		return Rate{}, false
	}
	seconds := float32(max(minSpan, now.Sub(h.Tail[0].VisibleAt())).Seconds())
	for i := range h.Tail[1:] {
		r := &h.Tail[i+1]
		pace.Messages += float32(r.Count) / seconds
		pace.Bytes += float32(r.Bytes) / seconds
		pace.Commits += 1 / seconds
	}
	return pace, true
}

// GaugePK is the partition of a topic's gauges.
func GaugePK(topic queue.TopicID) string { return "g/" + string(topic) }

// GaugeKey is where a gauge stands.
func GaugeKey(topic queue.TopicID, number int) Key {
	return Key{GaugePK(topic), fmt.Sprintf("%05d", number)}
}

// Key implements Record.
func (g *Gauge) Key() Key { return GaugeKey(g.Topic, g.Number) }

// Kind implements Record.
func (g *Gauge) Kind() Kind { return KindGauge }

// Action is what an event tells of.
type Action string

// The actions.
const (
	ActionSplit Action = "split"
	ActionMerge Action = "merge"
	// ActionHot: most of a segment's load is of one slot.
	ActionHot Action = "hot"
)

// Event is a change of a topic's segments, or a finding about them, and its reason. It is put in the
// transaction that makes the change.
type Event struct {
	At     queue.Millis  `json:"at"`
	ID     string        `json:"id"`
	Topic  queue.TopicID `json:"topic"`
	Name   string        `json:"name"`
	Action Action        `json:"action"`
	// By is the leader's lease epoch; 0 for an operator.
	By queue.Epoch `json:"by,omitempty"`
	// Segments are the ones that were replaced, Made those that replace them, with their ranges.
	Segments []queue.SegmentID `json:"segments"`
	Made     []queue.SegmentID `json:"made,omitempty"`
	Ranges   []queue.SlotRange `json:"ranges,omitempty"`
	Reason   string            `json:"reason"`
}

const (
	// EventPK is the partition of all events.
	EventPK = "events"
	// EventsKept is how many events are kept at least.
	EventsKept = 1000
	// EventLife is for how long an event is kept at most.
	EventLife = 90 * 24 * time.Hour
)

// EventKey is where an event stands.
func EventKey(at queue.Millis, id string) Key { return Key{EventPK, fmt.Sprintf("%015d/%s", at, id)} }

// Key implements Record.
func (e *Event) Key() Key { return EventKey(e.At, e.ID) }

// Kind implements Record.
func (e *Event) Kind() Kind { return KindEvent }

// ExpiresAt implements Expiring.
func (e *Event) ExpiresAt() queue.Millis { return e.At.Add(EventLife) }
