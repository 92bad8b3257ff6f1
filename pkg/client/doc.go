// Package client is the Go SDK of Spillway: one Client for a server, a Producer that batches, and a
// Consumer that claims ahead of its handlers.
//
// Vocabulary: a Message is what is produced, a Received is what is read; a lane is one ordered stream
// of produce calls, of which at most one is under way; a guard (producer id and sequence, or an
// Idempotency-Key) makes a produce call safe to repeat; a hold is what a consumer keeps of one claim.
//
// Invariants:
//   - A call is made again only where that cannot do the thing twice: it changes nothing, it sets a
//     state, it is guarded, or the server has said that nothing was changed.
//   - A Future that is done without an error names a message that is durable. Flush and Close come
//     back only when every message accepted before has its outcome.
//   - Messages of one key go through one lane, in the order of their Sends. A retry repeats the same
//     bytes under the same sequence before the lane's next call starts.
//   - A Consumer holds no more messages than it can work on, settles each message at most once, and
//     cancels the context of a handler whose claim is lost.
//   - Memory is bounded by options: what a Producer has accepted, what a Consumer has claimed, what
//     is read of one answer. Goroutines end with Close and with Run.
//
// Errors: what the server answers is an *APIError. What goes wrong on the way is of KindUnavailable if
// the server cannot have seen the call, KindOutcomeUnknown if it may have, KindCanceled if the caller's
// context ended. queue.Is finds the kind of each, errors.Is the code (ErrTopicNotFound and the like).
// What the client itself refuses is a *queue.Error of KindInvalid or KindTooLarge.
//
// Non-goals: no server, no knowledge of stores, no schema of bodies.
package client
