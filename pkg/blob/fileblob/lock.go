package fileblob

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// lockName is the file whose lock shows that a process uses the folder. It is never removed:
// removing a locked file would let two processes lock two files of one name.
const lockName = "LOCK"

var errLocked = errors.New("locked")

func acquireLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, ioError("open object folder", dir, err)
	}
	err = lockFile(f)
	if err == nil {
		return f, nil
	}
	closeErr := f.Close()
	if errors.Is(err, errLocked) {
		return nil, &queue.Error{
			Op: "open object folder", Subject: dir, Kind: queue.KindUnavailable,
			Message: "another process holds the folder; stop it or use another folder",
		}
	}
	return nil, ioError("lock object folder", dir, errors.Join(err, closeErr))
}
