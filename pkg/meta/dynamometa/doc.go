// Package dynamometa is the metadata store on one DynamoDB table.
//
// Vocabulary: an item is a record as the table holds it; blind means stated without reading first; a
// grain is the second that a head's LastAppend is rounded up to; litter is what a cursor's item still
// holds of acks that are in its floor or joined with others by now, and folding clears it.
//
// The table has the keys pk and sk (strings), which are meta.Key's parts. Every item has v, the version
// (8 bytes). Records other than heads and cursors are the codec's frame in rec, and ttl (seconds) if they
// expire. Heads and cursors are spread over attributes, so that an update can change a part of them
// under conditions on just that part (head.go and cursor.go list the attributes).
//
// Every op is one conditional write whose condition says the same as the op's Change. If it does not hold,
// the answer brings the item (ReturnValuesOnConditionCheckFailure), and Change, run on that, names the
// reason. If Change would accept the item, the write was stated for another one, and is stated anew.
//
// What each op costs, in requests and write units (w is one per KB of the item, the larger of before and
// after; r is one read unit per 4 KB):
//
//	Get, Query         1 request, r
//	Put, Delete        1 request, w; the same if refused
//	Append             1 request, w; a payload is a put of its own before it. A second request, if the commit is
//	                   from an earlier second than the head's last: see lastAppendGrain
//	Seal, Touch        1 request, w
//	Check              1 read, r; in a transaction 1 item of it
//	Trim               1 request, w; a read before, r, unless its caller has seen the head
//	Take               1 request, w, if it creates the cursor or drops only claims that nobody settled in part;
//	                   else a read before or a failed write, and that
//	Settle, acks       1 request, w, within a claim taken in one run, whole or part by part; every 16th piece of
//	                   litter one more, which folds. Of a claim with several parts (what is between them
//	                   was released, or they end at different times) a failed write and another
//	Settle, extension  1 request, w, of all of a claim; else a failed write and another
//	Settle, the rest   a read and 1 request, r + w (releases, All, several runs)
//	Transact           1 request, 2w of each item; a read before for each Trim, Touch, Take and Settle, a read
//	                   after for each Append and Seal
//
// Invariants:
//   - Two appends to a head never conflict, nor do ops on different claims of a cursor, but for a
//     moment while a transaction holds the record (retried here, with jitter).
//   - A claim is stored as the runs that it was taken in, and acks do not change them: what of it is done,
//     the done entries say. So an ack within one run is blind, and acks of one claim do not conflict
//     either. Whatever else changes a claim does so on condition that it is as it was read, its count of
//     acks included.
//   - What an op answers with was true at the instant of the write: the item after it, or the one before
//     with Change run on it. Transact says where it differs.
//   - A write is OutcomeUnknown as soon as one try of it, the client's own retries included, may have
//     taken effect and nothing proves that it did. A retry's failed condition proves nothing, except
//     that a put is in if its version is there, and an append if its refs are: those succeed.
//   - Nothing is carried out again after others changed what it made. What no condition protects from that
//     is not sent again by the client (meta.Once), and of a transaction DynamoDB knows the copy by its token
//     for longer than it takes a signature.
//
// Where the driver differs from Change: a head's LastAppend is rounded up to a whole second; a trim forgets
// at most 40 producers; a ref is a duplicate if its stored form is equal, which a retry's is.
//
// Non-goals: other tables' layouts, global tables (conditions need one region), DAX (reads must be
// strong), deploying the table (infra does; CreateTable is for tests).
package dynamometa
