// Package latency works out how long a produce call and a message's way to its consumer take on AWS, by the
// times that are published of DynamoDB and S3, and writes docs/latency.md.
//
// Vocabulary: a scenario is one load on one set of stores; the model is the real use cases on stores in memory
// that have DynamoDB's and S3's times (pkg/latency); a study is all scenarios of the page; a goal is a percentile
// that the project set itself.
//
// How: a scenario runs in a bubble of testing/synctest, so its time is simulated: it is no measurement of the
// machine, and one seed gives one result, to the nanosecond. Every produce call draws from a source of its own.
//
// Invariants: the page tells what the model gave, and for each goal whether it is met; TestGoals holds just
// that, so neither a gain nor a loss goes unnoticed.
//
// Non-goals: the network to the caller, API Gateway and Lambda (assumed apart, on the page), failures, and loads
// that one segment does not carry (tests/flood).
package latency

//go:generate go test -count=1 -run ^TestPage$ . -write ../../docs
