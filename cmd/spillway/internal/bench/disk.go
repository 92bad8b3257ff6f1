package bench

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// AppendRate is how fast appends of one size become durable, one after another.
type AppendRate struct {
	Size      int     `json:"size_bytes"`
	PerSecond float64 `json:"appends_per_second"`
	Bytes     float64 `json:"bytes_per_second"`
	Mean      float64 `json:"mean_seconds"`
}

// Disk is what a folder's disk can do.
type Disk struct {
	// Sequential is of large writes that are synced once, at the end.
	Sequential float64      `json:"sequential_bytes_per_second"`
	Appends    []AppendRate `json:"appends"`
}

// DiskOptions say where and how long.
type DiskOptions struct {
	Dir string
	// SequentialBytes are written in one go; Each is the time for each size of append.
	SequentialBytes int64
	Each            time.Duration
}

// appendSizes are those that a queue writes: a record, a small batch, a large one.
func appendSizes() []int { return []int{1 << 10, 64 << 10, 1 << 20} }

// ProbeDisk measures the disk below a folder, in files that it removes.
func ProbeDisk(o DiskOptions) (d Disk, err error) {
	if d.Sequential, err = probeSequential(o); err != nil {
		return d, err
	}
	for _, size := range appendSizes() {
		rate, err := probeAppends(o, size)
		if err != nil {
			return d, err
		}
		d.Appends = append(d.Appends, rate)
	}
	return d, nil
}

// withFile gives a new file that is removed afterwards.
func withFile(dir string, do func(*os.File) error) error {
	path := filepath.Join(dir, "spillway-disk-probe")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close(), os.Remove(path))
}

// noise is not compressible, in case the disk tries.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

func probeSequential(o DiskOptions) (rate float64, err error) {
	block := noise(1 << 20)
	err = withFile(o.Dir, func(f *os.File) error {
		started := time.Now()
		for left := o.SequentialBytes; left > 0; left -= int64(len(block)) {
			if _, err := f.Write(block); err != nil {
				return err
			}
		}
		if err := syncData(f); err != nil {
			return err
		}
		rate = float64(o.SequentialBytes) / time.Since(started).Seconds()
		return nil
	})
	return rate, err
}

func probeAppends(o DiskOptions, size int) (rate AppendRate, err error) {
	block := noise(size)
	err = withFile(o.Dir, func(f *os.File) error {
		started := time.Now()
		n := 0
		for time.Since(started) < o.Each {
			if _, err := f.Write(block); err != nil {
				return err
			}
			if err := syncData(f); err != nil {
				return err
			}
			n++
		}
		took := time.Since(started).Seconds()
		rate = AppendRate{size, float64(n) / took, float64(n) * float64(size) / took, took / float64(n)}
		return nil
	})
	return rate, err
}
