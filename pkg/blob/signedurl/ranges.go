package signedurl

import (
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const rangeField = "Range"

func errRange(size int64) error {
	return queue.Invalid(rangeField, size, "does not lie in an object of %d bytes", size)
}

// parseRange reads a Range header (RFC 9110, section 14). As it demands, a header that is malformed,
// has another unit or, which it allows, several ranges, is ignored: the whole object is the answer.
// ok is false for a range that lies outside of the object.
func parseRange(header string, size int64) (span blob.Span, partial, ok bool) {
	spec, found := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !found || !dash || strings.Contains(spec, ",") {
		return blob.Span{}, false, true
	}
	lo, okLo := parseDigits(first)
	hi, okHi := parseDigits(last)
	switch {
	case first == "" && okHi: // the last hi bytes
		if hi == 0 || size == 0 {
			return blob.Span{}, false, false
		}
		n := min(hi, size)
		return blob.Span{Pos: size - n, Len: n}, true, true
	case okLo && last == "": // from lo on
		hi = size - 1
	case !okLo || !okHi || hi < lo:
		return blob.Span{}, false, true
	}
	if lo >= size {
		return blob.Span{}, false, false
	}
	return blob.Span{Pos: lo, Len: min(hi, size-1) - lo + 1}, true, true
}

// parseDigits takes digits only; a number past int64 is the largest one.
func parseDigits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1<<63 - 1, true
	}
	return n, true
}

// noneMatch reports whether an If-None-Match header names the tag.
func noneMatch(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if part == "*" || part == tag {
			return true
		}
	}
	return false
}
