// Package soak runs a server for minutes or hours under a load of every kind and under faults of every kind, and holds
// what it does against a record kept outside of it.
//
// Vocabulary: a fault is what is done to the server: a kill, an ordered restart, a stop (SIGSTOP), a full disk, a jump
// of its wall clock; the shift is how far that clock is off; a round is load with faults, then a rest without any in
// which everything is drained and verified, and then forgotten; a fresh topic lives for one round, a long one
// for many; a probe is one message that must go through soon after each fault, with the clock as the fault left it.
//
// How: the server is pkg/local in a process of its own (testdata/server), whose standard library has a wall clock that
// the test sets: no switch in the product. The data folder is a small file system of its own, mounted in a mount
// namespace that ends with the test; where neither root nor user namespaces may mount one, a limit of the process's
// file size stands in for the full disk, and the test says so. What is at random comes from a seed that is
// printed, and a failure prints the faults with their times.
//
// Invariants: times are judged by the server's own clock, at the most that it can have shown. Memory is bounded
// however long it runs: what was verified is forgotten but for the keys' last numbers.
//
// Non-goals: power loss (the drivers' own tests), AWS, speed; other systems than Linux.
package soak
