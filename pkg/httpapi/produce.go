package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func (s *server) produce(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	media, err := mediaType(r)
	if err != nil {
		return err
	}
	buf := s.buffer()
	defer s.recycle(buf)
	if err := readBody(w, r, buf); err != nil {
		return err
	}
	if media == wire.MediaTypeBatch {
		return s.produceBatch(w, r, topic, buf)
	}
	var in wire.ProduceRequest
	if err := s.decodeJSON(r, buf.Bytes(), &in); err != nil {
		return err
	}
	if err := between("messages", len(in.Messages), queue.MaxBatchRecords); err != nil {
		return err
	}
	req := produce.Request{Topic: topic, Messages: make([]produce.Message, len(in.Messages))}
	if req.Guard, err = jsonGuard(r, in.Producer, buf.Bytes()); err != nil {
		return err
	}
	for i := range in.Messages {
		if err := message(&in.Messages[i], &req.Messages[i]); err != nil {
			if req.Errors == nil {
				req.Errors = make([]error, len(in.Messages))
			}
			req.Errors[i] = err
		}
	}
	given, err := s.Produce.Produce(r.Context(), req)
	if err != nil {
		return err
	}
	noteRuns(w, given)
	return s.sendResults(w, given, "messages", len(in.Messages))
}

// produceBatch takes an encoded batch: body is passed on as it is.
func (s *server) produceBatch(w http.ResponseWriter, r *http.Request, topic string, body *bytes.Buffer) error {
	producer, err := headerProducer(r)
	if err != nil {
		return err
	}
	g, err := guard(r, producer, body.Bytes())
	if err != nil {
		return inHeaders(err)
	}
	given, err := s.Produce.ProduceBatch(r.Context(), produce.BatchRequest{Topic: topic, Data: body.Bytes(), Guard: g})
	if err != nil {
		return inHeaders(err)
	}
	noteRuns(w, given)
	out := wire.RunsAnswer{Runs: make([]wire.Run, len(given.Runs))}
	for i := range given.Runs {
		run := given.Runs[i]
		run.Err = inHeaders(run.Err)
		out.Runs[i] = runOf(&run)
	}
	return s.writeJSON(w, http.StatusOK, out)
}

// inHeaders names the headers that a batch call's producer is in where an error names the fields of a JSON call.
func inHeaders(err error) error {
	return renameField(renameField(err, "producer.id", wire.HeaderProducerID), "producer.sequence", wire.HeaderProducerSequence)
}

// headerProducer reads a batch call's "producer" object from its headers; nil if there is none.
func headerProducer(r *http.Request) (*wire.Producer, error) {
	id, sequence := r.Header.Values(wire.HeaderProducerID), r.Header.Values(wire.HeaderProducerSequence)
	switch {
	case len(id) == 0 && len(sequence) == 0:
		return nil, nil
	case len(id) != 1:
		return nil, queue.Invalid(wire.HeaderProducerID, nil, "must be given once, along with %s", wire.HeaderProducerSequence)
	case len(sequence) != 1:
		return nil, queue.Invalid(wire.HeaderProducerSequence, nil, "must be given once, along with %s", wire.HeaderProducerID)
	}
	n, err := strconv.ParseUint(sequence[0], 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != sequence[0] {
		return nil, queue.Invalid(wire.HeaderProducerSequence, uint64(queue.MaxOffset), "must be a whole number of 1 to %d", uint64(queue.MaxOffset))
	}
	return &wire.Producer{ID: id[0], Sequence: &n}, nil
}

// jsonGuard is guard for a JSON body, whose producer stands in it. Headers that meant to name one would
// do nothing, and the caller would retry in the belief that they did.
func jsonGuard(r *http.Request, p *wire.Producer, body []byte) (produce.Guard, error) {
	for _, name := range []string{wire.HeaderProducerID, wire.HeaderProducerSequence} {
		if len(r.Header.Values(name)) > 0 {
			return produce.Guard{}, queue.Invalid(name, nil, "goes with an encoded batch; a JSON body has a producer object")
		}
	}
	return guard(r, p, body)
}

// guard reads what makes a call safe to repeat.
func guard(r *http.Request, p *wire.Producer, body []byte) (produce.Guard, error) {
	var g produce.Guard
	keys := r.Header.Values(wire.HeaderIdempotencyKey)
	if p != nil {
		if err := queue.ValidateToken("producer.id", p.ID, queue.MaxProducerIDBytes); err != nil {
			return g, err
		}
		sequence := deref(p.Sequence)
		if err := queue.Whole("producer.sequence", sequence, 1, uint64(queue.MaxOffset)); err != nil {
			return g, err
		}
		g.ProducerID, g.Sequence = p.ID, sequence
	}
	if len(keys) == 0 {
		return g, nil
	}
	if len(keys) > 1 {
		return g, queue.Invalid(wire.HeaderIdempotencyKey, nil, "is given twice")
	}
	if p != nil {
		return g, queue.Invalid(wire.HeaderIdempotencyKey, nil, "cannot be used together with a producer's sequence")
	}
	if err := queue.ValidateToken(wire.HeaderIdempotencyKey, keys[0], queue.MaxIdempotencyKeyBytes); err != nil {
		return g, err
	}
	sum := sha256.Sum256(body)
	g.IdempotencyKey, g.BodyHash = keys[0], hex.EncodeToString(sum[:])
	return g, nil
}

func between(field string, n, most int) error {
	switch {
	case n == 0:
		return queue.Invalid(field, 1, "must have at least one entry")
	case n > most:
		return queue.Invalid(field, most, "has %d entries, more than %d", n, most)
	}
	return nil
}

// message converts one message. An error is the message's own; fields are named within it.
func message(in *wire.MessageIn, out *produce.Message) error {
	var err error
	if out.Key, err = keyOf(in.Key, in.KeyBase64); err != nil {
		return err
	}
	if out.Body, err = bodyOf(in.Body, in.BodyBase64); err != nil {
		return err
	}
	if len(out.Body) > queue.MaxInlineMessageBytes {
		return queue.TooLarge("body", queue.MaxInlineMessageBytes, int64(len(out.Body)))
	}
	out.Headers, out.DedupID = in.Headers, in.DedupID
	if out.Delay, out.HasDelay, out.TTL, err = timesOf(in.Delay, in.TTL); err != nil {
		return err
	}
	return queue.ValidateHeaders("headers", in.Headers)
}

// timesOf converts a message's delay and ttl. A ttl of 0 is refused: it could mean "at once" as well
// as "never".
func timesOf(delay, ttl *float64) (d time.Duration, has bool, t time.Duration, err error) {
	dp, err := seconds("delay", delay, 0, queue.MaxMaxDelay)
	if err != nil {
		return 0, false, 0, err
	}
	tp, err := seconds("ttl", ttl, time.Millisecond, queue.MaxTTL)
	return deref(dp), dp != nil, deref(tp), err
}

// strictBase64 takes each text of bytes in one form only, line ends apart.
var strictBase64 = base64.StdEncoding.Strict()

func keyOf(key, key64 string) ([]byte, error) {
	out := []byte(key)
	switch {
	case key != "" && key64 != "":
		return nil, queue.Invalid("key_base64", nil, "cannot be given along with key")
	case key64 != "":
		var err error
		if out, err = strictBase64.DecodeString(key64); err != nil {
			return nil, queue.Invalid("key_base64", nil, "is not base64 (RFC 4648, padded)")
		}
	}
	if len(out) > queue.MaxKeyBytes {
		return nil, queue.Invalid("key", queue.MaxKeyBytes, "is longer than %d bytes", queue.MaxKeyBytes)
	}
	return out, nil
}

func bodyOf(body, body64 wire.Text) ([]byte, error) {
	switch {
	case body != nil && body64 != nil:
		return nil, queue.Invalid("body_base64", nil, "cannot be given along with body")
	case body64 != nil:
		out := make([]byte, strictBase64.DecodedLen(len(body64)))
		n, err := strictBase64.Decode(out, body64)
		if err != nil {
			return nil, queue.Invalid("body_base64", nil, "is not base64 (RFC 4648, padded)")
		}
		return out[:n], nil
	}
	return body, nil
}

// place is where the answer for one message stands: message k of a run.
type place struct {
	run *produce.Run
	k   int
}

// placesOf gives each message its place. want is the number of messages, or 0 where the answer alone
// knows it.
func placesOf(given produce.Answer, want int) ([]place, error) {
	total := 0
	for i := range given.Runs {
		total += given.Runs[i].Count
	}
	if want == 0 {
		want = total
	}
	out := make([]place, want)
	covered := 0
	for i := range given.Runs {
		run := &given.Runs[i]
		if run.First < 0 || run.Count < 0 || run.First > want-run.Count {
			return nil, incomplete()
		}
		for k := range run.Count {
			if at := &out[run.First+k]; at.run == nil {
				*at = place{run, k}
				covered++
			}
		}
	}
	if covered != want || total != want {
		return nil, incomplete()
	}
	return out, nil
}

// sendResults answers with a wire.ProduceAnswer.
func (s *server) sendResults(w http.ResponseWriter, given produce.Answer, list string, want int) error {
	places, err := placesOf(given, want)
	if err != nil {
		return err
	}
	buf := s.buffer()
	defer s.recycle(buf)
	buf.Grow(len(places) * resultRoom)
	buf.WriteString(`{"results":[`)
	for i, at := range places {
		if i > 0 {
			buf.WriteByte(',')
		}
		if plainRun(at.run) {
			buf.Write(appendResult(buf.AvailableBuffer(), at.run, at.k))
			continue
		}
		if err := encodeJSON(buf, resultOf(at.run, list, at.k)); err != nil {
			return err
		}
		buf.Truncate(buf.Len() - 1) // the line end
	}
	buf.WriteString("]}\n")
	_ = writeBody(w, http.StatusOK, wire.MediaTypeJSON, buf) // a caller that is gone needs no answer
	return nil
}

// resultRoom is about what one result takes.
const resultRoom = 128

func incomplete() error {
	return &queue.Error{Op: "answer produce", Kind: queue.KindInternal, Message: "the runs do not cover the messages of the call"}
}

// resultOf is the result of message k of a run.
func resultOf(run *produce.Run, list string, k int) wire.ProduceResult {
	if run.Err != nil {
		return wire.ProduceResult{Error: wire.ErrorOf(withinEntry(run.Err, list))}
	}
	out := wire.ProduceResult{
		CreatedAt: wire.Time(run.Created), VisibleAt: wire.Time(run.Visible), ExpiresAt: wire.Time(run.Expires),
		Warnings: warningsOf(run.Warnings),
	}
	if run.Delayed != nil {
		id := *run.Delayed
		id.Index += uint32(k) // #nosec G115 -- within MaxBatchRecords
		out.DelayedID = id.String()
		return out
	}
	id := run.ID
	id.Offset += queue.Offset(k) // #nosec G115 -- within MaxBatchRecords
	out.ID = id.String()
	return out
}

func runOf(run *produce.Run) wire.Run {
	out := wire.Run{First: run.First, Count: run.Count}
	if run.Err != nil {
		out.Error = wire.ErrorOf(run.Err)
		return out
	}
	out.CreatedAt, out.VisibleAt, out.ExpiresAt = wire.Time(run.Created), wire.Time(run.Visible), wire.Time(run.Expires)
	out.Warnings = warningsOf(run.Warnings)
	if run.Delayed != nil {
		out.DelayedID = run.Delayed.String()
		return out
	}
	out.Segment, out.Offset = run.ID.Segment, run.ID.Offset
	return out
}

func warningsOf(list []produce.Warning) []string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

func (s *server) createUploads(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var in wire.UploadsRequest
	if err := s.readJSON(w, r, &in); err != nil {
		return err
	}
	if err := between("objects", len(in.Objects), queue.MaxReferences); err != nil {
		return err
	}
	out := wire.UploadsAnswer{Uploads: make([]wire.Upload, len(in.Objects))}
	var terms []blob.Terms
	var places []int // of terms, in the call
	for i, o := range in.Objects {
		t, err := termsOf(o.Size, o.Checksum)
		if o.Size == nil {
			err = queue.Invalid("size", nil, "is needed")
		}
		if err != nil {
			out.Uploads[i].Error = wire.ErrorOf(err)
			continue
		}
		terms, places = append(terms, t), append(places, i)
	}
	if len(terms) == 0 {
		return s.writeJSON(w, http.StatusOK, out)
	}
	given, err := s.Produce.Uploads(r.Context(), topic, terms)
	if err != nil {
		return err
	}
	if len(given) != len(terms) {
		return incomplete()
	}
	for i, u := range given {
		out.Uploads[places[i]] = wire.Upload{
			Object: u.Object, URL: s.absolute(r, u.Request.URL), Method: u.Request.Method,
			Headers: u.Request.Headers, ExpiresAt: wire.Time(u.Expires),
		}
	}
	return s.writeJSON(w, http.StatusOK, out)
}

// termsOf checks an object's size, and its checksum if there is one.
func termsOf(size *int64, checksum string) (blob.Terms, error) {
	var t blob.Terms
	if size != nil {
		if *size < 0 {
			return t, queue.Invalid("size", 0, "must not be negative")
		}
		if *size > queue.MaxUploadBytes {
			return t, queue.TooLarge("size", queue.MaxUploadBytes, *size)
		}
		t.Size = *size
	}
	if checksum == "" {
		return t, nil
	}
	sum, err := blob.ParseChecksum("checksum", checksum)
	t.CRC32C, t.HasCRC32C = sum, err == nil
	return t, err
}

func (s *server) submitReferences(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	buf := s.buffer()
	defer s.recycle(buf)
	if err := readBody(w, r, buf); err != nil {
		return err
	}
	var in wire.ReferencesRequest
	if err := s.decodeJSON(r, buf.Bytes(), &in); err != nil {
		return err
	}
	if err := between("references", len(in.References), queue.MaxReferences); err != nil {
		return err
	}
	req := produce.ReferencesRequest{Topic: topic, References: make([]produce.Reference, len(in.References))}
	if req.Guard, err = jsonGuard(r, in.Producer, buf.Bytes()); err != nil {
		return err
	}
	for i := range in.References {
		if err := reference(&in.References[i], &req.References[i]); err != nil {
			if req.Errors == nil {
				req.Errors = make([]error, len(in.References))
			}
			req.Errors[i] = err
		}
	}
	given, err := s.Produce.References(r.Context(), req)
	if err != nil {
		return err
	}
	noteRuns(w, given)
	return s.sendResults(w, given, "references", 0)
}

// reference converts one reference. An error is the reference's own.
func reference(in *wire.ReferenceIn, out *produce.Reference) error {
	if err := blob.ValidateKey("object", in.Object); err != nil {
		return err
	}
	out.Object = in.Object
	var err error
	if out.Terms, err = termsOf(in.Size, in.Checksum); err != nil {
		return err
	}
	if in.Checksum != "" && in.Size == nil {
		return queue.Invalid("size", nil, "is needed where a checksum is given")
	}
	out.Checked = in.Size != nil
	switch in.Format {
	case wire.FormatBatch:
		out.Batch = true
		if in.Key != "" || in.KeyBase64 != "" || len(in.Headers) > 0 || in.Delay != nil || in.TTL != nil || in.DedupID != "" {
			return queue.Invalid("format", nil, "key, headers, delay, ttl and dedup_id of a batch are in its records")
		}
		return nil
	case wire.FormatPayload:
	default:
		return queue.Invalid("format", nil, `must be "payload" or "batch"`)
	}
	if out.Key, err = keyOf(in.Key, in.KeyBase64); err != nil {
		return err
	}
	out.Headers, out.DedupID = in.Headers, in.DedupID
	if out.Delay, out.HasDelay, out.TTL, err = timesOf(in.Delay, in.TTL); err != nil {
		return err
	}
	return queue.ValidateHeaders("headers", in.Headers)
}
