package units_test

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
)

func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "0.5": 500 * time.Millisecond, "30s": 30 * time.Second,
		"5m": 5 * time.Minute, "1m30s": 90 * time.Second, "7d": 7 * 24 * time.Hour, "250ms": 250 * time.Millisecond,
	}
	for in, want := range good {
		if got, err := units.ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "d", "x", "-1", "-5s", "NaN", "Inf", "1e300", "99999999999", "5 m", "9999999d"} {
		if got, err := units.ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func TestParseSize(t *testing.T) {
	good := map[string]int64{
		"0": 0, "4096": 4096, "10MB": 10_000_000, "64KiB": 65536, "64k": 65536, "1.5kb": 1500, "2g": 2 << 30, "10 B": 10,
	}
	for in, want := range good {
		if got, err := units.ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "MB", "-1", "-1kb", "1PB", "0x10", "NaN", "Inf", "1e30", "9999999999TB", "1_0"} {
		if got, err := units.ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %v, want an error", in, got)
		}
	}
}

func TestSizeFlagReadsItsOwnText(t *testing.T) {
	for _, n := range []int64{1, 1000, 1024, 1 << 20, 3 << 30, 12345} {
		v := units.NewSize(n)
		if got, err := units.ParseSize(v.String()); err != nil || got != n {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", v.String(), got, err, n)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{units.FormatBytes(0), "0 B"},
		{units.FormatBytes(999), "999 B"},
		{units.FormatBytes(1234), "1.23 kB"},
		{units.FormatBytes(123_456_789), "123 MB"},
		{units.FormatCount(1234), "1,234"},
		{units.FormatCount(12_345_678), "12.3 M"},
		{units.Group(-1234567), "-1,234,567"},
		{units.Group(12), "12"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
