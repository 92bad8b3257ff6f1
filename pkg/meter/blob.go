package meter

import (
	"context"
	"io"

	"github.com/spillway-mq/spillway/pkg/blob"
)

// blobStore implements blob.Store.
type blobStore struct {
	m     *Meter
	inner blob.Store
}

// presigningStore is a blobStore whose inner store presigns. Making a URL is no request to the store
// and is not counted; its use is not seen.
type presigningStore struct {
	*blobStore
	blob.Presigner
}

// Blob wraps store so that m counts its calls. Errors and results are the store's own. If store is a
// blob.Presigner, so is what Blob returns.
func (m *Meter) Blob(store blob.Store) blob.Store {
	s := &blobStore{m, store}
	if p, ok := store.(blob.Presigner); ok {
		return &presigningStore{s, p}
	}
	return s
}

func (s *blobStore) count(name string, bytes int, err error) *counters {
	row := s.m.row(name)
	row.calls.Add(1)
	row.count(bytes, err)
	return row
}

func (s *blobStore) put(name string, bytes int, err error) {
	if row := s.count(name, bytes, err); charged(err) {
		row.puts.Add(1)
	}
}

func (s *blobStore) get(name string, bytes int, err error) {
	if row := s.count(name, bytes, err); charged(err) {
		row.gets.Add(1)
	}
}

// Create implements blob.Store.
func (s *blobStore) Create(ctx context.Context, prefix string, data []byte) (string, error) {
	key, err := s.inner.Create(ctx, prefix, data)
	n := len(data)
	if err != nil {
		n = 0
	}
	s.put("create object", n, err)
	return key, err
}

// Put implements blob.Store.
func (s *blobStore) Put(ctx context.Context, key string, r io.Reader, terms blob.Terms) (blob.Info, error) {
	info, err := s.inner.Put(ctx, key, r, terms)
	n := info.Size
	if err != nil {
		n = 0
	}
	s.put("put object", int(n), err)
	return info, err
}

// Get implements blob.Store.
func (s *blobStore) Get(ctx context.Context, key string, span blob.Span, dst []byte) ([]byte, error) {
	out, err := s.inner.Get(ctx, key, span, dst)
	s.get("get object", max(0, len(out)-len(dst)), err)
	return out, err
}

// Open implements blob.Store. Bytes are counted as they are read.
func (s *blobStore) Open(ctx context.Context, key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	r, info, err := s.inner.Open(ctx, key, span)
	s.get("open object", 0, err)
	if err != nil {
		return r, info, err
	}
	return &countingReader{r, s.m.row("open object")}, info, nil
}

// countingReader adds what is read through it to a row's bytes.
type countingReader struct {
	io.ReadCloser
	row *counters
}

// Read implements io.Reader.
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.row.bytes.Add(int64(n))
	return n, err
}

// Head implements blob.Store.
func (s *blobStore) Head(ctx context.Context, key string) (blob.Info, error) {
	info, err := s.inner.Head(ctx, key)
	s.get("head object", 0, err)
	return info, err
}

// List implements blob.Store.
func (s *blobStore) List(ctx context.Context, prefix, after string, limit int) (blob.Page, error) {
	page, err := s.inner.List(ctx, prefix, after, limit)
	s.put("list objects", 0, err)
	return page, err
}

// Delete implements blob.Store. One call is one op, however many keys it names.
func (s *blobStore) Delete(ctx context.Context, keys ...string) error {
	err := s.inner.Delete(ctx, keys...)
	s.count("delete objects", 0, err)
	return err
}
