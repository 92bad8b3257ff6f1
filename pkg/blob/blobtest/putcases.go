package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func putCases() []testCase {
	return []testCase{
		{"put gives back what was stored", func(t *testing.T, s blob.Store) {
			for _, size := range []int{0, 1, 4096, 1 << 20, 3<<20 + 1} {
				data := pattern(size, size)
				key := "uploads/" + string(rune('a'+size%26))
				wantInfo(t, mustPut(t, s, key, data), key, data)
				wantObject(t, s, key, data)
			}
		}},
		{"put takes keys of every allowed form", func(t *testing.T, s blob.Store) {
			long := bytes.Repeat([]byte("K"), blob.MaxKeyBytes)
			keys := []string{"a", "A", "a.b", "a..", "a/b", "a-b", "_", "-", "con", "uploads/NUL", "x/x.obj", string(long), string(long[:blob.MaxKeyBytes-1])}
			for i, key := range keys {
				mustPut(t, s, key, pattern(i, 100))
			}
			for i, key := range keys {
				wantObject(t, s, key, pattern(i, 100))
			}
			if got := listAll(t, s, "", 2); len(got) != len(keys) {
				t.Fatalf("%d objects are listed, want %d", len(got), len(keys))
			}
		}},
		{"put without a checksum computes it", func(t *testing.T, s blob.Store) {
			data := pattern(1, 1000)
			info, err := s.Put(context.Background(), "uploads/a", iotest.OneByteReader(bytes.NewReader(data)), blob.Terms{Size: 1000})
			if err != nil {
				t.Fatal(err)
			}
			wantInfo(t, info, "uploads/a", data)
			wantObject(t, s, "uploads/a", data)
		}},
		{"put to a taken key is Exists and changes nothing", func(t *testing.T, s blob.Store) {
			old := pattern(1, 1000)
			before := mustPut(t, s, "uploads/a", old)
			for _, data := range [][]byte{pattern(2, 1000), pattern(2, 10), nil, old} {
				_, err := s.Put(context.Background(), "uploads/a", bytes.NewReader(data), termsOf(data))
				wantKind(t, err, queue.KindExists)
				wantObject(t, s, "uploads/a", old)
			}
			after, err := s.Head(context.Background(), "uploads/a")
			if err != nil || !after.Modified.Equal(before.Modified) {
				t.Fatalf("the object changed: %+v, %v", after, err)
			}
			key := mustCreate(t, s, blob.PrefixBatches, old)
			if _, err = s.Put(context.Background(), key, bytes.NewReader(nil), blob.Terms{}); err == nil {
				t.Fatal("put replaced a created object")
			}
			wantObject(t, s, key, old)
		}},
		{"put stores nothing that differs from its terms", func(t *testing.T, s blob.Store) { mismatches(t, s) }},
		{"put reads at most one byte too many", func(t *testing.T, s blob.Store) {
			src := &counter{r: rand.NewChaCha8([32]byte{})}
			_, err := s.Put(context.Background(), "uploads/endless", src, blob.Terms{Size: 100_000})
			wantKind(t, err, queue.KindCorrupt)
			if src.n > 100_001 {
				t.Fatalf("put read %d bytes of an endless source", src.n)
			}
			wantGone(t, s, "uploads/endless")
		}},
		{"put refuses bad keys and sizes", func(t *testing.T, s blob.Store) {
			for _, key := range badKeys() {
				_, err := s.Put(context.Background(), key, bytes.NewReader(nil), blob.Terms{})
				wantKind(t, err, queue.KindInvalid)
			}
			_, err := s.Put(context.Background(), "uploads/a", bytes.NewReader(nil), blob.Terms{Size: -1})
			wantKind(t, err, queue.KindInvalid)
			_, err = s.Put(context.Background(), "uploads/a", bytes.NewReader(nil), blob.Terms{Size: queue.MaxUploadBytes + 1})
			wantKind(t, err, queue.KindTooLarge)
			wantGone(t, s, "uploads/a")
		}},
		{"a put that is canceled or whose source fails leaves nothing", func(t *testing.T, s blob.Store) { brokenPuts(t, s) }},
	}
}

func mismatches(t *testing.T, s blob.Store) {
	data := pattern(1, 5000)
	cases := map[string]blob.Terms{
		"short":              {Size: 5001},
		"much too short":     {Size: 1 << 30},
		"long":               {Size: 4999},
		"said to be empty":   {Size: 0},
		"checksum":           {Size: 5000, CRC32C: blob.CRC32C(data) ^ 1, HasCRC32C: true},
		"checksum zero":      {Size: 5000, HasCRC32C: true},
		"long with checksum": {Size: 4999, CRC32C: blob.CRC32C(data[:4999]), HasCRC32C: true},
	}
	for name, terms := range cases {
		_, err := s.Put(context.Background(), "uploads/a", bytes.NewReader(data), terms)
		if !queue.Is(err, queue.KindCorrupt) || queue.CodeOf(err) != queue.CodeObjectInvalid {
			t.Fatalf("%s: got %v (code %s)", name, err, queue.CodeOf(err))
		}
		wantGone(t, s, "uploads/a")
	}
	// The key is still free.
	mustPut(t, s, "uploads/a", data)
	wantObject(t, s, "uploads/a", data)
}

func brokenPuts(t *testing.T, s blob.Store) {
	data := pattern(1, 300_000)
	_, err := s.Put(canceled(), "uploads/a", bytes.NewReader(data), termsOf(data))
	wantKind(t, err, queue.KindCanceled)
	wantGone(t, s, "uploads/a")

	ctx, cancel := context.WithCancel(context.Background())
	half := io.MultiReader(bytes.NewReader(data[:150_000]), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, context.Cause(ctx)
	}))
	_, err = s.Put(ctx, "uploads/a", half, termsOf(data))
	wantKind(t, err, queue.KindCanceled)
	wantGone(t, s, "uploads/a")

	broken := io.MultiReader(bytes.NewReader(data[:150_000]), iotest.ErrReader(errors.New("connection reset")))
	_, err = s.Put(context.Background(), "uploads/a", broken, termsOf(data))
	wantKind(t, err, queue.KindUnavailable)
	wantGone(t, s, "uploads/a")

	own := &queue.Error{Kind: queue.KindDenied}
	_, err = s.Put(context.Background(), "uploads/a", iotest.ErrReader(own), termsOf(data))
	wantKind(t, err, queue.KindDenied)
	mustPut(t, s, "uploads/a", data)
	wantObject(t, s, "uploads/a", data)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
