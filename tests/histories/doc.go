// Package histories drives a system from outside with clients that record what they ask and are answered, for the
// models of pkg/history. Its own test runs one server on the embedded store; localstack-tests/histories runs a fleet.
//
// Vocabulary: a client is one user of the SDK with connections of its own; a holder is a process that takes leases
// (Hold), and is killed and stopped like a server; quiet is when nothing is disturbed any more and all must
// come to its end.
//
// Invariants: what a client does is decided by the seed, though not when; a call is made once, or again under
// its guard, never in secret (the SDK's own retries are off); at the end each acknowledged message has been delivered.
//
// Non-goals: the faults themselves, which each test makes; load (tests/load).
package histories
