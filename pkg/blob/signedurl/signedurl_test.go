package signedurl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/blob/signedurl"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const payload = "hello, spillway"

func start() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

func newSigner() *signedurl.Signer { return signedurl.NewSigner([32]byte{1, 2, 3}) }

// server is a handler with a clock that tests move.
type server struct {
	*httptest.Server
	signer *signedurl.Signer
	store  *memblob.Store
	mu     sync.Mutex
	now    time.Time
}

func newServer(t *testing.T) *server {
	s := &server{signer: newSigner(), store: memblob.New(nil, start, memblob.Options{}), now: start()}
	clock := func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.now
	}
	s.Server = httptest.NewServer(signedurl.Handler(s.store, s.signer, clock))
	t.Cleanup(s.Close)
	return s
}

func (s *server) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// do sends a request and gives the answer with its body read.
func (s *server) do(t *testing.T, method, target string, body string, headers map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("%s %s may be sniffed", method, target)
	}
	return resp, string(got)
}

func wantError(t *testing.T, resp *http.Response, body string, status int, code queue.Code) {
	t.Helper()
	var e struct {
		Error struct {
			Code      queue.Code `json:"code"`
			Message   string     `json:"message"`
			Retryable *bool      `json:"retryable"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("status %d, body %q: %v", resp.StatusCode, body, err)
	}
	if resp.StatusCode != status || e.Error.Code != code || e.Error.Message == "" || e.Error.Retryable == nil {
		t.Fatalf("status %d, body %s; want %d %s", resp.StatusCode, body, status, code)
	}
}

func presignPut(t *testing.T, s *signedurl.Signer, checksum bool) blob.Request {
	t.Helper()
	terms := blob.Terms{Size: int64(len(payload)), CRC32C: blob.CRC32C([]byte(payload)), HasCRC32C: checksum}
	req, err := s.PresignPut(context.Background(), "uploads/a-1/b.bin", terms, start().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func presignGet(t *testing.T, s *signedurl.Signer, key string) string {
	t.Helper()
	req, err := s.PresignGet(context.Background(), key, start().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return req.URL
}

func TestPutAndGet(t *testing.T) {
	for _, checksum := range []bool{false, true} {
		s := newServer(t)
		req := presignPut(t, s.signer, checksum)
		if req.Method != http.MethodPut || (len(req.Headers) == 1) != checksum {
			t.Fatalf("%+v", req)
		}
		resp, body := s.do(t, req.Method, req.URL, payload, req.Headers)
		if resp.StatusCode != http.StatusCreated || resp.Header.Get(blob.ChecksumHeader) != blob.FormatChecksum(blob.CRC32C([]byte(payload))) {
			t.Fatalf("%d %s %v", resp.StatusCode, body, resp.Header)
		}
		resp, body = s.do(t, req.Method, req.URL, payload, req.Headers)
		wantError(t, resp, body, http.StatusConflict, queue.CodeExists)

		target := presignGet(t, s.signer, "uploads/a-1/b.bin")
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			resp, body = s.do(t, method, target, "", nil)
			if resp.StatusCode != http.StatusOK || resp.ContentLength != int64(len(payload)) ||
				resp.Header.Get("Content-Type") != "application/octet-stream" || resp.Header.Get("ETag") == "" ||
				resp.Header.Get("Accept-Ranges") != "bytes" {
				t.Fatalf("%s: %d %v", method, resp.StatusCode, resp.Header)
			}
			if want := map[string]string{http.MethodGet: payload}[method]; body != want {
				t.Fatalf("%s: body %q", method, body)
			}
		}
		resp, _ = s.do(t, http.MethodGet, target, "", map[string]string{"If-None-Match": resp.Header.Get("ETag")})
		if resp.StatusCode != http.StatusNotModified {
			t.Fatalf("If-None-Match: %d", resp.StatusCode)
		}
		resp, body = s.do(t, http.MethodGet, presignGet(t, s.signer, "uploads/none"), "", nil)
		wantError(t, resp, body, http.StatusNotFound, queue.CodeObjectNotFound)
		resp, _ = s.do(t, http.MethodHead, presignGet(t, s.signer, "uploads/none"), "", nil)
		if resp.StatusCode != http.StatusNotFound {
			t.Fatalf("HEAD of a missing object: %d", resp.StatusCode)
		}
	}
}

func TestRanges(t *testing.T) {
	s := newServer(t)
	req := presignPut(t, s.signer, false)
	s.do(t, req.Method, req.URL, payload, nil)
	target := presignGet(t, s.signer, "uploads/a-1/b.bin")
	cases := []struct {
		header, body, contentRange string
		status                     int
	}{
		{"bytes=0-4", "hello", "bytes 0-4/15", 206},
		{"bytes=7-", "spillway", "bytes 7-14/15", 206},
		{"bytes=-3", "way", "bytes 12-14/15", 206},
		{"bytes=-99", payload, "bytes 0-14/15", 206},
		{"bytes=14-99999999999999999999999", "y", "bytes 14-14/15", 206},
		{"bytes=0-0", "h", "bytes 0-0/15", 206},
		{"bytes=15-", "", "bytes */15", 416},
		{"bytes=99999999999999999999-", "", "bytes */15", 416},
		{"bytes=-0", "", "bytes */15", 416},
		// Ignored, as RFC 9110 says: malformed, several, another unit.
		{"bytes=5-2", payload, "", 200},
		{"bytes=a-b", payload, "", 200},
		{"bytes=--1", payload, "", 200},
		{"bytes=+1-2", payload, "", 200},
		{"bytes=", payload, "", 200},
		{"bytes=0-1,3-4", payload, "", 200},
		{"lines=0-1", payload, "", 200},
	}
	for _, c := range cases {
		resp, body := s.do(t, http.MethodGet, target, "", map[string]string{"Range": c.header})
		if resp.StatusCode != c.status || resp.Header.Get("Content-Range") != c.contentRange {
			t.Errorf("%s: %d %q", c.header, resp.StatusCode, resp.Header.Get("Content-Range"))
		}
		if c.status != 416 && body != c.body {
			t.Errorf("%s: %q", c.header, body)
		}
	}
	resp, body := s.do(t, http.MethodGet, target, "", map[string]string{"Range": "bytes=0-1", "If-Range": `"other"`})
	if resp.StatusCode != http.StatusOK || body != payload {
		t.Errorf("If-Range of another object: %d %q", resp.StatusCode, body)
	}
}

func TestPutMismatch(t *testing.T) {
	s := newServer(t)
	req := presignPut(t, s.signer, true)
	wrong := strings.ToUpper(payload)
	resp, body := s.do(t, req.Method, req.URL, wrong, req.Headers)
	wantError(t, resp, body, http.StatusBadRequest, queue.CodeObjectInvalid)

	req = presignPut(t, s.signer, false)
	resp, body = s.do(t, req.Method, req.URL, payload, map[string]string{blob.ChecksumHeader: "crc32c:00000000"})
	wantError(t, resp, body, http.StatusBadRequest, queue.CodeObjectInvalid)
	resp, body = s.do(t, req.Method, req.URL, payload, map[string]string{blob.ChecksumHeader: "md5"})
	wantError(t, resp, body, http.StatusBadRequest, queue.CodeInvalidArgument)
	if _, err := s.store.Head(t.Context(), "uploads/a-1/b.bin"); !queue.Is(err, queue.KindNotFound) {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	s := newServer(t)
	put := presignPut(t, s.signer, true)
	get := presignGet(t, s.signer, "uploads/a-1/b.bin")
	other := signedurl.NewSigner([32]byte{9})
	unsigned, _, _ := strings.Cut(get, "&signature")
	replace := func(url, old, repl string) string {
		t.Helper()
		if !strings.Contains(url, old) {
			t.Fatalf("%s has no %q", url, old)
		}
		return strings.Replace(url, old, repl, 1)
	}
	cases := []struct {
		name, method, target, body string
		headers                    map[string]string
	}{
		{"get by a put URL", "GET", put.URL, "", put.Headers},
		{"put by a get URL", "PUT", get, payload, nil},
		{"another key", "PUT", replace(put.URL, "b.bin", "c.bin"), payload, put.Headers},
		{"another key to read", "GET", replace(get, "b.bin", "c.bin"), "", nil},
		{"dots in the path", "GET", replace(get, "a-1/b.bin", "a-1/../a-1/b.bin"), "", nil},
		{"escaped path", "GET", replace(get, "a-1/b.bin", "a-1%2fb.bin"), "", nil},
		{"escaped letter", "GET", replace(get, "b.bin", "%62.bin"), "", nil},
		{"larger size", "PUT", replace(put.URL, "size=15", "size=16"), payload + "!", put.Headers},
		{"longer body", "PUT", put.URL, payload + "!", put.Headers},
		{"shorter body", "PUT", put.URL, payload[1:], put.Headers},
		{"no body", "PUT", put.URL, "", put.Headers},
		{"no checksum header", "PUT", put.URL, payload, nil},
		{"another checksum header", "PUT", put.URL, payload, map[string]string{blob.ChecksumHeader: "crc32c:00000000"}},
		{"checksum left out", "PUT", replace(put.URL, "&crc32c="+put.Headers[blob.ChecksumHeader][7:], ""), payload, put.Headers},
		{"later expiry", "GET", replace(get, "expires=1", "expires=2"), "", nil},
		{"leading zero", "GET", replace(get, "expires=1", "expires=01"), "", nil},
		{"no signature", "GET", unsigned, "", nil},
		{"empty signature", "GET", unsigned + "&signature=", "", nil},
		{"short signature", "GET", get[:len(get)-1], "", nil},
		{"upper-case signature", "GET", get[:len(get)-64] + strings.ToUpper(get[len(get)-64:]), "", nil},
		{"further parameter", "GET", get + "&x=1", "", nil},
		{"parameter twice", "GET", replace(get, "expires=", "expires=1&expires="), "", nil},
		{"no query", "GET", "/v1/objects/uploads/a-1/b.bin", "", nil},
		{"no key", "GET", "/v1/objects/?" + get[strings.Index(get, "?")+1:], "", nil},
		{"signed by another key", "GET", presignGet(t, other, "uploads/a-1/b.bin"), "", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			resp, body := s.do(t, c.method, c.target, c.body, c.headers)
			wantError(t, resp, body, http.StatusForbidden, queue.CodeForbidden)
		})
	}
	if page, err := s.store.List(t.Context(), "", "", 1); err != nil || len(page.Objects) > 0 {
		t.Fatalf("a refused request stored %+v, %v", page, err)
	}
	resp, body := s.do(t, http.MethodDelete, get, "", nil)
	wantError(t, resp, body, http.StatusMethodNotAllowed, queue.CodeMethodNotAllowed)
	s.advance(time.Minute)
	resp, body = s.do(t, put.Method, put.URL, payload, put.Headers)
	wantError(t, resp, body, http.StatusForbidden, queue.CodeForbidden)
}

// TestPutOfAPart: a client that means to write a part of an object is told that it cannot.
func TestPutOfAPart(t *testing.T) {
	s := newServer(t)
	req := presignPut(t, s.signer, false)
	resp, body := s.do(t, req.Method, req.URL, payload, map[string]string{"Content-Range": "bytes 0-14/30"})
	wantError(t, resp, body, http.StatusBadRequest, queue.CodeInvalidArgument)
	if resp, body = s.do(t, req.Method, req.URL, payload, nil); resp.StatusCode != http.StatusCreated {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestRefusalNamesTheHeader that differs from what was announced.
func TestRefusalNamesTheHeader(t *testing.T) {
	s := newServer(t)
	req := presignPut(t, s.signer, true)
	for field, send := range map[string]func() (*http.Response, string){
		"Content-Length":    func() (*http.Response, string) { return s.do(t, req.Method, req.URL, payload+"x", req.Headers) },
		blob.ChecksumHeader: func() (*http.Response, string) { return s.do(t, req.Method, req.URL, payload, nil) },
	} {
		resp, body := send()
		wantError(t, resp, body, http.StatusForbidden, queue.CodeForbidden)
		if !strings.Contains(body, `"details":{"field":"`+field+`"}`) {
			t.Errorf("%s", body)
		}
	}
}

func TestUnknownLengthIsRefused(t *testing.T) {
	s := newServer(t)
	put := presignPut(t, s.signer, false)
	req, err := http.NewRequestWithContext(t.Context(), put.Method, s.URL+put.URL, io.MultiReader(strings.NewReader(payload)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	wantError(t, resp, string(body), http.StatusForbidden, queue.CodeForbidden)
}

func TestPresignRefusesBadInput(t *testing.T) {
	s := newSigner()
	later := start().Add(time.Minute)
	if _, err := s.PresignGet(context.Background(), "../x", later); !queue.Is(err, queue.KindInvalid) {
		t.Error(err)
	}
	if _, err := s.PresignGet(context.Background(), "uploads/x", time.Time{}); !queue.Is(err, queue.KindInvalid) {
		t.Error(err)
	}
	if _, err := s.PresignPut(context.Background(), "uploads/x", blob.Terms{Size: -1}, later); !queue.Is(err, queue.KindInvalid) {
		t.Error(err)
	}
	if _, err := s.PresignPut(context.Background(), "uploads/x", blob.Terms{Size: queue.MaxUploadBytes + 1}, later); !queue.Is(err, queue.KindTooLarge) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.PresignGet(ctx, "uploads/x", later); !queue.Is(err, queue.KindCanceled) {
		t.Error(err)
	}
}

// brokenStore opens objects whose bytes end with an error.
type brokenStore struct{ blob.Store }

func (b brokenStore) Open(ctx context.Context, key string, span blob.Span) (io.ReadCloser, blob.Info, error) {
	r, info, err := b.Store.Open(ctx, key, span)
	if err != nil {
		return nil, info, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, 3), errReader{}), r}, info, nil
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, &queue.Error{Kind: queue.KindCorrupt} }

func TestBrokenDownloadIsNotTakenForWhole(t *testing.T) {
	store := memblob.New(t, start, memblob.Options{})
	if _, err := store.Put(t.Context(), "uploads/a", strings.NewReader(payload), blob.Terms{Size: int64(len(payload))}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(signedurl.Handler(brokenStore{store}, newSigner(), start))
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+presignGet(t, newSigner(), "uploads/a"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		return // broken off before the headers came
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Fatalf("a broken body reads as whole: %q", body)
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signing.key")
	random := bytes.NewReader(bytes.Repeat([]byte{7}, 32))
	key, err := signedurl.LoadOrCreateKey(path, random)
	if err != nil || key != [32]byte(bytes.Repeat([]byte{7}, 32)) {
		t.Fatal(key, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	again, err := signedurl.LoadOrCreateKey(path, random) // the source has run dry
	if err != nil || again != key {
		t.Fatal(again, err)
	}
	if names, _ := os.ReadDir(filepath.Dir(path)); len(names) != 1 {
		t.Fatalf("%d files are left", len(names))
	}
	if err = os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = signedurl.LoadOrCreateKey(path, random); !queue.Is(err, queue.KindInvalid) {
		t.Fatal(err)
	}
	if err = os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err = os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = signedurl.LoadOrCreateKey(path, random); !queue.Is(err, queue.KindCorrupt) {
		t.Fatal(err)
	}
	if _, err = signedurl.LoadOrCreateKey(filepath.Join(path, "none", "x"), random); err == nil {
		t.Fatal("a key below a file")
	}
}

func TestKeyFileRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signing.key")
	var keys [16][32]byte
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			key, err := signedurl.LoadOrCreateKey(path, bytes.NewReader(bytes.Repeat([]byte{byte(i + 1)}, 32)))
			if err != nil {
				t.Error(err)
			}
			keys[i] = key
		})
	}
	wg.Wait()
	for _, key := range keys {
		if key != keys[0] {
			t.Fatal("two processes got two keys")
		}
	}
}

// FuzzVerify: whatever comes, Verify either refuses it or gives terms that sign to the same URL.
func FuzzVerify(f *testing.F) {
	signer := newSigner()
	now := start()
	put, err := signer.PresignPut(context.Background(), "uploads/x", blob.Terms{Size: 3, CRC32C: 7, HasCRC32C: true}, now.Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	get, err := signer.PresignGet(context.Background(), "uploads/x", now.Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("PUT", put.URL, int64(3), put.Headers[blob.ChecksumHeader])
	f.Add("GET", get.URL, int64(0), "")
	f.Add("HEAD", get.URL+"&", int64(-1), "x")
	f.Fuzz(func(t *testing.T, method, target string, length int64, checksum string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		terms, err := signer.Verify(signedurl.Attempt{
			Method: method, EscapedPath: u.EscapedPath(), RawQuery: u.RawQuery, ContentLength: length,
			Header: http.Header{http.CanonicalHeaderKey(blob.ChecksumHeader): {checksum}},
		}, now)
		if err != nil {
			if !queue.Is(err, queue.KindDenied) || queue.CodeOf(err) != queue.CodeForbidden {
				t.Fatalf("%v", err)
			}
			return
		}
		want := get.URL
		if method == http.MethodPut {
			want = put.URL
		}
		if got := u.EscapedPath() + "?" + u.RawQuery; got != want || terms.Key != "uploads/x" {
			t.Fatalf("%s passes as %+v", got, terms)
		}
	})
}
