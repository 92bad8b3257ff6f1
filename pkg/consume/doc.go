// Package consume is the use case of handing messages out: claim, ack, release, extend, peek, and
// reading a segment as a log.
//
// Vocabulary: a delivery is a run of messages under one claim; a part of a claim is what is not yet
// settled; a retry is what was delivered and is to be claimed again.
//
// Invariants: no message is in two live claims of one subscription; none is delivered before its
// visible time or after its expiry; a message leaves a subscription only by ack, expiry, truncation
// or the dead-letter topic; a claim costs at most two reads and one update of metadata per segment,
// an ack one update per claim, an empty poll none.
//
// Non-goals: changing messages; a consumer's own loop (pkg/client).
package consume
