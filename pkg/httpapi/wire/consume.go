package wire

import "github.com/spillway-mq/spillway/pkg/queue"

// Ways to deliver.
const (
	// DeliverInline puts bodies into the answer.
	DeliverInline = "inline"
	// DeliverReference puts presigned URLs into the answer.
	DeliverReference = "reference"
)

// ClaimRequest is the body of POST claims.
type ClaimRequest struct {
	// MaxMessages is 1 to queue.MaxClaimMessages; queue.DefaultClaimMessages unless given.
	MaxMessages *int `json:"max_messages,omitempty"`
	// MaxBytes is 1 to queue.MaxClaimBytes; queue.DefaultClaimBytes unless given.
	MaxBytes *int64 `json:"max_bytes,omitempty"`
	// Wait is 0 to queue.MaxWait, in seconds.
	Wait *float64 `json:"wait,omitempty"`
	// VisibilityTimeout is queue.MinVisibilityTimeout to queue.MaxVisibilityTimeout, in seconds;
	// the subscription's unless given.
	VisibilityTimeout *float64 `json:"visibility_timeout,omitempty"`
	// Deliver is DeliverInline (the default) or DeliverReference.
	Deliver string `json:"deliver,omitempty"`
}

// MessageList is the answer of claims and of a peek. NextCursor is a peek's.
type MessageList struct {
	Messages   []Message `json:"messages"`
	NextCursor string    `json:"next_cursor,omitempty"`
}

// Message is a message that is read. Of Body, BodyBase64 and Reference one is set; BodyBase64 where
// the bytes are not UTF-8, and likewise KeyBase64. Attempt, Receipt and ClaimExpiresAt are a claimed
// message's.
type Message struct {
	// ID is empty for a delayed message, which has a DelayedID.
	ID         string     `json:"id,omitempty"`
	DelayedID  string     `json:"delayed_id,omitempty"`
	Key        string     `json:"key,omitempty"`
	KeyBase64  string     `json:"key_base64,omitempty"`
	Body       *string    `json:"body,omitempty"`
	BodyBase64 *string    `json:"body_base64,omitempty"`
	Reference  *Reference `json:"reference,omitempty"`
	// Size is a delayed message's, the length of its body in bytes: a body larger than
	// queue.MaxInlineMessageBytes is not shown.
	Size      *int64            `json:"size,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	DedupID   string            `json:"dedup_id,omitempty"`
	Attempt   uint32            `json:"attempt,omitempty"`
	Receipt   string            `json:"receipt,omitempty"`
	CreatedAt Time              `json:"created_at,omitzero"`
	VisibleAt Time              `json:"visible_at,omitzero"`
	// ExpiresAt is absent if the message does not expire.
	ExpiresAt      Time `json:"expires_at,omitzero"`
	ClaimExpiresAt Time `json:"claim_expires_at,omitzero"`
	// Error is set in place of a body whose bytes cannot be read; the messages around it are whole.
	Error *Error `json:"error,omitempty"`
}

// Reference lets its holder read one body, or the batch that holds it, without credentials.
type Reference struct {
	URL string `json:"url"`
	// Headers must be sent exactly so.
	Headers map[string]string `json:"headers,omitempty"`
	// Offset and Length are the bytes of the object to read: the body, or with FormatBatch the
	// whole encoded batch, because a body inside a compressed batch has no bytes of its own.
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
	// Checksum is the body's, "crc32c:" and 8 digits; absent where it is not known. A batch
	// carries its own.
	Checksum  string `json:"checksum,omitempty"`
	ExpiresAt Time   `json:"expires_at"`
	// Format is FormatPayload or FormatBatch; Record is the message's number in the batch.
	Format string `json:"format"`
	Record *int   `json:"record,omitempty"`
}

// ReceiptsRequest is the body of POST ack.
type ReceiptsRequest struct {
	// Receipts are 1 to queue.MaxReceipts.
	Receipts []string `json:"receipts"`
}

// ReleaseRequest is the body of POST release.
type ReleaseRequest struct {
	Receipts []string `json:"receipts"`
	// Delay is 0 to queue.MaxVisibilityTimeout, in seconds; the subscription's backoff unless
	// given.
	Delay *float64 `json:"delay,omitempty"`
	// CountDelivery is true unless given.
	CountDelivery *bool `json:"count_delivery,omitempty"`
	// Reason is at most MaxReasonBytes of UTF-8.
	Reason string `json:"reason,omitempty"`
	// DeadLetter sends the messages to the dead-letter topic now.
	DeadLetter bool `json:"dead_letter,omitempty"`
}

// MaxReasonBytes bounds the reason of a release.
const MaxReasonBytes = 256

// ExtendRequest is the body of POST extend.
type ExtendRequest struct {
	Receipts []string `json:"receipts"`
	// VisibilityTimeout counts from now; queue.MinVisibilityTimeout to
	// queue.MaxVisibilityTimeout, in seconds.
	VisibilityTimeout *float64 `json:"visibility_timeout"`
}

// ReceiptsAnswer has one result for each receipt, in order.
type ReceiptsAnswer struct {
	Results []ReceiptResult `json:"results"`
}

// ReceiptResult is OK or an Error.
type ReceiptResult struct {
	OK    bool   `json:"ok,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// RecordList is a part of a segment, read as a log.
type RecordList struct {
	Records []Message `json:"records"`
	// NextOffset is where to read on; past records that have expired it moves, too.
	NextOffset queue.Offset `json:"next_offset"`
	// EndOfSegment: the segment is sealed and NextOffset is its end; read on in Successors.
	EndOfSegment bool              `json:"end_of_segment"`
	Successors   []queue.SegmentID `json:"successors"`
}

// DelayedList is a page of delayed messages, by visible time.
type DelayedList struct {
	Messages   []Message `json:"messages"`
	NextCursor string    `json:"next_cursor,omitempty"`
}

// DelayedPatch edits a delayed message; an absent field stays as it is.
type DelayedPatch struct {
	Body       Text `json:"body,omitzero"`
	BodyBase64 Text `json:"body_base64,omitzero"`
	// Headers replace all headers of the message.
	Headers map[string]string `json:"headers,omitempty"`
	// Delay counts from the message's creation, in seconds, 0 to the topic's max_delay.
	Delay *float64 `json:"delay,omitempty"`
}
