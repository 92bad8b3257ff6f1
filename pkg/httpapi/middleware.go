package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	maxRequestIDBytes = 128
	// maxLoggedBytes bounds what of a path comes into the log.
	maxLoggedBytes = 512
	// minRetryAfter is what a caller is told where the use case names no time.
	minRetryAfter = time.Second
)

// answer is the response of one call: it remembers what was sent.
type answer struct {
	http.ResponseWriter
	patience *patience
	id       string
	status   int
	sent     int64
	code     queue.Code
	err      error
	// entry is the first fault of the server among the entries of a call that succeeded as a whole.
	entry   error
	started bool
	// cut: what was sent is not whole.
	cut bool
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if !a.started {
		a.started, a.status = true, status
	}
	a.patience.beforeWrite()
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if !a.started {
		a.WriteHeader(http.StatusOK)
	}
	n := 0
	for first := true; first || n < len(b); first = false {
		a.patience.beforeWrite()
		part, err := a.ResponseWriter.Write(b[n:min(n+writeBytes, len(b))])
		n += part
		a.sent += int64(part)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// counted is a request body that counts what was read of it.
type counted struct {
	io.ReadCloser
	patience *patience
	n        int64
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	c.patience.beforeRead(c.n)
	n, err := c.ReadCloser.Read(p)
	c.n += int64(n)
	return n, c.patience.afterRead(err)
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, original *http.Request) {
	// A copy, because the server looks at its own request's body when the call is over: it closes a
	// connection gently whose body was not read, so that the answer is not lost in a reset; of a
	// body that was put in its place it would know nothing.
	r := new(http.Request)
	*r = *original
	start := s.Clock()
	waits := newPatience(w, r, s.Patience)
	a := &answer{ResponseWriter: w, patience: waits, id: s.requestID(r)}
	body := &counted{ReadCloser: http.NoBody, patience: waits}
	if r.Body != nil {
		body.ReadCloser = r.Body
	}
	r.Body = body
	a.Header().Set(wire.HeaderRequestID, a.id)
	known := canonical(r.URL.EscapedPath())
	defer func() {
		abort := s.recovered(a, r, recover())
		s.record(a, r, Observation{
			Route: routeName(r.Pattern), Method: r.Method, Status: a.status, Code: a.code,
			Duration: s.Clock().Sub(start), Received: body.n, Sent: a.sent, EntryFault: a.entry != nil,
		})
		if abort {
			panic(http.ErrAbortHandler)
		}
	}()
	switch {
	case !s.authorized(r):
		if known {
			_, r.Pattern = s.mux.Handler(r)
		}
		a.Header().Set("WWW-Authenticate", "Bearer")
		s.fail(a, r, &queue.Error{
			Kind: queue.KindDenied, Code: queue.CodeUnauthorized, Message: "a valid bearer token is needed",
		})
	case !known:
		s.noRoute(a, r)
	default:
		s.mux.ServeHTTP(a, r)
		original.Pattern = r.Pattern
	}
}

func routeName(pattern string) string {
	if pattern == "/" || pattern == "" {
		return "other"
	}
	return pattern
}

// requestID is the caller's, if it is fit to be logged and sent back, or a new one.
func (s *server) requestID(r *http.Request) string {
	id := r.Header.Get(wire.HeaderRequestID)
	if id == "" || len(id) > maxRequestIDBytes {
		return s.IDs.ID()
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return s.IDs.ID()
		}
	}
	return id
}

// authorized compares hashes, so that neither the time nor the length of the comparison tells
// anything of the token.
func (s *server) authorized(r *http.Request) bool {
	if s.Token == "" || r.URL.Path == pathHealth || strings.HasPrefix(r.URL.Path, pathObjects) {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(sum[:], s.tokenHash[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// recovered answers a call whose handler panicked. The caller gets no more than the request id. Where
// half an answer is out already, cutting the connection is the one way to say that it is not whole:
// abort says so.
func (s *server) recovered(a *answer, r *http.Request, p any) (abort bool) {
	switch p {
	case nil:
		return false
	case http.ErrAbortHandler: // compared by identity, as net/http does
		a.code = queue.CodeCanceled
		return true
	}
	s.fail(a, r, &queue.Error{Op: "serve", Kind: queue.KindInternal, Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())})
	return a.cut
}

// fail answers with the error form. Of an answer that has begun nothing can be taken back.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	err = canceledOr(r.Context(), err)
	if queue.Is(err, queue.KindCanceled) && errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		err = outOfTime(r.Method, err)
	}
	e := wire.ErrorOf(err)
	if a, ok := w.(*answer); ok {
		a.code, a.err = e.Code, err
		if a.started {
			a.cut = true
			return
		}
	}
	status := e.Code.Status()
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter(err))
	}
	buf := s.buffer()
	defer s.recycle(buf)
	if encodeJSON(buf, wire.ErrorAnswer{Error: *e}) != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Del("Content-Encoding")
	h.Set("Cache-Control", "no-store")
	_ = writeBody(w, status, wire.MediaTypeJSON, buf)
}

// outOfTime is what a call ends with whose own time was up: not the caller went away, but a store did not answer.
// Of a call that changes something nobody knows then how far it came.
func outOfTime(method string, err error) error {
	e := &queue.Error{Op: "serve", Kind: queue.KindOutcomeUnknown, Message: "the call's time was up before a store answered; it may have taken effect", Err: err}
	if method == http.MethodGet || method == http.MethodHead {
		e.Kind, e.Message = queue.KindUnavailable, "the call's time was up before a store answered"
	}
	return e
}

// canceledOr gives the plain errors of a context the kind that they have here.
func canceledOr(ctx context.Context, err error) error {
	var e *queue.Error
	if errors.As(err, &e) || ctx.Err() == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &queue.Error{Op: "serve", Kind: queue.KindCanceled, Err: err}
}

func retryAfter(err error) string {
	wait := minRetryAfter
	var e *queue.Error
	if errors.As(err, &e) {
		wait = max(wait, e.RetryAfter)
	}
	return fmt.Sprint(int64((wait + time.Second - 1) / time.Second))
}

// record writes the log line and tells the metrics.
func (s *server) record(a *answer, r *http.Request, o Observation) {
	level := slog.LevelDebug
	switch {
	case o.Route == pathReady && o.Code == queue.CodeUnavailable:
		level = slog.LevelInfo // an answer as good as the other
	case o.Status >= http.StatusInternalServerError, o.EntryFault:
		level = slog.LevelError
	case o.Status >= http.StatusBadRequest && o.Code != queue.CodeCanceled:
		level = slog.LevelInfo
	}
	if s.Observe != nil {
		s.Observe(o)
	}
	if !s.Logger.Enabled(r.Context(), level) {
		return
	}
	where := r.URL.EscapedPath() // without the query, which may hold a signature
	if len(where) > maxLoggedBytes {
		where = where[:maxLoggedBytes]
	}
	attrs := []slog.Attr{
		slog.String("request_id", a.id), slog.String("method", o.Method), slog.String("path", where),
		slog.String("route", o.Route), slog.Int("status", o.Status), slog.Duration("duration", o.Duration),
		slog.Int64("received", o.Received), slog.Int64("sent", o.Sent),
	}
	if o.Code != "" {
		attrs = append(attrs, slog.String("code", string(o.Code)))
	}
	if a.err != nil {
		attrs = append(attrs, slog.String("error", a.err.Error()))
	}
	if a.entry != nil {
		attrs = append(attrs, slog.String("entry_code", string(queue.CodeOf(a.entry))), slog.String("entry_error", a.entry.Error()))
	}
	s.Logger.LogAttrs(context.WithoutCancel(r.Context()), level, "call", attrs...)
}

// noteEntry remembers what one entry of a call ended with, if that is a fault of the server: the call's answer is
// 200, and neither log nor metrics would tell.
func noteEntry(w http.ResponseWriter, err error) {
	a, ok := w.(*answer)
	if ok && err != nil && a.entry == nil && queue.CodeOf(err).Status() >= http.StatusInternalServerError {
		a.entry = err
	}
}

func noteRuns(w http.ResponseWriter, given produce.Answer) {
	for i := range given.Runs {
		noteEntry(w, given.Runs[i].Err)
	}
}

// writeBody sends a whole body.
func writeBody(w http.ResponseWriter, status int, contentType string, body *bytes.Buffer) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", fmt.Sprint(body.Len()))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err := w.Write(body.Bytes())
	return err
}
