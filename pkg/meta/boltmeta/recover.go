package boltmeta

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// minPause is how long commits are refused at least after one failed: each failure makes
	// bbolt walk the file to find its free pages.
	minPause = 100 * time.Millisecond
	// initialMap is address space, not memory: it keeps bbolt from remapping (which waits for all
	// readers) until the file is that large.
	initialMap = 1 << 30
)

// failure says how a commit failed.
type failure struct {
	txid     int
	panicked bool
	took     time.Duration
	// grew says that a request of the batch grows.
	grew bool
}

// writable tells whether a commit may be tried now; it opens the file anew if need be. refuseGrowth is
// what requests that grow are to be answered with, if others may be tried.
func (s *Store) writable() (refuseGrowth, err error) {
	if time.Now().Before(s.paused) {
		if !s.halfPaused {
			return nil, s.pause
		}
		refuseGrowth = s.pause
	}
	if s.db == nil { // only the committer writes db while it runs
		return refuseGrowth, s.reopen(nil)
	}
	return refuseGrowth, inPlace(s.path, s.file)
}

// inPlace tells whether the file that is open is still the one at path. If it is not, whatever were
// written now would be gone with the process: nobody could open it again.
func inPlace(path string, file os.FileInfo) error {
	at, err := os.Stat(path)
	if err == nil && os.SameFile(at, file) || err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return &queue.Error{
		Op: "commit", Subject: path, Kind: queue.KindUnavailable, Err: err,
		Message: "the file was moved, removed or replaced while the server uses it: put it back, or restart the server",
	}
}

// Ready tells whether the store could take writes now, as far as that can be seen without one.
func (s *Store) Ready() error {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	if s.db == nil {
		return s.down
	}
	return inPlace(s.path, s.file)
}

// abandon ends a transaction that changes nothing.
func (s *Store) abandon(tx *bolt.Tx) error {
	_, err := guarded("end transaction", tx.Rollback)
	if err != nil {
		return s.failed(nil, &failure{panicked: true}, err)
	}
	return nil
}

// failed puts the store in order after a commit that failed (f nil: that did not get as far as to
// commit) and gives the error that the batch is answered with.
//
// What bbolt does on a failed commit, by step: spilling, growing the file, or writing or syncing
// pages fails: no meta page refers to the pages, so nothing happened; bbolt rolls back and finds its
// free pages again. Writing the meta page fails: nothing happened either, as far as the file can be
// read (a torn page fails its checksum and the older one counts). Syncing the meta page fails: the
// file as it reads now has the commit, the disk may or may not. To go on from there would be wrong:
// the next commit reuses pages that the older meta page needs. So the commit's id in the file as it
// reads now tells the cases apart.
func (s *Store) failed(tx *bolt.Tx, f *failure, err error) error {
	err = translate("commit", s.path, err)
	if f == nil {
		f = &failure{}
	}
	if tx != nil && s.endTx(tx) != nil {
		f.panicked = true
	}
	s.cache.reset()
	s.pause, s.paused = err, time.Now().Add(max(minPause, 4*f.took))
	s.halfPaused = f.grew && queue.Is(err, queue.KindFull)
	if !f.panicked {
		at, readErr := s.txidInFile()
		if readErr == nil && (f.txid == 0 || at < f.txid) {
			return err
		}
	}
	s.durable.fail()
	reopenErr := s.reopen(err)
	if f.txid == 0 {
		return err // there was no commit
	}
	if reopenErr == nil {
		if at, readErr := s.txidInFile(); readErr == nil && at < f.txid {
			return err
		}
	}
	return &queue.Error{
		Op: "commit", Subject: s.path, Kind: queue.KindOutcomeUnknown,
		Message: "the commit may or may not have been written", Err: err,
	}
}

// endTx rolls back what bbolt has not rolled back itself.
func (s *Store) endTx(tx *bolt.Tx) error {
	_, err := guarded("roll back", func() error {
		if err := tx.Rollback(); !errors.Is(err, berrors.ErrTxClosed) {
			return err
		}
		return nil
	})
	return err
}

// txidInFile is the id of the commit that a reader would see now.
func (s *Store) txidInFile() (txid int, err error) {
	_, err = guarded("read meta page", func() error {
		tx, err := s.db.Begin(false)
		if err != nil {
			return err
		}
		txid = tx.ID()
		return tx.Rollback()
	})
	return txid, err
}

// reopen closes the file, makes sure that the meta page it shows is on disk, and opens it again. On an
// error the store is down, and the committer tries again with its next batch.
func (s *Store) reopen(cause error) error {
	s.dbMu.Lock()
	defer s.dbMu.Unlock()
	if s.db != nil {
		// Not under bbolt's lock any more if this fails, but then neither can a commit.
		err := settleMeta(s.path)
		db := s.db
		s.db, s.down = nil, cause
		if closeErr := closeWithin(db, s.opts.LockTimeout); err != nil || closeErr != nil {
			s.down = translate("open file anew", s.path, errors.Join(err, closeErr))
			return s.down
		}
	} else if err := settleMeta(s.path); err != nil {
		s.down = translate("open file anew", s.path, err)
		return s.down
	}
	db, err := openFile(s.path, s.opts.LockTimeout)
	if err == nil {
		err = s.adopt(db)
	}
	if err != nil {
		s.down = err
		s.pause, s.paused, s.halfPaused = err, time.Now().Add(minPause), false
	}
	return err
}

// adopt makes an open file the store's. The caller holds dbMu or is Open.
func (s *Store) adopt(db *bolt.DB) error {
	s.db, s.down = db, nil
	txid, err := s.txidInFile()
	if err == nil {
		s.file, err = os.Stat(s.path)
		err = translate("open store", s.path, err)
	}
	if err != nil {
		s.db = nil
		return err
	}
	s.cache.reset()
	s.durable.raise(txid)
	s.forget()
	return nil
}

// forget bounds the memory that the mapped file takes. It failing costs nothing but that.
func (s *Store) forget() {
	if s.db != nil {
		_, _ = guarded("forget pages", func() error { return forget(s.db) })
	}
}

// openFile opens the file with bbolt, after looking it over, and makes its buckets.
func openFile(path string, lockTimeout time.Duration) (db *bolt.DB, err error) {
	op := "open store"
	if err := verifyFile(path, lockTimeout); err != nil {
		return nil, translate(op, path, err)
	}
	info, statErr := os.Stat(path)
	_, err = guarded(op, func() error {
		var err error
		db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout:         lockTimeout,
			NoFreelistSync:  true,
			FreelistType:    bolt.FreelistMapType,
			InitialMmapSize: initialMap,
		})
		return err
	})
	if err != nil {
		if isFull(err) && (errors.Is(statErr, os.ErrNotExist) || statErr == nil && info.Size() == 0) {
			err = errors.Join(err, removeBegun(path))
		}
		return nil, translate(op, path, err)
	}
	_, err = guarded(op, func() error {
		missing := false
		err := db.View(func(tx *bolt.Tx) error {
			_, err := bucketsOf(tx)
			missing = err != nil
			return nil
		})
		if err != nil || !missing {
			return err
		}
		return db.Update(createBuckets)
	})
	if err == nil && errors.Is(statErr, os.ErrNotExist) {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		_ = closeWithin(db, lockTimeout)
		return nil, translate(op, path, err)
	}
	return db, nil
}

// removeBegun removes a file that a full disk kept from being made: the next open would take the first of its four
// pages for what is left of a damaged one.
func removeBegun(path string) error {
	const pages = 4
	info, err := os.Stat(path)
	if err != nil || info.Size() >= int64(pages*os.Getpagesize()) {
		return err
	}
	return os.Remove(path)
}

// syncFolder makes the entry of a new file durable: a file that a loss of power takes out of its
// folder was not created.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// closeFile closes the file after a last commit that writes the list of free pages, which saves the
// next open the walk of the file. That commit may fail: the list can be found again.
func closeFile(db *bolt.DB, path string) error {
	_, err := guarded("close store", func() error {
		db.NoFreelistSync = false
		_ = db.Update(func(*bolt.Tx) error { return nil })
		return db.Close()
	})
	return translate("close store", path, err)
}

// closeWithin closes db unless that takes too long: a panic in the middle of bbolt can leave one of
// its locks taken for ever, and then the file cannot be closed by this process.
func closeWithin(db *bolt.DB, limit time.Duration) error {
	closed := make(chan error, 1)
	go func() {
		_, err := guarded("close file", db.Close)
		closed <- err
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-closed:
		return err
	case <-t.C:
		return &queue.Error{Op: "close file", Kind: queue.KindUnavailable, Message: "the file is stuck: restart the process"}
	}
}
