package wire

import "github.com/spillway-mq/spillway/pkg/queue"

// ProduceRequest is the JSON body of POST messages.
type ProduceRequest struct {
	// Messages are 1 to queue.MaxBatchRecords.
	Messages []MessageIn `json:"messages"`
	Producer *Producer   `json:"producer,omitempty"`
}

// Producer makes a call safe to repeat: sequences of one id grow with each call.
type Producer struct {
	// ID is 1 to queue.MaxProducerIDBytes bytes.
	ID string `json:"id"`
	// Sequence is 1 to 2^53-1; numbers may be left out.
	Sequence *uint64 `json:"sequence"`
}

// Text is a JSON string as bytes: what comes in as text and goes on as bytes need not be copied from the
// one to the other. Nil is none.
type Text []byte

// MarshalText implements encoding.TextMarshaler.
func (t Text) MarshalText() ([]byte, error) { return t, nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Text) UnmarshalText(text []byte) error {
	*t = append(Text{}, text...)
	return nil
}

// MessageIn is a message to produce. Body and BodyBase64 exclude each other, as do Key and KeyBase64;
// without a body the message is empty.
type MessageIn struct {
	Key        string            `json:"key,omitempty"`
	KeyBase64  string            `json:"key_base64,omitempty"`
	Body       Text              `json:"body,omitzero"`
	BodyBase64 Text              `json:"body_base64,omitzero"`
	Headers    map[string]string `json:"headers,omitempty"`
	// Delay is 0 to the topic's max_delay, in seconds.
	Delay *float64 `json:"delay,omitempty"`
	// TTL is 0.001 to queue.MaxTTL, in seconds.
	TTL     *float64 `json:"ttl,omitempty"`
	DedupID string   `json:"dedup_id,omitempty"`
}

// ProduceAnswer has one result for each message, in order. An accepted reference of format "batch" is
// as many messages as the batch has records; one that was refused is one.
type ProduceAnswer struct {
	Results []ProduceResult `json:"results"`
}

// ProduceResult answers for one message: an ID, a DelayedID, or an Error.
type ProduceResult struct {
	ID        string   `json:"id,omitempty"`
	DelayedID string   `json:"delayed_id,omitempty"`
	CreatedAt Time     `json:"created_at,omitzero"`
	VisibleAt Time     `json:"visible_at,omitzero"`
	ExpiresAt Time     `json:"expires_at,omitzero"`
	Warnings  []string `json:"warnings,omitempty"`
	Error     *Error   `json:"error,omitempty"`
}

// RunsAnswer answers a POST of an encoded batch, in JSON.
type RunsAnswer struct {
	Runs []Run `json:"runs"`
}

// Run answers for Count consecutive records of a batch, from record First on, in the order in which
// the batch holds them. Record First+i is message Offset+i of Segment; or, if delayed, has the id
// DelayedID with its last number raised by i.
type Run struct {
	First     int             `json:"first"`
	Count     int             `json:"count"`
	Segment   queue.SegmentID `json:"segment,omitempty"`
	Offset    queue.Offset    `json:"offset"`
	DelayedID string          `json:"delayed_id,omitempty"`
	CreatedAt Time            `json:"created_at,omitzero"`
	VisibleAt Time            `json:"visible_at,omitzero"`
	// ExpiresAt is absent if the messages do not expire.
	ExpiresAt Time     `json:"expires_at,omitzero"`
	Warnings  []string `json:"warnings,omitempty"`
	// Error is set if the messages were refused.
	Error *Error `json:"error,omitempty"`
}

// UploadsRequest asks for presigned places for objects.
type UploadsRequest struct {
	// Objects are 1 to queue.MaxReferences.
	Objects []ObjectIn `json:"objects"`
}

// ObjectIn announces one object.
type ObjectIn struct {
	// Size is 0 to queue.MaxUploadBytes; it is needed.
	Size *int64 `json:"size"`
	// Checksum is "crc32c:" and 8 lower-case hexadecimal digits; empty for none.
	Checksum string `json:"checksum,omitempty"`
}

// UploadsAnswer has one place for each object, in order.
type UploadsAnswer struct {
	Uploads []Upload `json:"uploads"`
}

// Upload is where and how to put one object, or an Error.
type Upload struct {
	Object string `json:"object,omitempty"`
	URL    string `json:"url,omitempty"`
	Method string `json:"method,omitempty"`
	// Headers must be sent exactly so.
	Headers   map[string]string `json:"headers,omitempty"`
	ExpiresAt Time              `json:"expires_at,omitzero"`
	Error     *Error            `json:"error,omitempty"`
}

// Formats of a referenced object.
const (
	// FormatPayload: the object is the body of one message.
	FormatPayload = "payload"
	// FormatBatch: the object is one encoded batch.
	FormatBatch = "batch"
)

// ReferencesRequest submits uploaded objects.
type ReferencesRequest struct {
	// References are 1 to queue.MaxReferences.
	References []ReferenceIn `json:"references"`
	Producer   *Producer     `json:"producer,omitempty"`
}

// ReferenceIn submits one uploaded object. The fields of a message belong to format "payload" only.
type ReferenceIn struct {
	Object string `json:"object"`
	// Format is FormatPayload or FormatBatch.
	Format    string            `json:"format"`
	Key       string            `json:"key,omitempty"`
	KeyBase64 string            `json:"key_base64,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Delay     *float64          `json:"delay,omitempty"`
	TTL       *float64          `json:"ttl,omitempty"`
	DedupID   string            `json:"dedup_id,omitempty"`
	// Size and Checksum, if given, are compared with the object's.
	Size     *int64 `json:"size,omitempty"`
	Checksum string `json:"checksum,omitempty"`
}
