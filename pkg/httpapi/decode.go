package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// mediaType is the Content-Type without parameters; "" if there is none.
func mediaType(r *http.Request) (string, error) {
	header := r.Header.Get("Content-Type")
	if header == "" {
		return "", nil
	}
	media, params, err := mime.ParseMediaType(header)
	if err != nil {
		return "", unsupported("Content-Type", "cannot be read")
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return "", unsupported("Content-Type", "charset must be utf-8")
	}
	return media, nil
}

func unsupported(header, what string) error {
	return &queue.Error{
		Kind: queue.KindInvalid, Code: queue.CodeUnsupportedMediaType, Field: header,
		Message: header + ": " + what,
	}
}

// readBody reads a request's body, at most queue.MaxRequestBytes, into buf.
func readBody(w http.ResponseWriter, r *http.Request, buf *bytes.Buffer) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return unsupported("Content-Encoding", "is not taken")
	}
	if r.ContentLength > queue.MaxRequestBytes {
		return queue.TooLarge("request", queue.MaxRequestBytes, r.ContentLength)
	}
	if r.ContentLength > 0 {
		// One more than there will be, so that the end is seen without growing. The length is
		// the caller's word: it buys no more than a step before bytes have come.
		buf.Grow(int(min(r.ContentLength, maxPooledBytes)) + bytes.MinRead)
	}
	if a, ok := w.(*answer); ok {
		w = a.ResponseWriter // the reader tells the server, whose own type it looks for
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, queue.MaxRequestBytes))
	var tooLarge *http.MaxBytesError
	var known *queue.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return queue.TooLarge("request", queue.MaxRequestBytes, queue.MaxRequestBytes+1)
	case errors.As(err, &known):
		return err
	case r.Context().Err() != nil || errors.Is(err, io.ErrUnexpectedEOF):
		return &queue.Error{Op: "read request", Kind: queue.KindCanceled, Err: err}
	}
	return queue.Invalid("request", nil, "cannot be read")
}

// readJSON reads a JSON body into dst. No body at all is an empty object.
func (s *server) readJSON(w http.ResponseWriter, r *http.Request, dst any) error {
	buf := s.buffer()
	defer s.recycle(buf)
	if err := readBody(w, r, buf); err != nil {
		return err
	}
	return s.decodeJSON(r, buf.Bytes(), dst)
}

func (s *server) decodeJSON(r *http.Request, body []byte, dst any) error {
	if len(body) == 0 {
		return nil
	}
	media, err := mediaType(r)
	if err != nil {
		return err
	}
	if media != "" && media != wire.MediaTypeJSON {
		return unsupported("Content-Type", "must be "+wire.MediaTypeJSON)
	}
	return s.json.Decode(body, dst)
}

func encodeJSON(buf *bytes.Buffer, v any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return &queue.Error{Op: "encode answer", Kind: queue.KindInternal, Err: err}
	}
	return nil
}

// writeJSON answers with v.
func (s *server) writeJSON(w http.ResponseWriter, status int, v any) error {
	buf := s.buffer()
	defer s.recycle(buf)
	if err := encodeJSON(buf, v); err != nil {
		return err
	}
	_ = writeBody(w, status, wire.MediaTypeJSON, buf) // a caller that is gone needs no answer
	return nil
}

// refused reports whether a quality value says "not this one": 0, with up to three decimals (RFC 9110, 12.4.2).
func refused(quality string) bool {
	q, err := strconv.ParseFloat(quality, 64)
	return err == nil && q == 0
}

// accepts reports whether the caller asks for a media type by name.
func accepts(r *http.Request, media string) bool {
	for _, header := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(header, ",") {
			got, params, err := mime.ParseMediaType(part)
			if err == nil && got == media && !refused(params["q"]) {
				return true
			}
		}
	}
	return false
}
