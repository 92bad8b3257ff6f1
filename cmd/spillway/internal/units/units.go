// Package units reads and writes the durations and sizes of the command line: "30s", "5m" or plain
// seconds; "10MB", "64KiB" or plain bytes. Both types are pflag.Values.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxDuration is a hundred years: every limit of the API is below it, and sums of two do not overflow.
const maxDuration = 100 * 366 * 24 * time.Hour

// Duration is a flag of type duration; Given tells a duration of 0 from none.
type Duration struct {
	D     time.Duration
	Given bool
}

// NewDuration is a flag with a default.
func NewDuration(d time.Duration) Duration { return Duration{D: d} }

// String renders the value for help.
func (d *Duration) String() string {
	if d.D == 0 {
		return ""
	}
	return d.D.String()
}

// Set implements pflag.Value.
func (d *Duration) Set(s string) error {
	v, err := ParseDuration(s)
	if err == nil {
		d.D, d.Given = v, true
	}
	return err
}

// Type implements pflag.Value.
func (d *Duration) Type() string { return "duration" }

// Seconds is the duration as the API takes it; nil if the flag was not given.
func (d *Duration) Seconds() *float64 {
	if !d.Given {
		return nil
	}
	s := d.D.Seconds()
	return &s
}

// ParseDuration reads 0 to a hundred years: Go's form ("1m30s"), whole days ("7d"), or seconds
// without a unit ("90", "0.5").
func ParseDuration(s string) (time.Duration, error) {
	form := fmt.Errorf("%q is not a duration: give seconds or a unit, as in 90, 30s, 5m, 2h or 7d", s)
	var d time.Duration
	if n, err := strconv.ParseFloat(strings.TrimSuffix(s, "d"), 64); err == nil {
		unit := time.Second
		if strings.HasSuffix(s, "d") {
			unit = 24 * time.Hour
		}
		if math.IsNaN(n) || math.Abs(n) > maxDuration.Seconds() {
			return 0, form
		}
		ns := n * float64(unit)
		if math.Abs(ns) > float64(maxDuration) {
			return 0, fmt.Errorf("%q is longer than 100 years", s)
		}
		d = time.Duration(math.Round(ns))
	} else if d, err = time.ParseDuration(s); err != nil {
		return 0, form
	}
	switch {
	case d < 0:
		return 0, fmt.Errorf("%q is negative", s)
	case d > maxDuration:
		return 0, fmt.Errorf("%q is longer than 100 years", s)
	}
	return d, nil
}

// Size is a flag of type size, in bytes.
type Size struct {
	Bytes int64
	Given bool
}

// NewSize is a flag with a default.
func NewSize(n int64) Size { return Size{Bytes: n} }

// String renders the value for help.
func (v *Size) String() string {
	if v.Bytes == 0 {
		return ""
	}
	return exactSize(v.Bytes)
}

// Set implements pflag.Value.
func (v *Size) Set(s string) error {
	n, err := ParseSize(s)
	if err == nil {
		v.Bytes, v.Given = n, true
	}
	return err
}

// Type implements pflag.Value.
func (v *Size) Type() string { return "size" }

type unit struct {
	name  string
	bytes int64
}

// sizeUnits is searched from the front, so that "KiB" is not taken for a "B".
func sizeUnits() []unit {
	return []unit{
		{"kib", 1 << 10},
		{"mib", 1 << 20},
		{"gib", 1 << 30},
		{"tib", 1 << 40},
		{"kb", 1e3},
		{"mb", 1e6},
		{"gb", 1e9},
		{"tb", 1e12},
		{"k", 1 << 10},
		{"m", 1 << 20},
		{"g", 1 << 30},
		{"t", 1 << 40},
		{"b", 1},
	}
}

// ParseSize reads bytes with or without a unit: kB, MB, GB, TB are powers of 1000; KiB, MiB, GiB, TiB
// and the bare letters K, M, G, T are powers of 1024. Case does not matter.
func ParseSize(s string) (int64, error) {
	number, factor := strings.ToLower(strings.TrimSpace(s)), int64(1)
	for _, u := range sizeUnits() {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || math.IsNaN(n) || number == "" || strings.ContainsAny(number, "xpn_"):
		return 0, fmt.Errorf("%q is not a size: give bytes or a unit, as in 4096, 64KiB or 10MB", s)
	case n < 0:
		return 0, fmt.Errorf("%q is negative", s)
	case n*float64(factor) > 1<<60:
		return 0, fmt.Errorf("%q is too large", s)
	}
	return int64(math.Round(n * float64(factor))), nil
}

// exactSize writes n so that ParseSize reads it back.
func exactSize(n int64) string {
	for _, u := range []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// FormatBytes writes n for people, to three digits: "1.23 MB".
func FormatBytes(n float64) string { return scaled(n, "B") }

// FormatCount writes n for people: below a million with its digits in groups, else "1.23 M".
func FormatCount(n float64) string {
	if math.Abs(n) < 1e6 {
		return Group(int64(math.Round(n)))
	}
	return scaled(n, "")
}

func scaled(n float64, unit string) string {
	for _, step := range []struct {
		prefix string
		factor float64
	}{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if math.Abs(n) >= step.factor {
			return threeDigits(n/step.factor) + " " + step.prefix + unit
		}
	}
	return strings.TrimSpace(strconv.FormatFloat(math.Round(n), 'f', -1, 64) + " " + unit)
}

func threeDigits(n float64) string {
	switch a := math.Abs(n); {
	case a >= 99.95:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(n, 'f', 1, 64)
	default:
		return strconv.FormatFloat(n, 'f', 2, 64)
	}
}

// Group writes n with its digits in groups of three: "1,234,567".
func Group(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	var b strings.Builder
	b.WriteString(sign)
	for i, c := range []byte(s) {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(c)
	}
	return b.String()
}
