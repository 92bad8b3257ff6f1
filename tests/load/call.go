package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Target is where calls go.
type Target interface {
	// URL is the server that the next call goes to.
	URL() string
	// Do sends a request and reads its whole answer. Its error is ErrDown.
	Do(req *http.Request) (data []byte, status int, err error)
}

// ErrDown says that a server did not answer, so that whether it did what it was asked is not known.
var ErrDown = errors.New("no answer")

// Request is a call of the API.
type Request struct {
	Method, Path string
	Headers      map[string]string
	In           any
}

// Call makes one API call. Its error is ErrDown, or says what the server refused.
func Call(ctx context.Context, to Target, r Request, out any) error {
	var body io.Reader
	if r.In != nil {
		data, err := json.Marshal(r.In)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, to.URL()+r.Path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range r.Headers {
		req.Header.Set(k, v)
	}
	data, status, err := to.Do(req)
	if err != nil {
		return err
	}
	if status >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %d %s", r.Method, r.Path, status, strings.TrimSpace(string(data)))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: %w in %s", r.Method, r.Path, err, data)
	}
	return nil
}

// Send sends a request with c, as a Target's Do.
func Send(c *http.Client, req *http.Request) (data []byte, status int, err error) {
	resp, err := c.Do(req) // #nosec G704 -- a test's own server
	if err != nil {
		return nil, 0, ErrDown
	}
	defer func() { _ = resp.Body.Close() }()
	if data, err = io.ReadAll(resp.Body); err != nil {
		return nil, 0, ErrDown
	}
	return data, resp.StatusCode, nil
}

// Retryable reports whether a refusal is worth another try.
func Retryable(err error) bool {
	text := err.Error()
	return strings.Contains(text, `"retryable":true`) || strings.Contains(text, "503") || strings.Contains(text, "in_progress")
}
