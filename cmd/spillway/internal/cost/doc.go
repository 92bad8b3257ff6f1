//go:generate go run ./costpage -dir ../../../../docs

// Package cost works out what a load would cost on AWS, next to what the same load costs on SQS, Kinesis
// and MSK.
//
// Vocabulary: a workload is how messages come and go; a run puts some of it through the real use cases on
// stores in memory, each function's calls counted by a meter of its own (pkg/meter); usage is what a run
// counted; a bill is usage at prices; a rival is another service; the floor is what any queue on an
// object store pays that is durable once acknowledged: one put and one update a batch.
//
// What is counted: requests of the API in units of 512 KB, DynamoDB's units by the size of the items as the
// table holds them (dynamometa.SizeOf) and with the requests that the driver makes beside an op's own,
// S3's requests by class, bytes kept. What is assumed: how long each request takes, for Lambda's price,
// and how long a line of the access log is (Assumptions). Prices are in one table, with their sources.
//
// Invariants: a run is decided by its workload alone, so equal workloads give equal bills; no clock, no
// randomness, no network.
//
// Non-goals: free tiers and discounts by volume or commitment, transfer to other regions or the
// Internet, calls that fail and are tried again, uploads by reference.
package cost
