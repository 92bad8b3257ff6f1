package queue

import (
	"math"
	"strconv"
	"time"
)

// Millis is a point in time, in milliseconds since the Unix epoch, UTC; 0 means "none".
type Millis int64

// MillisOf rounds t down to milliseconds; the zero time gives 0.
func MillisOf(t time.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMilli())
}

// Time is m as a time in UTC; 0 gives the zero time.
func (m Millis) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

// Add moves m by d, rounded down to milliseconds.
func (m Millis) Add(d time.Duration) Millis { return m + Millis(d.Milliseconds()) }

// Sub is the span from o to m.
func (m Millis) Sub(o Millis) time.Duration { return time.Duration(m-o) * time.Millisecond }

// TimeLayout is RFC 3339 with milliseconds, the API's form of a time.
const TimeLayout = "2006-01-02T15:04:05.000Z07:00"

// String renders m in TimeLayout; 0 gives "".
func (m Millis) String() string {
	if m == 0 {
		return ""
	}
	return m.Time().Format(TimeLayout)
}

// AppendTo appends what String renders.
func (m Millis) AppendTo(dst []byte) []byte {
	if m == 0 {
		return dst
	}
	return m.Time().AppendFormat(dst, TimeLayout)
}

// Clock tells the time. Programs pass time.Now; tests and the simulator pass their own.
type Clock func() time.Time

// Millis is the current time in milliseconds.
func (c Clock) Millis() Millis { return MillisOf(c()) }

// Seconds reads a duration that the API gives in seconds, fractions allowed. It refuses NaN,
// infinities, and values outside lo..hi with an error that names field and limit; the result is
// rounded to milliseconds, the resolution of all times here.
func Seconds(field string, s float64, lo, hi time.Duration) (time.Duration, error) {
	switch {
	case math.IsNaN(s) || math.IsInf(s, 0):
		return 0, Invalid(field, nil, "must be a finite number of seconds")
	case s < lo.Seconds():
		return 0, Invalid(field, lo.Seconds(), "must be at least %s seconds, not %s", Plain(lo.Seconds()), Plain(s))
	case s > hi.Seconds():
		return 0, Invalid(field, hi.Seconds(), "must be at most %s seconds, not %s", Plain(hi.Seconds()), Plain(s))
	}
	return time.Duration(math.Round(s*1000)) * time.Millisecond, nil
}

// Plain writes a number for people: 31622400, where %g gives 3.16224e+07.
func Plain(f float64) string {
	const most = 1e15 // beyond it digits say less than an exponent
	if math.Abs(f) < most {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}
