package wire

import (
	"bytes"
	"encoding/json"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// SubscriptionConfig is the body of PUT and PATCH of a subscription, and "config" of its status. In a
// PUT an absent field takes its default; in a PATCH it stays as it is.
type SubscriptionConfig struct {
	// Ordering is a PUT's only: OrderingNone, which it is unless given, or OrderingKey.
	Ordering *string `json:"ordering,omitempty"`
	// VisibilityTimeout is queue.MinVisibilityTimeout to queue.MaxVisibilityTimeout, in seconds.
	VisibilityTimeout *float64 `json:"visibility_timeout,omitempty"`
	// MaxDeliveries is 1 to queue.MaxDeliveries, with DeadLetterTopic; or 0, no limit, without.
	MaxDeliveries   *int    `json:"max_deliveries,omitempty"`
	DeadLetterTopic *string `json:"dead_letter_topic,omitempty"`
	// MaxInFlight is 1 to queue.MaxMaxInFlight, per segment.
	MaxInFlight *int `json:"max_in_flight,omitempty"`
	// Backoff is the delay after the first, second, … failed delivery, in seconds; the last
	// counts for all further ones. At most queue.MaxBackoffSteps.
	Backoff *[]float64 `json:"backoff,omitempty"`
	// Start is a PUT's only: where a new subscription begins; "earliest" unless given.
	Start *Position `json:"start,omitempty"`
}

// The orderings of a subscription.
const (
	// OrderingNone hands messages out about in the order they came in.
	OrderingNone = "none"
	// OrderingKey hands out those of one key in the order they came in, one after another.
	OrderingKey = "key"
)

// Words of a Position.
const (
	// Earliest is before the oldest message.
	Earliest = "earliest"
	// Latest is after the newest message.
	Latest = "latest"
)

// Position is a place in a topic: "earliest", "latest", a time, or a stream cut (an object with the
// first offset to read of each segment). One of the fields is set.
type Position struct {
	Word string
	Time Time
	Cut  map[queue.SegmentID]queue.Offset
}

// MarshalJSON implements json.Marshaler.
func (p Position) MarshalJSON() ([]byte, error) {
	switch {
	case p.Cut != nil:
		return json.Marshal(p.Cut)
	case p.Time != 0:
		return json.Marshal(p.Time)
	default:
		return json.Marshal(p.Word)
	}
}

// UnmarshalJSON implements json.Unmarshaler. The error is of KindInvalid.
func (p *Position) UnmarshalJSON(b []byte) error {
	*p = Position{}
	bad := queue.Invalid("start", nil, `must be "earliest", "latest", a time, or an object of segment ids and offsets`)
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
		var cut map[string]*uint64 // a null would be taken as 0 and replay a segment
		if json.Unmarshal(b, &cut) != nil {
			return bad
		}
		p.Cut = make(map[queue.SegmentID]queue.Offset, len(cut))
		for id, offset := range cut {
			if !queue.ValidID(id) || offset == nil || *offset > uint64(queue.MaxOffset) {
				return bad
			}
			p.Cut[queue.SegmentID(id)] = queue.Offset(*offset)
		}
		return nil
	}
	var word string
	if json.Unmarshal(b, &word) != nil {
		return bad
	}
	if word == Earliest || word == Latest {
		p.Word = word
		return nil
	}
	m, err := ParseTime("start", word)
	if err != nil {
		return bad
	}
	p.Time = Time(m)
	return nil
}

// Subscription is the status of a subscription. The counts are absent in a listing.
type Subscription struct {
	Name       string              `json:"name"`
	Topic      string              `json:"topic"`
	CreatedAt  Time                `json:"created_at"`
	ModifiedAt Time                `json:"modified_at"`
	Config     SubscriptionConfig  `json:"config"`
	Status     *SubscriptionStatus `json:"status,omitempty"`
}

// SubscriptionStatus counts a subscription's messages.
type SubscriptionStatus struct {
	// Ready are claimable now, or once what is before them of their key is done; InFlight are claimed, Delayed were released with a delay that is not
	// over.
	Ready    uint64 `json:"ready"`
	InFlight uint64 `json:"in_flight"`
	Delayed  uint64 `json:"delayed"`
	// OldestAge is the age of the oldest message that is not done, in seconds; absent if there is
	// none.
	OldestAge *float64        `json:"oldest_age,omitempty"`
	Segments  []SegmentCursor `json:"segments"`
}

// SegmentCursor is a subscription's state in one segment.
type SegmentCursor struct {
	Segment queue.SegmentID `json:"segment"`
	// Floor: every message below it is done. Next is the first that was never claimed. End is the
	// segment's next offset.
	Floor    queue.Offset `json:"floor"`
	Next     queue.Offset `json:"next"`
	End      queue.Offset `json:"end"`
	Ready    uint64       `json:"ready"`
	InFlight uint64       `json:"in_flight"`
	Delayed  uint64       `json:"delayed"`
}

// SubscriptionList is a page of subscriptions, by name.
type SubscriptionList struct {
	Subscriptions []Subscription `json:"subscriptions"`
	NextCursor    string         `json:"next_cursor,omitempty"`
}

// SeekRequest is the body of POST seek.
type SeekRequest struct {
	To *Position `json:"to"`
}
