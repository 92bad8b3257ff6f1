package fileblob

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	packsDir   = "packs"
	objectsDir = "objects"
	tmpDir     = "tmp"
	packSuffix = ".pack"

	// liveUnknown says that a pack of an earlier run has not been counted yet.
	liveUnknown = -1
)

// pack is what is kept in memory of a pack file, whatever number of entries it has.
type pack struct {
	packInfo
	// damaged packs have no readable header: their entries are Corrupt. They are never removed.
	damaged bool
	// limit is the end of what may be shown: the last good sync, or the size found at Open.
	limit atomic.Int64
	// doubtful packs had a failed sync and take no more entries.
	doubtful atomic.Bool

	mu     sync.Mutex // guards what follows, and that a live entry is counted off once
	live   int64      // entries not deleted, or liveUnknown
	sealed bool
	gone   bool
}

func packName(seq uint32) string { return fmt.Sprintf("%s/%08x%s", packsDir, seq, packSuffix) }

func (p *pack) name() string { return packName(p.seq) }

func (p *pack) commit(end, entries int64) {
	p.mu.Lock()
	p.live += entries
	p.mu.Unlock()
	p.limit.Store(end)
}

// load reads the folder at Open.
func (s *Store) load() error {
	for _, dir := range []string{packsDir, objectsDir, tmpDir} {
		if err := s.disk.Mkdir(dir); err != nil {
			return ioError("make folder", dir, err)
		}
	}
	if err := s.syncDir("."); err != nil {
		return ioError("make folder", s.dir, err)
	}
	stale, err := s.disk.ReadDir(tmpDir)
	if err != nil {
		return ioError("read folder", tmpDir, err)
	}
	for _, name := range stale {
		if err = s.disk.Remove(tmpDir + "/" + name); err != nil {
			return ioError("remove stale upload", name, err)
		}
	}
	if err := s.loadShards(); err != nil {
		return err
	}
	names, err := s.disk.ReadDir(packsDir)
	if err != nil {
		return ioError("read folder", packsDir, err)
	}
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, packSuffix)
		seq, hex := parseHex(digits)
		if !ok || !hex || len(digits) != 8 {
			continue
		}
		if err := s.loadPack(uint32(seq)); err != nil { // #nosec G115 -- 8 digits
			return err
		}
	}
	return nil
}

// loadShards syncs the names of object files, for the reason that loadPack gives.
func (s *Store) loadShards() error {
	names, err := s.disk.ReadDir(objectsDir)
	if err != nil {
		return ioError("read folder", objectsDir, err)
	}
	if err = s.syncDir(objectsDir); err != nil {
		return ioError("sync folder", objectsDir, err)
	}
	for _, name := range names {
		shard, ok := parseHex(name)
		if !ok || len(name) != 2 {
			continue
		}
		if err = s.syncDir(shardDir(byte(shard))); err != nil { // #nosec G115 -- two digits
			return ioError("sync folder", name, err)
		}
		s.shards[shard].Store(true)
	}
	return nil
}

func (s *Store) loadPack(seq uint32) error {
	s.lastSeq = max(s.lastSeq, seq)
	p := &pack{packInfo: packInfo{seq: seq}, live: liveUnknown, sealed: true}
	f, err := s.disk.Open(p.name(), false)
	if err != nil {
		return ioError("open pack", p.name(), err)
	}
	// A killed process may have left entries that are in the system's memory only. What is shown
	// from now on must not vanish with the power.
	err = s.sync(f)
	var size int64
	if err == nil {
		size, err = f.Size()
	}
	header := make([]byte, min(size, packHeader))
	if err == nil {
		_, err = f.ReadAt(header, 0)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil && !short(err) {
		return ioError("read pack", p.name(), err)
	}
	if size <= packHeader {
		// It was made and never got an entry.
		if err = s.disk.Remove(p.name()); err != nil {
			return ioError("remove empty pack", p.name(), err)
		}
		return nil
	}
	info, ok := decodePack(header)
	if ok && info.seq == seq {
		p.packInfo = info
	} else {
		p.damaged = true
	}
	p.limit.Store(size)
	s.packs[seq] = p
	return nil
}

// newPack chooses the number and the salt of a new pack. A number may come back after a restart if
// the highest packs were removed; salt and nonces still tell their keys apart.
func (s *Store) newPack(prefix string) *pack {
	p := &pack{}
	p.prefix, p.created = prefix, s.clock.Millis()
	a, b := s.opts.IDs.Nonce(), s.opts.IDs.Nonce()
	copy(p.salt[:], a[:])
	copy(p.salt[len(a):], b[:])
	p.limit.Store(packHeader)
	s.mu.Lock()
	s.lastSeq++
	p.seq = s.lastSeq
	s.mu.Unlock()
	return p
}

func (s *Store) addPack(p *pack) {
	s.mu.Lock()
	s.packs[p.seq] = p
	s.mu.Unlock()
}

func (s *Store) pack(seq uint32) *pack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.packs[seq]
}

// packsUnder gives the sound packs that may hold keys with prefix, in key order.
func (s *Store) packsUnder(prefix string) []*pack {
	s.mu.Lock()
	var out []*pack
	for _, p := range s.packs {
		if !p.damaged && (strings.HasPrefix(p.prefix, prefix) || strings.HasPrefix(prefix, p.prefix)) {
			out = append(out, p)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b *pack) int {
		if c := strings.Compare(a.prefix, b.prefix); c != 0 {
			return c
		}
		return int(int64(a.seq) - int64(b.seq))
	})
	return out
}

// seal marks a pack full and removes it if all its entries were deleted meanwhile.
func (s *Store) seal(p *pack) {
	p.mu.Lock()
	p.sealed = true
	p.mu.Unlock()
	s.reclaim(p)
}

// reclaim removes a sealed pack without live entries. Its deletions are durable by then, or were
// asked for, so the file's return after a crash does no harm, nor does a failure here: the next
// deletion or listing tries again.
func (s *Store) reclaim(p *pack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sealed || p.live != 0 || p.gone {
		return
	}
	s.handles.drop(p.seq)
	if err := s.disk.Remove(p.name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	p.gone = true
	s.mu.Lock()
	delete(s.packs, p.seq)
	s.mu.Unlock()
}

// locate finds the entry that loc means. The handle is the caller's to release, also if the entry is
// deleted; on error there is none.
func (s *Store) locate(op, key string, loc location) (*pack, *handle, entry, error) {
	p := s.pack(loc.seq)
	switch {
	case p == nil:
		return nil, nil, entry{}, blob.NotFound(op, key)
	case p.damaged:
		return nil, nil, entry{}, corrupt(op, key, "the header of its pack is damaged", nil)
	case p.prefix != loc.prefix, !loc.genuine(&p.salt):
		return nil, nil, entry{}, blob.NotFound(op, key)
	}
	if loc.pos+stride(loc.size) > p.limit.Load() {
		// The key is real, so its create was answered: the end of the file is lost.
		return nil, nil, entry{}, corrupt(op, key, "its pack is shorter than when it was written", nil)
	}
	h, err := s.handles.acquire(p.seq)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, entry{}, blob.NotFound(op, key) // removed since the look at the map
	}
	if err != nil {
		return nil, nil, entry{}, ioError(op, key, err)
	}
	var header [entryHeader]byte
	if _, err = h.f.ReadAt(header[:], loc.pos); err != nil {
		h.release()
		return nil, nil, entry{}, readError(op, key, err)
	}
	e, ok := decodeEntry(header[:], loc.pos, &p.salt)
	if !ok || e.nonce != loc.nonce || e.size != loc.size {
		h.release()
		return nil, nil, entry{}, corrupt(op, key, "the header of its entry is damaged", nil)
	}
	return p, h, e, nil
}

func readError(op, key string, err error) error {
	if short(err) {
		return corrupt(op, key, "its file is shorter than when it was written", err)
	}
	return ioError(op, key, err)
}

func (e *entry) info(key string) blob.Info {
	return blob.Info{Key: key, Size: e.size, CRC32C: e.sum, Modified: e.created.Time()}
}

func (s *Store) headPacked(key string, loc location) (blob.Info, error) {
	_, h, e, err := s.locate("head object", key, loc)
	if err != nil {
		return blob.Info{}, err
	}
	h.release()
	if e.deleted {
		return blob.Info{}, blob.NotFound("head object", key)
	}
	return e.info(key), nil
}

// getPacked appends the span's bytes to dst. The bytes of an entry stay in place when it is deleted
// and the handle keeps a removed pack readable, so what is read after the look at the state byte is
// the whole object in any case.
func (s *Store) getPacked(key string, loc location, span blob.Span, dst []byte) ([]byte, blob.Info, error) {
	const op = "get object"
	_, h, e, err := s.locate(op, key, loc)
	if err != nil {
		return dst, blob.Info{}, err
	}
	defer h.release()
	if e.deleted {
		return dst, blob.Info{}, blob.NotFound(op, key)
	}
	span, err = span.Resolve(e.size)
	if err != nil {
		return dst, blob.Info{}, err
	}
	out := slices.Grow(dst, int(span.Len))[:len(dst)+int(span.Len)]
	part := out[len(dst):]
	if _, err = h.f.ReadAt(part, e.pos+entryHeader+span.Pos); err != nil {
		return dst, blob.Info{}, readError(op, key, err)
	}
	if span.Len == e.size && blob.CRC32C(part) != e.sum {
		return dst, blob.Info{}, corrupt(op, key, "its bytes differ from its checksum", nil)
	}
	return out, e.info(key), nil
}

// deletePacked marks entries of one pack deleted, in place, and syncs once.
func (s *Store) deletePacked(seq uint32, locs []location) error {
	const op = "delete objects"
	p := s.pack(seq)
	if p == nil {
		return nil
	}
	h, err := s.handles.acquire(seq)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return ioError(op, packName(seq), err)
	}
	defer h.release()
	marked, err := s.mark(p, h, locs)
	if marked {
		if syncErr := s.sync(h.f); syncErr != nil {
			p.doubtful.Store(true)
			return unknownOutcome(op, p.name(), errors.Join(err, syncErr))
		}
	}
	if err != nil {
		return err
	}
	s.reclaim(p)
	return nil
}

// mark writes the state bytes. It writes that of an entry that is deleted already, too: the sync of
// the first deletion may not have ended or may have failed, and a sync covers only what was written
// since.
func (s *Store) mark(p *pack, h *handle, locs []location) (marked bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == liveUnknown && !p.damaged {
		if p.live, err = s.countLive(p, h); err != nil {
			p.live = liveUnknown
			return false, err
		}
	}
	for _, loc := range locs {
		key := loc.String()
		_, eh, e, err := s.locate("delete objects", key, loc)
		if queue.Is(err, queue.KindNotFound) || queue.Is(err, queue.KindCorrupt) {
			continue // nothing that could be read is there
		}
		if err != nil {
			return marked, err
		}
		eh.release()
		if _, err = h.f.WriteAt([]byte{stateDeleted}, e.pos+stateAt); err != nil {
			return marked, ioError("delete objects", key, err)
		}
		marked = true
		s.written.Add(1)
		if !e.deleted {
			p.live--
		}
	}
	return marked, nil
}
