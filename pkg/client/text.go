package client

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// cutUTF8 gives s as valid UTF-8 without control characters, of at most limit bytes.
func cutUTF8(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

func errCount(got, want int) error {
	return fmt.Errorf("it has %d results for %d entries", got, want)
}
