package wire

import "github.com/spillway-mq/spillway/pkg/queue"

// Segment is one segment of a topic.
type Segment struct {
	ID    queue.SegmentID `json:"id"`
	Range queue.SlotRange `json:"range"`
	State string          `json:"state"` // open, sealed
	// Epoch is the topic's of the change that made the segment.
	Epoch queue.Epoch `json:"epoch"`
	// FirstOffset is the oldest message's, NextOffset the next message's.
	FirstOffset queue.Offset `json:"first_offset"`
	NextOffset  queue.Offset `json:"next_offset"`
	// Bytes is the length of all bodies ever appended, Commits the number of appends.
	Bytes     uint64 `json:"bytes"`
	Commits   uint64 `json:"commits"`
	CreatedAt Time   `json:"created_at"`
	// SealedAt is absent while the segment is open.
	SealedAt     Time              `json:"sealed_at,omitempty"`
	Predecessors []queue.SegmentID `json:"predecessors"`
	Successors   []queue.SegmentID `json:"successors"`
	// Mean is the rate over the time that the segment was open.
	Mean Rate `json:"mean"`
	// Load is what the leader last measured; absent where it does not watch the segment.
	Load *SegmentLoad `json:"load,omitempty"`
}

// SegmentLoad is the measured load of an open segment.
type SegmentLoad struct {
	MeasuredAt Time `json:"measured_at"`
	// Score is the greatest of the rates' scores.
	Score float64 `json:"score"`
	// Hot: most of the load is of one slot, which no split can part.
	Hot bool `json:"hot"`
	// Last is the rate since the measure before, Rates are moving averages.
	Last  Rate   `json:"last"`
	Rates []Rate `json:"rates"`
}

// Rate is load a second.
type Rate struct {
	// Window is what the rate is taken over, in seconds; absent where it is not known.
	Window float64 `json:"window,omitempty"`
	// Score is the rate relative to the topic's targets: 1 is what one segment should carry.
	Score             float64 `json:"score"`
	MessagesPerSecond float64 `json:"messages_per_second"`
	BytesPerSecond    float64 `json:"bytes_per_second"`
	CommitsPerSecond  float64 `json:"commits_per_second"`
}

// SegmentList is a page of segments.
type SegmentList struct {
	Segments   []Segment `json:"segments"`
	NextCursor string    `json:"next_cursor,omitempty"`
}

// SplitRequest is the body of a split. Without Into and At it makes two parts.
type SplitRequest struct {
	// Into is 2 to queue.MaxSplit parts of equal load.
	Into *int `json:"into,omitempty"`
	// At are the slots to cut at, ascending; each is the first of its part.
	At     []int64 `json:"at,omitempty"`
	DryRun bool    `json:"dry_run,omitempty"`
}

// MergeRequest is the body of a merge of 2 to queue.MaxSplit neighbours.
type MergeRequest struct {
	Segments []queue.SegmentID `json:"segments"`
	DryRun   bool              `json:"dry_run,omitempty"`
}

// SegmentChange is a change by hand: as it was made, or, of a dry run, as it would be.
type SegmentChange struct {
	Topic  string `json:"topic"`
	Action string `json:"action"` // split, merge
	DryRun bool   `json:"dry_run"`
	// Segments are replaced by Made, which own Ranges. A dry run makes none.
	Segments []queue.SegmentID `json:"segments"`
	Made     []queue.SegmentID `json:"made"`
	Ranges   []queue.SlotRange `json:"ranges"`
}

// Event tells of a change of a topic's segments, or of a finding about them.
type Event struct {
	ID      string        `json:"id"`
	At      Time          `json:"at"`
	Topic   string        `json:"topic"`
	TopicID queue.TopicID `json:"topic_id"`
	Action  string        `json:"action"` // split, merge, hot
	Reason  string        `json:"reason"`
	// LeaderEpoch is the lease epoch of the leader that did it; absent for an operator.
	LeaderEpoch queue.Epoch `json:"leader_epoch,omitempty"`
	// Segments were replaced by Made, which own Ranges. A finding makes none, and has the ranges of
	// Segments.
	Segments []queue.SegmentID `json:"segments"`
	Made     []queue.SegmentID `json:"made"`
	Ranges   []queue.SlotRange `json:"ranges"`
}

// EventList is a page of events, the newest first.
type EventList struct {
	Events     []Event `json:"events"`
	NextCursor string  `json:"next_cursor,omitempty"`
}
