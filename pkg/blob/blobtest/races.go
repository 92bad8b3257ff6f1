package blobtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const racers = 64

func raceCases() []testCase {
	return []testCase{
		{"of many puts of one key exactly one wins, whole", func(t *testing.T, s blob.Store) { racingPuts(t, s) }},
		{"concurrent creates all survive", func(t *testing.T, s blob.Store) { racingCreates(t, s) }},
		{"readers beside a delete see all or NotFound", func(t *testing.T, s blob.Store) { racingDeletes(t, s) }},
		{"lists beside writes see whole objects in order", func(t *testing.T, s blob.Store) { racingLists(t, s) }},
	}
}

func racingPuts(t *testing.T, s blob.Store) {
	for round := range 4 {
		key := fmt.Sprintf("uploads/race-%d", round)
		size := 10 + 60_000*round
		var wg sync.WaitGroup
		var winners atomic.Int32
		var winner atomic.Int32
		for i := range racers {
			wg.Go(func() {
				data := pattern(i, size+i)
				_, err := s.Put(context.Background(), key, bytes.NewReader(data), termsOf(data))
				switch {
				case err == nil:
					winners.Add(1)
					winner.Store(int32(i)) // #nosec G115 -- below racers
				case !queue.Is(err, queue.KindExists):
					t.Errorf("put %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if winners.Load() != 1 {
			t.Fatalf("%d of %d puts won", winners.Load(), racers)
		}
		won := int(winner.Load())
		wantObject(t, s, key, pattern(won, size+won))
	}
}

func racingCreates(t *testing.T, s blob.Store) {
	const each = 8
	var wg sync.WaitGroup
	var keys [racers][each]string
	for i := range racers {
		wg.Go(func() {
			prefix := []string{blob.PrefixBatches, blob.PrefixSegments}[i%2]
			for j := range each {
				data := pattern(i*each+j, 100*i+j)
				key, err := s.Create(context.Background(), prefix, data)
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				keys[i][j] = key
				got, err := s.Get(context.Background(), key, blob.Span{}, nil)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("get %s just created: %d bytes, %v", key, len(got), err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i := range racers {
		for j, key := range keys[i] {
			wantObject(t, s, key, pattern(i*each+j, 100*i+j))
		}
	}
	if got := listAll(t, s, "", 100); len(got) != racers*each {
		t.Fatalf("%d objects are listed, want %d", len(got), racers*each)
	}
}

func racingDeletes(t *testing.T, s blob.Store) {
	const objects, readers = 16, 6
	data := pattern(9, 50_000)
	var keys []string
	for i := range objects {
		keys = append(keys, mustCreate(t, s, blob.PrefixBatches, data), mustPut(t, s, fmt.Sprintf("uploads/%d", i), data).Key)
	}
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			for i := range len(keys) * 4 {
				if err := readWholeOrNotFound(s, keys[(i+r)%len(keys)], data); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; i < len(keys); i += 2 {
			if err := s.Delete(context.Background(), keys[i:i+2]...); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
	})
	wg.Wait()
	for _, key := range keys {
		wantGone(t, s, key)
	}
}

func readWholeOrNotFound(s blob.Store, key string, data []byte) error {
	ctx := context.Background()
	got, err := s.Get(ctx, key, blob.Span{}, nil)
	if queue.Is(err, queue.KindNotFound) {
		return nil
	}
	if err != nil || !bytes.Equal(got, data) {
		return fmt.Errorf("get %s: %d bytes, %w", key, len(got), err)
	}
	got, err = s.Get(ctx, key, blob.Span{Pos: 100, Len: 1000}, nil)
	if queue.Is(err, queue.KindNotFound) {
		return nil
	}
	if err != nil || !bytes.Equal(got, data[100:1100]) {
		return fmt.Errorf("get a span of %s: %d bytes, %w", key, len(got), err)
	}
	r, _, err := s.Open(ctx, key, blob.Span{})
	if queue.Is(err, queue.KindNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", key, err)
	}
	got, err = io.ReadAll(r)
	_ = r.Close()
	if err != nil || !bytes.Equal(got, data) {
		return fmt.Errorf("read %s: %d bytes, %w", key, len(got), err)
	}
	return nil
}

func racingLists(t *testing.T, s blob.Store) {
	var wg sync.WaitGroup
	var writing atomic.Int32
	for w := range 4 {
		writing.Add(1)
		wg.Go(func() {
			defer writing.Add(-1)
			for i := range 30 {
				data := pattern(1000*w+i, 2000)
				key, err := s.Create(context.Background(), blob.PrefixBatches, data)
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				name := fmt.Sprintf("uploads/%d-%d", w, i)
				if _, err = s.Put(context.Background(), name, bytes.NewReader(data), termsOf(data)); err != nil {
					t.Errorf("put: %v", err)
				}
				if i%3 == 0 {
					if err = s.Delete(context.Background(), key, name); err != nil {
						t.Errorf("delete: %v", err)
					}
				}
			}
		})
	}
	for writing.Load() > 0 {
		for _, info := range listAll(t, s, "", 10) {
			if info.Size != 2000 || info.Modified.IsZero() {
				t.Fatalf("listed beside writes: %+v", info)
			}
		}
	}
	wg.Wait()
	if got := listAll(t, s, "", 50); len(got) != 4*20*2 {
		t.Fatalf("%d objects are listed, want %d", len(got), 4*20*2)
	}
}

// hugeObject streams size bytes in and out and watches the heap.
func hugeObject(t *testing.T, s blob.Store, size int64) {
	const allowed = 8 << 20
	watch := newHeapWatch()
	sum := blob.NewCRC32C()
	source := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sum)
	info, err := s.Put(context.Background(), "uploads/huge", watch.reader(source), blob.Terms{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	if info.Size != size || info.CRC32C != sum.Sum32() {
		t.Fatalf("put %+v, want size %d and checksum %08x", info, size, sum.Sum32())
	}
	r, _, err := s.Open(context.Background(), "uploads/huge", blob.Span{})
	if err != nil {
		t.Fatal(err)
	}
	back := blob.NewCRC32C()
	n, err := io.Copy(back, watch.reader(r))
	_ = r.Close()
	if err != nil || n != size || back.Sum32() != info.CRC32C {
		t.Fatalf("read %d bytes with checksum %08x, %v", n, back.Sum32(), err)
	}
	if watch.peak > allowed {
		t.Fatalf("the heap grew by %d bytes, more than %d", watch.peak, allowed)
	}
}

// heapWatch samples the live heap, every few MiB of a stream.
type heapWatch struct {
	start, peak uint64
	seen        int64
}

func newHeapWatch() *heapWatch { return &heapWatch{start: liveHeap()} }

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (w *heapWatch) reader(r io.Reader) io.Reader {
	const every = 8 << 20
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		before := w.seen / every
		w.seen += int64(n)
		if w.seen/every != before {
			if now := liveHeap(); now > w.start {
				w.peak = max(w.peak, now-w.start)
			}
		}
		return n, err
	})
}

func reopen(t *testing.T, h Harness) {
	s := h.New(t)
	want := map[string][]byte{}
	var gone []string
	for round := range 3 {
		for i, size := range []int{0, 1, 1000, 100_000, 2 << 20} {
			data := pattern(10*round+i, size)
			want[mustCreate(t, s, blob.PrefixBatches, data)] = data
			name := fmt.Sprintf("uploads/%d/%d", round, i)
			mustPut(t, s, name, data)
			want[name] = data
			gone = append(gone, mustCreate(t, s, blob.PrefixBatches, data), mustPut(t, s, name+"/gone", data).Key)
		}
		if err := s.Delete(context.Background(), gone...); err != nil {
			t.Fatal(err)
		}
		s = h.Reopen(t, s)
		for key, data := range want {
			wantObject(t, s, key, data)
		}
		for _, key := range gone {
			wantGone(t, s, key)
		}
		if got := listAll(t, s, "", 7); len(got) != len(want) {
			t.Fatalf("%d objects are listed after the restart, want %d", len(got), len(want))
		}
	}
}
