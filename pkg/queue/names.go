package queue

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ValidateTopicName checks a topic or link name: dot-separated, non-empty parts of A-Z a-z 0-9 _ -,
// at most MaxNameBytes. The error names field.
func ValidateTopicName(field, name string) error {
	if err := validateNameChars(field, name); err != nil {
		return err
	}
	for part := range strings.SplitSeq(name, ".") {
		if part == "" {
			return Invalid(field, nil, "has an empty part: names are dot-separated, as in shop.orders.eu")
		}
	}
	return nil
}

// ValidateSubscriptionName checks a subscription name: A-Z a-z 0-9 _ - and dots inside, at most
// MaxNameBytes.
func ValidateSubscriptionName(field, name string) error {
	return ValidateTopicName(field, name)
}

func validateNameChars(field, name string) error {
	if name == "" {
		return Invalid(field, nil, "is empty")
	}
	if len(name) > MaxNameBytes {
		return Invalid(field, MaxNameBytes, "is longer than %d bytes", MaxNameBytes)
	}
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '-' || c == '.'
		if !ok {
			return Invalid(field, nil, "may hold only A-Z a-z 0-9 _ - and dots between parts")
		}
	}
	return nil
}

// ValidateToken checks an id that a client chooses (producer id, dedup_id, Idempotency-Key): 1 to
// limit bytes of printable UTF-8.
func ValidateToken(field, s string, limit int) error {
	if fault, bound := tokenFault(s, limit); fault != "" {
		return Invalid(field, bound, "%s", fault)
	}
	return nil
}

// ValidateEntryName checks the name of an entry of a map that a client gives (headers, attributes): 1
// to MaxHeaderNameBytes bytes of printable UTF-8. The error is about the map, which is the field.
func ValidateEntryName(field, name string) error {
	if fault, bound := tokenFault(name, MaxHeaderNameBytes); fault != "" {
		return Invalid(field, bound, "a name %s", fault)
	}
	return nil
}

// tokenFault says what is wrong with a token, and which bound it breaks, if it is one; "" if nothing.
func tokenFault(s string, limit int) (fault string, bound any) {
	switch {
	case s == "":
		return "is empty", nil
	case len(s) > limit:
		return fmt.Sprintf("is longer than %d bytes", limit), limit
	case !utf8.ValidString(s):
		return "is not UTF-8", nil
	case strings.ContainsFunc(s, unicode.IsControl):
		return "holds a control character", nil
	}
	return "", nil
}

// ValidateHeaders checks a message's headers: at most MaxHeaders, MaxHeadersBytes together, names of
// 1 to MaxHeaderNameBytes bytes without control characters, all UTF-8.
func ValidateHeaders(field string, headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return Invalid(field, MaxHeaders, "has %d entries, more than %d", len(headers), MaxHeaders)
	}
	total := 0
	for name, value := range headers {
		if err := ValidateEntryName(field, name); err != nil {
			return err
		}
		if !utf8.ValidString(value) {
			return Invalid(field, nil, "a value is not UTF-8")
		}
		total += len(name) + len(value)
	}
	if total > MaxHeadersBytes {
		return Invalid(field, MaxHeadersBytes, "is larger than %d bytes", MaxHeadersBytes)
	}
	return nil
}
