package fileblob

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-mq/spillway/pkg/blob"
)

// BenchmarkCreate measures durable creates: every one is synced when it is answered.
func BenchmarkCreate(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20} {
		for _, callers := range []int{1, 8, 16, 64} {
			b.Run(fmt.Sprintf("size=%dKiB/callers=%d", size>>10, callers), func(b *testing.B) {
				benchCreate(b, Options{}, size, callers)
			})
		}
	}
}

// BenchmarkCreateFile stores the same sizes in object files, to place the threshold.
func BenchmarkCreateFile(b *testing.B) {
	for _, size := range []int{100 << 10, 1 << 20, 4 << 20} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("size=%dKiB/callers=%d", size>>10, callers), func(b *testing.B) {
				benchCreate(b, Options{SmallBytes: 1}, size, callers)
			})
		}
	}
}

func benchCreate(b *testing.B, opts Options, size, callers int) {
	s := openStore(b, b.TempDir(), opts)
	data := bytes.Repeat([]byte("spillway"), size/8)
	b.SetBytes(int64(size))
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if _, err := s.Create(context.Background(), blob.PrefixBatches, data); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
	b.ReportMetric(float64(b.N)/float64(max(1, s.Stats().Fsyncs)), "creates/fsync")
}

// BenchmarkGet reads packed objects back.
func BenchmarkGet(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		b.Run(fmt.Sprintf("size=%dKiB", size>>10), func(b *testing.B) {
			s := openStore(b, b.TempDir(), Options{})
			key, err := s.Create(context.Background(), blob.PrefixBatches, make([]byte, size))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			var buf []byte
			for b.Loop() {
				if buf, err = s.Get(context.Background(), key, blob.Span{}, buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
