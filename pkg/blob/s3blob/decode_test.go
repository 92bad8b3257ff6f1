package s3blob

import (
	"context"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/blob"
)

func FuzzParseSum(f *testing.F) {
	for _, text := range []string{"", "4waSgw==", "AAAAAA==", "4waSgw==-3", "4waSgw", "AAAAAAA=", "====", "4waSg\nw=="} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sum, ok := parseSum(&text)
		if !ok {
			return
		}
		again, ok := parseSum(formatSum(sum))
		if !ok || again != sum {
			t.Fatalf("%q is read as %08x, and that as %08x", text, sum, again)
		}
	})
}

func TestParseSum(t *testing.T) {
	const checkValue = "4waSgw==" // of "123456789"
	if sum, ok := parseSum(formatSum(0xe3069283)); *formatSum(0xe3069283) != checkValue || !ok || sum != 0xe3069283 {
		t.Fatalf("%s %08x %v", *formatSum(0xe3069283), sum, ok)
	}
	// A checksum of the checksums of parts is none of the object's bytes.
	composite := checkValue + "-3"
	if _, ok := parseSum(&composite); ok {
		t.Fatal("took a composite checksum")
	}
	if _, ok := parseSum(nil); ok {
		t.Fatal("took no checksum")
	}
}

// FuzzContentRange: no answer makes the driver believe in bytes that it did not ask for.
func FuzzContentRange(f *testing.F) {
	f.Add("bytes 10-19/100", int64(10), int64(10), int64(10))
	f.Add("bytes 10-19/*", int64(10), int64(10), int64(10))
	f.Add("bytes 10-14/15", int64(5), int64(10), int64(10))
	f.Add("", int64(0), int64(0), int64(1))
	f.Add("/9223372036854775807", int64(1), int64(9223372036854775807), int64(1))
	f.Fuzz(func(t *testing.T, contentRange string, want, pos, length int64) {
		b := &stream{call: call{context.Background(), "get object", "a", reading}, want: want}
		if err := b.inRange(blob.Span{Pos: pos, Len: length}, contentRange); err == nil && (want != length || pos < 0 || length < 0 || !strings.HasPrefix(contentRange, "bytes "+rangeOf(blob.Span{Pos: pos, Len: length})+"/")) {
			t.Fatalf("believed %q and %d bytes for %d+%d", contentRange, want, pos, length)
		}
	})
}
