package boltmeta

import (
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// forget lets go of the mapped file's pages in memory: they stay in the system's cache, and are mapped
// again when they are read. Without it whatever was ever read, such as all of the file when it is
// opened after a crash, counts as memory of the process for ever.
//
// The transaction keeps bbolt from mapping the file elsewhere meanwhile, and the pages that it sees in
// use are mapped; the file may be longer than the mapping.
func forget(db *bolt.DB) error {
	return db.View(func(tx *bolt.Tx) error {
		_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, db.Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED) // #nosec G115 -- a size
		if errno != 0 {
			return errno
		}
		return nil
	})
}
