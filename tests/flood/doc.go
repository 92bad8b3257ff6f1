// Package flood shows in simulated time that segments follow a load, and what that costs: the real use
// cases run in a bubble of testing/synctest over a store in memory that has DynamoDB's limits and latencies.
//
// Vocabulary: the strict store is that store; a plan says what load is offered and what the store allows; a
// process is one set of use cases with caches of its own; a window is some seconds of the curve.
//
// How: every store call takes a time drawn from a distribution and then happens at an instant. A partition
// key has a bucket of write units and one of read units, filled each second and never more than one second's
// worth; a call that finds it empty is answered Throttled. Payloads are dropped once it is noted what
// messages they hold: an hour's flood would not fit in memory.
//
// Run: go test ./tests/flood for the short form, make flood for the whole one, which also writes
// docs/plots/flood.svg.
//
// Non-goals: what the machine can do (spillway bench), failures (pkg/sim), limits of a whole table.
package flood
