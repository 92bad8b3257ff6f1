package produce

import (
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Message is one message of a produce call.
type Message struct {
	// Key is the partition key; empty means that the topic's partition_key rule decides, and
	// without that any slot will do.
	Key     []byte
	Body    []byte
	Headers map[string]string
	// Delay is the message's own delay if HasDelay; honoured on delayed topics only.
	Delay    time.Duration
	HasDelay bool
	// TTL is the message's life from its creation; 0 takes the topic's default_ttl.
	TTL     time.Duration
	DedupID string
}

// Guard makes a call safe to repeat. At most one of the two is set.
type Guard struct {
	// ProducerID and Sequence are an idempotent producer's: sequences of one id grow with each
	// call. ProducerID empty means none.
	ProducerID string
	Sequence   uint64
	// IdempotencyKey names the call itself; BodyHash is the hex SHA-256 of its request body.
	IdempotencyKey string
	BodyHash       string
}

// Request is a produce call, message by message.
type Request struct {
	Topic    string
	Messages []Message
	Guard    Guard
	// Errors, if not nil, has one entry per message: a message whose entry is set was found
	// unusable by the edge already (its encoding, say) and is answered with that error.
	Errors []error
}

// BatchRequest is a produce call whose messages come as one encoded batch (docs/FORMAT.md). The
// server neither parses bodies nor copies them message by message.
type BatchRequest struct {
	Topic string
	// Data is the batch; the service does not keep it after return.
	Data  []byte
	Guard Guard
}

// Reference submits one uploaded object.
type Reference struct {
	// Object is the key that Uploads gave.
	Object string
	// Batch: the object is one encoded batch. Otherwise it is the body of one message, and the
	// other fields describe that message.
	Batch    bool
	Key      []byte
	Headers  map[string]string
	Delay    time.Duration
	HasDelay bool
	TTL      time.Duration
	DedupID  string
	// Terms, if Checked, are compared with the object's: size and checksum as the client knows
	// them.
	Terms   blob.Terms
	Checked bool
}

// ReferencesRequest submits uploaded objects.
type ReferencesRequest struct {
	Topic      string
	References []Reference
	Guard      Guard
	// Errors is as in Request.
	Errors []error
}

// Upload is a presigned place for one object.
type Upload struct {
	Object  string
	Request blob.Request
	Expires queue.Millis
}

// Warning is a word that tells the caller of something that was accepted, but not as it may expect.
type Warning string

// The warnings.
const (
	// WarnDelayIgnored: the topic is a normal topic, so the message's delay is not honoured.
	WarnDelayIgnored Warning = "delay_ignored"
	// WarnExpiresBeforeVisible: the message's ttl ends before its delay; it will never be
	// claimable.
	WarnExpiresBeforeVisible Warning = "expires_before_visible"
	// WarnDedupIgnored: the message's dedup_id is kept and handed out with it, but the topic has no
	// dedup_window, so nothing is deduplicated by it.
	WarnDedupIgnored Warning = "dedup_ignored"
)

// Run answers for consecutive messages of a call that became consecutive messages of one segment, or
// of one entry of the delayed index.
type Run struct {
	// First and Count are positions among the call's messages: for Produce and References as
	// given, for ProduceBatch as the batch holds its records.
	First, Count int
	// ID is the first message's; the others' offsets follow. Unset if Delayed is.
	ID queue.MessageID
	// Delayed is the first message's id in the delayed index; the others' indexes follow. Nil
	// unless the messages are delayed.
	Delayed *queue.DelayedID
	// Created is the commit time, Visible when the messages become claimable, Expires when they
	// expire (0: never). All messages of a run share them.
	Created, Visible, Expires queue.Millis
	Warnings                  []Warning
	// Err is set if the messages were refused; then only First and Count are set besides.
	Err error
}

// Answer is what a produce call gives: runs that together cover every message of the call once.
type Answer struct {
	Runs []Run
}
