package fileblob

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/blobtest"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func openMem(t testing.TB, d *memDisk) *Store {
	t.Helper()
	s, err := Open("mem", time.Now, Options{PackBytes: minPackBytes, disk: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestMemDiskConformance shows that the disk of the tests below behaves as a real one.
func TestMemDiskConformance(t *testing.T) {
	var d *memDisk
	blobtest.Run(t, blobtest.Harness{
		New: func(t testing.TB) blob.Store {
			d = newMemDisk()
			return openMem(t, d)
		},
		Reopen: func(t testing.TB, s blob.Store) blob.Store {
			if err := s.(*Store).Close(); err != nil {
				t.Fatal(err)
			}
			d = d.crash(rand.New(rand.NewPCG(1, 2)))
			return openMem(t, d)
		},
		HugeBytes: -1,
	})
}

// history is what callers were told.
type history struct {
	mu      sync.Mutex
	stored  map[string][]byte
	deleted map[string]bool // asked for
	gone    map[string]bool // confirmed
}

func newHistory() *history {
	return &history{stored: map[string][]byte{}, deleted: map[string]bool{}, gone: map[string]bool{}}
}

func (h *history) snapshot() *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := newHistory()
	for k, v := range h.stored {
		c.stored[k] = v
	}
	for k := range h.deleted {
		c.deleted[k] = true
	}
	for k := range h.gone {
		c.gone[k] = true
	}
	return c
}

// check holds a store to a history that was taken before the crash it went through.
func (h *history) check(s *Store) error {
	ctx := context.Background()
	for key, data := range h.stored {
		got, err := s.Get(ctx, key, blob.Span{}, nil)
		switch {
		case h.gone[key]:
			if !queue.Is(err, queue.KindNotFound) {
				return fmt.Errorf("%s was deleted, but reads %d bytes, %w", key, len(got), err)
			}
		case h.deleted[key] && queue.Is(err, queue.KindNotFound):
		case err != nil || !bytes.Equal(got, data):
			return fmt.Errorf("%s was acknowledged, but reads %d bytes, %w", key, len(got), err)
		}
	}
	// Whatever is listed beyond that must at least be read in whole or be known as damaged.
	after := ""
	for {
		page, err := s.List(ctx, "", after, 100)
		if err != nil {
			return err
		}
		for _, info := range page.Objects {
			after = info.Key
			if h.gone[info.Key] {
				return fmt.Errorf("%s was deleted, but is listed", info.Key)
			}
			got, err := s.Get(ctx, info.Key, blob.Span{}, nil)
			if err == nil && blob.CRC32C(got) != info.CRC32C {
				return fmt.Errorf("%s reads other bytes than listed", info.Key)
			}
			if err != nil && h.stored[info.Key] != nil && !h.deleted[info.Key] {
				return fmt.Errorf("%s is listed: %w", info.Key, err)
			}
		}
		if !page.More {
			return nil
		}
	}
}

// work runs callers that create, put and delete until stop.
func work(s *Store, h *history, seed uint64, callers int, stop <-chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			var mine []string
			// Bounded, since each look at what is left reads all of it.
			for i := range 150 {
				select {
				case <-stop:
					return
				default:
				}
				mine = step(s, h, rng, mine, fmt.Sprintf("uploads/%d-%d-%d", seed, c, i))
			}
		})
	}
	return &wg
}

func step(s *Store, h *history, rng *rand.Rand, mine []string, name string) []string {
	ctx := context.Background()
	size := rng.IntN(6000)
	if rng.IntN(8) == 0 {
		size = 33_000 + rng.IntN(5000) // past SmallBytes of these tests
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	if len(mine) > 0 && rng.IntN(3) == 0 {
		at := rng.IntN(len(mine))
		key := mine[at]
		h.mu.Lock()
		h.deleted[key] = true
		h.mu.Unlock()
		if s.Delete(ctx, key) == nil {
			h.mu.Lock()
			h.gone[key] = true
			h.mu.Unlock()
		}
		return append(mine[:at], mine[at+1:]...)
	}
	key, err := name, error(nil)
	if rng.IntN(4) == 0 {
		_, err = s.Put(ctx, name, bytes.NewReader(data), blob.Terms{Size: int64(size)})
	} else {
		key, err = s.Create(ctx, blob.PrefixBatches, data)
	}
	if err != nil {
		return mine
	}
	h.mu.Lock()
	h.stored[key] = data
	h.mu.Unlock()
	return append(mine, key)
}

// TestCrashUnderLoad cuts the power at arbitrary moments while callers work, loses any part of what
// was not synced, and holds what comes up again to what was answered before the cut. Then the work
// goes on and the power is cut again.
func TestCrashUnderLoad(t *testing.T) {
	const rounds, lives = 4, 3
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range rounds {
		d, h := newMemDisk(), newHistory()
		for range lives {
			s := openMem(t, d)
			if err := h.check(s); err != nil {
				t.Fatal(err)
			}
			if err := cutPower(t, d, s, h, rng); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			d = d.crash(rng)
		}
	}
}

// cutPower looks at what would be left of d, again and again while callers work.
func cutPower(t *testing.T, d *memDisk, s *Store, h *history, rng *rand.Rand) error {
	const cuts = 10
	stop := make(chan struct{})
	wg := work(s, h, rng.Uint64(), 4, stop)
	defer wg.Wait()
	defer close(stop)
	for range cuts {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		before := h.snapshot()
		after := d.crash(rng)
		// A delete that was asked for between the two looks may have happened.
		h.mu.Lock()
		for key := range h.deleted {
			before.deleted[key] = true
		}
		h.mu.Unlock()
		if err := before.check(openMem(t, after)); err != nil {
			return err
		}
	}
	return nil
}

// TestFaultAtEveryStep fails each change to the disk in turn, in each way, in the middle of a fixed
// run of calls. What was answered well must hold, at once and after a crash; the store must go on.
func TestFaultAtEveryStep(t *testing.T) {
	kinds := map[string]faultKind{
		"before": faultBefore, "after": faultAfter, "half": faultHalf, "full": faultFullBefore, "full halfway": faultFullHalf,
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			for at := 0; ; at++ {
				if !faultRun(t, kind, at) {
					if at < 40 {
						t.Fatalf("only %d steps", at)
					}
					return
				}
			}
		})
	}
}

// faultRun fails the step number at; it reports whether the run has that many.
func faultRun(t *testing.T, kind faultKind, at int) bool {
	t.Helper()
	d := newMemDisk()
	s := openMem(t, d)
	steps, failed := 0, ""
	d.mu.Lock()
	d.fault = func(op, name string) faultKind {
		steps++
		if steps-1 != at {
			return faultNone
		}
		failed = op + " " + name
		return kind
	}
	d.mu.Unlock()
	h := newHistory()
	rng := rand.New(rand.NewPCG(7, 7))
	var mine []string
	for i := range 40 {
		mine = step(s, h, rng, mine, fmt.Sprintf("uploads/%d", i))
	}
	d.mu.Lock()
	hit := failed != ""
	d.fault = nil
	d.mu.Unlock()
	if err := h.check(s); err != nil {
		t.Fatalf("after failing step %d (%s): %v", at, failed, err)
	}
	if key, err := s.Create(context.Background(), blob.PrefixBatches, []byte("on")); err != nil {
		t.Fatalf("after failing step %d (%s): create: %v", at, failed, err)
	} else {
		h.stored[key] = []byte("on")
	}
	for i := range 2 {
		if err := h.check(openMem(t, d.crash(rand.New(rand.NewPCG(uint64(at), uint64(i)))))); err != nil {
			t.Fatalf("after failing step %d (%s) and a crash: %v", at, failed, err)
		}
	}
	return hit
}
