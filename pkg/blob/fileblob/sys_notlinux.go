//go:build !linux

package fileblob

import "os"

// dataSync on macOS is F_FULLFSYNC: the os package does that, since fsync there does not reach the
// platter.
func dataSync(f *os.File) error { return f.Sync() }

func writeVec(f *os.File, bufs [][]byte, off int64) error { return writeEach(f, bufs, off) }
