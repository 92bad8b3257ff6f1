package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// query is the parsed query of a call; every parameter is one that the call knows, and there once.
type query struct{ values url.Values }

func parseQuery(r *http.Request, known ...string) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{}, queue.Invalid("query", nil, "cannot be read")
	}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return query{}, queue.Invalid(shownName(name), nil, "is not a parameter that this call knows")
		case len(all) > 1:
			return query{}, queue.Invalid(name, nil, "is given twice")
		case !utf8.ValidString(all[0]):
			return query{}, queue.Invalid(name, nil, "is not UTF-8")
		}
	}
	return query{values}, nil
}

// shownName bounds what of a caller's parameter name comes back in an error.
func shownName(name string) string {
	const most = 128
	if len(name) > most || !utf8.ValidString(name) {
		return "query"
	}
	return name
}

func (q query) text(name string) string { return q.values.Get(name) }

func (q query) has(name string) bool { return q.values.Has(name) }

// whole reads a whole number of lo..hi; absent gives def.
func (q query) whole(name string, def, lo, hi uint64) (uint64, error) {
	if !q.has(name) {
		return def, nil
	}
	text := q.text(name)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < lo || n > hi || strconv.FormatUint(n, 10) != text {
		limit := hi
		if err == nil && n < lo {
			limit = lo
		}
		return 0, queue.Invalid(name, limit, "must be a whole number of %d to %d", lo, hi)
	}
	return n, nil
}

// limit reads the page size.
func (q query) limit(most int) (int, error) {
	n, err := q.whole("limit", uint64(min(queue.DefaultPageSize, most)), 1, uint64(most)) // #nosec G115 -- constants
	return int(n), err                                                                    // #nosec G115 -- bounded by most
}

// page reads which page of a listing is wanted.
func (q query) page() (limit int, cursor string, err error) {
	if limit, err = q.limit(queue.MaxPageSize); err == nil {
		cursor, err = q.cursor()
	}
	return limit, cursor, err
}

// seconds reads a duration; absent gives 0.
func (q query) seconds(name string, hi time.Duration) (time.Duration, error) {
	if !q.has(name) {
		return 0, nil
	}
	text := q.text(name)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) || !json.Valid([]byte(text)) {
		// ParseFloat alone knows numbers that JSON does not: 0x1p-2, 1_0, Inf.
		return 0, queue.Invalid(name, hi.Seconds(), "must be a number of seconds")
	}
	return queue.Seconds(name, clamp(f), 0, hi)
}

// clamp makes infinities finite, so that the error speaks of the limit.
func clamp(f float64) float64 { return max(-math.MaxFloat64, min(f, math.MaxFloat64)) }

func (q query) flag(name string) (bool, error) {
	switch q.text(name) {
	case "":
		if !q.has(name) {
			return false, nil
		}
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, queue.Invalid(name, nil, "must be true or false")
}

// cursorVersion lets a later version tell cursors of this one from its own.
const cursorVersion = "1"

// cursor reads an opaque cursor back; absent gives "".
func (q query) cursor() (string, error) {
	if !q.has("cursor") {
		return "", nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(q.text("cursor"))
	if err != nil || len(b) < 2 || string(b[:1]) != cursorVersion || !utf8.Valid(b) {
		return "", queue.Invalid("cursor", nil, "is not one that a listing gave")
	}
	return string(b[1:]), nil
}

// opaque is the cursor that the API gives for a use case's own; "" stays "".
func opaque(cursor string) string {
	if cursor == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(cursorVersion + cursor))
}

// names reads the path's names, checked.
func names(r *http.Request) (topic, sub string, err error) {
	topic, sub = r.PathValue("topic"), r.PathValue("subscription")
	if err := queue.ValidateTopicName("topic", topic); err != nil {
		return "", "", err
	}
	if sub == "" {
		return topic, "", nil
	}
	return topic, sub, queue.ValidateSubscriptionName("subscription", sub)
}

// seconds converts an optional number of seconds; absent gives nil.
func seconds(field string, v *float64, lo, hi time.Duration) (*time.Duration, error) {
	if v == nil {
		return nil, nil
	}
	d, err := queue.Seconds(field, *v, lo, hi)
	if err != nil {
		return nil, err
	}
	return &d, nil
}
