package s3blob

import (
	"bytes"
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/spillway-mq/spillway/pkg/blob"
)

// abortTimeout bounds the removal of the parts of an upload that failed.
const abortTimeout = 10 * time.Second

// upload is one object that is sent in parts. Nothing of it can be seen before it is complete.
type upload struct {
	store *Store
	object
	id    *string
	parts []types.CompletedPart
}

// putParts stores an object in parts: first, then what in holds. The header is empty unless S3 had to
// be asked for it.
func (s *Store) putParts(ctx context.Context, o object, in *source, first []byte) (header, error) {
	up := &upload{store: s, object: o}
	if err := up.start(ctx); err != nil {
		return header{}, err
	}
	err := up.sendAll(ctx, in, first)
	if err == nil {
		up.sum = in.Sum()
		var h header
		if h, err = up.complete(ctx); err == nil {
			return h, nil
		}
	}
	// After an end in doubt, too: either the upload is complete and there is nothing to abort, or
	// it must not stay.
	up.abort(ctx)
	return header{}, err
}

func (up *upload) start(ctx context.Context) error {
	w := &watch{}
	out, err := up.store.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: up.store.bucket, Key: &up.key, Metadata: up.metadata(),
		// A checksum of the whole, not one made of those of the parts: it is the one that
		// everybody else computes.
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, ChecksumType: types.ChecksumTypeFullObject,
	}, with(w))
	if err != nil {
		// In doubt or not, no object can come of it: hence reading.
		return call{ctx, up.op, up.key, reading}.fail(w, err)
	}
	up.id = out.UploadId
	return nil
}

// sendAll sends part by part, one after the other: only one is in memory.
func (up *upload) sendAll(ctx context.Context, in *source, part []byte) error {
	buf := part
	for {
		if err := up.send(ctx, part); err != nil {
			return err
		}
		if in.left == 0 {
			return nil
		}
		var err error
		if part, err = in.next(buf); err != nil {
			return err
		}
	}
}

func (up *upload) send(ctx context.Context, part []byte) error {
	if err := blob.Canceled(ctx, up.op, up.key); err != nil {
		return err
	}
	number := aws.Int32(int32(len(up.parts) + 1)) // #nosec G115 -- at most MaxUploadBytes/MinPartBytes
	sum := formatSum(blob.CRC32C(part))
	w := &watch{}
	out, err := up.store.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: up.store.bucket, Key: &up.key, UploadId: up.id, PartNumber: number,
		Body: bytes.NewReader(part), ContentLength: aws.Int64(int64(len(part))),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, ChecksumCRC32C: sum,
	}, with(w))
	if err != nil {
		// A part that is sent again replaces itself, and is seen by nobody: hence reading.
		return call{ctx, up.op, up.key, reading}.fail(w, err)
	}
	up.size += int64(len(part))
	up.parts = append(up.parts, types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32C: sum})
	return nil
}

func (up *upload) complete(ctx context.Context) (header, error) {
	if err := blob.Canceled(ctx, up.op, up.key); err != nil {
		return header{}, err
	}
	w := &watch{}
	out, err := up.store.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: up.store.bucket, Key: &up.key, UploadId: up.id, IfNoneMatch: aws.String(noneMatch),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: up.parts},
		ChecksumCRC32C:  formatSum(up.sum), ChecksumType: types.ChecksumTypeFullObject, MpuObjectSize: &up.size,
	}, with(w))
	if err == nil {
		err = w.believe(out.ETag)
	}
	if err == nil {
		return header{}, nil
	}
	return up.store.settle(ctx, up.object, w, err)
}

// abort removes the parts. If that fails, the bucket's lifecycle rule removes them later: there is
// nothing to tell the caller.
func (up *upload) abort(ctx context.Context) {
	// The call may have failed because its context ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_, _ = up.store.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: up.store.bucket, Key: &up.key, UploadId: up.id,
	}, with(&watch{}))
}
