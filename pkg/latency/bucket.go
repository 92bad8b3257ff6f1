package latency

import (
	"context"
	"io"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
)

// Bucket is a blob.Store with the times of a storage class.
type Bucket struct {
	blob.Store
	figures  BucketFigures
	get, put Curve
	own      *Source
}

var _ blob.Store = (*Bucket)(nil)

// NewBucket gives a store times. Calls without a source draw from own.
func NewBucket(s blob.Store, f BucketFigures, own *Source) *Bucket {
	return &Bucket{Store: s, figures: f, get: f.Get.Curve(), put: f.Put.Curve(), own: own}
}

func (b *Bucket) wait(ctx context.Context, f *Figure, c *Curve, n int) {
	time.Sleep(sourceOf(ctx, b.own).draw(c) + f.transfer(n))
}

// Create implements blob.Store.
func (b *Bucket) Create(ctx context.Context, prefix string, data []byte) (string, error) {
	b.wait(ctx, &b.figures.Put, &b.put, len(data))
	return b.Store.Create(ctx, prefix, data)
}

// Put implements blob.Store.
func (b *Bucket) Put(ctx context.Context, key string, body io.Reader, terms blob.Terms) (blob.Info, error) {
	b.wait(ctx, &b.figures.Put, &b.put, int(terms.Size))
	return b.Store.Put(ctx, key, body, terms)
}

// Get implements blob.Store.
func (b *Bucket) Get(ctx context.Context, key string, span blob.Span, dst []byte) ([]byte, error) {
	out, err := b.Store.Get(ctx, key, span, dst)
	b.wait(ctx, &b.figures.Get, &b.get, len(out)-len(dst))
	return out, err
}

// Open implements blob.Store; the whole span has come when it returns.
func (b *Bucket) Open(ctx context.Context, key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	body, info, err := b.Store.Open(ctx, key, span)
	n := span.Len
	if span.Whole() {
		n = info.Size
	}
	b.wait(ctx, &b.figures.Get, &b.get, int(n))
	return body, info, err
}

// Head implements blob.Store.
func (b *Bucket) Head(ctx context.Context, key string) (blob.Info, error) {
	b.wait(ctx, &b.figures.Get, &b.get, 0)
	return b.Store.Head(ctx, key)
}

// List implements blob.Store.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (blob.Page, error) {
	b.wait(ctx, &b.figures.Get, &b.get, 0)
	return b.Store.List(ctx, prefix, after, limit)
}

// Delete implements blob.Store.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	b.wait(ctx, &b.figures.Put, &b.put, 0)
	return b.Store.Delete(ctx, keys...)
}
