// Package memblob keeps objects in memory: the object store of tests and of the simulator.
//
// Vocabulary: as in package blob; a reporter is the test that uses the store.
//
// Invariants: those of package blob, durability apart. Beyond them the store watches its callers: a
// key that is put again with other bytes, or put again after a delete, breaks the rule that objects
// are immutable, and the store reports it to the test. A repeated put of the same bytes is a retry
// and is only refused.
//
// Non-goals: durability, and speed with very many objects (a listing sorts all keys).
package memblob

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Reporter is the part of testing.TB that the store needs.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// Options are the optional arguments of New.
type Options struct {
	// IDs chooses the keys of Create; nil means random ones.
	IDs *queue.IDs
	// MaxBytes is the room for the bytes of all objects; a write past it is Full. 0 means no
	// limit.
	MaxBytes int64
}

// Store implements blob.Store. Safe for concurrent use.
type Store struct {
	report Reporter
	clock  queue.Clock
	ids    *queue.IDs
	room   int64

	mu      sync.RWMutex // guards all below
	objects map[string]object
	deleted map[string]struct{}
	bytes   int64
}

// object is immutable once it is in the map, so a reader needs the lock only to find it.
type object struct {
	data []byte
	info blob.Info
}

var _ blob.Store = (*Store)(nil)

// New makes an empty store. report may be nil: then nothing is reported, as a test needs that
// breaks the rules on purpose.
func New(report Reporter, clock queue.Clock, opts Options) *Store {
	if opts.IDs == nil {
		opts.IDs = queue.NewIDs(nil)
	}
	return &Store{
		report: report, clock: clock, ids: opts.IDs, room: opts.MaxBytes,
		objects: map[string]object{}, deleted: map[string]struct{}{},
	}
}

// Create implements blob.Store.
func (s *Store) Create(ctx context.Context, prefix string, data []byte) (string, error) {
	if err := blob.ValidatePrefix("prefix", prefix); err != nil {
		return "", err
	}
	if err := (blob.Terms{Size: int64(len(data))}).Validate(); err != nil {
		return "", err
	}
	key := prefix + s.ids.ID()
	if err := blob.Canceled(ctx, "create object", key); err != nil {
		return "", err
	}
	_, err := s.add(key, bytes.Clone(data), blob.CRC32C(data))
	return key, err
}

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, terms blob.Terms) (blob.Info, error) {
	if err := blob.ValidateKey("key", key); err != nil {
		return blob.Info{}, err
	}
	if err := terms.Validate(); err != nil {
		return blob.Info{}, err
	}
	intake := blob.NewIntake(ctx, key, r, terms)
	data, err := io.ReadAll(intake)
	if err != nil {
		return blob.Info{}, err
	}
	return s.add(key, data, intake.Sum())
}

func (s *Store) add(key string, data []byte, sum uint32) (blob.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.objects[key]; ok {
		if !bytes.Equal(old.data, data) {
			s.complain("object %q is written again with other bytes", key)
		}
		return blob.Info{}, blob.Exists(key)
	}
	if _, ok := s.deleted[key]; ok {
		s.complain("object %q is written again after its deletion", key)
	}
	if s.room > 0 && s.bytes+int64(len(data)) > s.room {
		return blob.Info{}, &queue.Error{Op: "put object", Subject: key, Kind: queue.KindFull}
	}
	info := blob.Info{Key: key, Size: int64(len(data)), CRC32C: sum, Modified: s.clock.Millis().Time()}
	s.objects[key] = object{data, info}
	s.bytes += info.Size
	return info, nil
}

func (s *Store) complain(format string, args ...any) {
	if s.report != nil {
		s.report.Helper()
		s.report.Errorf("memblob: "+format, args...)
	}
}

func (s *Store) find(ctx context.Context, op, key string) (object, error) {
	if err := blob.ValidateKey("key", key); err != nil {
		return object{}, err
	}
	if err := blob.Canceled(ctx, op, key); err != nil {
		return object{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[key]
	if !ok {
		return object{}, blob.NotFound(op, key)
	}
	return o, nil
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string, span blob.Span, dst []byte) ([]byte, error) {
	o, err := s.find(ctx, "get object", key)
	if err != nil {
		return dst, err
	}
	span, err = span.Resolve(o.info.Size)
	if err != nil {
		return dst, err
	}
	return append(dst, o.data[span.Pos:span.Pos+span.Len]...), nil
}

// Open implements blob.Store.
func (s *Store) Open(ctx context.Context, key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	o, err := s.find(ctx, "open object", key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	span, err = span.Resolve(o.info.Size)
	if err != nil {
		return nil, blob.Info{}, err
	}
	return io.NopCloser(bytes.NewReader(o.data[span.Pos : span.Pos+span.Len])), o.info, nil
}

// Head implements blob.Store.
func (s *Store) Head(ctx context.Context, key string) (blob.Info, error) {
	o, err := s.find(ctx, "head object", key)
	return o.info, err
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (blob.Page, error) {
	if err := blob.ValidateLimit(limit); err != nil {
		return blob.Page{}, err
	}
	if err := blob.Canceled(ctx, "list objects", prefix); err != nil {
		return blob.Page{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var keys []string
	for key := range s.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	page := blob.Page{More: len(keys) > limit}
	for _, key := range keys[:min(limit, len(keys))] {
		page.Objects = append(page.Objects, s.objects[key].info)
	}
	return page, nil
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := blob.ValidateKey("key", key); err != nil {
			return err
		}
	}
	if err := blob.Canceled(ctx, "delete objects", ""); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if o, ok := s.objects[key]; ok {
			s.bytes -= o.info.Size
			delete(s.objects, key)
			s.deleted[key] = struct{}{}
		}
	}
	return nil
}
