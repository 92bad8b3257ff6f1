package s3blob_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/spillway-mq/spillway/pkg/blob"
)

// startFake starts gofakes3 in this process, made stricter.
func startFake(t testing.TB) endpoint {
	t.Helper()
	backend := s3mem.New()
	f := &strictFake{
		inner:   gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server(),
		backend: backend, sums: map[string]string{},
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return endpoint{url: server.URL, key: "key", secret: "secret", huge: -1}
}

const checksumHeader = "X-Amz-Checksum-Crc32c"

// strictFake adds what the driver needs and gofakes3 lacks: it compares the checksums that are sent
// with what they are of, and completes an upload in parts on condition, with a checksum of the whole.
type strictFake struct {
	inner   http.Handler
	backend gofakes3.Backend

	mu   sync.Mutex // guards sums, and the condition of a completion until it is carried out
	sums map[string]string
}

func (f *strictFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if want := r.Header.Get(checksumHeader); want != "" && want != sumOf(body) {
			refuse(w, http.StatusBadRequest, "BadDigest")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	case r.Method == http.MethodPost && r.URL.Query().Has("uploadId"):
		f.mu.Lock()
		defer f.mu.Unlock()
		bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if _, err := f.backend.HeadObject(bucket, key); err == nil && r.Header.Get("If-None-Match") == "*" {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		if sum := r.Header.Get(checksumHeader); sum != "" {
			f.sums[r.URL.Path] = sum
		}
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		f.mu.Lock()
		if sum, ok := f.sums[r.URL.Path]; ok {
			w.Header().Set(checksumHeader, sum)
		}
		f.mu.Unlock()
	}
	f.inner.ServeHTTP(w, r)
}

// refuse answers as S3 refuses.
func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, errorText(code))
}

func errorText(code string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>said the test</Message></Error>`
}

func sumOf(data []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, blob.CRC32C(data)))
}

// randomBytes are the same each time.
func randomBytes(size int64) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data) // never fails
	return data
}
