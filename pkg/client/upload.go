package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// minUploadRate, in bytes a second, is the slowest transfer that is not given up: a body's time is
// the usual time of a try and what the body takes at that rate.
const minUploadRate = 256 << 10

// castagnoli is made anew where it is needed; the standard library caches it.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func transferTime(size int64) time.Duration {
	return time.Duration(size/minUploadRate) * time.Second
}

// Object is an uploaded object, to be submitted with Reference before it is collected.
type Object struct {
	// Name is the object's key.
	Name string
	Size int64
	// CRC32C is the checksum of its bytes if HasCRC.
	CRC32C uint32
	HasCRC bool
}

// checksum is the API's form of the checksum; empty for none.
func (o Object) checksum() string {
	if !o.HasCRC {
		return ""
	}
	return fmt.Sprintf("crc32c:%08x", o.CRC32C)
}

// Upload puts size bytes of r, 0 to queue.MaxUploadBytes, straight into the object store. An
// io.ReadSeeker is read twice, from where it stands: for its checksum, which the store then holds
// the upload to, and for the upload, which is tried again if it fails. Any other reader is read once,
// as it comes, and has neither.
func (c *Client) Upload(ctx context.Context, topic string, r io.Reader, size int64) (Object, error) {
	if size < 0 || size > queue.MaxUploadBytes {
		return Object{}, queue.Invalid("size", queue.Bound(size, 0, queue.MaxUploadBytes), "must be 0 to %d bytes, not %d", int64(queue.MaxUploadBytes), size)
	}
	up := upload{op: "upload", object: Object{Size: size}}
	seeker, ok := r.(io.ReadSeeker)
	if !ok {
		up.open = func() (io.Reader, error) { return r, nil }
		return c.upload(ctx, topic, up)
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return Object{}, fmt.Errorf("find where the upload starts: %w", err)
	}
	sum := crc32.New(castagnoli())
	if _, err := io.CopyN(sum, seeker, size); err != nil {
		return Object{}, fmt.Errorf("read the upload's %d bytes: %w", size, err)
	}
	up.object.CRC32C, up.object.HasCRC = sum.Sum32(), true
	up.again = true
	up.open = func() (io.Reader, error) {
		_, err := seeker.Seek(start, io.SeekStart)
		return seeker, err
	}
	return c.upload(ctx, topic, up)
}

// UploadBytes is Upload of bytes at hand.
func (c *Client) UploadBytes(ctx context.Context, topic string, data []byte) (Object, error) {
	return c.upload(ctx, topic, upload{
		op:     "upload",
		object: Object{Size: int64(len(data)), CRC32C: crc32.Checksum(data, castagnoli()), HasCRC: true},
		again:  true,
		open:   func() (io.Reader, error) { return bytes.NewReader(data), nil },
	})
}

// upload is one object to be put.
type upload struct {
	op     string
	object Object
	// again: open may be called more than once.
	again bool
	open  func() (io.Reader, error)
}

// upload asks for a place and puts the object there. Each try asks anew: the last URL may be what the
// try failed for, and a place that was written in part is left to the collector.
func (c *Client) upload(ctx context.Context, topic string, up upload) (Object, error) {
	for failed := 1; ; failed++ {
		o, err := c.uploadOnce(ctx, topic, up)
		// A URL that is refused was too old when it came: its caller was slow, or a clock was set.
		again := retryable(err, true) || o.Name != "" && errors.Is(err, ErrForbidden)
		if err == nil || !up.again || failed >= c.retry.Attempts || !again || !sleep(ctx, c.pause(failed, err)) {
			return o, err
		}
	}
}

func (c *Client) uploadOnce(ctx context.Context, topic string, up upload) (Object, error) {
	o := up.object
	var answer wire.UploadsAnswer
	call := &call{
		op: up.op, method: http.MethodPost, path: topicPath(topic, "uploads"), out: &answer,
		in: &wire.UploadsRequest{Objects: []wire.ObjectIn{{Size: &o.Size, Checksum: o.checksum()}}},
	}
	if err := c.onTopic(ctx, topic, call); err != nil {
		return o, err
	}
	if len(answer.Uploads) != 1 {
		return o, malformed(up.op, errCount(len(answer.Uploads), 1))
	}
	place := &answer.Uploads[0]
	if place.Error != nil {
		return o, apiError(up.op, place.Error)
	}
	body, err := up.open()
	if err != nil {
		return o, fmt.Errorf("read the upload again: %w", err)
	}
	o.Name = place.Object
	return o, c.put(ctx, up.op, place, body, o.Size)
}

// put makes a presigned call. It carries the presigned headers and nothing that says who we are.
func (c *Client) put(parent context.Context, op string, place *wire.Upload, body io.Reader, size int64) error {
	ctx, cancel := context.WithTimeout(parent, c.retry.AttemptTimeout+transferTime(size))
	defer cancel()
	// Also hides a Close from net/http: the reader stays the caller's.
	body = io.LimitReader(body, size)
	if size == 0 {
		body = http.NoBody
	}
	req, err := http.NewRequestWithContext(ctx, place.Method, place.URL, body)
	if err != nil {
		return malformed(op, err)
	}
	req.ContentLength = size
	setPresigned(req, place.Headers)
	resp, err := c.http.Do(req)
	if err != nil {
		return transportError(parent, op, err)
	}
	defer func() { drain(resp.Body); _ = resp.Body.Close() }()
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return nil
	}
	e, _ := c.errorAnswer(op, resp)
	return e
}

func setPresigned(req *http.Request, headers map[string]string) {
	for name, value := range headers {
		switch {
		case strings.EqualFold(name, "Host"):
			req.Host = value
		case !strings.EqualFold(name, "Content-Length"): // net/http writes it from the request
			req.Header.Set(name, value)
		}
	}
}

// Reference submits one uploaded object: as the body of one message, which the other fields describe
// (their Body stays empty), or, if Batch is set, as one encoded batch.
type Reference struct {
	Object  Object
	Batch   bool
	Message Message
}

// ReferenceResult is what became of one reference: one Result for a body, one for each record of a
// batch, in the order in which the batch holds them, or one alone if the batch was refused as a whole.
type ReferenceResult struct {
	Results []Result
}

// Reference submits uploaded objects, 1 to queue.MaxReferences, of which at most one is a batch, and
// gives each its result, in order. Guard and error are as for Produce.
func (c *Client) Reference(ctx context.Context, topic string, references []Reference, guard Guard) ([]ReferenceResult, error) {
	batches := 0
	for i := range references {
		if references[i].Batch {
			batches++
		}
	}
	if len(references) == 0 || len(references) > queue.MaxReferences || batches > 1 {
		return nil, queue.Invalid("references", queue.MaxReferences, "must be 1 to %d, and at most one batch", queue.MaxReferences)
	}
	call, answer := referenceCall(topic, references, guard)
	if err := c.onProduce(ctx, topic, call); err != nil {
		return nil, err
	}
	return referenceResults(call.op, answer, references)
}

func referenceCall(topic string, references []Reference, guard Guard) (*call, *wire.ProduceAnswer) {
	req := wire.ReferencesRequest{References: make([]wire.ReferenceIn, len(references)), Producer: guard.producer()}
	for i := range references {
		req.References[i] = referenceIn(&references[i])
	}
	answer := new(wire.ProduceAnswer)
	return &call{
		op: "reference", method: http.MethodPost, path: topicPath(topic, "references"), in: &req, out: answer,
		guard: guard, repeatable: guard.set(),
	}, answer
}

func referenceIn(r *Reference) wire.ReferenceIn {
	in := wire.ReferenceIn{
		Object: r.Object.Name, Format: wire.FormatBatch, Size: &r.Object.Size, Checksum: r.Object.checksum(),
	}
	if r.Batch {
		return in
	}
	m := &r.Message
	in.Format, in.Headers, in.DedupID = wire.FormatPayload, m.Headers, m.DedupID
	if len(m.Key) > 0 {
		in.KeyBase64 = base64.StdEncoding.EncodeToString(m.Key)
	}
	if m.Delay != nil {
		in.Delay = Seconds(*m.Delay)
	}
	if m.TTL > 0 {
		in.TTL = Seconds(m.TTL)
	}
	return in
}

// referenceResults deals the answer's results out. An accepted batch has as many as it has records, a
// refused one has one: what the other references leave is the batch's.
func referenceResults(op string, answer *wire.ProduceAnswer, references []Reference) ([]ReferenceResult, error) {
	rest := answer.Results
	ofBatch := len(rest) - len(references) + 1
	out := make([]ReferenceResult, len(references))
	for i := range references {
		n := 1
		if references[i].Batch {
			n = ofBatch
		}
		if n < 1 || n > len(rest) {
			return nil, malformed(op, errCount(len(answer.Results), len(references)))
		}
		for k := range rest[:n] {
			r, err := resultOf(op, &rest[k])
			if err != nil {
				return nil, err
			}
			out[i].Results = append(out[i].Results, r)
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return nil, malformed(op, errCount(len(answer.Results), len(references)))
	}
	return out, nil
}
