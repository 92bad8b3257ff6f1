package fileblob

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// disk is the file system below the store's folder, with the few calls that the store makes. It is
// an interface so that tests can fail each call, or lose what was not synced, as a power cut does.
// Names are relative and use "/".
type disk interface {
	// Open opens a file for reading and writing; with create it must not exist before.
	Open(name string, create bool) (file, error)
	// Link gives old a further name; fs.ErrExist if that is taken, decided atomically.
	Link(old, name string) error
	Remove(name string) error
	// Mkdir makes a folder; one that exists is no error.
	Mkdir(name string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// ReadDir gives the names in a folder, in no particular order.
	ReadDir(name string) ([]string, error)
	// InPlace reports whether name still leads to the open file f: what is written to a file that
	// was moved or removed, with its folder or alone, is found by nobody.
	InPlace(name string, f file) (bool, error)
}

// file is one open file. Reads and writes at offsets are safe beside each other.
type file interface {
	io.ReaderAt
	io.WriterAt
	// WriteVec writes bufs one after the other from off on, in as few calls as possible.
	WriteVec(bufs [][]byte, off int64) error
	Truncate(size int64) error
	// Sync makes content and size durable. Each handle reports a failed write-back on its own.
	Sync() error
	Size() (int64, error)
	Close() error
}

const (
	filePerm = 0o600
	dirPerm  = 0o700
)

type osDisk struct{ root string }

func (d osDisk) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

func (d osDisk) Open(name string, create bool) (file, error) {
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(d.path(name), flag, filePerm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d osDisk) Link(old, name string) error { return os.Link(d.path(old), d.path(name)) }
func (d osDisk) Remove(name string) error    { return os.Remove(d.path(name)) }

func (d osDisk) Mkdir(name string) error {
	if err := os.Mkdir(d.path(name), dirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (d osDisk) SyncDir(name string) error { return syncDir(d.path(name)) }

func (d osDisk) ReadDir(name string) ([]string, error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return names, err
}

func (d osDisk) InPlace(name string, f file) (bool, error) {
	at, err := os.Stat(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	own, ok := f.(osFile)
	if err != nil || !ok {
		return false, err
	}
	open, err := own.Stat()
	return err == nil && os.SameFile(at, open), err
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return dataSync(f.File) }

func (f osFile) WriteVec(bufs [][]byte, off int64) error { return writeVec(f.File, bufs, off) }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// writeEach is WriteVec for systems without a vectored write.
func writeEach(f io.WriterAt, bufs [][]byte, off int64) error {
	for _, b := range bufs {
		n, err := f.WriteAt(b, off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// ioError translates a file error that left nothing changed.
func ioError(op, subject string, err error) error {
	kind := queue.KindUnavailable
	message := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG), isQuota(err):
		kind, message = queue.KindFull, "the disk has no room"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		message = "the process may open no more files; raise its limit (ulimit -n)"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		message = "the folder cannot be written or read by this user"
	}
	return &queue.Error{Op: op, Subject: subject, Kind: kind, Message: message, Err: err}
}

// unknownOutcome is the error for a write whose sync failed: its bytes may be on disk or not.
func unknownOutcome(op, subject string, err error) error {
	return &queue.Error{
		Op: op, Subject: subject, Kind: queue.KindOutcomeUnknown,
		Message: "the disk did not confirm the write", Err: err,
	}
}

func corrupt(op, subject, message string, err error) error {
	return &queue.Error{Op: op, Subject: subject, Kind: queue.KindCorrupt, Message: message, Err: err}
}

func short(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
