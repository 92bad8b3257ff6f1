package fault

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// blobStore implements blob.Store.
type blobStore struct {
	inner blob.Store
	plan  *Plan
}

// presigningStore is a blobStore whose inner store presigns; making a URL reaches no store and does
// not fail here.
type presigningStore struct {
	*blobStore
	blob.Presigner
}

// Blob wraps store so that plan decides over its calls. If store is a blob.Presigner, so is what Blob
// returns. A reader that Open gave fails with Canceled once the process has died.
func Blob(store blob.Store, plan *Plan) blob.Store {
	s := &blobStore{store, plan}
	if p, ok := store.(blob.Presigner); ok {
		return &presigningStore{s, p}
	}
	return s
}

// Create implements blob.Store.
func (s *blobStore) Create(ctx context.Context, prefix string, data []byte) (string, error) {
	c := &Call{Op: "create object", Key: prefix, Write: true}
	return run(ctx, s.plan, c, work[string]{
		do: func(ctx context.Context) (string, error) { return s.inner.Create(ctx, prefix, data) },
		// The caller may use data again once the call has returned.
		hold: func() error { data = bytes.Clone(data); return nil },
	})
}

// Put implements blob.Store.
func (s *blobStore) Put(ctx context.Context, key string, r io.Reader, terms blob.Terms) (blob.Info, error) {
	c := &Call{Op: "put object", Key: key, Write: true}
	src := func() io.Reader { return r }
	return run(ctx, s.plan, c, work[blob.Info]{
		do: func(ctx context.Context) (blob.Info, error) { return s.inner.Put(ctx, key, src(), terms) },
		hold: func() error {
			data, err := io.ReadAll(io.LimitReader(r, terms.Size+1))
			// A source that fails does so each time.
			src = func() io.Reader { return io.MultiReader(bytes.NewReader(data), failing{err}) }
			return nil
		},
	})
}

// failing is a reader that only ever gives its error; io.EOF for nil.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// Get implements blob.Store.
func (s *blobStore) Get(ctx context.Context, key string, span blob.Span, dst []byte) ([]byte, error) {
	c := &Call{Op: "get object", Key: key}
	do := func(ctx context.Context) ([]byte, error) { return s.inner.Get(ctx, key, span, dst) }
	out, err := run(ctx, s.plan, c, work[[]byte]{
		do: do,
		half: func(ctx context.Context, c *Call) ([]byte, error) {
			out, err := do(ctx)
			if err != nil {
				return out, err
			}
			return out[:len(dst)+(len(out)-len(dst))/2], c.fail(queue.KindUnavailable, io.ErrUnexpectedEOF)
		},
	})
	if out == nil {
		return dst, err
	}
	return out, err
}

// opened is what Open answers with.
type opened struct {
	r    io.ReadCloser
	info blob.Info
}

// Open implements blob.Store.
func (s *blobStore) Open(ctx context.Context, key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	c := &Call{Op: "open object", Key: key}
	open := func(ctx context.Context, cut bool) (opened, error) {
		r, info, err := s.inner.Open(ctx, key, span)
		if err != nil {
			return opened{nil, info}, err
		}
		reader := &faultyReader{ReadCloser: r, plan: s.plan, call: c, left: -1}
		if cut {
			n := span.Len
			if span.Whole() {
				n = info.Size
			}
			reader.left = n / 2
		}
		return opened{reader, info}, nil
	}
	o, err := run(ctx, s.plan, c, work[opened]{
		do:   func(ctx context.Context) (opened, error) { return open(ctx, false) },
		half: func(ctx context.Context, _ *Call) (opened, error) { return open(ctx, true) },
	})
	return o.r, o.info, err
}

// faultyReader ends early, or when its process dies.
type faultyReader struct {
	io.ReadCloser
	plan *Plan
	call *Call
	// left is how many bytes it still gives; -1 for all.
	left int64
}

// Read implements io.Reader.
func (r *faultyReader) Read(p []byte) (int, error) {
	if r.plan.Crashed() {
		return 0, (&Call{Op: r.call.Op, Key: r.call.Key}).fail(queue.KindCanceled, nil)
	}
	if r.left < 0 {
		return r.ReadCloser.Read(p)
	}
	if r.left == 0 {
		return 0, r.call.fail(queue.KindUnavailable, io.ErrUnexpectedEOF)
	}
	n, err := r.ReadCloser.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	if errors.Is(err, io.EOF) && r.left == 0 {
		err = nil
	}
	return n, err
}

// Head implements blob.Store.
func (s *blobStore) Head(ctx context.Context, key string) (blob.Info, error) {
	c := &Call{Op: "head object", Key: key}
	return run(ctx, s.plan, c, work[blob.Info]{
		do: func(ctx context.Context) (blob.Info, error) { return s.inner.Head(ctx, key) },
	})
}

// List implements blob.Store.
func (s *blobStore) List(ctx context.Context, prefix, after string, limit int) (blob.Page, error) {
	c := &Call{Op: "list objects", Key: prefix}
	do := func(ctx context.Context) (blob.Page, error) { return s.inner.List(ctx, prefix, after, limit) }
	return run(ctx, s.plan, c, work[blob.Page]{
		do: do,
		half: func(ctx context.Context, _ *Call) (blob.Page, error) {
			page, err := do(ctx)
			if n := half(len(page.Objects)); n < len(page.Objects) {
				page.Objects, page.More = page.Objects[:n:n], true
			}
			return page, err
		},
	})
}

// Delete implements blob.Store.
func (s *blobStore) Delete(ctx context.Context, keys ...string) error {
	c := &Call{Op: "delete objects", Key: strings.Join(keys, ", "), Write: true}
	for _, k := range keys {
		c.parts = append(c.parts, part{key: k, op: c.Op})
	}
	none := struct{}{}
	_, err := run(ctx, s.plan, c, work[struct{}]{
		do: func(ctx context.Context) (struct{}, error) { return none, s.inner.Delete(ctx, keys...) },
		half: func(ctx context.Context, c *Call) (struct{}, error) {
			if err := s.inner.Delete(ctx, keys[:half(len(keys))]...); err != nil {
				return none, err
			}
			return none, c.lost()
		},
		hold: func() error { keys = append([]string(nil), keys...); return nil },
	})
	return err
}
