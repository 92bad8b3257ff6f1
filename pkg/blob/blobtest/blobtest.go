// Package blobtest is the one conformance suite of the object store: every driver of package blob
// passes it, concurrency cases included.
//
// Vocabulary: a harness makes stores of one driver; a case is one named promise of the contract.
//
// Invariants: a case uses nothing but blob.Store and only the key prefixes of package blob; each
// runs on a store of its own, so cases do not depend on each other.
//
// Non-goals: what only one driver promises (formats, crashes, limits of a service) is tested beside
// that driver.
package blobtest

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Harness makes stores of the driver under test.
type Harness struct {
	// New makes an empty store and cleans it up when the test ends.
	New func(t testing.TB) blob.Store
	// Reopen closes s and opens the same data again, as a restart does. Nil for a driver that
	// does not outlive its process.
	Reopen func(t testing.TB, s blob.Store) blob.Store
	// HugeBytes is the size of the object that is streamed to show that memory stays constant;
	// 0 means 64 MiB, less than 0 means that the driver keeps objects in memory by its nature.
	HugeBytes int64
}

const defaultHugeBytes = 64 << 20

type testCase struct {
	name string
	run  func(t *testing.T, s blob.Store)
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	cases := slices.Concat(createCases(), readCases(), putCases(), listCases(), deleteCases(), raceCases())
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, h.New(t)) })
	}
	if h.HugeBytes >= 0 {
		size := h.HugeBytes
		if size == 0 {
			size = defaultHugeBytes
		}
		t.Run("huge object streams in constant memory", func(t *testing.T) { hugeObject(t, h.New(t), size) })
	}
	if h.Reopen != nil {
		t.Run("what was written outlives a restart", func(t *testing.T) { reopen(t, h) })
	}
}

// pattern is size bytes that differ from those of another seed and from their neighbours.
func pattern(seed, size int) []byte {
	b := make([]byte, size)
	x := uint32(seed)*2654435761 + 1 // #nosec G115 -- any value does
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func mustCreate(t testing.TB, s blob.Store, prefix string, data []byte) string {
	t.Helper()
	key, err := s.Create(context.Background(), prefix, data)
	if err != nil {
		t.Fatalf("create under %s: %v", prefix, err)
	}
	return key
}

func mustPut(t testing.TB, s blob.Store, key string, data []byte) blob.Info {
	t.Helper()
	info, err := s.Put(context.Background(), key, bytes.NewReader(data), termsOf(data))
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return info
}

func termsOf(data []byte) blob.Terms {
	return blob.Terms{Size: int64(len(data)), CRC32C: blob.CRC32C(data), HasCRC32C: true}
}

func mustGet(t testing.TB, s blob.Store, key string, span blob.Span) []byte {
	t.Helper()
	data, err := s.Get(context.Background(), key, span, nil)
	if err != nil {
		t.Fatalf("get %s %+v: %v", key, span, err)
	}
	return data
}

// wantObject checks every way of reading key against data.
func wantObject(t testing.TB, s blob.Store, key string, data []byte) {
	t.Helper()
	if got := mustGet(t, s, key, blob.Span{}); !bytes.Equal(got, data) {
		t.Fatalf("get %s: %d bytes that differ from the %d written", key, len(got), len(data))
	}
	r, info, err := s.Open(context.Background(), key, blob.Span{})
	if err != nil {
		t.Fatalf("open %s: %v", key, err)
	}
	got, err := io.ReadAll(r)
	if closeErr := r.Close(); err != nil || closeErr != nil {
		t.Fatalf("read %s: %v, close: %v", key, err, closeErr)
	}
	if !bytes.Equal(got, data) {
		t.Fatalf("open %s: %d bytes that differ from the %d written", key, len(got), len(data))
	}
	wantInfo(t, info, key, data)
	info, err = s.Head(context.Background(), key)
	if err != nil {
		t.Fatalf("head %s: %v", key, err)
	}
	wantInfo(t, info, key, data)
}

func wantInfo(t testing.TB, info blob.Info, key string, data []byte) {
	t.Helper()
	if info.Key != key || info.Size != int64(len(data)) || info.CRC32C != blob.CRC32C(data) || info.Modified.IsZero() {
		t.Fatalf("info of %s is %+v; want size %d, checksum %08x and a time", key, info, len(data), blob.CRC32C(data))
	}
}

func wantKind(t testing.TB, err error, kind queue.Kind) {
	t.Helper()
	if !queue.Is(err, kind) {
		t.Fatalf("got error %v, want one of kind %q", err, kind)
	}
}

// wantGone checks that no way of reading finds key.
func wantGone(t testing.TB, s blob.Store, key string) {
	t.Helper()
	ctx := context.Background()
	_, err := s.Get(ctx, key, blob.Span{}, nil)
	wantKind(t, err, queue.KindNotFound)
	if queue.CodeOf(err) != queue.CodeObjectNotFound {
		t.Fatalf("get of a missing object has code %s", queue.CodeOf(err))
	}
	_, err = s.Get(ctx, key, blob.Span{Pos: 0, Len: 1}, nil)
	wantKind(t, err, queue.KindNotFound)
	_, err = s.Head(ctx, key)
	wantKind(t, err, queue.KindNotFound)
	r, _, err := s.Open(ctx, key, blob.Span{})
	if err == nil {
		_ = r.Close()
	}
	wantKind(t, err, queue.KindNotFound)
	for _, info := range listAll(t, s, key, queue.MaxPageSize) {
		if info.Key == key {
			t.Fatalf("%s is listed, though it does not exist", key)
		}
	}
}

// listAll pages through prefix and checks that each page keeps its promises.
func listAll(t testing.TB, s blob.Store, prefix string, limit int) []blob.Info {
	t.Helper()
	var all []blob.Info
	after := ""
	for {
		page, err := s.List(context.Background(), prefix, after, limit)
		if err != nil {
			t.Fatalf("list %q after %q: %v", prefix, after, err)
		}
		if len(page.Objects) > limit {
			t.Fatalf("list %q: %d objects, more than the limit of %d", prefix, len(page.Objects), limit)
		}
		for _, info := range page.Objects {
			if info.Key <= after {
				t.Fatalf("list %q: %q comes after %q", prefix, info.Key, after)
			}
			after = info.Key
		}
		all = append(all, page.Objects...)
		if !page.More {
			return all
		}
		if len(page.Objects) == 0 {
			t.Fatalf("list %q after %q: an empty page says that there is more", prefix, after)
		}
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
