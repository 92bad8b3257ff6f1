// Package latency gives stores the times and limits that DynamoDB and S3 have, as far as they are published.
//
// Vocabulary: a figure is a published measurement of one kind of request, with its source; a curve is the
// distribution that goes through a figure's percentiles; a source of draws is a caller's own random numbers;
// the table is a meta.Store with DynamoDB's times and its limits for each partition key, a bucket is a
// blob.Store with those of one storage class of S3.
//
// How: a curve is lognormal between two percentiles, so that it meets each of them exactly; beyond the last it
// goes on as between the last two, and it never leaves what was measured as least and, five times over, as most.
// A call sleeps for what it drew and then happens at an instant. Run in a bubble of testing/synctest the sleeps
// cost nothing, and an hour's calls take seconds.
//
// Invariants: what a call draws follows from its source of draws alone (With), so callers that run side by side
// do not disturb each other, and one seed gives one result; nothing is refused but for the units of a partition
// key; what a store answers is what the store below it answered.
//
// A partition key has a budget of write units and one of read units, filled each second and never more than one
// second's worth: no burst, no adaptive capacity beyond it. A call that finds it empty is answered Throttled.
//
// Non-goals: failures (pkg/fault, pkg/sim), limits of a whole table or of a prefix of a bucket, other regions.
package latency
