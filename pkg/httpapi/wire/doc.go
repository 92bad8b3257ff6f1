// Package wire is what goes over HTTP between a client and the server: the JSON bodies of every call,
// and the binary stream of deliveries. Server, Go client and CLI share it; docs/openapi.yaml is its
// description for everybody else.
//
// Vocabulary: a result answers for one entry of a call; a run answers for consecutive messages of a
// batch; a frame is one delivery in the binary stream: a header, and the bytes of its messages as they
// are stored.
//
// Invariants: field names are snake_case; a time is RFC 3339 with milliseconds, UTC; a duration is a
// float64 of seconds. A pointer field is nil where the caller did not give the field, so that "absent"
// and "zero" differ. Any bytes may be given to the frame decoder: they cost an error, never a panic or
// memory that is not backed by bytes of the input.
//
// Non-goals: no HTTP, no validation beyond form (pkg/httpapi checks requests), no retries.
package wire

// Media types and headers of the API.
const (
	// MediaTypeJSON is the default of every call.
	MediaTypeJSON = "application/json"
	// MediaTypeBatch, as Content-Type of a produce call, is one encoded batch (docs/FORMAT.md); as
	// Accept of a claim it asks for a stream of frames.
	MediaTypeBatch = "application/vnd.spillway.batch"

	// HeaderRequestID is in every answer; a request may bring its own, 1 to 128 printable ASCII
	// characters.
	HeaderRequestID = "X-Request-Id"
	// HeaderIdempotencyKey makes a produce call safe to repeat for queue.IdempotencyWindow.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderProducerID and HeaderProducerSequence are a batch call's "producer" object.
	HeaderProducerID       = "Spillway-Producer-Id"
	HeaderProducerSequence = "Spillway-Producer-Sequence"
	// HeaderNextOffset, HeaderEndOfSegment ("true" or "false") and HeaderSuccessors (ids, separated
	// by commas) carry what a Records answer says besides its records, where it is a stream of
	// frames.
	HeaderNextOffset   = "Spillway-Next-Offset"
	HeaderEndOfSegment = "Spillway-End-Of-Segment"
	HeaderSuccessors   = "Spillway-Successors"
)
