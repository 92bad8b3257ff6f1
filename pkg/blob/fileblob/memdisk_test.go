package fileblob

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// memDisk is a disk in memory that knows what was synced: after crash only that is certain to be
// there, and any part of the rest. It can also fail each call.
type memDisk struct {
	mu sync.Mutex
	// names and durable are by folder, then by name; durable has the names as of the last SyncDir.
	names   tree
	durable tree
	// fault, if not nil, is asked before each call that changes something.
	fault func(op, name string) faultKind
	// gate, if not nil, may block each call before it takes the lock.
	gate func(op string)
}

type faultKind int

const (
	faultNone       faultKind = iota
	faultBefore               // the call fails and has no effect
	faultAfter                // the call fails, though it had its effect
	faultHalf                 // a write stops halfway
	faultFullBefore           // the disk is full
	faultFullHalf
)

var (
	errIO   = errors.New("injected I/O error")
	errFull = syscall.ENOSPC
)

type tree map[string]map[string]*memInode

func (tr tree) get(name string) *memInode { return tr[path.Dir(name)][path.Base(name)] }

func (tr tree) set(name string, ino *memInode) {
	dir := path.Dir(name)
	if tr[dir] == nil {
		tr[dir] = map[string]*memInode{}
	}
	tr[dir][path.Base(name)] = ino
}

func (tr tree) hasDir(name string) bool { return name == "." || tr.get(name) != nil }

type memInode struct {
	data   []byte
	synced []byte
	dir    bool
}

func newMemDisk() *memDisk { return &memDisk{names: tree{}, durable: tree{}} }

func (d *memDisk) setFault(fault func(op, name string) faultKind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

func (d *memDisk) setGate(gate func(op string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate = gate
}

func (d *memDisk) check(op, name string) faultKind {
	if d.fault == nil {
		return faultNone
	}
	return d.fault(op, name)
}

// change runs a change of names under the lock and its fault.
func (d *memDisk) change(op, name string, do func() error) error {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil {
		gate(op)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	kind := d.check(op, name)
	switch kind {
	case faultBefore, faultHalf:
		return errIO
	case faultFullBefore, faultFullHalf:
		return errFull
	}
	if err := do(); err != nil {
		return err
	}
	if kind == faultAfter {
		return errIO
	}
	return nil
}

func (d *memDisk) Open(name string, create bool) (file, error) {
	if !create {
		d.mu.Lock()
		defer d.mu.Unlock()
		ino := d.names.get(name)
		if ino == nil {
			return nil, fs.ErrNotExist
		}
		return &memFile{d, ino, name}, nil
	}
	ino := &memInode{}
	err := d.change("create", name, func() error {
		if d.names.get(name) != nil {
			return fs.ErrExist
		}
		d.names.set(name, ino)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &memFile{d, ino, name}, nil
}

func (d *memDisk) Link(old, name string) error {
	return d.change("link", name, func() error {
		ino := d.names.get(old)
		switch {
		case d.names.get(name) != nil:
			return fs.ErrExist
		case ino == nil, !d.names.hasDir(path.Dir(name)):
			return fs.ErrNotExist
		}
		d.names.set(name, ino)
		return nil
	})
}

func (d *memDisk) Remove(name string) error {
	return d.change("remove", name, func() error {
		if d.names.get(name) == nil {
			return fs.ErrNotExist
		}
		delete(d.names[path.Dir(name)], path.Base(name))
		return nil
	})
}

func (d *memDisk) Mkdir(name string) error {
	return d.change("mkdir", name, func() error {
		if d.names.get(name) == nil {
			d.names.set(name, &memInode{dir: true})
		}
		return nil
	})
}

func (d *memDisk) SyncDir(name string) error {
	return d.change("syncdir", name, func() error {
		if !d.names.hasDir(name) {
			return fs.ErrNotExist
		}
		d.durable[name] = maps.Clone(d.names[name])
		return nil
	})
}

func (d *memDisk) ReadDir(name string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.names.hasDir(name) {
		return nil, fs.ErrNotExist
	}
	return slices.Collect(maps.Keys(d.names[name])), nil
}

func (d *memDisk) InPlace(name string, f file) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own, ok := f.(*memFile)
	return ok && d.names.get(name) == own.ino, nil
}

// crash gives a disk as a power cut may leave it: what was synced, and of the rest anything.
func (d *memDisk) crash(rng *rand.Rand) *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := newMemDisk()
	copies := map[*memInode]*memInode{}
	var restore func(dir string)
	restore = func(dir string) {
		left := maps.Clone(d.durable[dir])
		if left == nil {
			left = map[string]*memInode{}
		}
		for name, ino := range d.names[dir] {
			if left[name] == nil && rng.IntN(2) == 0 {
				left[name] = ino
			}
		}
		for name := range d.durable[dir] {
			if d.names[dir][name] == nil && rng.IntN(2) == 0 {
				delete(left, name)
			}
		}
		for name, ino := range left {
			if copies[ino] == nil {
				data := ino.tear(rng)
				copies[ino] = &memInode{data: data, synced: bytes.Clone(data), dir: ino.dir}
			}
			full := path.Join(dir, name)
			after.names.set(full, copies[ino])
			after.durable.set(full, copies[ino])
			if ino.dir {
				restore(full)
			}
		}
	}
	restore(".")
	return after
}

// tear mixes the synced content with what was written since, sector by sector, at a random length.
func (ino *memInode) tear(rng *rand.Rand) []byte {
	const sector = 512
	size := len(ino.synced)
	if more := len(ino.data) - size; more > 0 {
		size += rng.IntN(more + 1)
	}
	out := make([]byte, size)
	copy(out, ino.synced)
	for at := 0; at < size; at += sector {
		end := min(at+sector, size, len(ino.data))
		if at < end && rng.IntN(2) == 0 {
			copy(out[at:end], ino.data[at:end])
		}
	}
	return out
}

type memFile struct {
	d    *memDisk
	ino  *memInode
	name string
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if len(p) == 0 {
		return 0, nil // as os.File does, at the end too
	}
	if off >= int64(len(f.ino.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.ino.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	kind := f.d.check("write", f.name)
	n, err := len(p), error(nil)
	switch kind {
	case faultBefore:
		return 0, errIO
	case faultFullBefore:
		return 0, errFull
	case faultHalf:
		n, err = n/2, errIO
	case faultFullHalf:
		n, err = n/2, errFull
	case faultAfter:
		err = errIO
	}
	if grow := off + int64(n) - int64(len(f.ino.data)); grow > 0 {
		f.ino.data = append(f.ino.data, make([]byte, grow)...)
	}
	copy(f.ino.data[off:], p[:n])
	return n, err
}

func (f *memFile) WriteVec(bufs [][]byte, off int64) error {
	return writeEach(f, [][]byte{bytes.Join(bufs, nil)}, off)
}

func (f *memFile) Truncate(size int64) error {
	return f.d.change("truncate", f.name, func() error {
		f.ino.data = f.ino.data[:min(size, int64(len(f.ino.data)))]
		return nil
	})
}

func (f *memFile) Sync() error {
	return f.d.change("sync", f.name, func() error {
		f.ino.synced = bytes.Clone(f.ino.data)
		return nil
	})
}

func (f *memFile) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.ino.data)), nil
}

func (f *memFile) Close() error { return nil }

// edit changes a stored file behind the store's back.
func (d *memDisk) edit(t testing.TB, part string, change func(b []byte) []byte) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	found := 0
	for dir, names := range d.names {
		for name, ino := range names {
			if !ino.dir && strings.Contains(dir+"/"+name, part) {
				ino.data = change(bytes.Clone(ino.data))
				found++
			}
		}
	}
	if found != 1 {
		t.Fatalf("%d files match %q, want 1", found, part)
	}
}

func (d *memDisk) count(prefix string) int {
	names, err := d.ReadDir(prefix)
	if err != nil {
		return 0
	}
	return len(names)
}
