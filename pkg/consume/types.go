package consume

import (
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// ClaimRequest asks for messages of a subscription.
type ClaimRequest struct {
	Topic, Subscription string
	// MaxMessages is 1 to queue.MaxClaimMessages; 0 takes queue.DefaultClaimMessages.
	MaxMessages int
	// MaxBytes bounds the bodies together, 1 to queue.MaxClaimBytes; 0 takes
	// queue.DefaultClaimBytes. The first message is delivered even if it is larger (by
	// reference if it is larger than Deps.MaxInlineBytes). Under ByReference 0 means no bound.
	MaxBytes int64
	// Wait is how long to wait for a first message, 0 to queue.MaxWait.
	Wait time.Duration
	// Visibility is how long the claim holds; 0 takes the subscription's.
	Visibility time.Duration
	// ByReference asks for presigned references in place of bodies.
	ByReference bool
}

// Claimed is the answer of a claim; empty if there was nothing. The deliveries are in no particular order,
// or, of a subscription that keeps each key's messages in order, in the order of each segment's offsets.
type Claimed struct {
	Deliveries []Delivery
}

// Delivery is a run of consecutive messages of one segment, under one claim, whose bytes lie in one
// batch or payload.
type Delivery struct {
	Segment queue.SegmentID
	// Offset is the first message's; Count the number of messages.
	Offset queue.Offset
	Count  int
	Claim  queue.ClaimID
	// Attempt is the delivery count of each message, from 1.
	Attempt uint32
	// ClaimExpires is when the claim ends unless extended; 0 for a peek.
	ClaimExpires queue.Millis
	// Ref says where the bytes are and carries times and headers that count for all messages.
	Ref *meta.Ref
	// First is the batch record of the first message (Ref.First is the whole ref's).
	First uint32
	// Data is the whole encoded batch, or the body of a payload ref, for an inline delivery;
	// nil if Presigned is set. It must not be changed.
	Data []byte
	// Presigned, for a delivery by reference, lets the client fetch the object; Index is then
	// the batch's header and index (nil for a payload), which tells keys, headers and spans.
	Presigned        *blob.Request
	PresignedExpires queue.Millis
	Index            []byte
}

// Release says how messages are given back.
type Release struct {
	// Delay is how long they stay hidden; 0 to queue.MaxVisibilityTimeout. Without HasDelay the
	// subscription's backoff decides, and without that they are claimable at once.
	Delay    time.Duration
	HasDelay bool
	// Uncounted: this delivery does not count towards max_deliveries.
	Uncounted bool
	// Reason goes with the message, to the dead-letter topic if it ends there; at most 256
	// bytes of UTF-8.
	Reason string
	// DeadLetter sends the messages to the dead-letter topic now.
	DeadLetter bool
}

// PeekRequest asks to see messages without claiming them, segment after segment.
type PeekRequest struct {
	Topic string
	// Segment, if set, is the only one read.
	Segment queue.SegmentID
	// Offset is where reading starts in Segment.
	Offset queue.Offset
	// From, if not 0, passes over what was visible before it. Where refs of one page are not in
	// order of their visible times it is exact to the ref, not to the message.
	From queue.Millis
	// Cursor is a Peeked.Next to go on from; the other fields must be as they were then.
	Cursor string
	// Limit is 1 to queue.MaxPageSize; 0 takes queue.DefaultPageSize.
	Limit int
}

// Peeked is a page of a peek. Next is where to go on; empty at the end.
type Peeked struct {
	Deliveries []Delivery
	Next       string
}

// RecordsRequest asks for a part of a segment, read as a log.
type RecordsRequest struct {
	Topic   string
	Segment queue.SegmentID
	// Offset is the first message wanted. One that was truncated stands for the first that was not.
	Offset queue.Offset
	// Limit is 1 to queue.MaxPageSize; 0 takes queue.DefaultPageSize.
	Limit int
	// Wait is how long to wait for a first message at the end of the log, 0 to queue.MaxWait.
	Wait time.Duration
}

// Records is a part of a segment.
type Records struct {
	Deliveries []Delivery
	// Next is where to read on. It moves past messages that have expired or were truncated.
	Next queue.Offset
	// End: the segment is sealed and Next is its end; what follows is in Successors.
	End        bool
	Successors []queue.SegmentID
}

// Status counts a subscription's messages. Those that have expired and were not looked at since count
// as what they were.
type Status struct {
	// Ready may be claimed now, or once what is before it of its key is done; InFlight is claimed, Delayed was given back and is still hidden.
	Ready, InFlight, Delayed uint64
	// OldestAge is how long the oldest message that is not done has been visible, if HasOldest.
	OldestAge time.Duration
	HasOldest bool
	Segments  []SegmentStatus
}

// SegmentStatus is a subscription's state in one segment.
type SegmentStatus struct {
	Segment queue.SegmentID
	// Floor: what is below is done. Next is the first message that was never claimed, End the one
	// after the last.
	Floor, Next, End         queue.Offset
	Ready, InFlight, Delayed uint64
}
