// Package sim runs the real use cases against simulated stores, clocks and a network whose every
// decision follows from a seed, and holds what they do against a model of what was promised.
//
// Vocabulary: a world is one run; an instance is one process of the system, with caches, clock skew
// and a life of its own; an op is one call of a client; a request is one store call of an instance on
// its way; the truth is what the stores hold; a step is one decision of the scheduler; a mutation is a
// fault built into the stores on purpose, which the checks must catch; a finding is a promise that was
// broken.
//
// How: a run lives in a bubble of testing/synctest. Every store call parks; once all goroutines wait,
// the scheduler picks by seed which request arrives, how it fails, whose answer is lost or comes late,
// which instance freezes or dies, which op begins, or lets time pass. Requests are carried out by the
// scheduler itself, one at a time, so the model sees each change of the truth at its instant.
//
// Invariants: the same options give the same history, byte for byte; a fault never breaks what the
// contracts of pkg/meta and pkg/blob promise; the model never decides what the system does.
//
// What a lost request may do: a request whose answer was lost, that its caller gave up, or that the
// store's client sent twice, may arrive any number of minutes later, or never. What is to be sent once (meta.Once)
// arrives once at most.
//
// Times: two runs in three have coarse times, where the scheduler picks among the requests that are under way however long
// others wait; that brings about rare orders. In the others each request takes what is published of DynamoDB and S3
// (pkg/latency), tails included.
//
// To repeat a failure: cmd/spillway-sim with the seed, the steps and the times that it printed.
//
// Non-goals: the drivers (their conformance suites hold them to the contracts), speed and cost,
// races between two instructions of one process (the race detector's).
package sim
