package input

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// errRowTooLong stops a row that does not end, such as one with a quote that is never closed: the CSV
// reader would keep all of it.
var errRowTooLong = errors.New("row too long")

// csvRows gives each row as a JSON object with the columns in their order.
type csvRows struct {
	src     *csv.Reader
	bound   *boundedReader
	limit   int
	columns []string // as JSON strings with their colon
	key     int      // -1 for none
	body    bytes.Buffer
	failed  error
}

func newCSV(r io.Reader, o Options) (Reader, error) {
	bound := &boundedReader{src: r, limit: int64(o.MaxRecordBytes) + readBuffer}
	c := &csvRows{src: csv.NewReader(bound), bound: bound, limit: o.MaxRecordBytes, key: -1}
	if o.Delimiter != 0 {
		c.src.Comma = o.Delimiter
	}
	c.src.ReuseRecord = true
	header, err := c.src.Read()
	switch {
	case errors.Is(err, io.EOF):
		c.failed = io.EOF
		return c, nil
	case errors.Is(err, errRowTooLong):
		return nil, fmt.Errorf("the first row, which must name the columns, %w", tooLong(o.MaxRecordBytes))
	case err != nil:
		return nil, fmt.Errorf("the first row must name the columns: %w", err)
	}
	// Spreadsheets put a byte order mark before the first name.
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	for i, name := range header {
		switch {
		case !utf8.ValidString(name):
			return nil, fmt.Errorf("the name of column %d is not UTF-8", i+1)
		case slices.Contains(header[:i], name):
			return nil, fmt.Errorf("two columns are named %q", name)
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		c.columns = append(c.columns, string(quoted)+":")
	}
	if o.Key != "" {
		c.key = slices.Index(header, o.Key)
		if c.key < 0 {
			return nil, fmt.Errorf("--key: no column is named %q; there are %s", o.Key, strings.Join(header, ", "))
		}
	}
	return c, nil
}

// Next implements Reader.
func (c *csvRows) Next(rec *Record) error {
	if c.failed != nil {
		return c.failed
	}
	c.bound.reset()
	before := c.src.InputOffset()
	row, err := c.src.Read()
	var parse *csv.ParseError
	switch {
	case err == nil:
	case errors.Is(err, errRowTooLong):
		// The reader stands in the midst of a row and cannot find the next.
		c.failed = io.EOF
		return fmt.Errorf("the row %w; is a quote not closed?", tooLong(c.limit))
	case errors.As(err, &parse):
		return &BadRecord{Line: parse.StartLine, Err: parse.Err}
	default:
		c.failed = err
		return err
	}
	line, _ := c.src.FieldPos(0)
	if c.src.InputOffset()-before > int64(c.limit) {
		return &BadRecord{Line: line, Err: tooLong(c.limit)}
	}
	c.body.Reset()
	c.body.WriteByte('{')
	for i, value := range row {
		if i > 0 {
			c.body.WriteByte(',')
		}
		c.body.WriteString(c.columns[i])
		if !utf8.ValidString(value) {
			return &BadRecord{Line: line, Err: fmt.Errorf("column %d is not UTF-8", i+1)}
		}
		appendJSONString(&c.body, value)
	}
	c.body.WriteByte('}')
	*rec = Record{Body: c.body.Bytes(), Line: line}
	if c.key >= 0 {
		rec.Key = []byte(row[c.key])
	}
	return nil
}

func appendJSONString(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	// A string that is UTF-8 always encodes.
	_ = enc.Encode(s)
	b.Truncate(b.Len() - 1) // the encoder's newline
}

// boundedReader fails once more than limit bytes were read since the last reset.
type boundedReader struct {
	src   io.Reader
	limit int64
	n     int64
}

func (b *boundedReader) reset() { b.n = 0 }

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.n >= b.limit {
		return 0, errRowTooLong
	}
	n, err := b.src.Read(p)
	b.n += int64(n)
	return n, err
}
