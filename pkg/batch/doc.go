// Package batch is the byte format of a batch: the messages appended by one commit, encoded
// together. docs/FORMAT.md is its normative description; golden files in testdata pin it.
//
// Vocabulary: a record is one message inside a batch; the index holds everything of every record
// but its body; the prefix is header, index and block table, the bytes before the bodies; a block is
// a group of whole records that is compressed by itself; a run is a contiguous range
// [first, first+count) of records; raw lengths and positions count bytes before compression, stored
// ones the bytes in the file.
//
// Invariants: records are sorted by slot and, within a slot, kept in the order they were added, so
// the records of any slot range are one run. A batch that opens is well formed in every field: its
// limits, order, lengths and text encodings hold and need not be checked again. No byte of a batch
// can change without Verify noticing, and no body is handed out whose checksum does not fit. Any
// input may be given to a decoder: hostile bytes cost an error, never a panic or memory that is not
// backed by bytes of the input (one compressed block, at most MaxBlockBytes, excepted). One content
// and one nonce have one encoding, apart from the choices of the compressor.
//
// Non-goals: no I/O, no clocks, no randomness (the caller passes the nonce), no routing, no
// encryption, no absolute times: those are kept in the ref that points to a batch. Types here are
// not safe for concurrent use, except an Index, which may be read by many at once.
package batch
