package blob_test

import (
	"bytes"
	"context"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestChecksumText(t *testing.T) {
	// The check value of CRC-32C.
	if got := blob.FormatChecksum(blob.CRC32C([]byte("123456789"))); got != "crc32c:e3069283" {
		t.Fatal(got)
	}
	for _, sum := range []uint32{0, 1, 0xabc, math.MaxUint32} {
		text := blob.FormatChecksum(sum)
		if got, err := blob.ParseChecksum("x", text); err != nil || got != sum {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "e3069283", "crc32c:", "crc32c:E3069283", "crc32c:e306928", "crc32c:e30692830", "crc32c:+3069283", "md5:e3069283", "crc32c: 3069283"} {
		if _, err := blob.ParseChecksum("x", bad); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestValidatePrefix(t *testing.T) {
	for _, good := range []string{"a/", "batches/", "a/b.c/d-e/"} {
		if err := blob.ValidatePrefix("prefix", good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "/", "a", "a//", "../", "a/./", strings.Repeat("a", blob.MaxKeyBytes-blob.MaxChosenBytes) + "/"} {
		if err := blob.ValidatePrefix("prefix", bad); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzSpan(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(10))
	f.Fuzz(func(t *testing.T, pos, length, size int64) {
		if size < 0 {
			return
		}
		got, err := blob.Span{Pos: pos, Len: length}.Resolve(size)
		if err == nil && (got.Pos < 0 || got.Len < 0 || got.Pos+got.Len > size || got.Pos+got.Len < 0) {
			t.Fatalf("%+v of %d", got, size)
		}
	})
}

func TestIntakeTellsSourceFromDestination(t *testing.T) {
	in := blob.NewIntake(context.Background(), "uploads/a", strings.NewReader("abc"), blob.Terms{Size: 3})
	if _, err := io.Copy(io.Discard, in); err != nil || in.Err() != nil || in.Sum() != blob.CRC32C([]byte("abc")) {
		t.Fatal(err, in.Err())
	}
	in = blob.NewIntake(context.Background(), "uploads/a", bytes.NewReader([]byte("abc")), blob.Terms{Size: 2})
	if _, err := io.Copy(io.Discard, in); !queue.Is(err, queue.KindCorrupt) || in.Err() == nil {
		t.Fatal(err, in.Err())
	}
}
