package signedurl

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// copyBytes is the buffer of one download.
const copyBytes = 64 << 10

// Handler serves PUT, GET and HEAD below BasePath out of store, to requests that signer has signed.
// PUT answers 201, or 409 if the key is taken; GET takes one range. Errors have the API's form.
func Handler(store blob.Store, signer *Signer, clock queue.Clock) http.Handler {
	return &handler{store, signer, clock}
}

type handler struct {
	store  blob.Store
	signer *Signer
	clock  queue.Clock
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-store")
	var err error
	switch r.Method {
	case http.MethodPut, http.MethodGet, http.MethodHead:
		var t Terms
		if t, err = h.signer.Verify(AttemptOf(r), h.clock()); err != nil {
			break
		}
		if t.Method == http.MethodPut {
			err = h.put(w, r, t)
		} else {
			err = h.get(w, r, t.Key)
		}
	default:
		head.Set("Allow", "GET, HEAD, PUT")
		err = &queue.Error{
			Op: "serve object", Kind: queue.KindInvalid, Code: queue.CodeMethodNotAllowed,
			Message: "objects take GET, HEAD and PUT",
		}
	}
	if err != nil {
		writeError(w, r, err)
	}
}

func (h *handler) put(w http.ResponseWriter, r *http.Request, t Terms) error {
	if r.Header.Get("Content-Range") != "" {
		// RFC 9110, 14.5: a client that means to put a part must not be told that all is well.
		return queue.Invalid("Content-Range", nil, "is not taken: an object is put whole")
	}
	// A checksum that was not announced still says what the client means to send.
	if sent := r.Header.Values(blob.ChecksumHeader); len(sent) > 0 && !t.Put.HasCRC32C {
		sum, err := blob.ParseChecksum(blob.ChecksumHeader, sent[0])
		if err != nil {
			return err
		}
		if len(sent) > 1 {
			return queue.Invalid(blob.ChecksumHeader, 1, "is sent more than once")
		}
		t.Put.CRC32C, t.Put.HasCRC32C = sum, true
	}
	info, err := h.store.Put(r.Context(), t.Key, r.Body, t.Put)
	if err != nil {
		return err
	}
	describe(w.Header(), info)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusCreated)
	return nil
}

func describe(head http.Header, info blob.Info) {
	head.Set(blob.ChecksumHeader, blob.FormatChecksum(info.CRC32C))
	head.Set("ETag", etag(info))
	head.Set("Last-Modified", info.Modified.UTC().Format(http.TimeFormat))
}

// etag need only tell objects of one key apart, and a key never has two.
func etag(info blob.Info) string {
	return `"` + digits(info.CRC32C) + "-" + strconv.FormatInt(info.Size, 16) + `"`
}

func (h *handler) get(w http.ResponseWriter, r *http.Request, key string) error {
	info, err := h.store.Head(r.Context(), key)
	if err != nil {
		return err
	}
	head := w.Header()
	head.Set("Accept-Ranges", "bytes")
	if noneMatch(r.Header.Get("If-None-Match"), etag(info)) {
		describe(head, info)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	span, status := blob.Span{}, http.StatusOK
	if mayRange(r, info) {
		var ok, partial bool
		if span, partial, ok = parseRange(r.Header.Get("Range"), info.Size); !ok {
			head.Set("Content-Range", "bytes */"+strconv.FormatInt(info.Size, 10))
			return errRange(info.Size)
		}
		if partial {
			status = http.StatusPartialContent
		}
	}
	return h.send(w, r, info, span, status)
}

// mayRange: If-Range asks for the range only if the object is still the one that the client has.
func mayRange(r *http.Request, info blob.Info) bool {
	cond := r.Header.Get("If-Range")
	return r.Header.Get("Range") != "" && (cond == "" || cond == etag(info))
}

func (h *handler) send(w http.ResponseWriter, r *http.Request, info blob.Info, span blob.Span, status int) error {
	body := io.NopCloser(http.NoBody)
	if r.Method != http.MethodHead {
		var err error
		if body, _, err = h.store.Open(r.Context(), info.Key, span); err != nil {
			return err
		}
	}
	defer body.Close() //nolint:errcheck // only read
	head := w.Header()
	describe(head, info)
	head.Set("Content-Type", "application/octet-stream")
	head.Set("Content-Disposition", "attachment")
	length := info.Size
	if status == http.StatusPartialContent {
		length = span.Len
		head.Set("Content-Range", "bytes "+strconv.FormatInt(span.Pos, 10)+"-"+
			strconv.FormatInt(span.Pos+span.Len-1, 10)+"/"+strconv.FormatInt(info.Size, 10))
	}
	head.Set("Content-Length", strconv.FormatInt(length, 10))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{body}, make([]byte, copyBytes))
	if err != nil {
		// The status has been sent: breaking the connection is the only way left to say that
		// the body is not whole.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// errorBody is the error form of the API; docs/openapi.yaml describes it. The edge's wire types lie
// above this package, so the form is repeated here, and a test there may compare the two.
type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Code      queue.Code    `json:"code"`
	Message   string        `json:"message"`
	Retryable bool          `json:"retryable"`
	Details   *errorDetails `json:"details,omitempty"`
}

type errorDetails struct {
	Field string `json:"field,omitempty"`
	Limit any    `json:"limit,omitempty"`
	// RetryAfter is in seconds.
	RetryAfter float64 `json:"retry_after,omitempty"`
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	fields, status := fieldsOf(err)
	head := w.Header()
	if d := fields.Details; d != nil && d.RetryAfter > 0 {
		// Rounded up: a client that comes too early is sent away again.
		head.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(d.RetryAfter)), 10))
	}
	if r.Method == http.MethodPut && r.ContentLength != 0 {
		// What is left of a refused upload is not worth reading.
		head.Set("Connection", "close")
	}
	head.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		// The client may be gone; there is nobody to tell.
		_ = json.NewEncoder(w).Encode(errorBody{fields})
	}
}

// fieldsOf leaves out operation and cause, which may name files of the server, and says of the
// server's own faults the code alone.
func fieldsOf(err error) (errorFields, int) {
	code := queue.CodeOf(err)
	fields := errorFields{Code: code, Message: code.Info().Doc, Retryable: code.Retryable()}
	var e *queue.Error
	if !errors.As(err, &e) || code.Status() == http.StatusInternalServerError {
		return fields, code.Status()
	}
	if e.Message != "" {
		fields.Message = e.Message
	}
	if e.Field != "" || e.Limit != nil || e.RetryAfter > 0 {
		fields.Details = &errorDetails{e.Field, e.Limit, e.RetryAfter.Seconds()}
	}
	if e.Field == rangeField {
		return fields, http.StatusRequestedRangeNotSatisfiable
	}
	return fields, code.Status()
}
