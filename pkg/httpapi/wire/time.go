package wire

import (
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Time is a point in time as the API gives it: RFC 3339 with milliseconds, UTC. The zero Time is
// none; fields of this type are left out then.
type Time queue.Millis

// maxTime is the last millisecond of the year 9999, the last that RFC 3339 can write.
const maxTime = queue.Millis(253402300799999)

// Millis is t as the domain's type.
func (t Time) Millis() queue.Millis { return queue.Millis(t) }

// String renders t; none gives "".
func (t Time) String() string { return queue.Millis(t).String() }

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, see ParseTime.
func (t *Time) UnmarshalText(text []byte) error {
	m, err := ParseTime("time", string(text))
	if err == nil {
		*t = Time(m)
	}
	return err
}

// ParseTime reads RFC 3339 with any zone and any fraction, rounded down to milliseconds, after 1970
// and up to the year 9999. The error is of KindInvalid and names field.
func ParseTime(field, text string) (queue.Millis, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, queue.Invalid(field, nil, "must be a time in RFC 3339, as in 2026-01-31T12:00:00.000Z")
	}
	m := queue.MillisOf(t)
	if m <= 0 || m > maxTime {
		return 0, queue.Invalid(field, nil, "must be a time between the years 1970 and 9999")
	}
	return m, nil
}

// Seconds gives a duration as the API's number of seconds.
func Seconds(d time.Duration) float64 { return d.Seconds() }

// Of gives a pointer to v, for optional fields.
func Of[T any](v T) *T { return &v }
