package bench

import (
	"os"
	"syscall"
)

// syncData makes what was written durable, without the times of the file.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) } // #nosec G115 -- a descriptor
