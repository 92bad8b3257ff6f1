//go:build unix

package fileblob

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// lockFile takes the lock or answers errLocked at once. The kernel drops it when the file is
// closed, so a killed process leaves none behind.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

func isQuota(err error) bool { return errors.Is(err, unix.EDQUOT) }
