package client

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const opFetch = "fetch body"

// source is an object, or a part of one, that holds the bodies of one delivery.
type source struct {
	client  *Client
	url     string
	headers map[string]string
	// pos and size are the part of the object that is the body or the batch.
	pos, size int64
	isBatch   bool
	// first and count are the delivery's records in the batch.
	first, count int

	// lock holds a token while someone reads or fetches what follows. It is no mutex because a
	// fetch may take long, and who waits for it may have less time.
	lock chan struct{}
	// prefix is the batch's header, index and block table; nil until it is known.
	prefix []byte
	index  *batch.Index
	// run is the bodies of the whole delivery from runPos of the batch on, if they were fetched.
	run    []byte
	runPos int64
}

func (c *Client) sourceOf(f *wire.Frame) *source {
	s := &source{
		client: c, url: f.Reference.URL, headers: f.Reference.Headers.Map(), pos: f.Reference.Pos, size: f.Reference.Len,
		isBatch: f.Kind == wire.FrameBatch, first: int(f.First), count: f.Count, lock: make(chan struct{}, 1),
	}
	if s.isBatch {
		s.prefix = f.Payload
	}
	return s
}

// refer takes over a reference of a JSON answer.
func (m *Received) refer(c *Client, ref *wire.Reference) error {
	m.source = &source{
		client: c, url: ref.URL, headers: ref.Headers, pos: ref.Offset, size: ref.Length, isBatch: ref.Format == wire.FormatBatch,
		lock: make(chan struct{}, 1),
	}
	if ref.Checksum != "" {
		if _, err := fmt.Sscanf(ref.Checksum, "crc32c:%08x", &m.crc); err != nil {
			return fmt.Errorf("checksum %q: %w", ref.Checksum, err)
		}
		m.hasCRC = true
	}
	if m.Size = ref.Length; !m.source.isBatch {
		return nil
	}
	m.Size = -1
	if ref.Record == nil || *ref.Record < 0 || *ref.Record >= queue.MaxBatchRecords {
		return fmt.Errorf("a reference into a batch without a record")
	}
	m.record = *ref.Record
	m.source.first, m.source.count = m.record, 1
	return nil
}

// Open gives the body as a stream, from memory or from the object store. Its end is io.EOF only if
// the checksum fits, and a KindCorrupt error otherwise. The caller closes it. ctx holds for the whole
// stream; a presigned URL must be opened before it expires (queue.PresignTTL after the answer).
func (m *Received) Open(ctx context.Context) (io.ReadCloser, error) {
	switch {
	case !m.ByReference():
		return io.NopCloser(bytes.NewReader(m.Body)), nil
	case m.source.isBatch:
		return m.openRecord(ctx)
	}
	body, err := m.source.get(ctx, 0, m.source.size)
	if err != nil {
		return nil, err
	}
	return m.verified(body), nil
}

// Bytes gives the whole body, fetching it if need be. It reads all of it into memory: Size says how
// much that is. It does not change Body.
func (m *Received) Bytes(ctx context.Context) ([]byte, error) {
	if !m.ByReference() {
		return m.Body, nil
	}
	if m.source.isBatch {
		return m.recordBytes(ctx)
	}
	r, err := m.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return readBounded(r, m.Size, m.Size)
}

// openRecord streams a body that lies in the batch as it is, and reads any other as a whole: it
// shares a compressed block of at most batch.MaxBlockBytes with others.
func (m *Received) openRecord(ctx context.Context) (io.ReadCloser, error) {
	index, err := m.source.open(ctx)
	if err != nil {
		return nil, err
	}
	pos, length := index.Span(m.record, 1)
	e, ok := index.Entry(m.record)
	if ok && length == e.BodyLen && length > batch.MaxBlockBytes {
		// Longer than any compressed block and just as long as its bytes: stored as it is.
		m.crc, m.hasCRC, m.Size = e.BodyCRC, true, e.BodyLen
		body, err := m.source.get(ctx, pos, length)
		if err != nil {
			return nil, err
		}
		return m.verified(body), nil
	}
	b, err := m.recordBytes(ctx)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// maxRunBytes bounds the bodies of a delivery that are fetched together, and kept while its messages
// are.
const maxRunBytes = 8 << 20

func (m *Received) recordBytes(ctx context.Context) ([]byte, error) {
	s := m.source
	index, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	if m.record >= index.Count() {
		return nil, &queue.Error{Op: opFetch, Kind: queue.KindCorrupt, Message: "the batch has no such record"}
	}
	bodies, pos, err := s.bodies(ctx, index, m.record)
	if err != nil {
		return nil, err
	}
	r, err := batch.OpenRun(s.prefix, bodies, pos, m.record, 1)
	if err != nil {
		return nil, err
	}
	var rec batch.Record
	if !r.Next(&rec) {
		return nil, r.Err()
	}
	m.Size = int64(len(rec.Body))
	return rec.Body, nil
}

func (s *source) acquire(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return canceled(ctx, opFetch)
	}
}

func (s *source) free() { <-s.lock }

// open gives the batch's index, fetching it if the delivery did not bring it.
func (s *source) open(ctx context.Context) (*batch.Index, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.free()
	if s.index != nil {
		return s.index, nil
	}
	if s.prefix == nil {
		head, err := s.read(ctx, 0, batch.HeaderSize)
		if err != nil {
			return nil, err
		}
		h, err := batch.ParseHeader(head)
		if err != nil {
			return nil, err
		}
		if s.prefix, err = s.read(ctx, 0, int64(h.PrefixLen())); err != nil {
			s.prefix = nil
			return nil, err
		}
	}
	index, err := batch.OpenIndex(s.prefix)
	if err != nil {
		return nil, err
	}
	s.index = index
	return index, nil
}

// bodies gives bytes that cover record's body, and their place in the batch: those of the whole
// delivery, fetched once, where they are few.
func (s *source) bodies(ctx context.Context, index *batch.Index, record int) ([]byte, int64, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, 0, err
	}
	defer s.free()
	if s.run != nil {
		return s.run, s.runPos, nil
	}
	if s.first+s.count <= index.Count() {
		if pos, length := index.Span(s.first, s.count); length <= maxRunBytes {
			b, err := s.read(ctx, pos, length)
			if err == nil {
				s.run, s.runPos = b, pos
			}
			return b, pos, err
		}
	}
	pos, length := index.Span(record, 1)
	b, err := s.read(ctx, pos, length)
	return b, pos, err
}

// read reads length bytes from pos of the source on, again where the store could not be asked.
func (s *source) read(ctx context.Context, pos, length int64) ([]byte, error) {
	if pos < 0 || length < 0 || pos+length > s.size {
		return nil, &queue.Error{Op: opFetch, Kind: queue.KindCorrupt, Message: "the batch is longer than the object"}
	}
	if length == 0 {
		return []byte{}, nil
	}
	c := s.client
	for failed := 1; ; failed++ {
		b, err := s.readOnce(ctx, pos, length)
		if err == nil || failed >= c.retry.Attempts || !retryable(err, true) || !sleep(ctx, c.pause(failed, err)) {
			return b, err
		}
	}
}

func (s *source) readOnce(ctx context.Context, pos, length int64) ([]byte, error) {
	tryCtx, cancel := context.WithTimeout(ctx, s.client.retry.AttemptTimeout+transferTime(length))
	defer cancel()
	body, err := s.getOnce(tryCtx, pos, length)
	if err != nil {
		return nil, err
	}
	defer func() { drain(body); _ = body.Close() }()
	b := make([]byte, length)
	if _, err := io.ReadFull(body, b); err != nil {
		return nil, transportError(ctx, opFetch, err)
	}
	return b, nil
}

// get opens a part of the source as a stream. Reading it is not tried again: a consumer releases the
// message, and whoever claims it next gets a fresh URL.
func (s *source) get(ctx context.Context, pos, length int64) (io.ReadCloser, error) {
	c := s.client
	for failed := 1; ; failed++ {
		body, err := s.getOnce(ctx, pos, length)
		if err == nil || failed >= c.retry.Attempts || !retryable(err, true) || !sleep(ctx, c.pause(failed, err)) {
			return body, err
		}
	}
}

func (s *source) getOnce(ctx context.Context, pos, length int64) (io.ReadCloser, error) {
	if length == 0 {
		return http.NoBody, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return nil, malformed(opFetch, err)
	}
	setPresigned(req, s.headers)
	pos += s.pos
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", pos, pos+length-1))
	resp, err := s.client.http.Do(req)
	if err != nil {
		return nil, transportError(ctx, opFetch, err)
	}
	switch {
	case resp.StatusCode == http.StatusPartialContent:
		return resp.Body, nil
	case resp.StatusCode == http.StatusOK && pos == 0 && resp.ContentLength == length:
		return resp.Body, nil // all of the object was asked for
	}
	defer func() { drain(resp.Body); _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return nil, malformed(opFetch, fmt.Errorf("the store ignores ranges"))
	}
	e, _ := s.client.errorAnswer(opFetch, resp)
	return nil, e
}

// verified checks a stream against the message's checksum and length.
func (m *Received) verified(body io.ReadCloser) io.ReadCloser {
	v := &verifier{body: body, left: m.Size, sum: m.crc}
	if m.hasCRC {
		v.hash = crc32.New(castagnoli())
	}
	return v
}

// verifier holds a stream to a length and a checksum.
type verifier struct {
	body io.ReadCloser
	left int64
	hash interface {
		io.Writer
		Sum32() uint32
	} // nil if no checksum is known
	sum uint32
	err error
}

func (v *verifier) Read(b []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.body.Read(b)
	v.left -= int64(n)
	if v.hash != nil {
		_, _ = v.hash.Write(b[:n]) // never fails, by its contract
	}
	switch {
	case v.left < 0:
		n, err = 0, &queue.Error{Op: opFetch, Kind: queue.KindCorrupt, Message: "the body is longer than said"}
	case err == io.EOF && v.left > 0:
		err = &queue.Error{Op: opFetch, Kind: queue.KindUnavailable, Message: "the stream was cut off", Err: io.ErrUnexpectedEOF}
	case v.left == 0 && v.hash != nil && v.hash.Sum32() != v.sum:
		n, err = 0, &queue.Error{Op: opFetch, Kind: queue.KindCorrupt, Message: "the body's checksum does not fit"}
	}
	v.err = err
	return n, err
}

func (v *verifier) Close() error { return v.body.Close() }
