// Package consume is the use case of handing messages out: claim, ack, release, extend, peek, and
// reading a segment as a log.
//
// Vocabulary: a delivery is a run of messages under one claim whose bytes lie together; a part of a
// claim is what is not yet settled; a retry is what was delivered and is to be claimed again; due is
// what may be claimed again now: a retry whose time has come, or the expired parts of a claim; a hold
// is a claim that a call is about to make; to bury is to move to the dead-letter topic, to park is to
// hide for a while what cannot be buried.
//
// Invariants: no message is in two live claims of one subscription; none is delivered before its
// visible time or after its expiry; a message leaves a subscription only by ack, expiry, truncation
// or the dead-letter topic; a claim costs at most two reads and one update of metadata per segment
// that yields, an ack one update per claim, an empty poll none. More reads are made for each further
// page of refs that a claim reaches into, and, while it reads pages, of the head every few seconds,
// because only the head tells of a truncation.
//
// Fairness: of a claim's messages, due ones may take half as long as there are fresh ones, and each
// kind takes what the other leaves; of a claim of one message a coin decides. So neither a flood of
// failures nor a flood of new messages starves the other. Due ones go oldest due time first: what
// fails again goes to the end of the line.
//
// Poison isolation: nobody said which message of an expired claim failed, so its messages come back
// in ever smaller runs: at most half of the run, then one by one; at the last delivery before
// max_deliveries one by one at once. Pieces of one run are never in one answer: of what was split, an
// answer has one piece per segment.
//
// Order: where the subscription's ordering is key, a key's messages are in flight one at a time, or as one
// run in one answer, in the order of their offsets; other keys and messages without one flow past. It has
// a planner of its own (walk), which goes by offset. What it passes over on its way to something that it
// takes is parked in the cursor as a retry of no delivery. A segment is open to such a subscription once it
// has drained all predecessors. Keys are read from the batches' indexes and remembered in the process: a
// claim in a process that has not seen the messages in flight reads the index of each of their refs. A plan
// looks past 10,000 messages and 1,024 unknown refs at most. A message whose index is lost has no key; one
// that expired while it was hidden holds nobody up; one that was released with a delay holds its key up for
// that long.
//
// What is drained of sealed segments is noted in the subscription's record, so that a process that begins
// over a long history does not look there.
//
// Dead letters move by reference, in one transaction with the end of their hold. Where that cannot be
// (no such topic, or it is sealed) the message is parked: hidden for a while, logged, kept.
//
// Non-goals: changing messages; a consumer's own loop (pkg/client).
package consume
