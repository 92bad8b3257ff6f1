// Package boltmeta is the metadata store on an embedded B+tree (bbolt): one file, one process,
// durable through loss of power.
//
// Vocabulary: a request is one Apply or Transact; a batch is the requests that one commit carries; the
// committer is the one goroutine that writes; the overlay is what a batch has changed so far;
// published means durable and visible to every read.
//
// Life of a request: the caller queues it and waits. The committer takes whatever queued while the
// last commit ran, with no fixed wait (group commit). It judges each request in turn against overlay,
// cache and file; only when all ops of a request are judged is it added to the overlay, because a bolt
// transaction has no savepoint. Then it writes the overlay's records, commits (two fsyncs: pages, then
// the meta page that makes them count), publishes what it changed to the cache, and answers.
//
// Invariants:
//   - A request is answered only after the fsync of everything that its answer rests on, refusals
//     included: they may have seen an earlier request of the same batch.
//   - Reads show nothing that is not durable, and everything that was acknowledged before they began.
//     bbolt shows a commit to new readers between the write and the fsync of its meta page; a reader
//     that finds itself in that window waits for its end (durable.go).
//   - The cache holds published records only; its entries change between commits only.
//   - If a commit fails, nothing of it happened and every request of the batch is told so (Full,
//     Unavailable), unless its meta page was written and the fsync failed: then OutcomeUnknown, and
//     nothing more is written before that page is known to be on disk (recover.go).
//   - A damaged file gives KindCorrupt: every use of the mapped file runs under a guard that turns
//     bbolt's panics and faults of the mapping into errors (guard.go). Values have checksums of their
//     own. A file that was not closed is walked before bbolt opens it (verify.go), as bbolt would panic
//     in a goroutine of its own.
//
// The list of free pages is not written with each commit (NoFreelistSync): it can be megabytes after
// a large deletion. The price is a walk of the whole file at the next open. Close writes the list, so
// only an open after a crash pays it.
//
// Traps: a read transaction pins the pages of its time, so none may outlive a call; a caller that
// takes a lock of its own around a read that the committer could wait for will deadlock a remapping.
//
// Non-goals: several processes on one file (the second Open fails), compaction of the file (freed pages
// are used again, the file never shrinks), repair of a damaged file.
package boltmeta
