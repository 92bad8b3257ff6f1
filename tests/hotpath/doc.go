// Package hotpath measures what one produce, claim and ack cost in memory and processor time, from the HTTP
// handler down to the store, and holds the memory to budgets.
//
// Vocabulary: a path is one kind of call as a client makes it (a single message, a hundred as JSON, an
// encoded batch, a claim of a hundred, …); a rig is the whole system over one pair of stores, with one topic
// and one subscription; a budget is the most allocations that one call of a path may make.
//
// The benchmarks tell allocations, bytes and processor time for each call (make bench BENCH=Path). Allocations
// hardly differ from run to run, so the budgets are tests; times are for whoever measures on a quiet machine.
//
// Non-goals: rates and latencies of a running server, which `spillway bench` measures; the client's share.
package hotpath
