// Package fileblob keeps objects in local files, durably: the object store of the local server.
//
// Vocabulary: a pack is an append-only file that holds many small objects of one key prefix; an
// entry is one object in a pack, a header and its bytes; a lane is the writer of one prefix and its
// open pack; a group is the creates that share one write and one sync; an object file holds one
// large or named object and ends in a footer.
//
// Layout of the folder (docs/FORMAT.md, "Local object files"):
//
//	LOCK                  locked by the process that uses the folder
//	packs/<seq>.pack      small objects from Create
//	objects/<hh>/<name>   large objects from Create, and all from Put
//	tmp/                  uploads under way; emptied by Open
//
// Invariants:
//   - A create is answered after its bytes were synced; creates that arrive during a sync wait for
//     it and then share the next one. No timer is involved.
//   - There is no index: the key of a packed object says where it is, and the entry's header has to
//     confirm it. A key that was invented is NotFound, whatever bytes it points at.
//   - Entries past the last sync are not shown to anyone. After a failed sync a pack takes no more
//     entries and shows none past its last good sync: the system may have dropped the pages.
//   - A pack is never appended to after a restart, so a torn end harms no entry but its own.
//   - Whole reads verify the checksum. Reads of a span verify the entry's header or the footer only:
//     what is read by span are batches, which carry checksums of their own.
//
// Non-goals: use by two processes (the second gets an error), reclaiming the room of deleted entries
// before their pack is empty, encryption.
package fileblob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// defaultPackBytes bounds a pack; a position must fit eight hexadecimal digits.
	defaultPackBytes = 256 << 20
	minPackBytes     = 64 << 10
	maxPackBytes     = 1 << 30
	// defaultSmallBytes is the size up to which an object goes to a pack. An object file costs
	// two syncs and four changes of names, which are noise beside the bytes only above it.
	defaultSmallBytes = 1 << 20
	maxSmallBytes     = 8 << 20
	// maxLanes bounds the packs open for writing. Prefixes are few; what is past the bound
	// still works, as object files.
	maxLanes = 64
	// maxHandles bounds the packs that are kept open for reading.
	maxHandles = 64
)

// Options are the optional arguments of Open.
type Options struct {
	// IDs makes nonces and salts; nil means random ones. Two stores must not be given equal ones.
	IDs *queue.IDs
	// PackBytes is the size at which a pack is full: 64 KiB to 1 GiB; 0 means 256 MiB.
	PackBytes int64
	// SmallBytes is the size up to which an object goes to a pack: 1 to 8 MiB; 0 means 1 MiB.
	SmallBytes int64

	// disk replaces the folder in tests.
	disk disk
}

func (o Options) withDefaults() (Options, error) {
	if o.IDs == nil {
		o.IDs = queue.NewIDs(nil)
	}
	if o.PackBytes == 0 {
		o.PackBytes = defaultPackBytes
	}
	if o.SmallBytes == 0 {
		o.SmallBytes = min(defaultSmallBytes, o.PackBytes/2)
	}
	if o.PackBytes < minPackBytes || o.PackBytes > maxPackBytes {
		return o, queue.Invalid("pack_bytes", maxPackBytes, "must be %d to %d", minPackBytes, maxPackBytes)
	}
	if limit := min(maxSmallBytes, o.PackBytes/2); o.SmallBytes < 1 || o.SmallBytes > limit {
		return o, queue.Invalid("small_bytes", limit, "must be 1 to %d", limit)
	}
	return o, nil
}

// Stats are figures for metrics, counted since Open but for Packs.
type Stats struct {
	BytesWritten int64 // bytes handed to the file system, headers included
	Fsyncs       int64 // syncs of files and folders
	Packs        int   // packs in the folder now
	OpenPacks    int   // packs held open for reading now
}

// Store implements blob.Store on a folder. Safe for concurrent use.
type Store struct {
	dir   string
	disk  disk
	clock queue.Clock
	opts  Options
	lock  *os.File

	written atomic.Int64
	fsyncs  atomic.Int64
	// shards remembers which folders of object files are known to exist durably.
	shards  [256]atomic.Bool
	handles *handles

	mu      sync.Mutex // guards all below; never held during a file operation
	packs   map[uint32]*pack
	lanes   map[string]*lane
	lastSeq uint32
	closed  bool
	writers sync.WaitGroup
}

var _ blob.Store = (*Store)(nil)

// Open opens the folder dir, making it if it does not exist, and removes what a crash left in tmp.
// Unavailable if another process uses the folder or it cannot be written. The caller must Close.
func Open(dir string, clock queue.Clock, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, disk: opts.disk, clock: clock, opts: opts,
		packs: map[uint32]*pack{}, lanes: map[string]*lane{},
	}
	if s.disk == nil {
		if err := makeFolder(dir); err != nil {
			return nil, err
		}
		if s.lock, err = acquireLock(dir); err != nil {
			return nil, err
		}
		s.disk = osDisk{dir}
	}
	s.handles = newHandles(s.disk, maxHandles)
	if err = s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// makeFolder makes dir and its missing parents, and makes their names durable.
func makeFolder(dir string) error {
	_, err := os.Stat(dir)
	if err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err = os.Mkdir(dir, dirPerm); err != nil && !errors.Is(err, os.ErrExist) {
		return ioError("make object folder", dir, err)
	}
	if err = syncDir(parent); err != nil {
		return ioError("make object folder", dir, err)
	}
	return nil
}

// Close waits for the writes under way and gives the folder free. Later calls are Unavailable.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.writers.Wait()
	var errs []error
	for _, l := range s.lanes {
		errs = append(errs, l.close())
	}
	errs = append(errs, s.handles.close())
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return ioError("close object folder", s.dir, err)
	}
	return nil
}

// begin lets a call in, unless the store is closed or ctx has ended; the caller must call done.
func (s *Store) begin(ctx context.Context, op, key string) (done func(), err error) {
	if err := blob.Canceled(ctx, op, key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, &queue.Error{Op: op, Subject: key, Kind: queue.KindUnavailable, Message: "the store is closed"}
	}
	s.writers.Add(1)
	return s.writers.Done, nil
}

// Stats gives figures for metrics.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	packs := len(s.packs)
	s.mu.Unlock()
	return Stats{s.written.Load(), s.fsyncs.Load(), packs, s.handles.count()}
}

// Create implements blob.Store. Objects of at most Options.SmallBytes share packs and syncs. Full
// and Unavailable mean that nothing was stored; OutcomeUnknown that an object may be there whose key
// nobody knows, which is garbage to be found by List.
func (s *Store) Create(ctx context.Context, prefix string, data []byte) (string, error) {
	if err := blob.ValidatePrefix("prefix", prefix); err != nil {
		return "", err
	}
	size := int64(len(data))
	if err := (blob.Terms{Size: size}).Validate(); err != nil {
		return "", err
	}
	done, err := s.begin(ctx, "create object", prefix)
	if err != nil {
		return "", err
	}
	defer done()
	if size <= s.opts.SmallBytes {
		if l := s.lane(prefix); l != nil {
			return l.create(ctx, data)
		}
	}
	key := prefix + "o" + s.opts.IDs.ID()
	terms := blob.Terms{Size: size, CRC32C: blob.CRC32C(data), HasCRC32C: true}
	_, err = s.putFile(ctx, key, bytes.NewReader(data), terms)
	return key, err
}

// lane finds or makes the lane of prefix; nil if there are too many.
func (s *Store) lane(prefix string) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.lanes[prefix]
	if !ok && len(s.lanes) < maxLanes {
		l = &lane{s: s, prefix: prefix}
		s.lanes[prefix] = l
	}
	return l
}

// Put implements blob.Store. A key of the form that Create gives to packed objects is Invalid.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, terms blob.Terms) (blob.Info, error) {
	if err := blob.ValidateKey("key", key); err != nil {
		return blob.Info{}, err
	}
	if err := terms.Validate(); err != nil {
		return blob.Info{}, err
	}
	if _, packed := parseLocation(key); packed {
		return blob.Info{}, queue.Invalid("key", nil, "has a form that is kept for objects whose key the store chooses")
	}
	done, err := s.begin(ctx, "put object", key)
	if err != nil {
		return blob.Info{}, err
	}
	defer done()
	return s.putFile(ctx, key, r, terms)
}

// Get implements blob.Store. Corrupt if the bytes of a whole object differ from its checksum.
func (s *Store) Get(ctx context.Context, key string, span blob.Span, dst []byte) ([]byte, error) {
	if err := blob.ValidateKey("key", key); err != nil {
		return dst, err
	}
	done, err := s.begin(ctx, "get object", key)
	if err != nil {
		return dst, err
	}
	defer done()
	if loc, packed := parseLocation(key); packed {
		out, _, err := s.getPacked(key, loc, span, dst)
		return out, err
	}
	return s.getFile(key, span, dst)
}

// Open implements blob.Store. A reader of a whole object ends with Corrupt instead of io.EOF if the
// bytes differ from the checksum.
func (s *Store) Open(ctx context.Context, key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	if err := blob.ValidateKey("key", key); err != nil {
		return nil, blob.Info{}, err
	}
	done, err := s.begin(ctx, "open object", key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	defer done()
	if loc, packed := parseLocation(key); packed {
		// Small by definition, and so a delete halfway through cannot break it off.
		data, info, err := s.getPacked(key, loc, span, nil)
		if err != nil {
			return nil, blob.Info{}, err
		}
		return io.NopCloser(bytes.NewReader(data)), info, nil
	}
	return s.openFile(key, span)
}

// Head implements blob.Store.
func (s *Store) Head(ctx context.Context, key string) (blob.Info, error) {
	if err := blob.ValidateKey("key", key); err != nil {
		return blob.Info{}, err
	}
	done, err := s.begin(ctx, "head object", key)
	if err != nil {
		return blob.Info{}, err
	}
	defer done()
	if loc, packed := parseLocation(key); packed {
		return s.headPacked(key, loc)
	}
	return s.headFile(key)
}

// Delete implements blob.Store. OutcomeUnknown if a sync failed: any number of the keys may be gone.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	packed := map[uint32][]location{}
	var files []string
	for _, key := range keys {
		if err := blob.ValidateKey("key", key); err != nil {
			return err
		}
		if loc, ok := parseLocation(key); ok {
			packed[loc.seq] = append(packed[loc.seq], loc)
		} else {
			files = append(files, key)
		}
	}
	done, err := s.begin(ctx, "delete objects", "")
	if err != nil {
		return err
	}
	defer done()
	for seq, locs := range packed {
		if err := s.deletePacked(seq, locs); err != nil {
			return err
		}
	}
	return s.deleteFiles(files)
}

func (s *Store) sync(f file) error {
	s.fsyncs.Add(1)
	return f.Sync()
}

func (s *Store) syncDir(name string) error {
	s.fsyncs.Add(1)
	return s.disk.SyncDir(name)
}
