package blobtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// badKeys are keys that a file system, a URL or S3 could read in two ways.
func badKeys() []string {
	return []string{
		"", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/..", ".", "a/./b", ".hidden", "a/.hidden",
		"a\x00b", "a b", "a\nb", "a\\b", "C:a", "a%2fb", "ä", "a/\u202e", "\xff", "a+b", "a?b", "a#b", "~a",
		strings.Repeat("k", blob.MaxKeyBytes+1),
	}
}

func createCases() []testCase {
	return []testCase{
		{"create gives back what was stored", func(t *testing.T, s blob.Store) {
			// 1 MiB and its neighbours stand for the sizes at which drivers change their ways.
			for i, size := range []int{1, 7, 64, 4095, 4096, 100_000, 1 << 20, 1<<20 + 1, 3 << 20} {
				data := pattern(i, size)
				wantObject(t, s, mustCreate(t, s, blob.PrefixBatches, data), data)
			}
		}},
		{"create stores an empty object", func(t *testing.T, s blob.Store) {
			wantObject(t, s, mustCreate(t, s, blob.PrefixBatches, nil), nil)
		}},
		{"create does not keep its argument", func(t *testing.T, s blob.Store) {
			for _, size := range []int{100, 2 << 20} {
				data := pattern(1, size)
				key := mustCreate(t, s, blob.PrefixBatches, data)
				clear(data)
				wantObject(t, s, key, pattern(1, size))
			}
		}},
		{"create chooses keys under the prefix, each once", func(t *testing.T, s blob.Store) {
			seen := map[string]bool{}
			for _, prefix := range []string{blob.PrefixBatches, blob.PrefixSegments, "a/b/c/"} {
				for range 50 {
					// Equal bytes must still be different objects.
					key := mustCreate(t, s, prefix, []byte("same"))
					rest, ok := strings.CutPrefix(key, prefix)
					if !ok || rest == "" || len(rest) > blob.MaxChosenBytes || blob.ValidateKey("key", key) != nil {
						t.Fatalf("create under %s chose the key %q", prefix, key)
					}
					if seen[key] {
						t.Fatalf("the key %s was chosen twice", key)
					}
					seen[key] = true
				}
			}
		}},
		{"create refuses a bad prefix", func(t *testing.T, s blob.Store) {
			for _, prefix := range []string{"", "/", "batches", "../", "a//", "a/../", "/a/", "a b/", strings.Repeat("p", blob.MaxKeyBytes) + "/"} {
				_, err := s.Create(context.Background(), prefix, []byte("x"))
				wantKind(t, err, queue.KindInvalid)
			}
		}},
		{"a canceled create leaves nothing", func(t *testing.T, s blob.Store) {
			for _, size := range []int{10, 2 << 20} {
				_, err := s.Create(canceled(), blob.PrefixBatches, pattern(1, size))
				wantKind(t, err, queue.KindCanceled)
			}
			if got := listAll(t, s, "", 10); len(got) != 0 {
				t.Fatalf("there are %d objects", len(got))
			}
		}},
	}
}

func readCases() []testCase {
	return []testCase{
		{"spans", func(t *testing.T, s blob.Store) { spans(t, s) }},
		{"get appends to what dst holds", func(t *testing.T, s blob.Store) {
			key := mustCreate(t, s, blob.PrefixBatches, []byte("world"))
			got, err := s.Get(context.Background(), key, blob.Span{}, []byte("hello "))
			if err != nil || string(got) != "hello world" {
				t.Fatalf("got %q, %v", got, err)
			}
			got, err = s.Get(context.Background(), "uploads/none", blob.Span{}, []byte("kept"))
			if err == nil || string(got) != "kept" {
				t.Fatalf("a failed get gives dst %q, %v", got, err)
			}
		}},
		{"a missing object is NotFound", func(t *testing.T, s blob.Store) {
			mustPut(t, s, "uploads/a/b", []byte("x"))
			for _, key := range []string{"uploads/missing", "uploads/a", "uploads/a/b/c", "uploads", "x", "uploads/A/b"} {
				wantGone(t, s, key)
			}
		}},
		{"keys that differ from a created one are NotFound", func(t *testing.T, s blob.Store) {
			key := mustCreate(t, s, blob.PrefixBatches, pattern(1, 5000))
			mustCreate(t, s, blob.PrefixBatches, pattern(2, 5000))
			for i := len(blob.PrefixBatches); i < len(key); i++ {
				for _, c := range []byte("019afz-") {
					forged := key[:i] + string(c) + key[i+1:]
					if forged == key || blob.ValidateKey("key", forged) != nil {
						continue
					}
					got, err := s.Get(context.Background(), forged, blob.Span{Pos: 0, Len: 4}, nil)
					if err == nil || len(got) > 0 {
						t.Fatalf("forged key %s gives %d bytes, %v", forged, len(got), err)
					}
					wantKind(t, err, queue.KindNotFound)
				}
			}
			wantGone(t, s, "segments/"+key[len(blob.PrefixBatches):])
		}},
		{"reads refuse bad keys", func(t *testing.T, s blob.Store) {
			for _, key := range badKeys() {
				_, err := s.Get(context.Background(), key, blob.Span{}, nil)
				wantKind(t, err, queue.KindInvalid)
				_, err = s.Head(context.Background(), key)
				wantKind(t, err, queue.KindInvalid)
				_, _, err = s.Open(context.Background(), key, blob.Span{})
				wantKind(t, err, queue.KindInvalid)
			}
		}},
		{"a canceled read gives nothing", func(t *testing.T, s blob.Store) {
			key := mustCreate(t, s, blob.PrefixBatches, []byte("x"))
			_, err := s.Get(canceled(), key, blob.Span{}, nil)
			wantKind(t, err, queue.KindCanceled)
			_, err = s.Head(canceled(), key)
			wantKind(t, err, queue.KindCanceled)
			_, _, err = s.Open(canceled(), key, blob.Span{})
			wantKind(t, err, queue.KindCanceled)
			_, err = s.List(canceled(), "", "", 1)
			wantKind(t, err, queue.KindCanceled)
		}},
	}
}

func spans(t *testing.T, s blob.Store) {
	const size = 100_000
	data := pattern(3, size)
	mustPut(t, s, "uploads/spans", data)
	for _, key := range []string{mustCreate(t, s, blob.PrefixBatches, data), "uploads/spans"} {
		inside := []blob.Span{
			{Pos: 0, Len: 1},
			{Pos: 0, Len: size},
			{Pos: size - 1, Len: 1},
			{Pos: 17, Len: 4096},
			{Pos: 1, Len: 0},
			{Pos: size, Len: 0},
			{Pos: 70_000, Len: 30_000},
		}
		for _, span := range inside {
			want := data[span.Pos : span.Pos+span.Len]
			if got := mustGet(t, s, key, span); !bytes.Equal(got, want) {
				t.Fatalf("get %s %+v: wrong bytes", key, span)
			}
			r, info, err := s.Open(context.Background(), key, span)
			if err != nil {
				t.Fatalf("open %s %+v: %v", key, span, err)
			}
			got, err := io.ReadAll(r)
			_ = r.Close()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("open %s %+v: %d bytes, %v", key, span, len(got), err)
			}
			wantInfo(t, info, key, data)
		}
		outside := []blob.Span{
			{Pos: 0, Len: size + 1},
			{Pos: size, Len: 1},
			{Pos: size + 1, Len: 0},
			{Pos: -1, Len: 1},
			{Pos: 1, Len: -1},
			{Pos: math.MaxInt64, Len: math.MaxInt64},
			{Pos: 1, Len: math.MaxInt64},
			{Pos: math.MinInt64, Len: 0},
		}
		for _, span := range outside {
			_, err := s.Get(context.Background(), key, span, nil)
			wantKind(t, err, queue.KindInvalid)
			_, _, err = s.Open(context.Background(), key, span)
			wantKind(t, err, queue.KindInvalid)
		}
	}
}

func listCases() []testCase {
	return []testCase{
		{"list gives keys in order, by prefix, in pages", func(t *testing.T, s blob.Store) { listPages(t, s) }},
		{"list of nothing is empty", func(t *testing.T, s blob.Store) {
			if got := listAll(t, s, "", 10); len(got) != 0 {
				t.Fatalf("there are %d objects", len(got))
			}
			mustCreate(t, s, blob.PrefixBatches, []byte("x"))
			for _, prefix := range []string{"uploads/", "batches/~", "batches//", "/", "c", "batcher"} {
				if got := listAll(t, s, prefix, 10); len(got) != 0 {
					t.Fatalf("list %q gives %d objects", prefix, len(got))
				}
			}
		}},
		{"list refuses a bad limit", func(t *testing.T, s blob.Store) {
			for _, limit := range []int{-1, 0, queue.MaxPageSize + 1} {
				_, err := s.List(context.Background(), "", "", limit)
				wantKind(t, err, queue.KindInvalid)
			}
		}},
	}
}

func listPages(t *testing.T, s blob.Store) {
	want := map[string][]byte{}
	for i := range 40 {
		data := pattern(i, 10+i)
		for _, prefix := range []string{blob.PrefixBatches, blob.PrefixSegments, "batches/deep/", "b/"} {
			want[mustCreate(t, s, prefix, data)] = data
		}
		if i < 8 {
			want[mustCreate(t, s, blob.PrefixBatches, pattern(i, 2<<20))] = pattern(i, 2<<20)
		}
		// Parts whose order as keys differs from that as paths: "-" and "." sort before "/".
		for _, form := range []string{"uploads/%02d", "uploads/%02d/x", "uploads/%02d-x", "uploads/%02d.x", "uploads/%02dX", "batches/q%02d", "batches/Q%02d"} {
			key := fmt.Sprintf(form, i)
			mustPut(t, s, key, data)
			want[key] = data
		}
	}
	keys := make([]string, 0, len(want))
	for key := range want {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "b", "batches", "batches/", "batches/d", "batches/p0", "segments/", "uploads/0", "uploads/07/", "uploads/39.x", keys[3]} {
		var wantKeys []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) {
				wantKeys = append(wantKeys, key)
			}
		}
		for _, limit := range []int{7, 100, queue.MaxPageSize} {
			var got []string
			for _, info := range listAll(t, s, prefix, limit) {
				got = append(got, info.Key)
				wantInfo(t, info, info.Key, want[info.Key])
			}
			if !slices.Equal(got, wantKeys) {
				t.Fatalf("list %q by %d gives %d keys, want %d", prefix, limit, len(got), len(wantKeys))
			}
		}
	}
	listAfter(t, s, keys)
}

// listAfter starts at keys that exist, that do not, and that lie outside of the prefix.
func listAfter(t *testing.T, s blob.Store, keys []string) {
	for i := 0; i < len(keys); i += 9 {
		for _, after := range []string{keys[i], keys[i] + "-", keys[i][:len(keys[i])-1]} {
			pos, found := slices.BinarySearch(keys, after)
			if found {
				pos++
			}
			page, err := s.List(context.Background(), "", after, 1)
			if err != nil {
				t.Fatalf("list after %q: %v", after, err)
			}
			if pos == len(keys) {
				if len(page.Objects) != 0 || page.More {
					t.Fatalf("list after %q: %+v", after, page)
				}
				continue
			}
			if len(page.Objects) != 1 || page.Objects[0].Key != keys[pos] || page.More != (pos+1 < len(keys)) {
				t.Fatalf("list after %q: %+v, want %s", after, page, keys[pos])
			}
		}
	}
	page, err := s.List(context.Background(), "batches/", "a", 1)
	if err != nil || len(page.Objects) != 1 {
		t.Fatalf("list batches/ after a: %+v, %v", page, err)
	}
	page, err = s.List(context.Background(), "batches/", "uploads/", 1)
	if err != nil || len(page.Objects) != 0 || page.More {
		t.Fatalf("list batches/ after uploads/: %+v, %v", page, err)
	}
}

func deleteCases() []testCase {
	return []testCase{
		{"delete removes objects, and only those", func(t *testing.T, s blob.Store) {
			var gone, kept []string
			for i := range 10 {
				gone = append(gone, mustCreate(t, s, blob.PrefixBatches, pattern(i, 1000)))
				kept = append(kept, mustCreate(t, s, blob.PrefixBatches, pattern(i, 1000)))
				gone = append(gone, mustPut(t, s, fmt.Sprintf("uploads/gone-%d", i), pattern(i, 1000)).Key)
				kept = append(kept, mustPut(t, s, fmt.Sprintf("uploads/kept-%d", i), pattern(i, 1000)).Key)
			}
			gone = append(gone, mustCreate(t, s, blob.PrefixBatches, pattern(1, 2<<20)))
			// The second round deletes what is not there.
			for range 2 {
				if err := s.Delete(context.Background(), gone...); err != nil {
					t.Fatal(err)
				}
				for _, key := range gone {
					wantGone(t, s, key)
				}
			}
			for i, key := range kept {
				wantObject(t, s, key, pattern(i/2, 1000))
			}
			if got := listAll(t, s, "", 3); len(got) != len(kept) {
				t.Fatalf("%d objects are listed, want %d", len(got), len(kept))
			}
		}},
		{"delete of nothing is no error", func(t *testing.T, s blob.Store) {
			key := mustCreate(t, s, blob.PrefixBatches, []byte("x"))
			if err := s.Delete(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(context.Background(), "uploads/none", key, key, key); err != nil {
				t.Fatal(err)
			}
			wantGone(t, s, key)
		}},
		{"delete refuses bad keys and a canceled context", func(t *testing.T, s blob.Store) {
			key := mustCreate(t, s, blob.PrefixBatches, []byte("x"))
			for _, bad := range badKeys() {
				wantKind(t, s.Delete(context.Background(), bad), queue.KindInvalid)
			}
			wantKind(t, s.Delete(canceled(), key), queue.KindCanceled)
			wantObject(t, s, key, []byte("x"))
		}},
	}
}
