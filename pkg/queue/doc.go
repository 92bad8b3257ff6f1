// Package queue is the domain of Spillway: names, ids, slots, times, limits and errors that every
// other package speaks in.
//
// Vocabulary: a topic is a named, partitioned stream; a slot is the hash of a partition key on a
// ring of 65,536; a segment is an append-only log that owns a slot range of one topic; an offset is
// the position of a message in its segment; a message id is "<segment id>-<offset>".
//
// Invariants held here: an id, a name or a receipt that parses is well formed; every limit of the
// system has one definition (limits.go); every error that reaches a caller has a code of the one
// table in codes.go.
//
// Non-goals: no I/O, no storage, no wire format. The package imports only the standard library.
package queue
