package s3blob_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/pkg/blob/s3blob"
)

// A fault stands between the driver and S3 for one request; send lets the request through.
type fault func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error)

// faults is the transport of a client under test. It knows a request by its op, as opOf names it.
type faults struct {
	mu   sync.Mutex // guards all below
	byOp map[string]fault
	left map[string]int // how many requests still meet the fault; no entry means all
	seen []string       // the ops of all requests
}

// on makes the next n requests of op meet f; n of 0 means all.
func (f *faults) on(op string, n int, do fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byOp[op] = do
	if n > 0 {
		f.left[op] = n
	}
}

// heal removes all faults and forgets what was seen.
func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byOp, f.left, f.seen = map[string]fault{}, map[string]int{}, nil
}

// ops are the requests seen, in order.
func (f *faults) ops() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.seen, " ")
}

func (f *faults) RoundTrip(r *http.Request) (*http.Response, error) {
	op := opOf(r)
	f.mu.Lock()
	f.seen = append(f.seen, op)
	do := f.byOp[op]
	if left, ok := f.left[op]; ok && do != nil {
		if left == 0 {
			do = nil
		} else {
			f.left[op] = left - 1
		}
	}
	f.mu.Unlock()
	send := func() (*http.Response, error) { return http.DefaultTransport.RoundTrip(r) }
	if do == nil {
		return send()
	}
	return do(r, send)
}

func opOf(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodHead:
		return "head"
	case q.Has("list-type"):
		return "list"
	case r.Method == http.MethodGet:
		return "get"
	case q.Has("partNumber"):
		return "part"
	case r.Method == http.MethodPut:
		return "put"
	case q.Has("uploads"):
		return "start"
	case q.Has("delete"):
		return "delete"
	case r.Method == http.MethodDelete:
		return "abort"
	case q.Has("uploadId"):
		return "complete"
	}
	return "other"
}

// lost: the request is carried out and its answer never comes.
func lost(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
	resp, err := send()
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// cutOff: the connection breaks before all of the request is there. Nobody knows that from here.
func cutOff(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}

// down: nobody listens.
func down(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// slow: no answer comes for as long as the caller waits.
func slow(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// answer: S3 refuses, or says what text says, without carrying out the request.
func answer(status int, text string) fault {
	return func(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
		if r.Body != nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
		}
		text := text
		if r.Method == http.MethodHead {
			text = ""
		}
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header:        http.Header{"Content-Type": {"application/xml"}, "Content-Length": {strconv.Itoa(len(text))}},
			Body:          io.NopCloser(strings.NewReader(text)),
			ContentLength: int64(len(text)), Request: r,
		}, nil
	}
}

// says: S3 refuses with a code.
func says(status int, code string) fault { return answer(status, errorText(code)) }

// body: the answer's body is changed.
func body(change func(data []byte) io.Reader) fault {
	return func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(change(data))
		return resp, nil
	}
}

// breakOff: the connection breaks after half of the body.
func breakOff() fault {
	return body(func(data []byte) io.Reader {
		return io.MultiReader(bytes.NewReader(data[:len(data)/2]), failing{errors.New("connection reset by peer")})
	})
}

// endEarly: the body ends after half of it, as if that were all.
func endEarly() fault {
	return body(func(data []byte) io.Reader { return bytes.NewReader(data[:len(data)/2]) })
}

// flip: one bit of the body is wrong.
func flip() fault {
	return body(func(data []byte) io.Reader {
		data[len(data)/2] ^= 1
		return bytes.NewReader(data)
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// world is a store whose requests meet faults, over a fake S3.
type world struct {
	*s3blob.Store
	faults *faults
	// client goes straight to the S3.
	client *s3.Client
	bucket string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	e := startFake(t)
	f := &faults{}
	f.heal()
	bucket := newBucket(t, e)
	store := newStore(t, e.client(f), bucket, s3blob.Options{PartBytes: s3blob.MinPartBytes})
	return &world{Store: store, faults: f, client: e.client(nil), bucket: bucket}
}
