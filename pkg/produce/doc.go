// Package produce is the use case of taking messages in: it encodes, routes and commits them, or
// puts them in the delayed index.
//
// Vocabulary: a run is a part of a call whose messages went to one place; a guard (producer and
// sequence, or an Idempotency-Key) makes a call safe to repeat.
//
// Invariants: an answer without error means that the message is durable; one payload put per call,
// one head update per segment touched; a guarded call appends at most once whatever is retried.
//
// Non-goals: reading messages, parsing bodies.
package produce
