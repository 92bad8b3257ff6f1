package client

import (
	"encoding/base64"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// What messages are named by.
type (
	// MessageID names a message that is in a segment, for its life.
	MessageID = queue.MessageID
	// DelayedID names a message that waits for its visible time.
	DelayedID = queue.DelayedID
	// Receipt proves a claim.
	Receipt = queue.Receipt
)

// Received is a message that is read. Its slices may share memory with other messages of the same
// answer and must not be changed; keeping one keeps that answer's memory.
type Received struct {
	// ID is zero for a delayed message, which has a DelayedID.
	ID        MessageID
	DelayedID string
	// Key is nil if the message has none.
	Key []byte
	// Body is nil if the message came by reference and was not fetched: see Open and Bytes. An empty
	// body may be nil, too.
	Body []byte
	// Size is the length of the body, in bytes.
	Size    int64
	DedupID string
	// Attempt counts deliveries, from 1; 0 if the message is not claimed, as is a zero Receipt.
	Attempt uint32
	Receipt Receipt
	// Created is the commit time, Visible when the message became (or becomes) claimable. Expires
	// is zero if it never does, ClaimExpires if it is not claimed. All are UTC, to milliseconds, by
	// the server's clock.
	Created, Visible, Expires, ClaimExpires time.Time

	// Err is set, and the body absent, if the message's stored bytes are damaged. The messages
	// around it are whole.
	Err error

	headers batch.Headers
	source  *source // where the body is; nil if Body is it
	record  int     // the message's number in source's batch
	crc     uint32
	hasCRC  bool
}

// Header gives one header's value; ok is false if the message has no such header.
func (m *Received) Header(name string) (value string, ok bool) { return m.headers.Get(name) }

// Headers gives all headers, in a map of the caller's own.
func (m *Received) Headers() map[string]string { return m.headers.Map() }

// ByReference reports whether the body is still to be fetched.
func (m *Received) ByReference() bool { return m.source != nil && m.Body == nil }

// receivedOf takes a message of a frame over. src is where the frame's bodies are, nil if inline.
func receivedOf(d *wire.Delivered, src *source) *Received {
	return &Received{
		ID: d.ID, Key: d.Key, Body: d.Body, Size: d.BodyLen, DedupID: string(d.DedupID),
		Attempt: d.Attempt, Receipt: d.Receipt,
		Created: d.Created.Time(), Visible: d.Visible.Time(), Expires: d.Expires.Time(), ClaimExpires: d.ClaimExpires.Time(),
		headers: d.Headers, source: src, record: d.Record, crc: d.BodyCRC, hasCRC: d.HasCRC,
	}
}

// receivedOfJSON takes a message of a JSON answer over.
func receivedOfJSON(c *Client, op string, in *wire.Message) (*Received, error) {
	m := &Received{
		DelayedID: in.DelayedID, DedupID: in.DedupID, Attempt: in.Attempt,
		Created: in.CreatedAt.Millis().Time(), Visible: in.VisibleAt.Millis().Time(),
		Expires: in.ExpiresAt.Millis().Time(), ClaimExpires: in.ClaimExpiresAt.Millis().Time(),
	}
	var err error
	if in.ID != "" {
		if m.ID, err = queue.ParseMessageID(in.ID); err != nil {
			return nil, malformed(op, err)
		}
	}
	if in.Receipt != "" {
		if m.Receipt, err = queue.ParseReceipt(in.Receipt); err != nil {
			return nil, malformed(op, err)
		}
	}
	if m.Key, err = textOrBase64(&in.Key, in.KeyBase64); err != nil {
		return nil, malformed(op, err)
	}
	// Merge holds nothing against the limits for producers, which a dead letter may be over.
	m.headers = batch.Headers(nil).Merge(in.Headers)
	switch {
	case in.Error != nil:
		m.Err = apiError(op, in.Error)
	case in.Reference != nil:
		err = m.refer(c, in.Reference)
	default:
		encoded := ""
		if in.BodyBase64 != nil {
			encoded = *in.BodyBase64
		}
		m.Body, err = textOrBase64(in.Body, encoded)
		m.Size = int64(len(m.Body))
	}
	if in.Size != nil {
		m.Size = *in.Size
	}
	if err != nil {
		return nil, malformed(op, err)
	}
	return m, nil
}

func textOrBase64(text *string, encoded string) ([]byte, error) {
	switch {
	case encoded != "":
		return base64.StdEncoding.DecodeString(encoded)
	case text == nil || *text == "":
		return nil, nil
	default:
		return []byte(*text), nil
	}
}

func receivedList(c *Client, op string, in []wire.Message) ([]*Received, error) {
	out := make([]*Received, len(in))
	for i := range in {
		var err error
		if out[i], err = receivedOfJSON(c, op, &in[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
