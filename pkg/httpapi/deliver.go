package httpapi

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// frameOf puts a delivery into the form that both renderings start from.
func (s *server) frameOf(r *http.Request, d *consume.Delivery) *wire.Frame {
	ref := d.Ref
	f := &wire.Frame{
		Kind: wire.FrameBatch, Segment: d.Segment, Offset: d.Offset, Count: d.Count, First: d.First,
		Created: ref.Created, Visible: ref.Visible, DefaultTTL: ref.DefaultTTL,
		OneExpiry: ref.MinExpires == ref.MaxExpires, Slot: ref.Slot, Key: ref.Key, Headers: ref.Headers,
		Payload: d.Data,
	}
	if f.OneExpiry {
		f.Expires = ref.MinExpires
	}
	if ref.Kind == meta.RefPayload {
		f.Kind, f.First, f.OneExpiry, f.Expires = wire.FramePayload, 0, true, ref.MinExpires
		f.CRC, f.HasCRC = ref.CRC, ref.HasCRC
	}
	if d.Claim != (queue.ClaimID{}) {
		f.Claimed, f.Claim, f.Attempt, f.ClaimExpires = true, d.Claim, d.Attempt, d.ClaimExpires
	}
	if d.Presigned != nil {
		headers, _ := batch.MakeHeaders(d.Presigned.Headers) // ours, so within the limits
		f.Payload = d.Index
		f.Reference = &wire.FrameReference{
			URL: s.absolute(r, d.Presigned.URL), Headers: headers, Expires: d.PresignedExpires,
			Pos: ref.Pos, Len: ref.Len,
		}
	}
	return f
}

// absolute completes a presigned URL that is a path with the address that the caller used.
func (s *server) absolute(r *http.Request, url string) string {
	if !strings.HasPrefix(url, "/") {
		return url
	}
	if s.BaseURL != "" {
		return strings.TrimSuffix(s.BaseURL, "/") + url
	}
	plainHost := r.Host != "" && strings.IndexFunc(r.Host, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune(".:-_[]", c)
	}) < 0
	if !plainHost {
		return url
	}
	if r.TLS != nil {
		return "https://" + r.Host + url
	}
	return "http://" + r.Host + url
}

// messageOf renders one message of a frame. A message that cannot be read carries the error.
func messageOf(f *wire.Frame, d *wire.Delivered, err error) wire.Message {
	out := wire.Message{
		ID: d.ID.String(), Headers: d.Headers.Map(), DedupID: string(d.DedupID), Attempt: d.Attempt,
		CreatedAt: wire.Time(d.Created), VisibleAt: wire.Time(d.Visible), ExpiresAt: wire.Time(d.Expires),
		ClaimExpiresAt: wire.Time(d.ClaimExpires),
	}
	if f.Claimed {
		out.Receipt = d.Receipt.String()
	}
	out.Key, out.KeyBase64 = textOr64(d.Key)
	switch {
	case err != nil:
		out.Error = wire.ErrorOf(err)
	case f.Reference != nil:
		out.Reference = referenceOf(f, d)
	default:
		out.Body, out.BodyBase64 = bodyText(d.Body)
	}
	return out
}

func textOr64(b []byte) (text, b64 string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return "", base64.StdEncoding.EncodeToString(b)
}

func bodyText(b []byte) (text, b64 *string) {
	t, b6 := textOr64(b)
	if b6 != "" {
		return nil, &b6
	}
	return &t, nil
}

// referenceOf says where one body is. A body inside a compressed batch has no bytes of its own, so
// the reference is to the whole batch.
func referenceOf(f *wire.Frame, d *wire.Delivered) *wire.Reference {
	r := f.Reference
	out := &wire.Reference{
		URL: r.URL, Headers: r.Headers.Map(), Offset: r.Pos, Length: r.Len, ExpiresAt: wire.Time(r.Expires),
		Format: wire.FormatPayload,
	}
	if d.BodyPos < 0 {
		out.Format, out.Record = wire.FormatBatch, wire.Of(d.Record)
		return out
	}
	if f.Kind == wire.FrameBatch {
		out.Offset, out.Length = r.Pos+d.BodyPos, d.BodyLen
	}
	if d.HasCRC {
		out.Checksum = blob.FormatChecksum(d.BodyCRC)
	}
	return out
}

// eachMessage gives the messages of a delivery. Of one whose batch cannot be opened nothing is known
// but ids, receipts and the times of the ref: each of its messages carries the error.
func eachMessage(f *wire.Frame, yield func(wire.Delivered, error)) {
	for d, err := range f.Messages() {
		if d.ID.Segment == "" {
			unreadable(f, err, yield)
			return
		}
		yield(d, err)
	}
}

func unreadable(f *wire.Frame, err error, yield func(wire.Delivered, error)) {
	for i := range f.Count {
		offset := f.Offset + queue.Offset(i) // #nosec G115 -- within MaxBatchRecords
		d := wire.Delivered{
			ID: queue.MessageID{Segment: f.Segment, Offset: offset}, Attempt: f.Attempt, Created: f.Created,
			Visible: max(f.Visible, f.Created), ClaimExpires: f.ClaimExpires,
			Receipt: queue.Receipt{Segment: f.Segment, Claim: f.Claim, Lo: offset, Hi: offset + 1},
		}
		yield(d, err)
	}
}

// shrink cuts a delivery's run out of its batch, where that saves more than half of the bytes: the cut
// costs a copy, and compressed blocks at its ends are packed anew. Whatever goes wrong, the whole
// batch is as good. The result stands in the buffer, nil if there is none, which is to be recycled when
// the frame has been sent.
func (s *server) shrink(f *wire.Frame) *bytes.Buffer {
	if f.Kind != wire.FrameBatch || f.Reference != nil {
		return nil
	}
	header, err := batch.ParseHeader(f.Payload)
	if err != nil || header.Records == f.Count {
		return nil
	}
	index, err := batch.OpenIndex(f.Payload)
	if err != nil {
		return nil
	}
	_, bodies := index.Span(int(f.First), f.Count)
	entries := int64(header.PrefixLen()) * int64(f.Count) / int64(header.Records)
	if 2*(bodies+entries) >= int64(len(f.Payload)) {
		return nil
	}
	buf := s.buffer()
	buf.Grow(int(bodies+entries) + batch.HeaderSize)
	cut, err := batch.Slice(buf.AvailableBuffer(), f.Payload, int(f.First), f.Count, s.IDs.Nonce())
	if err != nil {
		s.recycle(buf)
		return nil
	}
	buf.Write(cut)
	f.First, f.Payload = 0, buf.Bytes()
	return buf
}
