package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// maxErrorBytes bounds what is read of an error's body.
	maxErrorBytes = 64 << 10
	// maxJSONBytes bounds what is read of a JSON answer. The largest are pages of messages with
	// their bodies and results of a batch.
	maxJSONBytes = 4 * queue.MaxClaimBytes
	// maxDrainBytes is how much is read to save a connection; beyond it closing is cheaper.
	maxDrainBytes = 256 << 10
)

// call is one call of the API, before it is made.
type call struct {
	// op says what it does, for errors: "create topic".
	op     string
	method string
	// path is below the endpoint and escaped.
	path  string
	query url.Values
	// in is encoded as JSON; or body is sent as it is, with type mediaType.
	in        any
	body      []byte
	mediaType string
	accept    string
	guard     Guard
	// repeatable: making the call twice is as good as once. Set for every call that is not a
	// produce without a guard or a change of segments.
	repeatable bool
	// attempts is the number of tries; 0 takes the client's.
	attempts int
	// wait is how long the server may take besides its usual time.
	wait time.Duration
	// out is what a JSON answer is decoded into; nil if its body does not matter. read, if set,
	// takes the answer's body instead.
	out  any
	read func(*http.Response) error
}

// topicPath is the path of a topic and of what is below it; each part is escaped.
func topicPath(topic string, parts ...string) string {
	var b strings.Builder
	b.WriteString("/v1/topics/")
	b.WriteString(url.PathEscape(topic))
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// do makes the call, again where that is safe and may help. It reports how the tries before the last
// ended: unsure is true if one of them may have taken effect.
func (c *Client) do(ctx context.Context, call *call) (unsure bool, err error) {
	if call.in != nil {
		if call.body, err = json.Marshal(call.in); err != nil {
			return false, &queue.Error{Op: call.op, Kind: queue.KindInvalid, Message: "cannot be encoded", Err: err}
		}
		call.mediaType = wire.MediaTypeJSON
	}
	attempts := orDefault(call.attempts, c.retry.Attempts)
	for failed := 1; ; failed++ {
		err = c.try(ctx, call)
		if err == nil || failed >= attempts || !retryable(err, call.repeatable) {
			return unsure, err
		}
		unsure = unsure || ambiguous(err)
		if !sleep(ctx, c.pause(failed, err)) {
			return unsure, err
		}
	}
}

// try makes the call once; twice if what stands before the server refused it and its signer knows better
// now.
func (c *Client) try(parent context.Context, call *call) error {
	ctx, cancel := context.WithTimeout(parent, c.retry.AttemptTimeout+call.wait)
	defer cancel()
	again, err := c.send(ctx, parent, call)
	if again {
		_, err = c.send(ctx, parent, call)
	}
	return err
}

// send makes the call under ctx, which is within parent. Again says that the call was refused, has
// changed nothing, and may do better if it is signed anew.
func (c *Client) send(ctx, parent context.Context, call *call) (again bool, err error) {
	target := c.base + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, call.method, target, requestBody(call.body))
	if err != nil {
		return false, &queue.Error{Op: call.op, Kind: queue.KindInvalid, Err: err}
	}
	c.setHeaders(req.Header, call)
	if err := c.authorize(parent, req, call); err != nil {
		return false, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false, transportError(parent, call.op, err)
	}
	defer func() { drain(resp.Body); _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		e, ours := c.errorAnswer(call.op, resp)
		return !ours && c.refused(resp, e), e
	}
	switch {
	case call.read != nil:
		return false, call.read(resp)
	case call.out != nil:
		return false, decodeAnswer(parent, call, resp)
	}
	return false, nil
}

// requestBody gives net/http a type that it knows to rewind and whose length it knows.
func requestBody(b []byte) io.Reader {
	if len(b) == 0 {
		return http.NoBody
	}
	return bytes.NewReader(b)
}

func (c *Client) setHeaders(h http.Header, call *call) {
	h.Set("User-Agent", c.userAgent)
	h.Set("Accept", orDefault(call.accept, wire.MediaTypeJSON))
	if len(call.body) > 0 {
		h.Set("Content-Type", call.mediaType)
	}
	if call.guard.IdempotencyKey != "" {
		h.Set(wire.HeaderIdempotencyKey, call.guard.IdempotencyKey)
	}
	if call.guard.ProducerID != "" && call.mediaType == wire.MediaTypeBatch {
		h.Set(wire.HeaderProducerID, call.guard.ProducerID)
		h.Set(wire.HeaderProducerSequence, strconv.FormatUint(call.guard.Sequence, 10))
	}
}

func decodeAnswer(parent context.Context, call *call, resp *http.Response) error {
	body, err := readBounded(resp.Body, resp.ContentLength, maxJSONBytes)
	if err != nil {
		return transportError(parent, call.op, err)
	}
	if len(body) > maxJSONBytes {
		return malformed(call.op, fmt.Errorf("longer than %d bytes", maxJSONBytes))
	}
	if err := json.Unmarshal(body, call.out); err != nil {
		return malformed(call.op, err)
	}
	return nil
}

// readBounded reads at most limit+1 bytes; hint, if not negative, is how many there should be.
func readBounded(r io.Reader, hint, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	if hint >= 0 {
		// One byte more than ReadFrom's own spare room, so that it need not grow to see the end.
		buf.Grow(int(min(hint, 1<<20)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	return buf.Bytes(), err
}

// drain reads what is left of a body, so that its connection can be used again.
func drain(body io.Reader) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxDrainBytes))
}

// errorAnswer reads an answer that is not a success. One without the API's error body is not ours: it came
// from something between us and the server.
func (c *Client) errorAnswer(op string, resp *http.Response) (e *APIError, ours bool) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	after := c.retryAfter(resp.Header.Get("Retry-After"))
	id := resp.Header.Get(wire.HeaderRequestID)
	var answer wire.ErrorAnswer
	if json.Unmarshal(body, &answer) == nil && answer.Error.Code != "" {
		e := newAPIError(op, &answer.Error)
		e.Status, e.RequestID, e.RetryAfter = resp.StatusCode, id, max(e.RetryAfter, after)
		return e, true
	}
	e = &APIError{
		Op: op, Status: resp.StatusCode, Code: codeOfStatus(resp.StatusCode), RetryAfter: after, RequestID: id,
		Message: fmt.Sprintf("HTTP status %d without an error of the API", resp.StatusCode), gateway: gatewayMessage(body),
	}
	if e.gateway != "" {
		e.Message += fmt.Sprintf(": %q", e.gateway)
	}
	e.Retryable = e.Code.Retryable()
	return e, false
}

func codeOfStatus(status int) queue.Code {
	switch status {
	case http.StatusUnauthorized:
		return queue.CodeUnauthorized
	case http.StatusForbidden:
		return queue.CodeForbidden
	case http.StatusNotFound:
		return queue.CodeRouteNotFound
	case http.StatusRequestEntityTooLarge:
		return queue.CodeTooLarge
	case http.StatusTooManyRequests:
		return queue.CodeThrottled
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		// A gateway cannot know what the server behind it did.
		return queue.CodeOutcomeUnknown
	}
	if status < 500 {
		return queue.CodeInvalidArgument
	}
	return queue.CodeInternal
}

// retryAfter reads the header: seconds, or a date.
func (c *Client) retryAfter(value string) time.Duration {
	if value == "" {
		return 0
	}
	if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 && s < time.Hour.Seconds() {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(c.clock()), 0), time.Hour)
	}
	return 0
}
