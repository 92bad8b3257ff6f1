package httpapi

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// What an answer holds once for each message is rendered here by hand, for the plain cases: through
// encoding/json a message would cost a dozen allocations and two copies of its body. The bytes are those
// that encoding/json gives of the types in package wire; a test holds them together. Whatever is not plain
// (an error, a warning, a reference) goes through encoding/json.

// appendResult appends the wire.ProduceResult of message k of a run that is plain.
func appendResult(dst []byte, run *produce.Run, k int) []byte {
	id := run.ID
	id.Offset += queue.Offset(k) // #nosec G115 -- within MaxBatchRecords
	dst = append(dst, `{"id":"`...)
	dst = append(id.AppendTo(dst), '"')
	dst = appendTime(dst, `,"created_at":"`, run.Created)
	dst = appendTime(dst, `,"visible_at":"`, run.Visible)
	dst = appendTime(dst, `,"expires_at":"`, run.Expires)
	return append(dst, '}')
}

// plainRun reports whether appendResult can render the messages of a run.
func plainRun(run *produce.Run) bool {
	return run.Err == nil && run.Delayed == nil && len(run.Warnings) == 0
}

// appendMessage appends the wire.Message of a delivered message that is plain: its body is at hand.
func appendMessage(dst []byte, claimed bool, d *wire.Delivered) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(d.ID.AppendTo(dst), '"')
	if len(d.Key) > 0 {
		dst = appendTextOr64(dst, `,"key":`, `,"key_base64":`, d.Key)
	}
	dst = appendTextOr64(dst, `,"body":`, `,"body_base64":`, d.Body)
	if len(d.Headers) > 0 {
		dst = append(dst, `,"headers":`...)
		sep := byte('{')
		for name, value := range d.Headers.All() {
			dst = appendText(append(dst, sep), name)
			dst = appendText(append(dst, ':'), value)
			sep = ','
		}
		dst = append(dst, '}')
	}
	if len(d.DedupID) > 0 {
		dst = appendText(append(dst, `,"dedup_id":`...), d.DedupID)
	}
	if d.Attempt > 0 {
		dst = strconv.AppendUint(append(dst, `,"attempt":`...), uint64(d.Attempt), 10)
	}
	if claimed {
		dst = append(dst, `,"receipt":"`...)
		dst = append(d.Receipt.AppendTo(dst), '"')
	}
	dst = appendTime(dst, `,"created_at":"`, d.Created)
	dst = appendTime(dst, `,"visible_at":"`, d.Visible)
	dst = appendTime(dst, `,"expires_at":"`, d.Expires)
	dst = appendTime(dst, `,"claim_expires_at":"`, d.ClaimExpires)
	return append(dst, '}')
}

// appendTime appends a field with its name; none is left out.
func appendTime(dst []byte, field string, at queue.Millis) []byte {
	if at == 0 {
		return dst
	}
	return append(at.AppendTo(append(dst, field...)), '"')
}

// appendTextOr64 appends bytes as text if they are, else in base64 under the other name.
func appendTextOr64(dst []byte, field, field64 string, b []byte) []byte {
	if utf8.Valid(b) {
		return appendText(append(dst, field...), b)
	}
	dst = append(append(dst, field64...), '"')
	return append(base64.StdEncoding.AppendEncode(dst, b), '"')
}

// appendText appends a JSON string as encoding/json writes it without escapes for HTML. The text is UTF-8.
func appendText[T string | []byte](dst []byte, text T) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	done := 0 // up to there text is in dst
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(append(dst, text[done:i]...), '\\', c)
		case c < ' ':
			dst = append(dst, text[done:i]...)
			switch c {
			case '\b':
				dst = append(dst, `\b`...)
			case '\f':
				dst = append(dst, `\f`...)
			case '\n':
				dst = append(dst, `\n`...)
			case '\r':
				dst = append(dst, `\r`...)
			case '\t':
				dst = append(dst, `\t`...)
			default:
				dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			}
		case c == 0xe2 && i+2 < len(text) && text[i+1] == 0x80 && text[i+2]&^1 == 0xa8:
			// U+2028 and U+2029 end lines in JavaScript.
			dst = append(append(dst, text[done:i]...), '\\', 'u', '2', '0', '2', digits[text[i+2]&15])
			i += 2
		default:
			continue
		}
		done = i + 1
	}
	return append(append(dst, text[done:]...), '"')
}
