package s3blob

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// nonceName is the name of the user metadata that holds the nonce.
	nonceName = "spillway-nonce"
	// noneMatch makes a write put-if-absent; S3 takes nothing but * here.
	noneMatch = "*"
)

// object is one object on its way to S3. Its nonce and sum tell it from all others.
type object struct {
	op, key string
	nonce   string
	size    int64
	sum     uint32
}

func (s *Store) newObject(op, key string) object {
	nonce := s.ids.Nonce()
	return object{op: op, key: key, nonce: hex.EncodeToString(nonce[:])}
}

// metadata is what the object carries to be recognized by.
func (o object) metadata() map[string]string { return map[string]string{nonceName: o.nonce} }

// is reports whether h is this very object.
func (o object) is(h header) bool {
	return h.nonce == o.nonce && h.info.Size == o.size && (!h.hasSum || h.info.CRC32C == o.sum)
}

// formatSum renders a checksum as S3 does: base64 of its 4 bytes, the highest first.
func formatSum(sum uint32) *string {
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum)))
}

// parseSum reads a checksum; ok is false if there is none, or if it is one made of the checksums of
// parts ("…-3"), which says nothing of the bytes.
func parseSum(text *string) (sum uint32, ok bool) {
	b, err := base64.StdEncoding.DecodeString(aws.ToString(text))
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// Create implements blob.Store.
func (s *Store) Create(ctx context.Context, prefix string, data []byte) (string, error) {
	const op = "create object"
	if err := blob.ValidatePrefix("prefix", prefix); err != nil {
		return "", err
	}
	if err := (blob.Terms{Size: int64(len(data))}).Validate(); err != nil {
		return "", err
	}
	// The id is random from its first character on, so that keys spread over the partitions that
	// S3 makes of a prefix.
	key := prefix + s.ids.ID()
	if err := blob.Canceled(ctx, op, key); err != nil {
		return "", err
	}
	o := s.newObject(op, key)
	o.sum = blob.CRC32C(data)
	if _, err := s.putWhole(ctx, o, data); err != nil {
		return "", err
	}
	return key, nil
}

// Put implements blob.Store. What fits Options.PartBytes goes in one request, the rest in parts; in
// both cases the bytes of a request are in memory, so that it can be repeated.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, terms blob.Terms) (blob.Info, error) {
	const op = "put object"
	if err := blob.ValidateKey("key", key); err != nil {
		return blob.Info{}, err
	}
	if err := terms.Validate(); err != nil {
		return blob.Info{}, err
	}
	in := &source{Intake: blob.NewIntake(ctx, key, r, terms), left: terms.Size}
	buf := make([]byte, min(terms.Size, s.partBytes))
	// Before anything is sent, so that most of what is wrong with a source costs no request.
	part, err := in.next(buf)
	if err != nil {
		return blob.Info{}, err
	}
	o := s.newObject(op, key)
	var h header
	if in.left > 0 {
		h, err = s.putParts(ctx, o, in, part)
	} else {
		o.sum = in.Sum()
		h, err = s.putWhole(ctx, o, part)
	}
	if err != nil {
		return blob.Info{}, err
	}
	if h.info.Key != "" {
		return h.info, nil
	}
	return s.verified(ctx, o, blob.Info{Key: key, Size: terms.Size, CRC32C: in.Sum()})
}

// source is an Intake that is cut into parts.
type source struct {
	*blob.Intake
	left int64
}

// next fills buf with the next bytes, fewer only at the end. With the last byte it makes sure that
// the source ends there and has the checksum announced.
func (in *source) next(buf []byte) ([]byte, error) {
	buf = buf[:min(int64(len(buf)), in.left)]
	n, err := io.ReadFull(in.Intake, buf)
	in.left -= int64(n)
	if cause := in.Err(); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	if in.left == 0 {
		var more [1]byte
		for {
			if _, err = in.Read(more[:]); errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return buf, nil
}

// putWhole stores an object by one request. The header is empty unless S3 had to be asked for it.
func (s *Store) putWhole(ctx context.Context, o object, data []byte) (header, error) {
	o.size = int64(len(data))
	w := &watch{}
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: s.bucket, Key: &o.key, Body: bytes.NewReader(data), ContentLength: &o.size,
		ChecksumCRC32C: formatSum(o.sum), IfNoneMatch: aws.String(noneMatch), Metadata: o.metadata(),
	}, with(w))
	if err == nil {
		err = w.believe(out.ETag)
	}
	if err == nil {
		return header{}, nil
	}
	return s.settle(ctx, o, w, err)
}

// settle finds out what became of a write that ended with err: nil if S3 holds our object. Three ends
// need it. A refusal because the key is taken, for it may be taken by an attempt of ours whose answer
// was lost. A race that went on for all attempts. And a doubtful end; there, an object of someone
// else's under the key proves that ours was refused, but a free key proves nothing: the write may
// still be on its way.
func (s *Store) settle(ctx context.Context, o object, w *watch, err error) (header, error) {
	e := call{ctx, o.op, o.key, writing}.fail(w, err)
	_, code := answerOf(err)
	switch {
	case e.Kind == queue.KindExists, e.Kind == queue.KindOutcomeUnknown, code == codeConflict, code == codeNoSuchUpload:
	default:
		return header{}, e
	}
	h, headErr := s.head(ctx, o.op, o.key)
	switch {
	case headErr == nil && o.is(h):
		if !h.hasSum {
			// The bytes were sent with their checksum; only an S3 that keeps none comes here.
			h.info.CRC32C = o.sum
		}
		return h, nil
	case headErr == nil:
		taken := blob.Exists(o.key)
		taken.Op, taken.Err = o.op, err
		return header{}, taken
	case queue.Is(headErr, queue.KindCanceled):
		return header{}, headErr
	case e.Kind == queue.KindExists && w.doubt && !queue.Is(headErr, queue.KindNotFound):
		// Taken, but nobody says by whom.
		e.Kind, e.Message = queue.KindOutcomeUnknown, ""
	}
	return header{}, e
}

// verified completes what Put answers with the time of S3, and holds what S3 says of the object
// against what was sent. The object is stored and durable by now, so that a failure to ask is no
// failure of the put: the time is then our clock's.
func (s *Store) verified(ctx context.Context, o object, info blob.Info) (blob.Info, error) {
	h, err := s.head(ctx, o.op, o.key)
	if err != nil {
		info.Modified = s.clock().UTC().Truncate(time.Second)
		return info, nil //nolint:nilerr // see above
	}
	if h.info.Size != info.Size || h.hasSum && h.info.CRC32C != info.CRC32C {
		return blob.Info{}, &queue.Error{
			Op: o.op, Subject: o.key, Kind: queue.KindCorrupt, Message: "the store holds other bytes than were sent",
		}
	}
	info.Modified = h.info.Modified
	return info, nil
}
