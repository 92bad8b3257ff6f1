package topics

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	maxRuleBytes = 512
	headerRule   = "header:"
)

// Rule is a topic's partition_key rule: how a message without a key gets one. The zero Rule gives
// none. Immutable.
type Rule struct {
	header string
	path   []step
}

// step goes from a JSON value to one inside: by name into an object, or by index into an array.
type step struct {
	name    string
	index   int
	isIndex bool
}

// ParseRule reads a rule: "header:" and a header's name, or a path into a JSON body, as in
// $.customer.ids[0].value: names of letters, digits, _ and -, each behind a dot, and indexes from 0
// in brackets; at most 512 bytes and queue.MaxJSONDepth steps. "" is the zero Rule. The error is
// Invalid and names field.
func ParseRule(field, rule string) (Rule, error) {
	switch {
	case rule == "":
		return Rule{}, nil
	case len(rule) > maxRuleBytes:
		return Rule{}, queue.Invalid(field, maxRuleBytes, "is longer than %d bytes", maxRuleBytes)
	case strings.HasPrefix(rule, headerRule):
		name := rule[len(headerRule):]
		if err := queue.ValidateToken(field, name, queue.MaxHeaderNameBytes); err != nil {
			return Rule{}, err
		}
		return Rule{header: name}, nil
	}
	path, ok := parsePath(rule)
	if !ok {
		return Rule{}, queue.Invalid(field, nil, "must be header:name or a path as in $.customer.ids[0]")
	}
	if len(path) > queue.MaxJSONDepth {
		return Rule{}, queue.Invalid(field, queue.MaxJSONDepth, "has more than %d steps", queue.MaxJSONDepth)
	}
	return Rule{path: path}, nil
}

func parsePath(rule string) ([]step, bool) {
	rest, ok := strings.CutPrefix(rule, "$")
	if !ok || rest == "" || !utf8.ValidString(rule) {
		return nil, false
	}
	var path []step
	for rest != "" {
		switch rest[0] {
		case '.':
			rest = rest[1:]
			n := strings.IndexFunc(rest, func(r rune) bool {
				return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-'
			})
			if n < 0 {
				n = len(rest)
			}
			if n == 0 {
				return nil, false
			}
			path = append(path, step{name: rest[:n]})
			rest = rest[n:]
		case '[':
			digits, after, closed := strings.Cut(rest[1:], "]")
			n, err := strconv.ParseUint(digits, 10, 31)
			if !closed || err != nil || strconv.FormatUint(n, 10) != digits {
				return nil, false
			}
			path = append(path, step{index: int(n), isIndex: true}) // #nosec G115 -- 31 bits
			rest = after
		default:
			return nil, false
		}
	}
	return path, true
}

// Set reports whether there is a rule.
func (r Rule) Set() bool { return r.header != "" || len(r.path) > 0 }

// NeedsBody reports whether Key looks at a message's body.
func (r Rule) NeedsBody() bool { return len(r.path) > 0 }

// Key is the partition key that the rule gives a message; false where it gives none: the header or
// the path is not there, the value is null, an object, an array, empty or longer than
// queue.MaxKeyBytes, or the body is not JSON up to there or nested deeper than queue.MaxJSONDepth.
//
// The same value gives the same bytes however it is written: a string its text; true and false
// their names; a number its shortest decimal form, so that 1, 1.0 and 1e0 are one key. Of equal names
// in one object the first counts.
func (r Rule) Key(body []byte, headers map[string]string) ([]byte, bool) {
	var key []byte
	switch {
	case r.header != "":
		key = []byte(headers[r.header])
	case len(r.path) > 0:
		s := jsonScanner{b: body}
		key = s.find(r.path)
	}
	if len(key) == 0 || len(key) > queue.MaxKeyBytes {
		return nil, false
	}
	return key, true
}

// PartitionKey is ParseRule and Key in one, for callers that have no Map with its parsed Rule. A rule
// that does not parse gives no key.
func PartitionKey(rule string, body []byte, headers map[string]string) ([]byte, bool) {
	r, err := ParseRule("partition_key", rule)
	if err != nil {
		return nil, false
	}
	return r.Key(body, headers)
}
