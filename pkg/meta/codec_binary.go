package meta

import (
	"encoding/binary"
	"errors"
	"io"
)

// The primitives of binary bodies: unsigned and zigzag varints, and byte strings with their length
// before them.

func putUint(dst []byte, n uint64) []byte { return binary.AppendUvarint(dst, n) }

func putInt(dst []byte, n int64) []byte { return binary.AppendVarint(dst, n) }

func putBytes[T string | []byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

var errOverflow = errors.New("a number is out of its range")

// bodyReader reads a binary body. The first failure sticks, and every read after it gives zero, so
// that callers check once, at the end.
type bodyReader struct {
	b   []byte
	err error
}

func (r *bodyReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *bodyReader) uint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.failVarint(size)
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *bodyReader) int() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.failVarint(size)
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *bodyReader) failVarint(size int) {
	if size < 0 {
		r.fail(errOverflow)
		return
	}
	r.fail(io.ErrUnexpectedEOF)
}

// uintTo reads a number that must not be over limit.
func (r *bodyReader) uintTo(limit uint64) uint64 {
	n := r.uint()
	if n > limit {
		r.fail(errOverflow)
		return 0
	}
	return n
}

// count reads the length of a list whose elements take at least minBytes each, so that a hostile
// length cannot ask for more memory than the input is worth.
func (r *bodyReader) count(minBytes int) int {
	n := r.uint()
	if n > uint64(len(r.b)/minBytes) {
		r.fail(io.ErrUnexpectedEOF)
		return 0
	}
	return int(n) // #nosec G115 -- at most len(r.b)
}

// take gives the next n bytes; they alias the input.
func (r *bodyReader) take(n int) []byte {
	if n > len(r.b) {
		r.fail(io.ErrUnexpectedEOF)
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *bodyReader) string() string { return string(r.take(r.count(1))) }

// bytes copies; it is never nil.
func (r *bodyReader) bytes() []byte { return append([]byte{}, r.take(r.count(1))...) }

// done gives the first failure, or one if the body goes on.
func (r *bodyReader) done() error {
	if r.err == nil && len(r.b) > 0 {
		return errors.New("bytes after the record")
	}
	return r.err
}
