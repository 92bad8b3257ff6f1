package s3blob

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// DefaultPartBytes is Options.PartBytes where it is 0: the compactor's objects, 8 MiB and more,
	// then cost mostly one request instead of four.
	DefaultPartBytes = 16 << 20
	// MinPartBytes is S3's bound for every part but the last.
	MinPartBytes = 5 << 20
	// MaxPartBytes bounds what a Put holds in memory.
	MaxPartBytes = 256 << 20

	// deleteBatch is the most keys that S3 takes in one DeleteObjects.
	deleteBatch = 1000
)

// Options are the optional arguments of New.
type Options struct {
	// IDs chooses the keys of Create and the nonces of all writes; nil means random ones.
	IDs *queue.IDs
	// Clock dates presigned URLs; nil means time.Now.
	Clock queue.Clock
	// PartBytes is the most that Put sends in one request, and holds in memory: MinPartBytes to
	// MaxPartBytes; 0 means DefaultPartBytes. Larger objects go in parts.
	PartBytes int64
}

// Store implements blob.Store and blob.Presigner. Safe for concurrent use.
type Store struct {
	client    *s3.Client
	presigner *s3.PresignClient
	bucket    *string
	ids       *queue.IDs
	clock     queue.Clock
	partBytes int64
}

var (
	_ blob.Store     = (*Store)(nil)
	_ blob.Presigner = (*Store)(nil)
)

// New makes a store over a bucket that exists; it sends nothing. How often attempts are repeated is
// the client's setting (its Retryer); how long one may last, its HTTP client's. Errors: Invalid, if
// bucket is empty or an option is out of range.
func New(client *s3.Client, bucket string, opts Options) (*Store, error) {
	if bucket == "" {
		return nil, queue.Invalid("bucket", nil, "must not be empty")
	}
	if opts.PartBytes == 0 {
		opts.PartBytes = DefaultPartBytes
	}
	if opts.PartBytes < MinPartBytes || opts.PartBytes > MaxPartBytes {
		return nil, queue.Invalid("part_bytes", nil, "must be %d to %d", MinPartBytes, MaxPartBytes)
	}
	if opts.IDs == nil {
		opts.IDs = queue.NewIDs(nil)
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	return &Store{
		client: client, presigner: newPresignClient(client, opts.Clock), bucket: aws.String(bucket),
		ids: opts.IDs, clock: opts.Clock, partBytes: opts.PartBytes,
	}, nil
}

// with gives the options of one call of the SDK, whose attempts w watches.
func with(w *watch) func(*s3.Options) {
	return func(o *s3.Options) {
		// Two writers raced for the key, and S3 wants to be asked again.
		o.Retryer = w.over(retry.AddWithErrorCodes(o.Retryer, codeConflict))
		// We send and check the checksums ourselves. The SDK's own would send a body in a form
		// that needs a trailer, and fails on stores that answer a ranged read with the checksum
		// of the whole object.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
	}
}

// Head implements blob.Store.
func (s *Store) Head(ctx context.Context, key string) (blob.Info, error) {
	const op = "head object"
	if err := ready(ctx, op, key); err != nil {
		return blob.Info{}, err
	}
	head, err := s.head(ctx, op, key)
	if err != nil {
		return blob.Info{}, err
	}
	if !head.hasSum {
		return s.summed(ctx, head.info)
	}
	return head.info, nil
}

// ready refuses a bad key and a context that has ended.
func ready(ctx context.Context, op, key string) error {
	if err := blob.ValidateKey("key", key); err != nil {
		return err
	}
	return blob.Canceled(ctx, op, key)
}

// header is what S3 says of an object.
type header struct {
	info   blob.Info
	hasSum bool // info.CRC32C is the object's checksum, not just 0
	nonce  string
}

func (s *Store) head(ctx context.Context, op, key string) (header, error) {
	w := &watch{}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: s.bucket, Key: &key, ChecksumMode: types.ChecksumModeEnabled,
	}, with(w))
	if err != nil {
		return header{}, call{ctx, op, key, reading}.fail(w, err)
	}
	h := header{nonce: out.Metadata[nonceName], info: blob.Info{
		Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified).UTC(),
	}}
	h.info.CRC32C, h.hasSum = parseSum(out.ChecksumCRC32C)
	return h, nil
}

// List implements blob.Store, but for the checksums, which S3 does not list: they are 0.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (blob.Page, error) {
	const op = "list objects"
	if err := blob.ValidateLimit(limit); err != nil {
		return blob.Page{}, err
	}
	in := &s3.ListObjectsV2Input{
		Bucket: s.bucket, Prefix: &prefix, MaxKeys: aws.Int32(int32(limit)), // #nosec G115 -- at most MaxPageSize
	}
	if after != "" {
		in.StartAfter = &after
	}
	for {
		if err := blob.Canceled(ctx, op, prefix); err != nil {
			return blob.Page{}, err
		}
		w := &watch{}
		out, err := s.client.ListObjectsV2(ctx, in, with(w))
		if err != nil {
			return blob.Page{}, call{ctx, op, prefix, reading}.fail(w, err)
		}
		page := blob.Page{More: aws.ToBool(out.IsTruncated)}
		for i := range out.Contents {
			o := &out.Contents[i]
			page.Objects = append(page.Objects, blob.Info{
				Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified).UTC(),
			})
		}
		// S3 may cut a page short, but a caller of ours goes on from the last key of one.
		if len(page.Objects) > 0 || !page.More {
			return page, nil
		}
		in.StartAfter, in.ContinuationToken = nil, out.NextContinuationToken
	}
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	const op = "delete objects"
	for _, key := range keys {
		if err := blob.ValidateKey("key", key); err != nil {
			return err
		}
	}
	for len(keys) > 0 {
		if err := blob.Canceled(ctx, op, ""); err != nil {
			return err
		}
		n := min(len(keys), deleteBatch)
		if err := s.deleteSome(ctx, call{ctx, op, keys[0], writing}, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func (s *Store) deleteSome(ctx context.Context, c call, keys []string) error {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i].Key = &keys[i]
	}
	w := &watch{}
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
	}, with(w))
	if err != nil {
		return c.fail(w, err)
	}
	for i := range out.Errors {
		if one := &out.Errors[i]; aws.ToString(one.Code) != codeNoSuchKey {
			return c.refusedKey(one, len(out.Errors), len(keys))
		}
	}
	return nil
}
