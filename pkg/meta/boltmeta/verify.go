package boltmeta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// bbolt's file format, as far as it is read here (bbolt v1, integers in the machine's order):
//
//	page     id 8, flags 2, count 2, overflow 4, then count elements, then keys and values
//	meta     pages 0 and 1: magic 4, version 4, page size 4, flags 4, root page 8, sequence 8,
//	         free list 8, page count 8, transaction id 8, FNV-64a of the foregoing 8
//	branch   position (from the element) 4, key length 4, page 8
//	leaf     flags 4, position (from the element) 4, key length 4, value length 4
//	bucket   the value of a leaf element with flag 1: root page 8, sequence 8; root 0: a page follows
const (
	pageHeader  = 16
	elementSize = 16
	metaSize    = 64
	metaMagic   = 0xED0CDAED

	flagBranch   = 1
	flagLeaf     = 2
	flagFreelist = 16
	flagBucket   = 1
	noFreelist   = ^uint64(0)

	maxDepth = 64
)

// verifyFile looks a file over before bbolt maps it. bbolt finds the free pages of a file that was not
// closed in a goroutine of its own, where a damaged page would panic past every guard; so such a file
// is walked here first, by bounded reads. A file that was closed is only checked for its length and
// free list: damage elsewhere shows when it is read. Errors: KindCorrupt, or as opening files.
//
// The shared lock that bbolt takes on a file opened for reading keeps other processes from changing
// it meanwhile.
func verifyFile(path string, lockTimeout time.Duration) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var db *bolt.DB
	_, err = guarded("open store", func() error {
		var err error
		db, err = bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(verifyPages(path, db.Info().PageSize), db.Close())
}

// verifyPages needs the lock to be held: until then another process may change the file.
func verifyPages(path string, pageSize int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	v := verifier{file: f, pageSize: int64(pageSize), pages: uint64(info.Size()) / uint64(pageSize)} // #nosec G115 -- sizes
	m, err := v.newestMeta()
	if err == nil {
		err = v.verify(m)
	}
	if err != nil {
		return &queue.Error{Op: "open store", Subject: path, Kind: queue.KindCorrupt, Message: "the file is damaged", Err: err}
	}
	return nil
}

type metaPage struct{ root, freelist, pages, txid uint64 }

// parseMeta reads a meta page; not ok if it is not a valid one.
func parseMeta(page []byte) (m metaPage, ok bool) {
	if len(page) < pageHeader+metaSize {
		return m, false
	}
	b := page[pageHeader : pageHeader+metaSize]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8])
	ne := binary.NativeEndian
	if ne.Uint32(b) != metaMagic || ne.Uint64(b[metaSize-8:]) != sum.Sum64() {
		return m, false
	}
	return metaPage{root: ne.Uint64(b[16:]), freelist: ne.Uint64(b[32:]), pages: ne.Uint64(b[40:]), txid: ne.Uint64(b[48:])}, true
}

type verifier struct {
	file     io.ReaderAt
	pageSize int64
	pages    uint64 // that the file is long
	limit    uint64 // that are in use
	seen     []uint64
}

func (v *verifier) newestMeta() (newest metaPage, err error) {
	found := false
	for i := range int64(2) {
		page := make([]byte, v.pageSize)
		if _, err := v.file.ReadAt(page, i*v.pageSize); err != nil {
			return newest, err
		}
		if m, ok := parseMeta(page); ok && (!found || m.txid > newest.txid) {
			newest, found = m, true
		}
	}
	if !found {
		return newest, errors.New("no meta page is valid")
	}
	return newest, nil
}

func (v *verifier) verify(m metaPage) error {
	if m.pages > v.pages {
		return fmt.Errorf("the file holds %d pages of %d", v.pages, m.pages)
	}
	v.limit = m.pages
	v.seen = make([]uint64, v.limit/64+1)
	if m.freelist != noFreelist {
		page, err := v.read(m.freelist)
		if err != nil {
			return err
		}
		return v.freelist(page)
	}
	_, err := v.tree(m.root, nil, nil, 0)
	return err
}

// read gives a page with what overflows it, once.
func (v *verifier) read(id uint64) ([]byte, error) {
	if id < 2 || id >= v.limit {
		return nil, fmt.Errorf("page %d is out of bounds", id)
	}
	header := make([]byte, pageHeader)
	at := int64(id) * v.pageSize // #nosec G115 -- below the file's length
	if _, err := v.file.ReadAt(header, at); err != nil {
		return nil, err
	}
	ne := binary.NativeEndian
	overflow := uint64(ne.Uint32(header[12:]))
	if ne.Uint64(header) != id || overflow >= v.limit-id {
		return nil, fmt.Errorf("page %d is not what it should be", id)
	}
	for p := id; p <= id+overflow; p++ {
		if v.seen[p/64]&(1<<(p%64)) != 0 {
			return nil, fmt.Errorf("page %d is used twice", p)
		}
		v.seen[p/64] |= 1 << (p % 64)
	}
	page := make([]byte, int64(overflow+1)*v.pageSize) // #nosec G115 -- within the file
	_, err := v.file.ReadAt(page, at)
	return page, err
}

func (v *verifier) freelist(page []byte) error {
	ne := binary.NativeEndian
	if ne.Uint16(page[8:]) != flagFreelist {
		return errors.New("the list of free pages is none")
	}
	ids, count := page[pageHeader:], uint64(ne.Uint16(page[10:]))
	if count == 0xFFFF {
		count, ids = ne.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return errors.New("the list of free pages is longer than its page")
	}
	for i := range count {
		if id := ne.Uint64(ids[8*i:]); id < 2 || id >= v.limit {
			return fmt.Errorf("free page %d is out of bounds", id)
		}
	}
	return nil
}

// tree walks the tree at page id, whose keys must be in [lo, hi), nil meaning no bound, and gives its
// greatest key.
func (v *verifier) tree(id uint64, lo, hi []byte, depth int) (last []byte, err error) {
	if depth > maxDepth {
		return nil, errors.New("the tree is too deep")
	}
	page, err := v.read(id)
	if err != nil {
		return nil, err
	}
	return v.node(page, lo, hi, depth)
}

func (v *verifier) node(page, lo, hi []byte, depth int) (last []byte, err error) {
	ne := binary.NativeEndian
	flags, count := ne.Uint16(page[8:]), int(ne.Uint16(page[10:]))
	if flags != flagBranch && flags != flagLeaf || flags == flagBranch && count == 0 {
		return nil, fmt.Errorf("page %d is neither branch nor leaf", ne.Uint64(page))
	}
	elements := make([]element, count)
	for i := range elements {
		if elements[i], err = parseElement(page, i, flags == flagLeaf); err != nil {
			return nil, err
		}
		key := elements[i].key
		if string(key) < string(lo) || hi != nil && string(key) >= string(hi) || i > 0 && string(key) <= string(last) {
			return nil, fmt.Errorf("keys of page %d are out of order", ne.Uint64(page))
		}
		last = key
	}
	for i, e := range elements {
		switch {
		case flags == flagBranch:
			bound := hi
			if i+1 < count {
				bound = elements[i+1].key
			}
			last, err = v.tree(e.page, e.key, bound, depth+1)
		case e.bucket:
			err = v.bucket(e.value, depth)
		}
		if err != nil {
			return nil, err
		}
	}
	return last, nil
}

func (v *verifier) bucket(value []byte, depth int) error {
	const header = 16
	if len(value) < header {
		return errors.New("a bucket is cut short")
	}
	var err error
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		_, err = v.tree(root, nil, nil, depth+1)
	} else if len(value) < header+pageHeader {
		err = errors.New("a bucket is cut short")
	} else {
		_, err = v.node(value[header:], nil, nil, depth+1)
	}
	return err
}

type element struct {
	key, value []byte
	page       uint64
	bucket     bool
}

func parseElement(page []byte, i int, leaf bool) (e element, err error) {
	ne := binary.NativeEndian
	start := pageHeader + i*elementSize
	if start+elementSize > len(page) {
		return e, errors.New("an element lies outside its page")
	}
	b := page[start:]
	var pos, keyLen, valueLen uint64
	if leaf {
		e.bucket = ne.Uint32(b)&flagBucket != 0
		pos, keyLen, valueLen = uint64(ne.Uint32(b[4:])), uint64(ne.Uint32(b[8:])), uint64(ne.Uint32(b[12:]))
	} else {
		pos, keyLen, e.page = uint64(ne.Uint32(b)), uint64(ne.Uint32(b[4:])), ne.Uint64(b[8:])
	}
	if keyLen == 0 || pos+keyLen+valueLen > uint64(len(b)) {
		return e, errors.New("a key or value lies outside its page")
	}
	e.key, e.value = b[pos:pos+keyLen], b[pos+keyLen:pos+keyLen+valueLen]
	return e, nil
}

// settleMeta writes the valid meta pages of a file again, as they read, and syncs them. After a failed
// fsync the system may take a page for clean that never reached the disk; writing it again makes it
// dirty, and the fsync here then speaks for it.
func settleMeta(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(rewriteMeta(f), f.Close())
}

func rewriteMeta(f *os.File) error {
	// Wherever the second meta page is, the first tells the page size, if it is valid; if not, the
	// second was, and is the older or the only one: a sync of it alone is all that is left.
	first := make([]byte, pageHeader+metaSize)
	if _, err := f.ReadAt(first, 0); err != nil {
		return err
	}
	offsets := []int64{0, int64(os.Getpagesize())}
	if _, ok := parseMeta(first); ok {
		offsets[1] = int64(binary.NativeEndian.Uint32(first[pageHeader+8:]))
	}
	for _, at := range offsets {
		page := make([]byte, pageHeader+metaSize)
		if _, err := f.ReadAt(page, at); err != nil {
			return err
		}
		if _, ok := parseMeta(page); !ok {
			continue
		}
		if _, err := f.WriteAt(page, at); err != nil {
			return err
		}
	}
	return f.Sync()
}
