// Package topics is the control plane's use case: topics, their segments and their subscriptions
// are made, changed, listed and deleted here, and here the other use cases find them by name.
//
// Vocabulary: a name points to a topic's immutable id; the segment map says which open segment owns
// which slots; a Map is a cached snapshot of a topic with its segments and subscriptions.
//
// Invariants: the open segments of a topic tile the ring exactly; a topic and its first segments
// appear in one transaction; a deleted topic's heads are sealed, so no commit is acknowledged into
// it.
//
// Non-goals: messages. Nothing here reads or writes one.
package topics
