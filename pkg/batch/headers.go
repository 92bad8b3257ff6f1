package batch

import (
	"bytes"
	"iter"
	"slices"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Headers is the encoded headers of one message: for each header the name, then the value, each
// behind its length as an uvarint, sorted by the bytes of the name, names unique. Equal headers have
// equal bytes. Empty means no headers. The zero value is ready to use.
type Headers []byte

// maxHeadersBlock bounds an encoded block: the content, and two lengths of at most 3 bytes each.
const maxHeadersBlock = queue.MaxHeadersBytes + queue.MaxHeaders*2*3

// MakeHeaders encodes a map; the same map always gives the same bytes. An empty map gives nil. A map
// that breaks queue.ValidateHeaders is refused with a KindInvalid error on field "headers".
func MakeHeaders(m map[string]string) (Headers, error) { return AppendHeaders(nil, m) }

// AppendHeaders is MakeHeaders that appends to dst; on an error dst comes back as it was.
func AppendHeaders(dst []byte, m map[string]string) ([]byte, error) {
	if err := queue.ValidateHeaders("headers", m); err != nil {
		return dst, err
	}
	return appendSorted(dst, m), nil
}

func appendSorted(dst []byte, m map[string]string) []byte {
	names := make([]string, 0, queue.MaxHeaders) // of constant size, to stay on the stack
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		dst = appendBytes(dst, name)
		dst = appendBytes(dst, m[name])
	}
	return dst
}

// next cuts the first pair off h. ok is false at the end and at malformed bytes.
func (h Headers) next() (name, value []byte, rest Headers, ok bool) {
	n, a := uvarint(h)
	if a <= 0 || n > uint64(len(h)-a) {
		return nil, nil, nil, false
	}
	name, h = h[a:a+int(n)], h[a+int(n):] // #nosec G115 -- bounded by a length
	n, a = uvarint(h)
	if a <= 0 || n > uint64(len(h)-a) {
		return nil, nil, nil, false
	}
	return name, h[a : a+int(n)], h[a+int(n):], true // #nosec G115 -- bounded by a length
}

// All iterates over the pairs in order of name. Of a block that does not Validate, the pairs before
// the fault are given.
func (h Headers) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for rest := h; ; {
			name, value, r, ok := rest.next()
			if !ok || !yield(string(name), string(value)) {
				return
			}
			rest = r
		}
	}
}

// Get finds one header. The name is matched byte for byte.
func (h Headers) Get(name string) (string, bool) {
	for rest := h; ; {
		n, value, r, ok := rest.next()
		if !ok {
			return "", false
		}
		if string(n) == name {
			return string(value), true
		}
		rest = r
	}
}

// Map decodes the pairs into a new map; no headers give nil.
func (h Headers) Map() map[string]string {
	if len(h) == 0 {
		return nil
	}
	m := make(map[string]string)
	for name, value := range h.All() {
		m[name] = value
	}
	return m
}

// Merge gives new headers that hold those of h and extra; where both have a name, extra's value
// stands. Limits are not checked, because callers add to headers that may be full already (the
// reason of a dead letter): Validate the result where they matter.
func (h Headers) Merge(extra map[string]string) Headers {
	if len(extra) == 0 {
		return slices.Clone(h)
	}
	m := make(map[string]string, len(extra))
	for name, value := range h.All() {
		m[name] = value
	}
	for name, value := range extra {
		m[name] = value
	}
	return appendSorted(make([]byte, 0, len(h)+64), m)
}

// Validate checks the encoding, the order and the limits of queue.ValidateHeaders. The error is of
// KindInvalid on field "headers".
func (h Headers) Validate() error {
	if bad := h.check(); bad != "" {
		return queue.Invalid("headers", nil, "%s", bad)
	}
	return nil
}

// check says what is wrong with h, or "".
func (h Headers) check() string {
	var previous []byte
	count, total := 0, 0
	for rest := h; len(rest) > 0; count++ {
		name, value, r, ok := rest.next()
		if !ok {
			return "headers block is malformed"
		}
		if bad := checkToken(name, queue.MaxHeaderNameBytes); bad != "" {
			return "a header name " + bad
		}
		if !utf8.Valid(value) {
			return "a header value is not UTF-8"
		}
		if count > 0 && bytes.Compare(previous, name) >= 0 {
			return "header names are not sorted and unique"
		}
		total += len(name) + len(value)
		previous, rest = name, r
	}
	if count > queue.MaxHeaders || total > queue.MaxHeadersBytes {
		return "headers are over the limits of count or size"
	}
	return ""
}
