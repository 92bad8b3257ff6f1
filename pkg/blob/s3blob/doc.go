// Package s3blob keeps objects in one bucket of Amazon S3, or of a store that speaks its protocol
// strictly: conditional writes, CRC32C checksums of the whole object, ranged reads.
//
// Vocabulary: as in package blob. A part is a piece of an upload that is too large for one request.
// An attempt is one HTTP request; a call of the SDK makes several if it tries again. An attempt is
// doubtful if it may have taken effect though its answer does not say so. The nonce is 16 random
// bytes in an object's user metadata, by which a writer knows its own object again.
//
// Invariants: those of package blob. Beyond them:
//   - Every write is sent with If-None-Match: * and with the CRC32C of its bytes, which S3 checks
//     before it stores them.
//   - Writes are tried again only with the bytes, nonce and condition of the first attempt, so that
//     they take effect at most once. A refusal that may come from an attempt of our own, and every
//     doubtful end, is settled by one HeadObject.
//   - What is read whole is checked against the checksum that S3 keeps. Spans are not: S3 has no
//     checksum of a span, and batches carry their own.
//   - A presigned put binds method, key, length, condition, and the checksum if one was announced.
//
// Where S3 forces a choice:
//   - A listing of S3 has no checksums, so Page.Objects have CRC32C 0; Head tells it.
//   - An object that was put through a URL made without a checksum has no CRC32C in S3. Head and Open
//     then read it all to compute one, each time: announce checksums for what is large.
//   - S3 answers 403, not 404, for a missing object to those without s3:ListBucket. Grant it to
//     whoever reads.
//   - HeadObject's refusals have no body, so a missing bucket is NotFound there, but a fault
//     (KindInternal) everywhere else.
//
// Cost of a call in requests (put-class and get-class as in package meter, which counts one for each
// call; attempts that S3 turned away as throttled are free):
//
//	Create             1 put
//	Put, one request   1 put, 1 get (the Head that tells time and checksum as S3 has them)
//	Put, in N parts    N+2 puts, 1 get
//	Get                1 get; of no bytes: 1 get
//	Open, whole        1 get
//	Open, a span       2 gets (Head, then the bytes)
//	Head               1 get
//	List               1 put
//	Delete             free; one request for each 1,000 keys
//	PresignPut/Get     none
//
// A write that was refused or ended in doubt costs one get more.
//
// Memory: Put holds one part at a time (Options.PartBytes), Open a read buffer of the SDK's.
//
// Non-goals: making buckets or their rules (an incomplete upload that could not be aborted is left to
// the bucket's lifecycle rule), credentials, versioned buckets, objects over 5 GiB.
package s3blob
