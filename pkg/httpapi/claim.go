package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// releaseTimeout bounds giving back what a caller did not stay to receive.
	releaseTimeout = 5 * time.Second
	// flushBytes is how much of an answer is gathered before it is sent.
	flushBytes = 64 << 10
	// messageRoom is about what a message takes in JSON beside its body.
	messageRoom = 512
)

func (s *server) claim(w http.ResponseWriter, r *http.Request) error {
	topic, sub, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var in wire.ClaimRequest
	if err := s.readJSON(w, r, &in); err != nil {
		return err
	}
	req, err := claimRequest(&in)
	if err != nil {
		return err
	}
	req.Topic, req.Subscription = topic, sub
	claimed, err := s.Consume.Claim(r.Context(), req)
	if err != nil {
		return err
	}
	// The caller may have gone away while it waited, and with it whoever would work on these
	// messages: they go back at once, as if they had not been delivered.
	//
	// Once all of the answer has been written without an error it counts as received: a caller that
	// closes its connection right after the last byte looks the same as one that went away.
	delivered := false
	defer func() {
		if !delivered {
			s.giveBack(r.Context(), topic, sub, claimed)
		}
	}()
	if r.Context().Err() != nil {
		return &queue.Error{Op: "claim", Kind: queue.KindCanceled, Err: r.Context().Err()}
	}
	if err := s.deliver(w, r, claimed.Deliveries, accepts(r, wire.MediaTypeBatch)); err != nil {
		return &queue.Error{Op: "answer claim", Kind: queue.KindCanceled, Err: err}
	}
	delivered = true
	return nil
}

func claimRequest(in *wire.ClaimRequest) (consume.ClaimRequest, error) {
	var req consume.ClaimRequest
	if n := in.MaxMessages; n != nil {
		if err := queue.Whole("max_messages", *n, 1, queue.MaxClaimMessages); err != nil {
			return req, err
		}
		req.MaxMessages = *n
	}
	if n := in.MaxBytes; n != nil {
		if err := queue.Whole("max_bytes", *n, 1, queue.MaxClaimBytes); err != nil {
			return req, err
		}
		req.MaxBytes = *n
	}
	wait, err := seconds("wait", in.Wait, 0, queue.MaxWait)
	if err != nil {
		return req, err
	}
	visibility, err := seconds("visibility_timeout", in.VisibilityTimeout, queue.MinVisibilityTimeout, queue.MaxVisibilityTimeout)
	if err != nil {
		return req, err
	}
	req.Wait, req.Visibility = deref(wait), deref(visibility)
	switch in.Deliver {
	case "", wire.DeliverInline:
	case wire.DeliverReference:
		req.ByReference = true
	default:
		return req, queue.Invalid("deliver", nil, `must be "inline" or "reference"`)
	}
	return req, nil
}

// giveBack releases everything that was claimed, uncounted.
func (s *server) giveBack(ctx context.Context, topic, sub string, claimed consume.Claimed) {
	var receipts []queue.Receipt
	for _, d := range claimed.Deliveries {
		receipts = append(receipts, queue.Receipt{
			Segment: d.Segment, Claim: d.Claim, Lo: d.Offset, Hi: d.Offset + queue.Offset(d.Count),
		})
	}
	if len(receipts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	// If this fails the claim runs out by itself; nobody is left to be told.
	_, _ = s.Consume.Release(ctx, topic, sub, receipts, consume.Release{HasDelay: true, Uncounted: true})
}

// deliver sends deliveries, as frames or as JSON. An error means that the caller did not get all.
func (s *server) deliver(w http.ResponseWriter, r *http.Request, deliveries []consume.Delivery, binary bool) error {
	frames := s.frames(r, deliveries)
	send := s.sendMessages
	if binary {
		send = s.sendFrames
	}
	if err := send(w, frames, listing{field: "messages"}); err != nil {
		return err
	}
	// Without this the last bytes may still wait for the handler to return, and their fate with them.
	if err := http.NewResponseController(w).Flush(); err != nil && !isUnsupported(err) {
		return err
	}
	return nil
}

// sendFrames sends the binary stream. Batches that are sent whole are not copied.
func (s *server) sendFrames(w http.ResponseWriter, frames []*wire.Frame, _ listing) error {
	var total int64
	heads := make([][]byte, len(frames))
	var cut []*bytes.Buffer
	defer func() {
		for _, buf := range cut {
			s.recycle(buf)
		}
	}()
	for i, f := range frames {
		if buf := s.shrink(f); buf != nil {
			cut = append(cut, buf)
		}
		heads[i] = f.AppendHeader(nil)
		total += int64(len(heads[i]) + len(f.Payload))
	}
	w.Header().Set("Content-Type", wire.MediaTypeBatch)
	w.Header().Set("Content-Length", strconv.FormatInt(total, 10))
	w.WriteHeader(http.StatusOK)
	for i, f := range frames {
		if _, err := w.Write(heads[i]); err != nil {
			return err
		}
		if _, err := w.Write(f.Payload); err != nil {
			return err
		}
	}
	return nil
}

// listing says how a list of messages is wrapped.
type listing struct {
	field string
	// more renders what stands besides the list: fields, each with a comma before it.
	more string
}

// sendMessages sends JSON, a part at a time: an answer is bounded, but large enough that it should not
// stand in memory as base64, too.
func (s *server) sendMessages(w http.ResponseWriter, frames []*wire.Frame, l listing) error {
	buf := s.buffer()
	defer s.recycle(buf)
	w.Header().Set("Content-Type", wire.MediaTypeJSON)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	buf.WriteString(`{"` + l.field + `":[`)
	first := true
	var failed error
	for _, f := range frames {
		eachMessage(f, func(d wire.Delivered, err error) {
			if failed != nil {
				return
			}
			if !first {
				buf.WriteByte(',')
			}
			first = false
			if failed = renderMessage(buf, f, d, err); failed == nil && buf.Len() >= flushBytes {
				failed = emit(w, buf)
			}
		})
	}
	if failed != nil {
		return failed
	}
	buf.WriteByte(']')
	buf.WriteString(l.more)
	buf.WriteString("}\n")
	return emit(w, buf)
}

// renderMessage writes one message and a line end.
func renderMessage(buf *bytes.Buffer, f *wire.Frame, d wire.Delivered, err error) error {
	if err != nil || f.Reference != nil {
		return encodeJSON(buf, messageOf(f, &d, err))
	}
	buf.Grow(messageRoom + len(d.Body) + len(d.Body)/8) // text has few escapes; a body that has more makes room itself
	buf.Write(append(appendMessage(buf.AvailableBuffer(), f.Claimed, &d), '\n'))
	return nil
}

func emit(w http.ResponseWriter, buf *bytes.Buffer) error {
	_, err := w.Write(buf.Bytes())
	buf.Reset()
	return err
}
