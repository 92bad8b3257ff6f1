// Package background does what no call waits for: it promotes delayed messages that no claim has
// promoted, merges small objects, and deletes what nothing reaches any more.
//
// Vocabulary: the backstop is that promotion; a review looks at all topics; alone is a process that has
// its stores to itself; a fleet is any number of processes on the same stores, and its leader the one of
// them that holds the lease and does the work of all.
//
// Invariants:
//   - Claims promote what is due before they look, whichever process they come to. So whoever consumes
//     waits for no backstop, and no leader: all that is late without one is what nobody claims.
//   - The leader saves work, and safety does not rest on it: two that work at once are kept apart as two
//     claims are, by the conditions of each write.
//   - Who is no leader costs the stores one read a LeaseTTL, and keeps nothing in memory.
//
// In a fleet nobody sees the others' writes, so an agenda alone would miss entries. The leader reviews all
// topics each minute instead, as the schedule of the deployment in AWS does, and in between keeps the
// appointments that it found: on a topic that nobody claims a message is promoted at most FleetReview
// late; after a leader was killed, at most twice LeaseTTL later than that.
//
// Non-goals: waiting for a lease in calls; sharing the work out between the processes.
package background
