// Package blob is the contract of the object store: where message bytes live. Drivers stand in
// folders below (memblob, fileblob, s3blob); blobtest holds the one conformance suite that
// every driver passes.
//
// Vocabulary: an object is an immutable string of bytes under a key; a span is a byte range of one.
//
// Invariants every driver keeps:
//   - An object never changes. A key is written once; after a delete it is never written again
//     (keys carry random nonces, so nobody tries).
//   - When Create or Put returns nil the bytes are durable: they survive the process and the power.
//   - A reader sees all of an object or NotFound; never a part of one.
//   - Keys are opaque to a driver's callers, but for the prefix they asked for.
//
// Errors are *queue.Error. Kinds used: NotFound, Exists, Invalid (key, span), TooLarge, Corrupt
// (bytes differ from their checksum), Full, Throttled, Unavailable (nothing changed),
// OutcomeUnknown (the write may have taken effect), Canceled. A canceled context never leaves a
// part of an object to be seen.
//
// All methods of all types here are safe for concurrent use.
//
// Non-goals: overwriting, appending, renaming, metadata beyond size, checksum and time.
package blob

import (
	"context"
	"io"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Store keeps immutable objects.
type Store interface {
	// Create stores data as a new object under a key that the store chooses: prefix, which ends
	// in "/", and a unique rest of at most 64 bytes. Small objects may share a file or an fsync
	// with others; that is why the store has the choice of key. data is not kept after return.
	Create(ctx context.Context, prefix string, data []byte) (key string, err error)

	// Put streams r into a new object under key, put-if-absent: Exists if the key is taken, and
	// then the object there is untouched. It reads at most terms.Size bytes and one more, in
	// constant memory. A size or checksum that differs from terms is Corrupt with
	// CodeObjectInvalid, and nothing is stored.
	Put(ctx context.Context, key string, r io.Reader, terms Terms) (Info, error)

	// Get appends the bytes of span to dst and returns the longer slice. The span must lie
	// inside the object (KindInvalid otherwise), but Span{} means the whole object.
	Get(ctx context.Context, key string, span Span, dst []byte) ([]byte, error)

	// Open streams the bytes of span, in constant memory. The caller closes the reader.
	Open(ctx context.Context, key string, span Span) (io.ReadCloser, Info, error)

	// Head tells size, checksum and time without the bytes.
	Head(ctx context.Context, key string) (Info, error)

	// List gives objects whose key starts with prefix and is greater than after, in key order,
	// at most limit (1 to queue.MaxPageSize). Fewer than limit does not mean the end: More does.
	List(ctx context.Context, prefix, after string, limit int) (Page, error)

	// Delete removes objects, durably on return. A key that is not there is not an error. On
	// error any number of the keys may be gone.
	Delete(ctx context.Context, keys ...string) error
}

// Span is a byte range [Pos, Pos+Len) of an object; the zero Span is the whole object.
type Span struct {
	Pos, Len int64
}

// Whole reports whether the span stands for the whole object.
func (s Span) Whole() bool { return s == Span{} }

// Terms bind an object that is put to what was announced.
type Terms struct {
	// Size is the exact size in bytes, 0 to queue.MaxUploadBytes.
	Size int64
	// CRC32C is the Castagnoli checksum of the bytes; checked if HasCRC32C.
	CRC32C    uint32
	HasCRC32C bool
}

// Info describes an object.
type Info struct {
	Key  string
	Size int64
	// CRC32C is the checksum that the store verified or computed when the object was written.
	CRC32C   uint32
	Modified time.Time
}

// Page is one page of a listing; a further one starts after the last key if More.
type Page struct {
	Objects []Info
	More    bool
}

// Presigner makes URLs that let a client without credentials write or read one object.
type Presigner interface {
	// PresignPut lets its holder put one object under key by one HTTP request until expires. Key,
	// size and checksum (if any) are bound into the URL or its headers: a request that differs
	// is refused with 403.
	PresignPut(ctx context.Context, key string, terms Terms, expires time.Time) (Request, error)
	// PresignGet lets its holder read the object (ranges allowed) until expires.
	PresignGet(ctx context.Context, key string, expires time.Time) (Request, error)
}

// Request is a presigned HTTP request.
type Request struct {
	Method string
	// URL is absolute, or (local server) a path with query that the edge completes with the
	// address that its caller used.
	URL string
	// Headers must be sent exactly so.
	Headers map[string]string
}

// Prefixes of keys; what lies below each is said in docs/FORMAT.md.
const (
	PrefixBatches  = "batches/"
	PrefixUploads  = "uploads/"
	PrefixSegments = "segments/"
)

// MaxKeyBytes bounds an object key (S3's bound is 1,024).
const MaxKeyBytes = 256

// ValidateKey refuses keys that a file system, a URL or S3 could read in two ways: it allows
// "/"-separated, non-empty parts of a-z A-Z 0-9 _ - and inner dots, no part starting with a dot.
func ValidateKey(field, key string) error {
	if key == "" || len(key) > MaxKeyBytes {
		return queue.Invalid(field, queue.Bound(len(key), 1, MaxKeyBytes), "must have 1 to %d bytes", MaxKeyBytes)
	}
	start := true
	for i := range len(key) {
		c := key[i]
		switch {
		case c == '/':
			if start || i == len(key)-1 {
				return queue.Invalid(field, nil, "has an empty part")
			}
			start = true
			continue
		case c == '.' && start:
			return queue.Invalid(field, nil, "has a part that starts with a dot")
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return queue.Invalid(field, nil, "may hold only a-z A-Z 0-9 _ - . and /")
		}
		start = false
	}
	return nil
}
