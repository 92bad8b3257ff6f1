package signedurl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spillway-mq/spillway/pkg/queue"
)

const keyPerm = 0o600

// LoadOrCreateKey reads the key file at path, or makes one of bytes from random, which only the
// owner may read and which is durable on return. Of processes that start at the same time all get
// the same key. A file of another length is Corrupt; one that others may read is Invalid.
func LoadOrCreateKey(path string, random io.Reader) ([KeyBytes]byte, error) {
	key, err := loadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err = createKey(path, random); err != nil && !errors.Is(err, fs.ErrExist) {
		return key, keyError(path, queue.KindUnavailable, "", err)
	}
	return loadKey(path)
}

func keyError(path string, kind queue.Kind, message string, err error) error {
	return &queue.Error{Op: "load signing key", Subject: path, Kind: kind, Message: message, Err: err}
}

func loadKey(path string) (key [KeyBytes]byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return key, keyError(path, queue.KindUnavailable, "", err)
	}
	if othersMayRead(info.Mode()) {
		return key, keyError(path, queue.KindInvalid, fmt.Sprintf("mode is %v; it must be -rw-------", info.Mode()), nil)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return key, keyError(path, queue.KindUnavailable, "", err)
	}
	if len(b) != KeyBytes {
		return key, keyError(path, queue.KindCorrupt, fmt.Sprintf("has %d bytes, not %d", len(b), KeyBytes), nil)
	}
	copy(key[:], b)
	return key, nil
}

// createKey writes a file beside path and links it there: a crash leaves a whole key or none, and a
// key that is there is never replaced.
func createKey(path string, random io.Reader) error {
	var key [KeyBytes]byte
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return err
	}
	// CreateTemp makes it readable by the owner only.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a leftover is a key that nobody uses
	_, err = f.Write(key[:])
	if err == nil {
		err = f.Chmod(keyPerm)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
