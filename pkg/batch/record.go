package batch

import (
	"encoding/binary"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Record is one message of a batch. Times are durations: their base, the commit time, is kept in
// the ref, so that no client's clock matters.
type Record struct {
	// Slot decides the segment. It need not be the hash of Key: a topic may partition by
	// another rule.
	Slot queue.Slot
	// Key is the message's key, at most queue.MaxKeyBytes of any bytes; empty means none.
	Key []byte
	// Headers is the encoded headers block; empty means none.
	Headers Headers
	// Body is the payload, at most MaxBodyBytes; it may be empty.
	Body []byte
	// Delay is from commit to visibility, 0 to queue.MaxMaxDelay; it counts only if HasDelay is
	// set, so that a delay of 0 can override a topic's default.
	Delay    time.Duration
	HasDelay bool
	// TTL is from commit to expiry, up to queue.MaxTTL; 0 means none.
	TTL time.Duration
	// CreatedDelta is how long after the ref's base time the message was committed, up to
	// MaxCreatedDelta. A compactor sets it when it merges batches of several commits.
	CreatedDelta time.Duration
	// DedupID is the producer's id for deduplication, printable UTF-8 of at most
	// queue.MaxDedupIDBytes; empty means none.
	DedupID []byte
}

// Entry is what the index knows of one record: all but the body, so Body is nil.
type Entry struct {
	Record
	// BodyLen is the length of the body before compression, in bytes.
	BodyLen int64
	// BodyCRC is the CRC32C of the body before compression.
	BodyCRC uint32
	// BodyPos is where the body starts in the bodies before compression. With CodecNone the body
	// lies at Header.PrefixLen() + BodyPos of the batch.
	BodyPos int64
}

// MaxCreatedDelta bounds Record.CreatedDelta: 100 years, which a time.Duration holds with ease.
const MaxCreatedDelta = 100 * 366 * 24 * time.Hour

// Flags of an index entry: which optional fields follow.
const (
	flagDelay   = 1 << 0
	flagTTL     = 1 << 1
	flagCreated = 1 << 2
	flagDedup   = 1 << 3
	flagsKnown  = flagDelay | flagTTL | flagCreated | flagDedup
)

// minEntrySize is that of a record without body, key, headers and options: flags 1, slot 2, body
// length 1, body checksum 4, key length 1, headers length 1.
const minEntrySize = 10

// millis rounds a duration up to milliseconds, the resolution of the format: rounded down, a message
// could be visible before its delay is over, and a small ttl would turn into none.
func millis(d time.Duration) uint64 {
	return uint64((d + time.Millisecond - 1) / time.Millisecond) // #nosec G115 -- checked to be >= 0
}

// check holds a record to the limits.
func (r *Record) check() *queue.Error {
	switch {
	case len(r.Key) > queue.MaxKeyBytes:
		return queue.Invalid("key", queue.MaxKeyBytes, "is longer than %d bytes", queue.MaxKeyBytes)
	case len(r.Body) > MaxBodyBytes:
		return queue.TooLarge("body", MaxBodyBytes, int64(len(r.Body)))
	case !r.HasDelay && r.Delay != 0:
		return queue.Invalid("delay", nil, "is set, but HasDelay is not")
	case r.Delay < 0 || r.Delay > queue.MaxMaxDelay:
		return queue.Invalid("delay", queue.Bound(r.Delay, 0, queue.MaxMaxDelay).Seconds(), "must be 0 to %v, not %v", queue.MaxMaxDelay, r.Delay)
	case r.TTL < 0 || r.TTL > queue.MaxTTL:
		return queue.Invalid("ttl", queue.Bound(r.TTL, 0, queue.MaxTTL).Seconds(), "must be 0 to %v, not %v", queue.MaxTTL, r.TTL)
	case r.CreatedDelta < 0 || r.CreatedDelta > MaxCreatedDelta:
		return queue.Invalid("created_delta", queue.Bound(r.CreatedDelta, 0, MaxCreatedDelta).Seconds(), "must be 0 to %v, not %v", MaxCreatedDelta, r.CreatedDelta)
	}
	if len(r.DedupID) > 0 {
		if bad := checkToken(r.DedupID, queue.MaxDedupIDBytes); bad != "" {
			return queue.Invalid("dedup_id", queue.MaxDedupIDBytes, "%s", bad)
		}
	}
	if bad := r.Headers.check(); bad != "" {
		return queue.Invalid("headers", nil, "%s", bad)
	}
	return nil
}

// entrySize is the exact length of what appendEntry appends.
func (r *Record) entrySize() int {
	n := 1 + 2 + uvarintLen(uint64(len(r.Body))) + 4 +
		uvarintLen(uint64(len(r.Key))) + len(r.Key) +
		uvarintLen(uint64(len(r.Headers))) + len(r.Headers)
	if r.HasDelay {
		n += uvarintLen(millis(r.Delay))
	}
	if r.TTL > 0 {
		n += uvarintLen(millis(r.TTL))
	}
	if r.CreatedDelta > 0 {
		n += uvarintLen(millis(r.CreatedDelta))
	}
	if len(r.DedupID) > 0 {
		n += uvarintLen(uint64(len(r.DedupID))) + len(r.DedupID)
	}
	return n
}

func (r *Record) appendEntry(dst []byte, bodyCRC uint32) []byte {
	flagsAt := len(dst)
	flags := byte(0)
	dst = append(dst, 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(r.Slot))
	dst = binary.AppendUvarint(dst, uint64(len(r.Body)))
	dst = binary.LittleEndian.AppendUint32(dst, bodyCRC)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Headers)
	if r.HasDelay {
		flags |= flagDelay
		dst = binary.AppendUvarint(dst, millis(r.Delay))
	}
	if r.TTL > 0 {
		flags |= flagTTL
		dst = binary.AppendUvarint(dst, millis(r.TTL))
	}
	if r.CreatedDelta > 0 {
		flags |= flagCreated
		dst = binary.AppendUvarint(dst, millis(r.CreatedDelta))
	}
	if len(r.DedupID) > 0 {
		flags |= flagDedup
		dst = appendBytes(dst, r.DedupID)
	}
	dst[flagsAt] = flags
	return dst
}

// parseEntry decodes the index entry at the start of b into e, all but BodyPos, and gives its length.
// A non-empty bad says what is wrong. It checks everything but the inside of the headers block; the
// slices in e point into b.
func parseEntry(b []byte, e *Entry) (n int, bad string) {
	*e = Entry{}
	if len(b) < minEntrySize {
		return 0, "entry is cut off"
	}
	flags := b[0]
	if flags&^flagsKnown != 0 {
		return 0, "unknown entry flags"
	}
	e.Slot = queue.Slot(binary.LittleEndian.Uint16(b[1:]))
	s := scanner{b: b, off: 3}
	e.BodyLen = int64(s.uvarint(0, MaxBodyBytes, "body length")) // #nosec G115 -- bounded
	e.BodyCRC = s.uint32()
	e.Key = s.bytes(0, queue.MaxKeyBytes, "key length")
	e.Headers = s.bytes(0, maxHeadersBlock, "headers length")
	if flags&flagDelay != 0 {
		e.HasDelay = true
		e.Delay = s.duration(0, queue.MaxMaxDelay, "delay")
	}
	if flags&flagTTL != 0 {
		e.TTL = s.duration(1, queue.MaxTTL, "ttl")
	}
	if flags&flagCreated != 0 {
		e.CreatedDelta = s.duration(1, MaxCreatedDelta, "created delta")
	}
	if flags&flagDedup != 0 {
		e.DedupID = s.bytes(1, queue.MaxDedupIDBytes, "dedup id length")
	}
	return s.off, s.bad
}

// scanner reads fields one after another; after the first fault it reads only zeros, so that a
// caller looks at bad once, at the end.
type scanner struct {
	b   []byte
	off int
	bad string
}

func (s *scanner) fail(what string) {
	if s.bad == "" {
		s.bad = what
	}
	s.off = len(s.b)
}

// uvarint reads a number of lo..hi in its shortest form; other forms would give one content
// several encodings.
func (s *scanner) uvarint(lo, hi uint64, what string) uint64 {
	v, n := uvarint(s.b[s.off:])
	if n <= 0 || v < lo || v > hi {
		s.fail(what + " is cut off or out of range")
		return 0
	}
	s.off += n
	return v
}

func (s *scanner) uint32() uint32 {
	if len(s.b)-s.off < 4 {
		s.fail("entry is cut off")
		return 0
	}
	v := binary.LittleEndian.Uint32(s.b[s.off:])
	s.off += 4
	return v
}

func (s *scanner) duration(lo uint64, hi time.Duration, what string) time.Duration {
	v := s.uvarint(lo, uint64(hi.Milliseconds()), what) // #nosec G115 -- a constant
	return time.Duration(v) * time.Millisecond          // #nosec G115 -- bounded
}

// bytes reads a length and that many bytes; an empty one is nil.
func (s *scanner) bytes(lo, hi uint64, what string) []byte {
	n := int(s.uvarint(lo, hi, what)) // #nosec G115 -- bounded by small constants
	if n > len(s.b)-s.off {
		s.fail(what + " is past the end")
		return nil
	}
	if n == 0 {
		return nil
	}
	v := s.b[s.off : s.off+n : s.off+n]
	s.off += n
	return v
}

// uvarint is binary.Uvarint with a fast path, and n = 0 for a number not in its shortest form.
func uvarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	v, n = binary.Uvarint(b)
	if n > 1 && b[n-1] == 0 {
		return 0, 0
	}
	return v, n
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func appendBytes[T ~[]byte | ~string](dst []byte, b T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// checkToken is queue.ValidateToken for bytes, without a copy: 1 to limit bytes of UTF-8 without
// control characters. It says what is wrong, or "".
func checkToken(b []byte, limit int) string {
	if len(b) == 0 || len(b) > limit {
		return "is empty or too long"
	}
	for i := 0; i < len(b); {
		if c := b[i]; c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f {
				return "holds a control character"
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return "is not UTF-8"
		}
		if unicode.IsControl(r) {
			return "holds a control character"
		}
		i += n
	}
	return ""
}
