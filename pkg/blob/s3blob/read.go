package s3blob

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// readTries is how often Get begins anew when a body breaks off; the SDK repeats only what
	// fails before the body.
	readTries = 3
	// copyBytes is the buffer of a reading that keeps nothing.
	copyBytes = 64 << 10
)

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string, span blob.Span, dst []byte) ([]byte, error) {
	const op = "get object"
	if err := ready(ctx, op, key); err != nil {
		return dst, err
	}
	if _, err := span.Resolve(math.MaxInt64); err != nil {
		return dst, err
	}
	if !span.Whole() && span.Len == 0 {
		// HTTP has no range of no bytes.
		h, err := s.head(ctx, op, key)
		if err == nil {
			_, err = span.Resolve(h.info.Size)
		}
		return dst, err
	}
	for try := 1; ; try++ {
		out, broken, err := s.getOnce(ctx, op, key, span, dst)
		if err == nil {
			return out, nil
		}
		if !broken || try == readTries || !queue.Is(err, queue.KindUnavailable) {
			return dst, err
		}
	}
}

// getOnce makes one request; broken says that its body broke off.
func (s *Store) getOnce(ctx context.Context, op, key string, span blob.Span, dst []byte) (out []byte, broken bool, err error) {
	body, err := s.fetch(ctx, op, key, span)
	if err != nil {
		return dst, false, err
	}
	defer body.Close() //nolint:errcheck // only read
	pos := len(dst)
	out = slices.Grow(dst, int(body.want))
	out = out[:pos+int(body.want)]
	if _, err = io.ReadFull(body, out[pos:]); err != nil {
		return dst, true, body.unexpected(err)
	}
	// The end is where the checksum is compared.
	if _, err = body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return dst, true, body.unexpected(err)
	}
	return out, false, nil
}

// Open implements blob.Store.
func (s *Store) Open(ctx context.Context, key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	const op = "open object"
	if err := ready(ctx, op, key); err != nil {
		return nil, blob.Info{}, err
	}
	if span.Whole() {
		body, err := s.fetch(ctx, op, key, span)
		if err != nil {
			return nil, blob.Info{}, err
		}
		if body.hasSum {
			return body, body.info, nil
		}
		info, err := s.summed(ctx, body.info)
		if err != nil {
			_ = body.Close()
			return nil, blob.Info{}, err
		}
		return body, info, nil
	}
	// A ranged answer has no checksum of the object.
	info, err := s.Head(ctx, key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	if span, err = span.Resolve(info.Size); err != nil {
		return nil, blob.Info{}, err
	}
	if span.Len == 0 {
		return io.NopCloser(strings.NewReader("")), info, nil
	}
	body, err := s.fetch(ctx, op, key, span)
	if err != nil {
		return nil, blob.Info{}, err
	}
	return body, info, nil
}

// summed completes info of an object that S3 has no CRC32C of, by reading it all.
func (s *Store) summed(ctx context.Context, info blob.Info) (blob.Info, error) {
	body, err := s.fetch(ctx, "head object", info.Key, blob.Span{})
	if err != nil {
		return blob.Info{}, err
	}
	defer body.Close() //nolint:errcheck // only read
	sum := blob.NewCRC32C()
	if _, err = io.CopyBuffer(sum, struct{ io.Reader }{body}, make([]byte, copyBytes)); err != nil {
		return blob.Info{}, err
	}
	info.CRC32C = sum.Sum32()
	return info, nil
}

// stream is the body of one answer. It checks length and, of a whole object, the checksum. Not safe
// for concurrent use.
type stream struct {
	call
	body io.ReadCloser
	// want and got are bytes: of the answer, and read so far.
	want, got int64
	sum       hash.Hash32
	// info is of the object; its checksum is there if hasSum.
	info   blob.Info
	hasSum bool
	err    error
}

// fetch begins to read the bytes of span, which is whole or has bytes. A span that does not lie in
// the object is KindInvalid.
func (s *Store) fetch(ctx context.Context, op, key string, span blob.Span) (*stream, error) {
	in := &s3.GetObjectInput{Bucket: s.bucket, Key: &key}
	if span.Whole() {
		in.ChecksumMode = types.ChecksumModeEnabled
	} else {
		in.Range = aws.String("bytes=" + rangeOf(span))
	}
	w := &watch{}
	c := call{ctx, op, key, reading}
	out, err := s.client.GetObject(ctx, in, with(w))
	if err != nil {
		return nil, c.fail(w, err)
	}
	b := &stream{call: c, body: out.Body, want: aws.ToInt64(out.ContentLength), sum: blob.NewCRC32C()}
	b.info = blob.Info{Key: key, Size: b.want, Modified: aws.ToTime(out.LastModified).UTC()}
	if span.Whole() {
		b.info.CRC32C, b.hasSum = parseSum(out.ChecksumCRC32C)
		return b, nil
	}
	if err = b.inRange(span, aws.ToString(out.ContentRange)); err != nil {
		_ = out.Body.Close()
		return nil, err
	}
	return b, nil
}

// rangeOf is the form of HTTP, whose last byte is inside.
func rangeOf(span blob.Span) string {
	return strconv.FormatInt(span.Pos, 10) + "-" + strconv.FormatInt(span.Pos+span.Len-1, 10)
}

// inRange holds a ranged answer against what was asked. S3 answers a range that ends past the object
// with what there is of it, and says how long the object is.
func (b *stream) inRange(span blob.Span, contentRange string) error {
	got, total, found := strings.Cut(contentRange, "/")
	size, err := strconv.ParseInt(total, 10, 64)
	if found && err == nil {
		if _, err = span.Resolve(size); err != nil {
			return err
		}
	}
	if !found || err != nil || b.want != span.Len || got != "bytes "+rangeOf(span) {
		return &queue.Error{
			Op: b.op, Subject: b.key, Kind: queue.KindUnavailable,
			Message: fmt.Sprintf("asked for bytes %d+%d, the store answered range %q of %d bytes", span.Pos, span.Len, contentRange, b.want),
		}
	}
	return nil
}

// Read implements io.Reader. Errors other than io.EOF are *queue.Error: Unavailable (the body broke
// off), Corrupt (the checksum does not fit), Canceled.
func (b *stream) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	b.got += int64(n)
	_, _ = b.sum.Write(p[:n]) // a hash never fails
	switch {
	case err == nil:
		return n, nil
	// Before the error is looked at: the SDK checks the sum, too, and says so in an error of a
	// type of its own.
	case b.hasSum && b.got == b.want && b.sum.Sum32() != b.info.CRC32C:
		b.err = &queue.Error{
			Op: b.op, Subject: b.key, Kind: queue.KindCorrupt,
			Message: "the bytes read have checksum " + blob.FormatChecksum(b.sum.Sum32()) +
				", the object has " + blob.FormatChecksum(b.info.CRC32C),
		}
	case errors.Is(err, io.EOF) && b.got == b.want:
		b.err = io.EOF
	default:
		b.err = b.broke(err)
	}
	return n, b.err
}

// Close implements io.Closer.
func (b *stream) Close() error {
	if b.err == nil {
		b.err = &queue.Error{Op: b.op, Subject: b.key, Kind: queue.KindInternal, Message: "read after close"}
	}
	return b.body.Close()
}

// broke is the error of a body that ended too early.
func (b *stream) broke(cause error) error {
	if err := blob.Canceled(b.ctx, b.op, b.key); err != nil {
		return err
	}
	return &queue.Error{
		Op: b.op, Subject: b.key, Kind: queue.KindUnavailable,
		Message: fmt.Sprintf("the answer broke off after %d of %d bytes", b.got, b.want), Err: cause,
	}
}

// unexpected keeps an error of Read's own and translates what io made of an early end.
func (b *stream) unexpected(err error) error {
	var known *queue.Error
	if errors.As(err, &known) {
		return err
	}
	return b.broke(err)
}
