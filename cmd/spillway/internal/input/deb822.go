package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// stanzas reads the format of Debian's control files (deb822(5)), as printed by `apt-cache dumpavail`.
// The body is the stanza as it stands, with "\n" between its lines and none at the end.
type stanzas struct {
	src *lineReader
	// names of the fields that may give the key, in lower case, best first.
	names []string
	body  []byte
	done  bool
}

func newDeb822(src *lineReader, o Options) (Reader, error) {
	s := &stanzas{src: src}
	if o.Key == "" {
		return s, nil
	}
	for name := range strings.SplitSeq(o.Key, "|") {
		name = strings.TrimSpace(name)
		if !validFieldName([]byte(name)) {
			return nil, fmt.Errorf("--key: %q is not a field name; give one, or several as in 'Source|Package'", name)
		}
		s.names = append(s.names, strings.ToLower(name))
	}
	return s, nil
}

// validFieldName: printable ASCII without colon, not starting with # or - (deb822(5)).
func validFieldName(name []byte) bool {
	if len(name) == 0 || name[0] == '#' || name[0] == '-' {
		return false
	}
	for _, c := range name {
		if c <= ' ' || c > '~' || c == ':' {
			return false
		}
	}
	return true
}

// Next implements Reader.
func (s *stanzas) Next(rec *Record) error {
	if s.done {
		return io.EOF
	}
	s.body = s.body[:0]
	start, rank := 0, len(s.names)
	var key []byte
	var bad error
	badLine := 0
	for {
		line, long, err := s.src.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		s.done = err != nil
		blank := s.done || !long && len(bytes.Trim(line, " \t")) == 0
		switch {
		case blank && start == 0:
			if s.done {
				return io.EOF
			}
			continue
		case blank && bad != nil:
			return &BadRecord{Line: badLine, Err: bad}
		case blank:
			*rec = Record{Body: s.body, Key: key, Line: start}
			return nil
		}
		first := start == 0
		if first {
			start = s.src.line
		}
		if bad != nil {
			continue
		}
		size := len(s.body) + len(line)
		if !first {
			size++ // what parts the lines
		}
		if long || size > s.src.limit {
			bad, badLine = tooLong(s.src.limit), start
			continue
		}
		name, value, err := splitField(line, first)
		if err != nil {
			bad, badLine = err, s.src.line
			continue
		}
		if !first {
			s.body = append(s.body, '\n')
		}
		s.body = append(s.body, line...)
		if r := s.rank(name); r < rank && len(value) > 0 {
			rank, key = r, bytes.Clone(value)
		}
	}
}

// splitField gives name and value of a line that starts a field; an empty name for one that goes on
// with the field before it, or is a comment.
func splitField(line []byte, first bool) (name, value []byte, err error) {
	switch line[0] {
	case '#':
		return nil, nil, nil
	case ' ', '\t':
		if first {
			return nil, nil, errors.New("a stanza starts with a continuation line: it has no field to continue")
		}
		return nil, nil, nil
	}
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !validFieldName(name) {
		return nil, nil, errors.New(`is neither "Field: value" nor a continuation that starts with a space`)
	}
	value = bytes.TrimSpace(value)
	if strings.EqualFold(string(name), "Source") {
		// "Source: gcc-12 (12.2.0-14)": the version is there only where it differs from the
		// package's, and would part the packages of one source.
		if at := bytes.Index(value, []byte(" (")); at > 0 {
			value = value[:at]
		}
	}
	return name, value, nil
}

func (s *stanzas) rank(name []byte) int {
	for i, want := range s.names {
		if len(name) == len(want) && strings.EqualFold(string(name), want) {
			return i
		}
	}
	return len(s.names)
}
