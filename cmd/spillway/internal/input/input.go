// Package input cuts a stream into messages: lines, JSON lines, CSV rows, deb822 stanzas, or the whole
// stream as one.
//
// Vocabulary: a record is what becomes one message; a bad record is one that breaks its format or the
// size limit.
//
// Invariants: memory is bounded by the largest record allowed, whatever the input. A bad record costs
// an error that names its line, and the reader goes on behind it where the format lets it; the error
// says so by being a *BadRecord. Any other error ends the stream. Any bytes may be read.
//
// Non-goals: no guessing of what a bad record meant, no character sets but UTF-8 (bodies may be any
// bytes where the format allows it).
package input

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Format is a way to cut a stream into records.
type Format string

// The formats.
const (
	// Auto looks at the name of the file and its first bytes.
	Auto Format = "auto"
	// Lines: a record is a line, without its end. Empty lines are skipped.
	Lines Format = "lines"
	// JSONL: a record is a line that holds one JSON value. Blank lines are skipped.
	JSONL Format = "jsonl"
	// CSV: the first row names the columns; a record is a row as a JSON object of strings.
	CSV Format = "csv"
	// Deb822: a record is a stanza of "Field: value" lines; stanzas are set apart by blank lines.
	Deb822 Format = "deb822"
	// Raw: the whole stream is one record.
	Raw Format = "raw"
)

// Formats lists the names, for help and errors.
func Formats() []string {
	return []string{string(Auto), string(Lines), string(JSONL), string(CSV), string(Deb822), string(Raw)}
}

// ParseFormat reads the name of a format.
func ParseFormat(s string) (Format, error) {
	for _, f := range Formats() {
		if s == f {
			return Format(s), nil
		}
	}
	return "", fmt.Errorf("unknown format %q: give one of %s", s, strings.Join(Formats(), ", "))
}

// Record is one message. Its slices are valid until the next call of Next.
type Record struct {
	Body []byte
	// Key is empty where the input gives none.
	Key []byte
	// Line is where the record starts, from 1.
	Line int
}

// Reader reads records one after another. Next gives io.EOF at the end.
type Reader interface {
	Next(*Record) error
}

// BadRecord is the error of a record that was skipped; reading may go on.
type BadRecord struct {
	Line int
	Err  error
}

// Error says where and what.
func (e *BadRecord) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap gives the cause.
func (e *BadRecord) Unwrap() error { return e.Err }

// Options say how to read.
type Options struct {
	// Format is Lines unless set; Auto is for Detect to resolve.
	Format Format
	// Key says where a record's key is: "$.path" for JSONL, a column for CSV, a field or several
	// with "|" between for Deb822. Empty for none.
	Key string
	// Delimiter parts the columns of CSV; a comma unless set.
	Delimiter rune
	// MaxRecordBytes bounds a record; queue.MaxInlineMessageBytes unless set.
	MaxRecordBytes int
}

// New makes a reader. The error is about the options.
func New(r io.Reader, o Options) (Reader, error) {
	if o.MaxRecordBytes <= 0 {
		o.MaxRecordBytes = queue.MaxInlineMessageBytes
	}
	src := newLineReader(r, o.MaxRecordBytes)
	switch o.Format {
	case Lines, "":
		if o.Key != "" {
			return nil, errors.New("--key needs --format jsonl, csv or deb822: a plain line has no fields")
		}
		return &lines{src: src}, nil
	case Raw:
		if o.Key != "" {
			return nil, errors.New("--key needs --format jsonl, csv or deb822: a raw body has no fields")
		}
		return &raw{src: r, limit: o.MaxRecordBytes}, nil
	case JSONL:
		return newJSONL(src, o.Key)
	case CSV:
		return newCSV(r, o)
	case Deb822:
		return newDeb822(src, o)
	case Auto:
		return nil, errors.New("format auto was not resolved")
	}
	return nil, fmt.Errorf("unknown format %q", o.Format)
}

// Detect resolves Auto by the name of the file and the first bytes, and gives a reader that starts
// with those bytes. Other formats stay what they are.
func Detect(f Format, name string, r io.Reader) (Format, io.Reader) {
	if f != Auto {
		return f, r
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".jsonl", ".ndjson":
		return JSONL, r
	case ".csv", ".tsv":
		return CSV, r
	case ".deb822":
		return Deb822, r
	case ".txt", ".log":
		return Lines, r
	}
	br := bufio.NewReaderSize(r, 4096)
	// An error of the source comes again at the first read.
	head, _ := br.Peek(4096)
	switch trimmed := bytes.TrimLeft(head, " \t\r\n"); {
	case bytes.HasPrefix(trimmed, []byte("{")):
		return JSONL, br
	case looksLikeDeb822(trimmed):
		return Deb822, br
	}
	return Lines, br
}

// looksLikeDeb822 wants two "Field: value" lines at the start, as one alone is often a line of a log.
func looksLikeDeb822(head []byte) bool {
	for range 2 {
		line, rest, ok := bytes.Cut(head, []byte("\n"))
		name, _, colon := bytes.Cut(line, []byte(":"))
		if !ok || !colon || !validFieldName(name) {
			return false
		}
		head = rest
	}
	return true
}

// raw gives the whole stream once.
type raw struct {
	src   io.Reader
	limit int
	done  bool
}

// Next implements Reader.
func (r *raw) Next(rec *Record) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	body, err := io.ReadAll(io.LimitReader(r.src, int64(r.limit)+1))
	switch {
	case err != nil:
		return err
	case len(body) > r.limit:
		return &BadRecord{Line: 1, Err: tooLong(r.limit)}
	}
	*rec = Record{Body: body, Line: 1}
	return nil
}

func tooLong(limit int) error {
	return fmt.Errorf("is longer than %d bytes (--max-record)", limit)
}
