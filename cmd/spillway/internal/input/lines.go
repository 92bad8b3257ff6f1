package input

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/spillway-mq/spillway/pkg/topics"
)

const readBuffer = 256 << 10

// lineReader reads lines of any length and keeps at most limit bytes of each.
type lineReader struct {
	src   *bufio.Reader
	limit int
	buf   []byte
	// line is the number of the line read last, from 1.
	line int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{src: bufio.NewReaderSize(r, readBuffer), limit: limit}
}

// next reads a line without its end, "\n" or "\r\n". long says that it was over the limit and has been
// skipped. The slice is valid until the next call.
func (l *lineReader) next() (line []byte, long bool, err error) {
	l.buf = l.buf[:0]
	l.line++
	got := false
	for {
		part, err := l.src.ReadSlice('\n')
		got = got || len(part) > 0
		full := errors.Is(err, bufio.ErrBufferFull)
		if !full && err == nil && len(l.buf) == 0 && !long {
			// The usual case needs no copy.
			line = trimEnd(part)
			return line, len(line) > l.limit, nil
		}
		// Two bytes more than the limit: the line's end is not counted.
		if long || len(l.buf)+len(part) > l.limit+2 {
			long = true
		} else {
			l.buf = append(l.buf, part...)
		}
		switch {
		case full:
			continue
		case err == nil || errors.Is(err, io.EOF) && got:
			line = trimEnd(l.buf)
			return line, long || len(line) > l.limit, nil
		default:
			return nil, false, err
		}
	}
}

func trimEnd(line []byte) []byte {
	line, _ = bytes.CutSuffix(line, []byte("\n"))
	line, _ = bytes.CutSuffix(line, []byte("\r"))
	return line
}

type lines struct{ src *lineReader }

// Next implements Reader.
func (r *lines) Next(rec *Record) error {
	for {
		line, long, err := r.src.next()
		switch {
		case err != nil:
			return err
		case long:
			return &BadRecord{Line: r.src.line, Err: tooLong(r.src.limit)}
		case len(line) == 0:
			continue
		}
		*rec = Record{Body: line, Line: r.src.line}
		return nil
	}
}

type jsonl struct {
	src  *lineReader
	rule topics.Rule
}

func newJSONL(src *lineReader, key string) (Reader, error) {
	rule, err := topics.ParseRule("--key", key)
	if err != nil {
		return nil, err
	}
	if key != "" && !rule.NeedsBody() {
		return nil, errors.New(`--key must be a path into the JSON, as in $.customer.id`)
	}
	return &jsonl{src: src, rule: rule}, nil
}

// Next implements Reader.
func (r *jsonl) Next(rec *Record) error {
	for {
		line, long, err := r.src.next()
		line = bytes.TrimSpace(line)
		switch {
		case err != nil:
			return err
		case long:
			return &BadRecord{Line: r.src.line, Err: tooLong(r.src.limit)}
		case len(line) == 0:
			continue
		case !json.Valid(line):
			return &BadRecord{Line: r.src.line, Err: badJSON(line)}
		}
		*rec = Record{Body: line, Line: r.src.line}
		rec.Key, _ = r.rule.Key(line, nil)
		return nil
	}
}

// badJSON says what is wrong with a line that is not one JSON value.
func badJSON(line []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(line, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return errors.New("is not one JSON value: " + syntax.Error() + ", at byte " + strconv.FormatInt(syntax.Offset, 10))
	}
	return errors.New("is not one JSON value")
}
