package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Values of --output.
const (
	outputJSON  = "json"
	outputTable = "table"
	outputRaw   = "raw"
)

// printJSON writes v over several lines, for one answer.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonLine encodes v as one line with its end.
func jsonLine(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return []byte(b.String()), err
}

// table gathers rows and writes them in columns.
type table struct {
	w   *tabwriter.Writer
	err error
}

func newTable(w io.Writer, columns ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(columns) > 0 {
		t.row(columns)
	}
	return t
}

func (t *table) row(cells []string) {
	_, err := fmt.Fprintln(t.w, strings.Join(cells, "\t"))
	if t.err == nil {
		t.err = err
	}
}

// add adds a row of values, printed as fmt does.
func (t *table) add(values ...any) {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = cell(fmt.Sprint(v))
	}
	t.row(cells)
}

func (t *table) flush() error {
	if err := t.w.Flush(); t.err == nil {
		t.err = err
	}
	return t.err
}

// cell makes a text fit into one line of a table: control characters would break it, or do things to
// the terminal.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// printable replaces control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
}

// shorten cuts s to at most n characters.
func shorten(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
