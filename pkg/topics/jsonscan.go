package topics

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// jsonScanner walks through JSON text to one value, without building what it passes. It reads no
// further than that value. Text that is not JSON makes it stop; what it passes it checks only as far
// as it must to find its way, which is the same for the same bytes, and that is all a key needs.
type jsonScanner struct {
	b   []byte
	off int
	// depth is how many objects and arrays are open.
	depth int
}

// find gives the canonical bytes of the scalar at path; nil if there is none.
func (s *jsonScanner) find(path []step) []byte {
	for _, st := range path {
		if !s.enter(st) {
			return nil
		}
	}
	return s.scalar()
}

// peek is the next byte that is not white space; 0 at the end.
func (s *jsonScanner) peek() byte {
	for ; s.off < len(s.b); s.off++ {
		switch c := s.b[s.off]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take passes over c; false if something else comes next.
func (s *jsonScanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.off++
	return true
}

// enter moves to the value that st names inside the value that comes next.
func (s *jsonScanner) enter(st step) bool {
	if s.depth++; s.depth > queue.MaxJSONDepth {
		return false
	}
	if st.isIndex {
		return s.enterArray(st.index)
	}
	return s.enterObject(st.name)
}

func (s *jsonScanner) enterArray(index int) bool {
	if !s.take('[') || s.peek() == ']' {
		return false
	}
	for range index {
		if !s.skip() || !s.take(',') {
			return false
		}
	}
	return true
}

func (s *jsonScanner) enterObject(name string) bool {
	if !s.take('{') {
		return false
	}
	for {
		key, ok := s.quoted()
		if !ok || !s.take(':') {
			return false
		}
		if text, ok := unquote(key); ok && string(text) == name {
			return true
		}
		if !s.skip() || !s.take(',') {
			return false
		}
	}
}

// quoted gives the string that comes next, quotes included.
func (s *jsonScanner) quoted() ([]byte, bool) {
	if s.peek() != '"' {
		return nil, false
	}
	start := s.off
	for i := start + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '\\':
			i++
		case '"':
			s.off = i + 1
			return s.b[start:s.off], true
		}
	}
	return nil, false
}

// unquote decodes a quoted string; most hold no escapes and cost nothing.
func unquote(quoted []byte) ([]byte, bool) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner, utf8.Valid(inner)
	}
	var text string
	if !utf8.Valid(quoted) || json.Unmarshal(quoted, &text) != nil {
		return nil, false
	}
	return []byte(text), true
}

// skip passes over one value. It counts brackets instead of calling itself, and the kinds of
// brackets need not match: text where they do not is no JSON, and any answer will do.
func (s *jsonScanner) skip() bool {
	open := 0
	for {
		switch c := s.peek(); c {
		case 0:
			return false
		case '"':
			if _, ok := s.quoted(); !ok {
				return false
			}
		case '{', '[':
			open++
			if s.depth+open > queue.MaxJSONDepth {
				return false
			}
			s.off++
		case '}', ']':
			if open == 0 {
				return false
			}
			open--
			s.off++
		case ',', ':':
			if open == 0 {
				return false
			}
			s.off++
			continue
		default:
			s.word()
		}
		if open == 0 {
			return true
		}
	}
}

// word passes over a number, true, false or null, and gives its text.
func (s *jsonScanner) word() []byte {
	start := s.off
	for ; s.off < len(s.b); s.off++ {
		if strings.IndexByte(" \t\r\n,:]}[{\"", s.b[s.off]) >= 0 {
			break
		}
	}
	return s.b[start:s.off]
}

// scalar gives the canonical bytes of the string, number or boolean that comes next.
func (s *jsonScanner) scalar() []byte {
	switch c := s.peek(); {
	case c == '"':
		quoted, ok := s.quoted()
		if !ok {
			return nil
		}
		text, ok := unquote(quoted)
		if !ok {
			return nil
		}
		return bytes.Clone(text)
	case c == 't', c == 'f':
		if w := s.word(); string(w) == "true" || string(w) == "false" {
			return bytes.Clone(w)
		}
	case c == '-', c >= '0' && c <= '9':
		return number(s.word())
	}
	return nil
}

// number gives a number's shortest decimal form. One that a 64-bit float holds only roughly keeps
// its text if it is an integer, so that large ids stay apart.
func number(text []byte) []byte {
	if !json.Valid(text) {
		return nil
	}
	if !bytes.ContainsAny(text, ".eE") {
		if string(text) == "-0" {
			return []byte("0")
		}
		return bytes.Clone(text)
	}
	f, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil:
		return bytes.Clone(text) // out of range
	case f == 0:
		return []byte("0")
	}
	return strconv.AppendFloat(nil, f, 'f', -1, 64)
}
