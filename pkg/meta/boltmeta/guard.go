package boltmeta

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strings"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// guarded runs fn, which reads the mapped file, and turns its panics into KindCorrupt: bbolt's
// assertions about damaged pages, and faults of the mapping (a page past the end of a file that was
// cut short). panicked tells them from errors that fn returned.
func guarded(op string, fn func() error) (panicked bool, err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			err = &queue.Error{Op: op, Kind: queue.KindCorrupt, Message: "the file is damaged", Err: fmt.Errorf("%v", p)}
		}
	}()
	return false, fn()
}

// translate gives an error of bbolt or the operating system its kind; what has one keeps it.
func translate(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var own *queue.Error
	if errors.As(err, &own) {
		return err
	}
	e := &queue.Error{Op: op, Subject: path, Kind: queue.KindUnavailable, Err: err}
	switch {
	case isFull(err):
		e.Kind, e.Message = queue.KindFull, "the disk has no room"
	case errors.Is(err, berrors.ErrTimeout):
		e.Message = "another process has the store open"
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		e.Kind, e.Message = queue.KindCorrupt, "not a store, or damaged"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind, e.Message = queue.KindDenied, "the file or its folder may not be written"
	}
	return e
}

// isFull looks at the text too: bbolt formats some causes into its errors without wrapping them.
func isFull(err error) bool {
	for _, cause := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, cause) || strings.Contains(err.Error(), cause.Error()) {
			return true
		}
	}
	return errors.Is(err, berrors.ErrMaxSizeReached)
}
