package s3blob_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/s3blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestPutInConstantMemory streams to an S3 that keeps nothing, so that the heap is the driver's own.
// The strict lane does the same against a real one.
func TestPutInConstantMemory(t *testing.T) {
	const size = 20 * s3blob.MinPartBytes
	f := &faults{}
	f.heal()
	f.on("start", 0, answer(200, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"))
	var peak uint64
	f.on("part", 0, func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := answer(200, "")(r, send)
		resp.Header.Set("ETag", `"part"`)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
		return resp, err
	})
	f.on("complete", 0, answer(200, `<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>`))
	f.on("head", 0, answer(404, ""))
	s := newStore(t, endpoint{url: "http://127.0.0.1:1", key: "key", secret: "secret"}.client(f), "bucket", s3blob.Options{PartBytes: s3blob.MinPartBytes})
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	info, err := s.Put(context.Background(), "uploads/huge", io.LimitReader(zeros{}, size), blob.Terms{Size: size})
	if err != nil || info.Size != size || info.Modified.IsZero() {
		t.Fatalf("%+v, %v", info, err)
	}
	if got := strings.Count(f.ops(), "part"); got != 20 {
		t.Errorf("%d parts", got)
	}
	if peak > before.HeapAlloc+s3blob.MinPartBytes+(2<<20) {
		t.Errorf("the heap grew from %d to %d bytes, by more than a part and 2 MiB", before.HeapAlloc, peak)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestWithoutCredentials: nothing is sent, so nothing is in doubt.
func TestWithoutCredentials(t *testing.T) {
	f := &faults{}
	f.heal()
	e := endpoint{url: "http://127.0.0.1:1", adapt: func(o *s3.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no role")
		})
	}}
	s := newStore(t, e.client(f), "bucket", s3blob.Options{})
	_, err := s.Create(context.Background(), blob.PrefixBatches, []byte("x"))
	wantKind(t, err, queue.KindUnavailable)
	if !strings.Contains(err.Error(), "no role") {
		t.Errorf("%v does not say why", err)
	}
	if got := f.ops(); got != "" {
		t.Errorf("sent %q", got)
	}
}
