//go:build unix

package signedurl

import (
	"errors"
	"io/fs"
	"os"
)

func othersMayRead(mode fs.FileMode) bool { return mode.Perm()&0o077 != 0 }

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
