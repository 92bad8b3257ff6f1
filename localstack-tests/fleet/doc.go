// Package fleet runs `spillway serve --aws` as many processes on one table and bucket of an emulator, behind a
// balancer that looks at /readyz, kills some and rolls the others while a load goes through all of them, and holds
// what they kept against a record kept outside (tests/load).
//
// Vocabulary: a process that is rolled is replaced first and then told to stop; one that is killed is not told.
//
// Built with the tag localstack alone, as the package above is: `make test-aws` runs it.
//
// Non-goals: the functions (localstack-tests), throttling and latencies of AWS, which no emulator has.
package fleet
