package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// fault is what happens to one call.
type fault struct {
	// status, if set, is answered and nothing is applied; code and retryAfter (seconds) go with it.
	status     int
	code       queue.Code
	retryAfter string
	// noBody leaves the API's error body out, as a gateway would.
	noBody bool
	// lostBefore and lostAfter fail the call on its way there or back.
	lostBefore, lostAfter bool
	// cut ends the answer's body after so many bytes, if not 0.
	cut int
	// delay is how long the call takes.
	delay time.Duration
	// refuseHalf stores the first half of a batch and throttles the second, as one of two segments.
	// A guarded call must come again for the second.
	refuseHalf bool
}

var errLost = errors.New("connection reset")

// fakeServer is a server in memory with one topic of one segment, that is called without a network.
// It speaks enough of the API for the producer and the consumer, and fails as it is told.
type fakeServer struct {
	t       testing.TB
	segment queue.SegmentID

	// faults decides the fate of each call: verb is "messages", "claims", "put" and so on, n counts
	// its calls from 0. Nil means no faults.
	faults func(verb string, n int) fault

	mu        sync.Mutex // guards what follows
	calls     map[string]int
	log       []batch.Record // bodies are copies
	producers map[string]producerState
	objects   map[string][]byte

	visibility time.Duration
	ordering   *string
	byRef      bool
	maxClaim   int
	claimed    map[queue.Offset]*fakeClaim
	next       queue.Offset
	ready      []queue.Offset // released
	done       map[queue.Offset]bool
	acks       [][]string
	releases   []wire.ReleaseRequest
	inFlight   int
	maxSeen    int
	extended   int
	corrupt    map[queue.Offset]bool
}

type producerState struct {
	sequence uint64
	answer   any
	// rest is how many records at the end of the batch are not stored yet; stored are the others.
	rest   int
	stored []wire.Run
}

type fakeClaim struct {
	id      queue.ClaimID
	until   time.Time
	attempt uint32
}

const fakeSegment = queue.SegmentID("0123456789abcdef")

func newFake(t testing.TB) *fakeServer {
	return &fakeServer{
		t: t, segment: fakeSegment, calls: map[string]int{}, producers: map[string]producerState{}, objects: map[string][]byte{},
		visibility: 30 * time.Second, claimed: map[queue.Offset]*fakeClaim{}, done: map[queue.Offset]bool{},
		corrupt: map[queue.Offset]bool{},
	}
}

// client gives a client that calls the fake directly.
func (s *fakeServer) client(o Options) *Client {
	s.t.Helper()
	o.HTTPClient = &http.Client{Transport: s}
	if o.Retry.MinDelay == 0 {
		o.Retry.MinDelay = time.Millisecond
	}
	c, err := New("http://fake", o)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// RoundTrip implements http.RoundTripper.
func (s *fakeServer) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	_ = req.Body.Close()
	path := strings.Trim(req.URL.Path, "/")
	verb := path[strings.LastIndex(path, "/")+1:]
	if strings.HasPrefix(path, "objects/") {
		verb = strings.ToLower(req.Method)
	}
	s.mu.Lock()
	n := s.calls[verb]
	s.calls[verb]++
	s.mu.Unlock()
	var f fault
	if s.faults != nil {
		f = s.faults(verb, n)
	}
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	if f.lostBefore {
		return nil, errLost
	}
	rec := httptest.NewRecorder()
	rec.Header().Set(wire.HeaderRequestID, "req-1")
	switch {
	case f.status != 0 && f.noBody:
		rec.WriteHeader(f.status)
	case f.status != 0:
		if f.retryAfter != "" {
			rec.Header().Set("Retry-After", f.retryAfter)
		}
		writeFake(rec, f.status, wire.ErrorAnswer{Error: wire.Error{Code: f.code, Message: "scripted", Retryable: f.code.Retryable()}})
	default:
		s.serve(rec, req, verb, body, f)
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if f.lostAfter {
		return nil, errLost
	}
	resp := rec.Result()
	if f.cut > 0 {
		resp.Body = io.NopCloser(io.MultiReader(io.LimitReader(resp.Body, int64(f.cut)), failingReader{}))
	}
	return resp, nil
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errLost }

func writeFake(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", wire.MediaTypeJSON)
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

func failFake(w http.ResponseWriter, code queue.Code, message string) {
	writeFake(w, code.Status(), wire.ErrorAnswer{Error: wire.Error{Code: code, Message: message, Retryable: code.Retryable()}})
}

func (s *fakeServer) serve(w http.ResponseWriter, r *http.Request, verb string, body []byte, f fault) {
	if verb == "claims" {
		s.claim(w, r, body)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch verb {
	case "messages":
		s.produce(w, r, body, f)
	case "uploads":
		s.uploads(w, body)
	case "put":
		s.objects[r.URL.Path] = body
	case "get":
		s.object(w, r)
	case "references":
		s.references(w, body, r.Header.Get(wire.HeaderIdempotencyKey))
	case "ack":
		s.settle(w, body, true)
	case "release":
		s.settle(w, body, false)
	case "extend":
		s.extend(w, body)
	default:
		if strings.Contains(r.URL.Path, "/subscriptions/") {
			writeFake(w, 200, wire.Subscription{Name: verb, CreatedAt: 1, ModifiedAt: 1, Config: wire.SubscriptionConfig{Ordering: s.ordering, VisibilityTimeout: Of(s.visibility.Seconds())}})
			return
		}
		failFake(w, queue.CodeRouteNotFound, r.URL.Path)
	}
}

// guard answers a repeated sequence from memory; it reports whether it did.
func (s *fakeServer) guard(w http.ResponseWriter, id string, sequence uint64) bool {
	last, ok := s.producers[id]
	switch {
	case id == "" || !ok || sequence > last.sequence:
		return false
	case sequence < last.sequence:
		failFake(w, queue.CodeSequenceOutOfOrder, "old")
	default:
		writeFake(w, 200, last.answer)
	}
	return true
}

func (s *fakeServer) produce(w http.ResponseWriter, r *http.Request, body []byte, f fault) {
	id := r.Header.Get(wire.HeaderProducerID)
	sequence, _ := strconv.ParseUint(r.Header.Get(wire.HeaderProducerSequence), 10, 64)
	if key := r.Header.Get(wire.HeaderIdempotencyKey); key != "" {
		id, sequence = "key "+key, 1
	}
	last := s.producers[id]
	resumed := id != "" && last.sequence == sequence && last.rest > 0
	if !resumed && s.guard(w, id, sequence) {
		return
	}
	reader, err := batch.Open(body)
	if err != nil {
		failFake(w, queue.CodeInvalidArgument, err.Error())
		return
	}
	first, n := 0, reader.Index().Count()
	answer := wire.RunsAnswer{}
	if resumed {
		first = n - last.rest
		answer.Runs = slices.Clone(last.stored)
	}
	take := n - first
	if f.refuseHalf && take > 1 {
		take /= 2
	}
	run := wire.Run{First: first, Count: take, Segment: s.segment, Offset: queue.Offset(len(s.log)), CreatedAt: 1_700_000_000_000}
	if err := reader.Seek(first, take); err != nil {
		s.t.Error(err)
	}
	s.store(reader)
	answer.Runs = append(answer.Runs, run)
	state := producerState{sequence: sequence, rest: n - first - take, stored: slices.Clone(answer.Runs)}
	if state.rest > 0 {
		answer.Runs = append(answer.Runs, wire.Run{First: first + take, Count: state.rest, Error: &wire.Error{Code: queue.CodeThrottled, Retryable: true}})
	}
	if state.answer = answer; id != "" {
		s.producers[id] = state
	}
	writeFake(w, 200, answer)
}

func (s *fakeServer) store(reader *batch.Reader) {
	var rec batch.Record
	for reader.Next(&rec) {
		rec.Key, rec.Body = bytes.Clone(rec.Key), bytes.Clone(rec.Body)
		s.log = append(s.log, rec)
	}
	if err := reader.Err(); err != nil {
		s.t.Error(err)
	}
}

func (s *fakeServer) uploads(w http.ResponseWriter, body []byte) {
	var in wire.UploadsRequest
	if err := json.Unmarshal(body, &in); err != nil || len(in.Objects) != 1 {
		failFake(w, queue.CodeInvalidArgument, "objects")
		return
	}
	name := fmt.Sprintf("/objects/%d", s.calls["uploads"])
	writeFake(w, 200, wire.UploadsAnswer{Uploads: []wire.Upload{{
		Object: name, URL: "http://fake" + name, Method: http.MethodPut, Headers: map[string]string{"X-Signed": "yes"},
	}}})
}

// object serves one range of an object.
func (s *fakeServer) object(w http.ResponseWriter, r *http.Request) {
	data, ok := s.objects[r.URL.Path]
	if !ok {
		failFake(w, queue.CodeObjectNotFound, r.URL.Path)
		return
	}
	if r.Header.Get("Authorization") != "" {
		s.t.Error("a presigned URL was called with the token")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func (s *fakeServer) references(w http.ResponseWriter, body []byte, key string) {
	var in wire.ReferencesRequest
	if err := json.Unmarshal(body, &in); err != nil {
		failFake(w, queue.CodeInvalidArgument, err.Error())
		return
	}
	id, sequence := "", uint64(0)
	if in.Producer != nil {
		id, sequence = in.Producer.ID, *in.Producer.Sequence
	} else if key != "" {
		id, sequence = "key "+key, 1
	}
	if s.guard(w, id, sequence) {
		return
	}
	answer := wire.ProduceAnswer{}
	for _, ref := range in.References {
		data, ok := s.objects[ref.Object]
		if sum := fmt.Sprintf("crc32c:%08x", crc32.Checksum(data, castagnoli())); !ok || ref.Checksum != sum || *ref.Size != int64(len(data)) {
			answer.Results = append(answer.Results, wire.ProduceResult{Error: &wire.Error{Code: queue.CodeObjectInvalid}})
			continue
		}
		before := len(s.log)
		if ref.Format == wire.FormatBatch {
			reader, err := batch.Open(data)
			if err != nil {
				s.t.Error(err)
				continue
			}
			s.store(reader)
		} else {
			s.log = append(s.log, batch.Record{Key: mustBase64(ref.KeyBase64), Body: data})
		}
		for i := before; i < len(s.log); i++ {
			answer.Results = append(answer.Results, wire.ProduceResult{ID: MessageID{Segment: s.segment, Offset: queue.Offset(i)}.String()})
		}
	}
	if id != "" {
		s.producers[id] = producerState{sequence: sequence, answer: answer}
	}
	writeFake(w, 200, answer)
}

func mustBase64(s string) []byte {
	b, err := textOrBase64(nil, s)
	if err != nil {
		panic(err)
	}
	return b
}

// bodies gives the log's bodies as text.
func (s *fakeServer) bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, len(s.log))
	for i := range s.log {
		out[i] = string(s.log[i].Body)
	}
	return out
}

// byKey gives, for each key, the bodies in order of the log.
func (s *fakeServer) byKey() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string][]string{}
	for i := range s.log {
		k := string(s.log[i].Key)
		out[k] = append(out[k], string(s.log[i].Body))
	}
	return out
}

func (s *fakeServer) count(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[verb]
}

// fill puts n messages into the log; bodies are "0", "1", …
func (s *fakeServer) fill(n int) {
	for i := range n {
		s.log = append(s.log, batch.Record{Key: []byte("k"), Body: []byte(strconv.Itoa(i))})
	}
}

// claim waits for messages as the server does, and streams them as frames of one record each claim.
func (s *fakeServer) claim(w http.ResponseWriter, r *http.Request, body []byte) {
	var in wire.ClaimRequest
	if err := json.Unmarshal(body, &in); err != nil {
		failFake(w, queue.CodeInvalidArgument, err.Error())
		return
	}
	wait := time.Duration(0)
	if in.Wait != nil {
		wait = time.Duration(*in.Wait * float64(time.Second))
	}
	for end := time.Now().Add(wait); ; {
		s.mu.Lock()
		offsets := s.take(*in.MaxMessages, time.Duration(*in.VisibilityTimeout*float64(time.Second)))
		if len(offsets) > 0 {
			s.frames(w, offsets)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if !time.Now().Before(end) || r.Context().Err() != nil {
			w.WriteHeader(http.StatusOK)
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
}

// take claims up to n messages: expired ones, released ones, new ones.
func (s *fakeServer) take(n int, visibility time.Duration) []queue.Offset {
	now := time.Now()
	for o, c := range s.claimed {
		if !c.until.After(now) && c.id != (queue.ClaimID{}) {
			c.id = queue.ClaimID{}
			s.inFlight--
			s.ready = append(s.ready, o)
		}
	}
	var out []queue.Offset
	for len(out) < n && len(s.ready) > 0 {
		out = append(out, s.ready[0])
		s.ready = s.ready[1:]
	}
	for len(out) < n && int(s.next) < len(s.log) {
		out = append(out, s.next)
		s.next++
	}
	slices.Sort(out)
	var id queue.ClaimID
	id[0], id[1], id[2] = byte(s.calls["claims"]), byte(s.calls["claims"]>>8), 1
	for _, o := range out {
		c := s.claimed[o]
		if c == nil {
			c = &fakeClaim{}
			s.claimed[o] = c
		}
		c.id, c.until = id, now.Add(visibility)
		c.attempt++
	}
	s.inFlight += len(out)
	s.maxSeen = max(s.maxSeen, s.inFlight)
	s.maxClaim = max(s.maxClaim, len(out))
	return out
}

// frames writes runs of consecutive offsets, each as one frame.
func (s *fakeServer) frames(w http.ResponseWriter, offsets []queue.Offset) {
	for len(offsets) > 0 {
		n := 1
		for n < len(offsets) && offsets[n] == offsets[0]+queue.Offset(n) && s.claimed[offsets[n]].attempt == s.claimed[offsets[0]].attempt {
			n++
		}
		enc := batch.NewEncoder(batch.Options{})
		for _, o := range offsets[:n] {
			rec := s.log[o]
			if err := enc.Add(&rec); err != nil {
				s.t.Error(err)
			}
		}
		data, err := enc.Finish(nil, [batch.NonceSize]byte{1})
		if err != nil {
			s.t.Error(err)
			return
		}
		c := s.claimed[offsets[0]]
		f := wire.Frame{
			Kind: wire.FrameBatch, Segment: s.segment, Offset: offsets[0], Count: n, Claimed: true, Claim: c.id,
			Attempt: c.attempt, Created: 1_700_000_000_000, ClaimExpires: queue.MillisOf(c.until), Payload: data,
		}
		if s.corrupt[offsets[0]] {
			data[len(data)-1] ^= 1
		}
		if s.byRef {
			name := fmt.Sprintf("/objects/run-%d", offsets[0])
			s.objects[name] = data
			h, _ := batch.ParseHeader(data)
			f.Payload = data[:h.PrefixLen()]
			f.Reference = &wire.FrameReference{URL: "http://fake" + name, Len: int64(len(data))}
		}
		_, _ = w.Write(append(f.AppendHeader(nil), f.Payload...))
		offsets = offsets[n:]
	}
}

func (s *fakeServer) settle(w http.ResponseWriter, body []byte, ack bool) {
	var in wire.ReleaseRequest
	if err := json.Unmarshal(body, &in); err != nil {
		failFake(w, queue.CodeInvalidArgument, err.Error())
		return
	}
	if ack {
		s.acks = append(s.acks, in.Receipts)
	} else {
		s.releases = append(s.releases, in)
	}
	var answer wire.ReceiptsAnswer
	for _, text := range in.Receipts {
		answer.Results = append(answer.Results, s.each(text, func(o queue.Offset, c *fakeClaim) {
			c.id = queue.ClaimID{}
			s.inFlight--
			switch {
			case ack || in.DeadLetter:
				s.done[o] = true
			case in.Delay != nil && *in.Delay > 0:
				c.id, c.until = queue.ClaimID{9}, time.Now().Add(time.Duration(*in.Delay*float64(time.Second)))
				s.inFlight++
			default:
				s.ready = append(s.ready, o)
			}
		}))
	}
	writeFake(w, 200, answer)
}

// each applies do to the messages of a receipt, or to none.
func (s *fakeServer) each(text string, do func(queue.Offset, *fakeClaim)) wire.ReceiptResult {
	r, err := queue.ParseReceipt(text)
	if err != nil {
		return wire.ReceiptResult{Error: &wire.Error{Code: queue.CodeInvalidArgument}}
	}
	for o := r.Lo; o < r.Hi; o++ {
		if c := s.claimed[o]; c == nil || c.id != r.Claim {
			return wire.ReceiptResult{Error: &wire.Error{Code: queue.CodeClaimLost}}
		}
	}
	for o := r.Lo; o < r.Hi; o++ {
		do(o, s.claimed[o])
	}
	return wire.ReceiptResult{OK: true}
}

func (s *fakeServer) extend(w http.ResponseWriter, body []byte) {
	var in wire.ExtendRequest
	if err := json.Unmarshal(body, &in); err != nil {
		failFake(w, queue.CodeInvalidArgument, err.Error())
		return
	}
	s.extended++
	until := time.Now().Add(time.Duration(*in.VisibilityTimeout * float64(time.Second)))
	var answer wire.ReceiptsAnswer
	for _, text := range in.Receipts {
		answer.Results = append(answer.Results, s.each(text, func(_ queue.Offset, c *fakeClaim) { c.until = until }))
	}
	writeFake(w, 200, answer)
}
