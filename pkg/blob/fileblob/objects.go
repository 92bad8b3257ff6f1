package fileblob

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	footerMagic = "SPLWOBJ1"
	footerBytes = 48
	copyBytes   = 128 << 10

	nameSuffix = ".obj"
	// hashedMark begins the names of keys that are too long for a file name; "k" begins others.
	hashedMark   = "h"
	plainMark    = "k"
	maxNameBytes = 200
)

// objectName is the file of key: a folder by hash, so that folders stay small, and the key with what
// file systems mistake for something else replaced: "/" is "+", and "A" is "^a", since some ignore
// case. A key that gets too long for a name is named by its hash; the footer has it in full.
func objectName(key string) (shard byte, name string) {
	sum := sha256.Sum256([]byte(key))
	var b strings.Builder
	b.WriteString(plainMark)
	for i := range len(key) {
		switch c := key[i]; {
		case c == '/':
			b.WriteByte('+')
		case c >= 'A' && c <= 'Z':
			b.WriteByte('^')
			b.WriteByte(c - 'A' + 'a')
		default:
			b.WriteByte(c)
		}
	}
	name = b.String()
	if len(name) > maxNameBytes {
		name = hashedMark + hex.EncodeToString(sum[:])
	}
	return sum[0], shardDir(sum[0]) + "/" + name + nameSuffix
}

func shardDir(shard byte) string { return fmt.Sprintf("%s/%02x", objectsDir, shard) }

// keyOfName is the inverse of objectName for a name without folder; hashed names and strangers give
// "" and hashed tells them apart.
func keyOfName(name string) (key string, hashed bool) {
	body, ok := strings.CutSuffix(name, nameSuffix)
	if !ok || body == "" {
		return "", false
	}
	if strings.HasPrefix(body, hashedMark) {
		return "", true
	}
	var b strings.Builder
	for i := len(plainMark); i < len(body); i++ {
		switch c := body[i]; {
		case c == '+':
			b.WriteByte('/')
		case c == '^' && i+1 < len(body):
			i++
			b.WriteByte(body[i] - 'a' + 'A')
		default:
			b.WriteByte(c)
		}
	}
	key = b.String()
	// Only names that the store itself gives count: this drops every stranger.
	if _, own := objectName(key); !strings.HasSuffix(own, "/"+name) || blob.ValidateKey("key", key) != nil {
		return "", false
	}
	return key, false
}

// encodeFooter renders what follows the bytes of an object in its file: the key and the footer.
func encodeFooter(info blob.Info) []byte {
	b := make([]byte, len(info.Key)+footerBytes)
	copy(b, info.Key)
	f := b[len(info.Key):]
	copy(f, footerMagic)
	binary.LittleEndian.PutUint64(f[8:], uint64(info.Size)) // #nosec G115 -- not negative
	binary.LittleEndian.PutUint32(f[16:], info.CRC32C)
	binary.LittleEndian.PutUint32(f[20:], uint32(len(info.Key)))                 // #nosec G115 -- at most MaxKeyBytes
	binary.LittleEndian.PutUint64(f[24:], uint64(queue.MillisOf(info.Modified))) // #nosec G115 -- not negative
	binary.LittleEndian.PutUint32(f[footerBytes-4:], blob.CRC32C(b[:len(b)-4]))
	return b
}

// decodeFooter reads the last bytes of a file of fileSize bytes; tail may be longer than needed.
func decodeFooter(tail []byte, fileSize int64) (blob.Info, bool) {
	if len(tail) < footerBytes {
		return blob.Info{}, false
	}
	f := tail[len(tail)-footerBytes:]
	keyLen := int64(binary.LittleEndian.Uint32(f[20:]))
	if string(f[:8]) != footerMagic || keyLen > blob.MaxKeyBytes || keyLen+footerBytes > int64(len(tail)) {
		return blob.Info{}, false
	}
	b := tail[int64(len(tail))-footerBytes-keyLen:]
	if blob.CRC32C(b[:len(b)-4]) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return blob.Info{}, false
	}
	info := blob.Info{
		Key:      string(b[:keyLen]),
		Size:     int64(binary.LittleEndian.Uint64(f[8:])), // #nosec G115 -- compared below
		CRC32C:   binary.LittleEndian.Uint32(f[16:]),
		Modified: queue.Millis(binary.LittleEndian.Uint64(f[24:])).Time(), // #nosec G115 -- any value is a time
	}
	return info, info.Size >= 0 && info.Size == fileSize-keyLen-footerBytes
}

// putFile stores an object in a file of its own. It is written and synced under a name in tmp and
// then linked to its own name, which fails if that is taken: of many puts exactly one wins, and no
// reader sees a part.
func (s *Store) putFile(ctx context.Context, key string, r io.Reader, terms blob.Terms) (blob.Info, error) {
	shard, name := objectName(key)
	// A look before saves reading gigabytes for nothing; the link decides.
	if info, err := s.headFile(key); err == nil {
		return blob.Info{}, s.exists(info.Key, shard)
	}
	tmp := tmpDir + "/" + s.opts.IDs.ID()
	f, err := s.disk.Open(tmp, true)
	if err != nil {
		return blob.Info{}, ioError("put object", key, err)
	}
	info, err := s.fill(ctx, f, key, r, terms)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = ioError("put object", key, closeErr)
	}
	if err == nil {
		err = s.publish(tmp, key, shard, name)
	}
	// What cannot be removed now is removed by the next Open.
	_ = s.disk.Remove(tmp)
	if err != nil {
		return blob.Info{}, err
	}
	return info, nil
}

// fill writes and syncs the whole file. Nothing is visible yet, so no error leaves a trace.
func (s *Store) fill(ctx context.Context, f file, key string, r io.Reader, terms blob.Terms) (blob.Info, error) {
	intake := blob.NewIntake(ctx, key, r, terms)
	w := &offsetWriter{f: f}
	// The wrapper hides nothing but ReaderFrom and WriterTo, which would bring buffers of their own.
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{intake}, make([]byte, copyBytes))
	s.written.Add(w.off)
	if intake.Err() != nil {
		return blob.Info{}, intake.Err()
	}
	if err != nil {
		return blob.Info{}, ioError("put object", key, err)
	}
	info := blob.Info{Key: key, Size: terms.Size, CRC32C: intake.Sum(), Modified: s.clock.Millis().Time()}
	footer := encodeFooter(info)
	if _, err = f.WriteAt(footer, w.off); err != nil {
		return blob.Info{}, ioError("put object", key, err)
	}
	s.written.Add(int64(len(footer)))
	if err = s.sync(f); err != nil {
		return blob.Info{}, ioError("put object", key, err)
	}
	return info, blob.Canceled(ctx, "put object", key)
}

type offsetWriter struct {
	f   file
	off int64
}

func (w *offsetWriter) Write(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.off)
	w.off += int64(n)
	return n, err
}

func (s *Store) publish(tmp, key string, shard byte, name string) error {
	if err := s.ensureShard(shard); err != nil {
		return ioError("put object", key, err)
	}
	err := s.disk.Link(tmp, name)
	if errors.Is(err, fs.ErrExist) {
		return s.exists(key, shard)
	}
	if err != nil {
		return ioError("put object", key, err)
	}
	if err = s.syncDir(shardDir(shard)); err != nil {
		return unknownOutcome("put object", key, err)
	}
	return nil
}

// exists answers a put to a taken key. The winner may still be syncing the name; a caller who takes
// Exists for "it is stored" must be right, so the name is synced here as well.
func (s *Store) exists(key string, shard byte) error {
	if err := s.syncDir(shardDir(shard)); err != nil {
		return ioError("put object", key, err)
	}
	return blob.Exists(key)
}

func (s *Store) ensureShard(shard byte) error {
	if s.shards[shard].Load() {
		return nil
	}
	if err := s.disk.Mkdir(shardDir(shard)); err != nil {
		return err
	}
	if err := s.syncDir(objectsDir); err != nil {
		return err
	}
	s.shards[shard].Store(true)
	return nil
}

// openObject opens the file of key and reads its footer; the caller closes the file.
func (s *Store) openObject(op, key string) (file, blob.Info, error) {
	_, name := objectName(key)
	f, info, err := s.openNamed(op, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, blob.Info{}, blob.NotFound(op, key)
	}
	if err != nil {
		return nil, blob.Info{}, err
	}
	if info.Key != key {
		_ = f.Close()
		return nil, blob.Info{}, corrupt(op, key, "its file belongs to another key", nil)
	}
	return f, info, nil
}

func (s *Store) openNamed(op, name string) (file, blob.Info, error) {
	f, err := s.disk.Open(name, false)
	if err != nil {
		return nil, blob.Info{}, ioError(op, name, err)
	}
	info, err := readFooter(f)
	if err == nil {
		return f, info, nil
	}
	_ = f.Close()
	return nil, blob.Info{}, readError(op, name, err)
}

func readFooter(f file) (blob.Info, error) {
	size, err := f.Size()
	if err != nil {
		return blob.Info{}, err
	}
	tail := make([]byte, min(size, blob.MaxKeyBytes+footerBytes))
	if _, err = f.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return blob.Info{}, err
	}
	info, ok := decodeFooter(tail, size)
	if !ok {
		// readError takes it for what it is: a file that is not whole.
		return blob.Info{}, io.ErrUnexpectedEOF
	}
	return info, nil
}

func (s *Store) headFile(key string) (blob.Info, error) {
	f, info, err := s.openObject("head object", key)
	if err != nil {
		return blob.Info{}, err
	}
	_ = f.Close() // only read
	return info, nil
}

func (s *Store) getFile(key string, span blob.Span, dst []byte) ([]byte, error) {
	const op = "get object"
	f, info, err := s.openObject(op, key)
	if err != nil {
		return dst, err
	}
	defer f.Close() //nolint:errcheck // only read
	if span, err = span.Resolve(info.Size); err != nil {
		return dst, err
	}
	out := slices.Grow(dst, int(span.Len))[:len(dst)+int(span.Len)]
	part := out[len(dst):]
	if _, err = f.ReadAt(part, span.Pos); err != nil {
		return dst, readError(op, key, err)
	}
	if span.Len == info.Size && blob.CRC32C(part) != info.CRC32C {
		return dst, corrupt(op, key, "its bytes differ from its checksum", nil)
	}
	return out, nil
}

func (s *Store) openFile(key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	f, info, err := s.openObject("open object", key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	span, err = span.Resolve(info.Size)
	if err != nil {
		_ = f.Close() // only read
		return nil, blob.Info{}, err
	}
	r := &objectReader{f: f, info: info, pos: span.Pos, end: span.Pos + span.Len}
	if span.Len == info.Size {
		r.sum = blob.NewCRC32C()
	}
	return r, info, nil
}

// objectReader reads a span of an object file. The open file outlives its name, so a delete does not
// break it off.
type objectReader struct {
	f        file
	info     blob.Info
	pos, end int64
	sum      hash.Hash32 // nil for a part, whose checksum is not known
}

func (r *objectReader) Read(p []byte) (int, error) {
	if r.pos >= r.end {
		if r.sum != nil && r.sum.Sum32() != r.info.CRC32C {
			return 0, corrupt("read object", r.info.Key, "its bytes differ from its checksum", nil)
		}
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.end-r.pos)]
	n, err := r.f.ReadAt(p, r.pos)
	r.pos += int64(n)
	if r.sum != nil {
		_, _ = r.sum.Write(p[:n]) // a hash never fails
	}
	if err != nil {
		return n, readError("read object", r.info.Key, err)
	}
	return n, nil
}

func (r *objectReader) Close() error { return r.f.Close() }

func (s *Store) deleteFiles(keys []string) error {
	const op = "delete objects"
	var dirty [256]bool
	for _, key := range keys {
		shard, name := objectName(key)
		err := s.disk.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return ioError(op, key, err)
		}
		// Also if it was gone: another delete may have removed it and not synced yet.
		dirty[shard] = true
	}
	for shard, isDirty := range dirty {
		if !isDirty {
			continue
		}
		err := s.syncDir(shardDir(byte(shard))) // #nosec G115 -- below 256
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unknownOutcome(op, "", err)
		}
	}
	return nil
}
