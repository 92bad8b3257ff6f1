package blob

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// This file holds what every driver needs in the same form: the checks of the contract's inputs,
// its errors, and the reader that holds an upload to its terms.

// MaxChosenBytes bounds the part of a key that Create chooses, after the prefix.
const MaxChosenBytes = 64

// ValidatePrefix checks the prefix of a Create: it ends in "/", is a valid key before that, and
// leaves room for MaxChosenBytes more.
func ValidatePrefix(field, prefix string) error {
	if prefix == "" || prefix[len(prefix)-1] != '/' {
		return queue.Invalid(field, nil, "must end in /")
	}
	if len(prefix) > MaxKeyBytes-MaxChosenBytes {
		return queue.Invalid(field, MaxKeyBytes-MaxChosenBytes, "is longer than %d bytes", MaxKeyBytes-MaxChosenBytes)
	}
	return ValidateKey(field, prefix[:len(prefix)-1])
}

// ValidateLimit checks the limit of a List: 1 to queue.MaxPageSize.
func ValidateLimit(limit int) error {
	if limit < 1 || limit > queue.MaxPageSize {
		return queue.Invalid("limit", queue.MaxPageSize, "must be 1 to %d", queue.MaxPageSize)
	}
	return nil
}

// Validate checks the size of t: 0 to queue.MaxUploadBytes.
func (t Terms) Validate() error {
	if t.Size < 0 {
		return queue.Invalid("size", nil, "must not be negative")
	}
	if t.Size > queue.MaxUploadBytes {
		return queue.TooLarge("size", queue.MaxUploadBytes, t.Size)
	}
	return nil
}

// Resolve gives the bytes that s means in an object of size bytes: all for the zero Span. A span
// that does not lie inside is a KindInvalid error.
func (s Span) Resolve(size int64) (Span, error) {
	if s.Whole() {
		return Span{0, size}, nil
	}
	// Written so that no sum can overflow.
	if s.Pos < 0 || s.Len < 0 || s.Pos > size || s.Len > size-s.Pos {
		return Span{}, queue.Invalid("span", size, "bytes %d+%d do not lie in an object of %d", s.Pos, s.Len, size)
	}
	return s, nil
}

// NotFound is the error for a key that holds no object.
func NotFound(op, key string) *queue.Error {
	return &queue.Error{Op: op, Subject: key, Kind: queue.KindNotFound, Code: queue.CodeObjectNotFound}
}

// Exists is the error for a Put to a key that is taken.
func Exists(key string) *queue.Error {
	return &queue.Error{
		Op: "put object", Subject: key, Kind: queue.KindExists,
		Message: "the key holds an object, and objects are never replaced",
	}
}

// Canceled translates the end of ctx; nil while ctx goes on.
func Canceled(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return &queue.Error{Op: op, Subject: key, Kind: queue.KindCanceled, Err: err}
	}
	return nil
}

// Intake reads the bytes of one Put and holds them to its terms. It gives io.EOF only after exactly
// terms.Size bytes of the announced checksum; until a driver has seen that io.EOF it must not make
// the object visible. Not safe for concurrent use.
type Intake struct {
	ctx   context.Context
	key   string
	r     io.Reader
	terms Terms
	read  int64
	sum   hash.Hash32
	err   error
}

// NewIntake wraps the reader of a Put.
func NewIntake(ctx context.Context, key string, r io.Reader, terms Terms) *Intake {
	return &Intake{ctx: ctx, key: key, r: r, terms: terms, sum: NewCRC32C()}
}

// Sum is the checksum of what was read so far.
func (in *Intake) Sum() uint32 { return in.sum.Sum32() }

// Err is the error, never io.EOF, that ended reading; nil if there is none. It tells a failure of
// the source apart from one of the destination after io.Copy.
func (in *Intake) Err() error {
	if errors.Is(in.err, io.EOF) {
		return nil
	}
	return in.err
}

// Read implements io.Reader. Errors other than io.EOF are *queue.Error: Corrupt with
// CodeObjectInvalid (size or checksum), Canceled, or Unavailable (the source failed).
func (in *Intake) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	if in.err = Canceled(in.ctx, "put object", in.key); in.err != nil {
		return 0, in.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	left := in.terms.Size - in.read
	// One byte past the announced size shows that there is more; it is never given on.
	p = p[:min(int64(len(p)), left+1)]
	n, err := in.r.Read(p)
	if int64(n) > left {
		in.err = in.mismatch("has more than the %d bytes announced", in.terms.Size)
		return 0, in.err
	}
	in.read += int64(n)
	_, _ = in.sum.Write(p[:n]) // a hash never fails
	switch {
	case errors.Is(err, io.EOF):
		in.err = in.finish()
	case err != nil:
		in.err = in.sourceError(err)
	}
	return n, in.err
}

func (in *Intake) finish() error {
	switch {
	case in.read != in.terms.Size:
		return in.mismatch("has %d bytes, not the %d announced", in.read, in.terms.Size)
	case in.terms.HasCRC32C && in.Sum() != in.terms.CRC32C:
		return in.mismatch("has checksum %s, not the announced %s",
			FormatChecksum(in.Sum()), FormatChecksum(in.terms.CRC32C))
	}
	return io.EOF
}

func (in *Intake) mismatch(format string, args ...any) error {
	return &queue.Error{
		Op: "put object", Subject: in.key, Kind: queue.KindCorrupt, Code: queue.CodeObjectInvalid,
		Message: "the object " + fmt.Sprintf(format, args...),
	}
}

func (in *Intake) sourceError(err error) error {
	// A body that breaks off because its caller went away ends the context as well, often a
	// moment later than the read; the cancellation is the better answer if it is known.
	if canceled := Canceled(in.ctx, "put object", in.key); canceled != nil {
		return canceled
	}
	var known *queue.Error
	if errors.As(err, &known) {
		return err
	}
	kind := queue.KindUnavailable
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		kind = queue.KindCanceled
	}
	return &queue.Error{Op: "put object", Subject: in.key, Kind: kind, Message: "reading the bytes to store", Err: err}
}
