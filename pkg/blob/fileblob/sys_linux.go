package fileblob

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxVec is the kernel's IOV_MAX.
const maxVec = 1024

// dataSync flushes content and size, but not the times, which nobody reads here: on a journaling
// file system that saves a write.
func dataSync(f *os.File) error {
	return onFD(f, unix.Fdatasync)
}

func onFD(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, callErr)
}

func writeVec(f *os.File, bufs [][]byte, off int64) error {
	// The caller's slice is consumed below.
	bufs = append([][]byte(nil), bufs...)
	for len(bufs) > 0 {
		var n int
		err := onFD(f, func(fd int) (err error) {
			n, err = unix.Pwritev(fd, bufs[:min(len(bufs), maxVec)], off)
			return err
		})
		if err != nil {
			return err
		}
		if n == 0 && len(bufs[0]) > 0 {
			return io.ErrShortWrite
		}
		off += int64(n)
		for len(bufs) > 0 && n >= len(bufs[0]) {
			n -= len(bufs[0])
			bufs = bufs[1:]
		}
		if n > 0 {
			bufs[0] = bufs[0][n:]
		}
	}
	return nil
}
