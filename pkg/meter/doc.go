// Package meter counts what the stores are asked to do, and what that would cost on AWS.
//
// It wraps any meta.Store and blob.Store; the wrapped store behaves as before. Tests use it to prove
// how many calls an operation makes; programs read Snapshot for their metrics.
//
// Vocabulary: a call is one call of a contract's method; an op is one operation carried out by it, so
// that a transaction of three ops is one call and three ops; a row holds the counts of one op name; a
// unit is what DynamoDB charges by, a request what S3 does.
//
// Names of ops. Records: "get KIND" and "query KIND" by the kind of what was read ("get" and "query"
// if nothing was), the meta.Op's own name for a write ("append", "put page"), "put payload" for an
// Append's payload, "transact" for a transaction's call, whose ops count under their own names, and
// "invalid" for an op that the store could make no sense of.
// Objects: "create object", "put object", "get object", "open object", "head object", "list objects",
// "delete objects".
//
// Invariants: counts only grow; a call is counted once, when it returns; what was counted before a
// Snapshot was asked for is in it.
//
// Rules of charging, and where they come from (read in November 2026):
//   - DynamoDB Developer Guide, "DynamoDB read and write operations": a strong read is one unit for
//     each 4 KB of an item, rounded up; a Query rounds up the sum of its items; a read that finds
//     nothing is charged the smallest read, one strong unit; a write is one unit for each 1 KB of the
//     item before or after it, whichever is larger; a conditional write whose condition is false is
//     charged like one that was made; a write in a transaction costs twice as much.
//   - Amazon S3 pricing: PUT, COPY, POST and LIST are one class of request, GET and HEAD the other,
//     DELETE is free.
//
// Approximations: the size of a record before a write is the size that this meter last saw, from a
// table of bounded memory; where it saw none, the size after the write stands alone. A refused Put is
// charged by the record it found. What failed as Throttled, Unavailable, Invalid, Full or Canceled is
// taken to be free; a lost answer and a refused transaction (all of its ops) are taken to be charged.
// A payload's size is that of its bytes and key.
//
// Non-goals: latencies, storage and transfer charges, an exporter (pkg/local reads Snapshot).
package meter
