package s3blob

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxPresign is the longest that S3 lets a URL live.
const maxPresign = 7 * 24 * time.Hour

// PresignPut implements blob.Presigner. The length, If-None-Match and the checksum are in the
// request's headers, and signed. A URL dies with the credentials that signed it, if they are
// temporary ones that end before expires.
func (s *Store) PresignPut(ctx context.Context, key string, terms blob.Terms, expires time.Time) (blob.Request, error) {
	const op = "presign put"
	if err := terms.Validate(); err != nil {
		return blob.Request{}, err
	}
	life, err := s.life(ctx, op, key, expires)
	if err != nil {
		return blob.Request{}, err
	}
	in := &s3.PutObjectInput{
		Bucket: s.bucket, Key: &key, ContentLength: &terms.Size, IfNoneMatch: aws.String(noneMatch),
	}
	if terms.HasCRC32C {
		in.ChecksumCRC32C = formatSum(terms.CRC32C)
	} else if terms.Size == 0 {
		// Signature version 4 leaves a length of 0 unsigned, which would allow any length. The
		// checksum of no bytes allows only them.
		in.ChecksumCRC32C = formatSum(0)
	}
	out, err := s.presigner.PresignPutObject(ctx, in, s3.WithPresignExpires(life))
	if err != nil {
		return blob.Request{}, call{ctx, op, key, reading}.fail(&watch{}, err)
	}
	return request(out), nil
}

// PresignGet implements blob.Presigner. The answer never runs in a browser, whatever Content-Type the
// object was put with.
func (s *Store) PresignGet(ctx context.Context, key string, expires time.Time) (blob.Request, error) {
	const op = "presign get"
	life, err := s.life(ctx, op, key, expires)
	if err != nil {
		return blob.Request{}, err
	}
	out, err := s.presigner.PresignGetObject(ctx, &s3.GetObjectInput{
		Bucket: s.bucket, Key: &key,
		ResponseContentType:        aws.String("application/octet-stream"),
		ResponseContentDisposition: aws.String("attachment"),
	}, s3.WithPresignExpires(life))
	if err != nil {
		return blob.Request{}, call{ctx, op, key, reading}.fail(&watch{}, err)
	}
	return request(out), nil
}

// life is how long a URL lives that is made now; whole seconds, as S3 counts.
func (s *Store) life(ctx context.Context, op, key string, expires time.Time) (time.Duration, error) {
	if err := ready(ctx, op, key); err != nil {
		return 0, err
	}
	life := time.Duration(expires.Unix()-s.clock().Unix()) * time.Second
	if life <= 0 {
		return 0, queue.Invalid("expires", nil, "must be at least a second ahead")
	}
	if life > maxPresign {
		return 0, queue.Invalid("expires", maxPresign.Seconds(), "must be at most 7 days ahead")
	}
	return life, nil
}

// request takes out of the SDK's answer what a client has to send. Host follows from the URL.
func request(out *v4.PresignedHTTPRequest) blob.Request {
	req := blob.Request{Method: out.Method, URL: out.URL}
	for name, values := range out.SignedHeader {
		if name = http.CanonicalHeaderKey(name); name == "Host" {
			continue
		}
		if req.Headers == nil {
			req.Headers = map[string]string{}
		}
		req.Headers[name] = strings.Join(values, ",")
	}
	return req
}

func newPresignClient(client *s3.Client, clock queue.Clock) *s3.PresignClient {
	return s3.NewPresignClient(client, func(o *s3.PresignOptions) {
		o.Presigner = &presigner{clock: clock, signer: v4.NewSigner(func(o *v4.SignerOptions) {
			// S3 signs the path as it is sent.
			o.DisableURIPathEscaping = true
			// Whatever binds the request stays a header, which the client has to send.
			o.DisableHeaderHoisting = true
		})}
	})
}

// presigner dates URLs by our clock instead of the SDK's.
type presigner struct {
	clock  queue.Clock
	signer *v4.Signer
}

// PresignHTTP implements s3.HTTPPresignerV4.
//
//revive:disable-next-line:argument-limit the SDK sets the signature
func (p *presigner) PresignHTTP(
	ctx context.Context, creds aws.Credentials, r *http.Request, payloadHash, service, region string,
	_ time.Time, opts ...func(*v4.SignerOptions),
) (string, http.Header, error) {
	return p.signer.PresignHTTP(ctx, creds, r, payloadHash, service, region, p.clock().UTC(), opts...)
}
