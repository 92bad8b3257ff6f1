package input_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/input"
)

// readAll renders each record as "line key|body" and each bad record as "line! error".
func readAll(t testing.TB, text string, o input.Options) ([]string, error) {
	t.Helper()
	r, err := input.New(iotest.OneByteReader(strings.NewReader(text)), o)
	if err != nil {
		return nil, err
	}
	var out []string
	for {
		var rec input.Record
		err := r.Next(&rec)
		var bad *input.BadRecord
		switch {
		case err == nil:
			out = append(out, fmt.Sprintf("%d %s|%s", rec.Line, rec.Key, rec.Body))
		case errors.As(err, &bad):
			out = append(out, fmt.Sprintf("%d! %v", bad.Line, bad.Err))
		case errors.Is(err, io.EOF):
			return out, nil
		default:
			return out, err
		}
	}
}

func TestReaders(t *testing.T) {
	for _, c := range []struct {
		name, text string
		options    input.Options
		want       []string
		err        string
	}{
		{name: "lines", text: "a\r\n\nb c\nlast", want: []string{"1 |a", "3 |b c", "4 |last"}},
		{name: "no lines"},
		{
			name: "a long line is skipped", text: "abcdef\nabcde\nx\n", options: input.Options{MaxRecordBytes: 5},
			want: []string{"1! is longer than 5 bytes (--max-record)", "2 |abcde", "3 |x"},
		},
		{
			name: "jsonl", options: input.Options{Format: input.JSONL, Key: "$.c.id"},
			text: "{\"c\":{\"id\":7}}\n\n  {\"c\":{}} \nnonsense\n{\"a\":1} {\"b\":2}\n[1]",
			want: []string{
				`1 7|{"c":{"id":7}}`,
				`3 |{"c":{}}`,
				"4! is not one JSON value: invalid character 'o' in literal null (expecting 'u'), at byte 2",
				"5! is not one JSON value: invalid character '{' after top-level value, at byte 9",
				"6 |[1]",
			},
		},
		{
			name: "csv", options: input.Options{Format: input.CSV, Key: "id"},
			text: "\ufeffid,text\n1,\"a \"\"b\"\"\nc\"\n2\n3,<x>\n",
			want: []string{`2 1|{"id":"1","text":"a \"b\"\nc"}`, "4! wrong number of fields", `5 3|{"id":"3","text":"<x>"}`},
		},
		{
			name: "tsv", options: input.Options{Format: input.CSV, Delimiter: '\t'},
			text: "a\tb\n1\t2\n", want: []string{`2 |{"a":"1","b":"2"}`},
		},
		{name: "csv without a byte", options: input.Options{Format: input.CSV}},
		{
			name: "csv without the column", options: input.Options{Format: input.CSV, Key: "no"}, text: "a,b\n",
			err: `--key: no column is named "no"; there are a, b`,
		},
		{name: "csv with a column twice", options: input.Options{Format: input.CSV}, text: "a,a\n", err: `two columns are named "a"`},
		{
			name: "deb822", options: input.Options{Format: input.Deb822, Key: "Source|Package"},
			text: "\n\nPackage: gcc-12-base\nSource: gcc-12 (12.2.0-14)\nDescription: x\n more\n .\n\n \t\nPackage: zlib1g\n# note\n\n" +
				"no colon\nPackage: bad\n\n cont\n\nsource:\npackage: y\n",
			want: []string{
				"3 gcc-12|Package: gcc-12-base\nSource: gcc-12 (12.2.0-14)\nDescription: x\n more\n .",
				"10 zlib1g|Package: zlib1g\n# note",
				`13! is neither "Field: value" nor a continuation that starts with a space`,
				"16! a stanza starts with a continuation line: it has no field to continue",
				"18 y|source:\npackage: y",
			},
		},
		{
			name: "a long stanza is skipped", options: input.Options{Format: input.Deb822, MaxRecordBytes: 9},
			text: "A: 1\nB: 2\n\nA: 1\nBB: 2\nCCCCCCCCCCCCCCCCCCCC: 3\n\nA: 3\n",
			want: []string{"1 |A: 1\nB: 2", "4! is longer than 9 bytes (--max-record)", "8 |A: 3"},
		},
		{name: "raw", options: input.Options{Format: input.Raw}, text: "a\nb\n", want: []string{"1 |a\nb\n"}},
		{name: "raw, empty", options: input.Options{Format: input.Raw}, want: []string{"1 |"}},
		{
			name: "raw, too long", options: input.Options{Format: input.Raw, MaxRecordBytes: 2}, text: "abc",
			want: []string{"1! is longer than 2 bytes (--max-record)"},
		},
		{name: "a key of lines", options: input.Options{Key: "x"}, err: "--key needs --format"},
		{name: "a key of JSON without a path", options: input.Options{Format: input.JSONL, Key: "header:x"}, err: "--key must be a path"},
		{name: "a key of JSON that is no path", options: input.Options{Format: input.JSONL, Key: "id"}, err: "--key"},
		{name: "a key of deb822", options: input.Options{Format: input.Deb822, Key: "a||b"}, err: "is not a field name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readAll(t, c.text, c.options)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Fatalf("got %v, %q\nwant %q", err, got, c.want)
			}
		})
	}
}

// TestCSVQuoteNeverClosed: the rest of the input must not be kept as one field.
func TestCSVQuoteNeverClosed(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("a\n\""), neverEnding('x'))
	r, err := input.New(endless, input.Options{Format: input.CSV, MaxRecordBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Next(new(input.Record)); err == nil || !strings.Contains(err.Error(), "quote") {
		t.Fatalf("got %v", err)
	}
	if err := r.Next(new(input.Record)); !errors.Is(err, io.EOF) {
		t.Fatalf("then %v, want the end", err)
	}
}

type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

func TestReadErrorsEndTheStream(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, f := range []input.Format{input.Lines, input.JSONL, input.CSV, input.Deb822, input.Raw} {
		src := io.MultiReader(strings.NewReader("A: 1\n"), iotest.ErrReader(broken))
		r, err := input.New(src, input.Options{Format: f})
		for range 3 {
			if err != nil {
				var bad *input.BadRecord
				if !errors.As(err, &bad) {
					break
				}
			}
			err = r.Next(new(input.Record))
		}
		if !errors.Is(err, broken) {
			t.Errorf("%s: %v, want the error of the source", f, err)
		}
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       input.Format
	}{
		{"x.ndjson", "", input.JSONL},
		{"x.CSV", "", input.CSV},
		{"x.deb822", "", input.Deb822},
		{"x.log", "{}", input.Lines},
		{"-", " {\"a\":1}\n", input.JSONL},
		{"-", "Package: a\nVersion: 1\n", input.Deb822},
		{"-", "error: a\nno field\n", input.Lines},
		{"-", "", input.Lines},
	} {
		got, r := input.Detect(input.Auto, c.name, strings.NewReader(c.text))
		all, err := io.ReadAll(r)
		if got != c.want || err != nil || string(all) != c.text {
			t.Errorf("Detect(%q, %q) = %s, leaving %q, %v; want %s", c.name, c.text, got, all, err, c.want)
		}
	}
	if _, err := input.ParseFormat("xml"); err == nil {
		t.Error("xml is taken for a format")
	}
}

// fuzz reads any bytes: no panic, an end, and records within the limit.
func fuzz(f *testing.F, o input.Options, check func(*testing.T, input.Record)) {
	f.Helper()
	o.MaxRecordBytes = 64
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := input.New(bytes.NewReader(data), o)
		if err != nil {
			return
		}
		// Each call but the last takes at least a byte.
		for range len(data) + 2 {
			var rec input.Record
			err := r.Next(&rec)
			var bad *input.BadRecord
			switch {
			case err == nil:
				check(t, rec)
			case errors.As(err, &bad):
				if bad.Line < 1 {
					t.Fatalf("line %d", bad.Line)
				}
			default:
				return
			}
		}
		t.Fatal("the reader does not come to an end")
	})
}

func FuzzJSONL(f *testing.F) {
	f.Add([]byte("{\"id\":1}\nx\n"))
	fuzz(f, input.Options{Format: input.JSONL, Key: "$.id"}, func(t *testing.T, rec input.Record) {
		if !json.Valid(rec.Body) || len(rec.Body) > 64 {
			t.Fatalf("body %q", rec.Body)
		}
	})
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("id,b\n1,\"x\ny\"\n2\n\"\n"))
	fuzz(f, input.Options{Format: input.CSV}, func(t *testing.T, rec input.Record) {
		if !json.Valid(rec.Body) {
			t.Fatalf("body %q", rec.Body)
		}
	})
}

func FuzzDeb822(f *testing.F) {
	f.Add([]byte("Package: a\nSource: b (1)\n c\n\nx\n\n"))
	f.Add([]byte("Pck3333333aRe: b urcRRRe: b 91)3333333333333333333333333333333\n c")) // a byte more than the limit
	fuzz(f, input.Options{Format: input.Deb822, Key: "Source|Package"}, func(t *testing.T, rec input.Record) {
		if len(rec.Body) == 0 || len(rec.Body) > 64 || bytes.Contains(rec.Body, []byte("\n\n")) {
			t.Fatalf("body %q", rec.Body)
		}
	})
}
