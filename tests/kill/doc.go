// Package kill is the durability loop: it loads a server, ends it with kill -9 at random moments,
// starts it again on the same data, and holds what it finds against a record kept outside.
//
// Vocabulary: the ledger is that record; a hold is a claim as a consumer knows it; a violation is
// a broken invariant of the architecture, 1 to 3 or 6 to 8.
//
// It speaks plain HTTP and JSON, on purpose not the SDK: what the SDK hides must not be hidden here.
//
// Non-goals: power loss (the embedded drivers' own tests cut unsynced bytes), speed.
package kill
