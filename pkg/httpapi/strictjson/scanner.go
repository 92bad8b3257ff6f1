package strictjson

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// scanner walks over JSON text and keeps the path of where it is.
type scanner struct {
	data   []byte
	pos    int
	limits Limits
	path   []step
}

// step is one step of a path: a name, or an index if that is not negative. The name points into the text
// where it can: it is needed for errors only.
type step struct {
	name  []byte
	index int
}

// maxShownBytes bounds what of a caller's field name comes back in an error.
const maxShownBytes = 128

// field renders the path of the value at hand.
func (s *scanner) field() string {
	if len(s.path) == 0 {
		return "request"
	}
	var b strings.Builder
	for i, p := range s.path {
		switch {
		case p.index >= 0:
			b.WriteString("[" + strconv.Itoa(p.index) + "]")
		case i > 0:
			b.WriteString(".")
			fallthrough
		default:
			b.WriteString(shown(string(p.name)))
		}
	}
	return b.String()
}

func shown(name string) string {
	if len(name) > maxShownBytes {
		return strings.ToValidUTF8(name[:maxShownBytes], "") + "…"
	}
	return name
}

func (s *scanner) syntax(what string) error {
	return queue.Invalid("request", nil, "is not the JSON that is expected: at byte %d, %s", s.pos, what)
}

// mismatch is for a value that is of another type, and for one that is not JSON at all.
func (s *scanner) mismatch(want string) error {
	if s.pos >= len(s.data) {
		return s.syntax("the text ends")
	}
	return queue.Invalid(s.field(), nil, "must be %s", want)
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// take moves past c, and space before and after it.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.pos >= len(s.data) || s.data[s.pos] != c {
		return false
	}
	s.pos++
	s.space()
	return true
}

func (s *scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return false
	}
	s.pos += len(word)
	return true
}

// nested guards the depth: whoever walks down calls it with what to do there.
func (s *scanner) nested(p step, do func() error) error {
	if len(s.path) >= s.limits.Depth {
		return queue.Invalid("request", s.limits.Depth, "is nested deeper than %d", s.limits.Depth)
	}
	s.path = append(s.path, p)
	if err := do(); err != nil {
		return err
	}
	s.path = s.path[:len(s.path)-1]
	return nil
}

func (s *scanner) tooMany() error {
	return queue.Invalid(s.field(), s.limits.Items, "has more than %d entries", s.limits.Items)
}

// object walks over an object; each is called before every value, with its name, which it must not keep.
func (s *scanner) object(each func(name []byte) error) error {
	if !s.take('{') {
		return s.mismatch("an object")
	}
	if s.take('}') {
		return nil
	}
	for n := 0; ; n++ {
		if n == s.limits.Items {
			return s.tooMany()
		}
		if s.pos >= len(s.data) || s.data[s.pos] != '"' {
			return s.syntax("the name of a field is missing")
		}
		name, _, err := s.raw()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.syntax("a colon is missing")
		}
		if err := s.nested(step{name, -1}, func() error { return each(name) }); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if !s.take('}') {
			return s.syntax("a comma or the end of an object is missing")
		}
		return nil
	}
}

// array walks over an array; each is called before every value.
func (s *scanner) array(each func() error) error {
	if !s.take('[') {
		return s.mismatch("an array")
	}
	if s.take(']') {
		return nil
	}
	for n := 0; ; n++ {
		if n == s.limits.Items {
			return s.tooMany()
		}
		if err := s.nested(step{index: n}, each); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if !s.take(']') {
			return s.syntax("a comma or the end of an array is missing")
		}
		return nil
	}
}

// skip walks over any value and checks it.
func (s *scanner) skip() error {
	if s.pos >= len(s.data) {
		return s.syntax("the text ends")
	}
	switch s.data[s.pos] {
	case '{':
		seen := make(map[string]struct{})
		return s.object(func(name []byte) error {
			if _, twice := seen[string(name)]; twice {
				return queue.Invalid(s.field(), nil, "is given twice")
			}
			seen[string(name)] = struct{}{}
			return s.skip()
		})
	case '[':
		return s.array(s.skip)
	case '"':
		_, _, err := s.raw()
		return err
	}
	if s.literal("true") || s.literal("false") || s.literal("null") {
		return nil
	}
	_, _, err := s.numberText()
	return err
}

// numberText reads a number; whole says that it has neither fraction nor exponent.
func (s *scanner) numberText() (text string, whole bool, err error) {
	start := s.pos
	s.one("-")
	digits := s.digits()
	ok := digits == 1 || digits > 1 && s.data[s.pos-digits] != '0'
	whole = true
	if ok && s.one(".") {
		whole, ok = false, s.digits() > 0
	}
	if ok && s.one("eE") {
		s.one("+-")
		whole, ok = false, s.digits() > 0
	}
	if !ok {
		s.pos = start
		return "", false, s.mismatch("a number")
	}
	return string(s.data[start:s.pos]), whole, nil
}

func (s *scanner) one(of string) bool {
	if s.pos < len(s.data) && strings.IndexByte(of, s.data[s.pos]) >= 0 {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// text reads a string.
func (s *scanner) text() (string, error) {
	b, _, err := s.raw()
	return string(b), err
}

// raw reads a string as bytes. They point into the text, unless own is set: then they are the caller's.
func (s *scanner) raw() (b []byte, own bool, err error) {
	if s.pos >= len(s.data) || s.data[s.pos] != '"' {
		return nil, false, s.mismatch("a string")
	}
	start := s.pos + 1
	end := start + plain(s.data[start:])
	if end < len(s.data) && s.data[end] == '\\' {
		b, err = s.escaped(start, end)
		return b, true, err
	}
	b, err = s.closed(s.data[start:end], end)
	return b, false, err
}

// plain is the length of what stands for itself at the start of b.
func plain(b []byte) int {
	for i, c := range b {
		if c < ' ' || c == '"' || c == '\\' {
			return i
		}
	}
	return len(b)
}

// closed moves past the quote that has to stand at end, and checks the string before it.
func (s *scanner) closed(b []byte, end int) ([]byte, error) {
	s.pos = end
	switch {
	case end >= len(s.data):
		return nil, s.syntax("a string has no end")
	case s.data[end] != '"':
		return nil, s.syntax("a string holds a control character that is not escaped")
	}
	s.pos++
	if !utf8.Valid(b) {
		return nil, queue.Invalid(s.field(), nil, "is not UTF-8; give bytes as base64")
	}
	return b, nil
}

// escaped reads a string that starts at start and has its first escape at i.
func (s *scanner) escaped(start, i int) ([]byte, error) {
	buf := append(make([]byte, 0, lengthBound(s.data[start:])), s.data[start:i]...)
	for i < len(s.data) && s.data[i] == '\\' {
		s.pos = i
		r, n := s.escape(s.data[i+1:])
		if n == 0 {
			return nil, s.syntax("a string holds an escape that does not exist, or half a surrogate pair")
		}
		buf = utf8.AppendRune(buf, r)
		i += 1 + n
		run := plain(s.data[i:])
		buf = append(buf, s.data[i:i+run]...)
		i += run
	}
	return s.closed(buf, i)
}

// lengthBound is how long the string at the start of b is at most: no escape is shorter than what it
// stands for.
func lengthBound(b []byte) int {
	for at := 0; ; {
		quote := bytes.IndexByte(b[at:], '"')
		if quote < 0 {
			return 0 // the string has no end and will be refused
		}
		at += quote
		slashes := 0
		for slashes < at && b[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
		at++
	}
}

// escape reads what follows a backslash, and its length; 0 if it is none.
func (s *scanner) escape(b []byte) (r rune, n int) {
	if len(b) == 0 {
		return 0, 0
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(from, b[0]); i >= 0 {
		return rune(to[i]), 1
	}
	r, ok := unicodeEscape(b)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 5
	}
	if len(b) < 6 || b[5] != '\\' {
		return 0, 0
	}
	low, ok := unicodeEscape(b[6:])
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 11
}

// unicodeEscape reads "u" and four hexadecimal digits.
func unicodeEscape(b []byte) (rune, bool) {
	if len(b) < 5 || b[0] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[1:5] {
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		if c < '0' || digit < 0 {
			return 0, false
		}
		r = r<<4 | rune(digit) // #nosec G115 -- 0 to 15
	}
	return r, true
}
