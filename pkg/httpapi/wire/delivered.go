package wire

import (
	"bytes"
	"hash/crc32"
	"iter"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Delivered is one message of a frame.
type Delivered struct {
	ID   queue.MessageID
	Slot queue.Slot
	Key  []byte
	// Headers are the record's, with those of the frame laid over them.
	Headers batch.Headers
	// Body is nil for a delivery by reference.
	Body    []byte
	DedupID []byte
	Attempt uint32
	// Receipt covers this message alone; its Claim is zero if the message is not claimed.
	Receipt queue.Receipt
	// Created is the commit time, Visible when the message became claimable; Expires and
	// ClaimExpires are 0 for none.
	Created, Visible, Expires, ClaimExpires queue.Millis
	// Record is the message's number in the batch that Payload or Reference is; 0 for a payload.
	Record int
	// BodyPos is where the body starts in the batch's bytes, or 0 in a payload; -1 if it is
	// compressed and has no bytes of its own.
	BodyPos int64
	// BodyLen is the body's length in bytes before compression, BodyCRC its CRC32C if HasCRC.
	BodyLen int64
	BodyCRC uint32
	HasCRC  bool
}

// Receipt covers all messages of a claimed frame.
func (f *Frame) Receipt() queue.Receipt {
	return queue.Receipt{
		Segment: f.Segment, Claim: f.Claim, Lo: f.Offset, Hi: f.Offset + queue.Offset(f.Count),
	}
}

// Messages iterates over the messages of f, in order. Their slices point into f and may be kept. A
// message whose bytes are damaged comes with a KindCorrupt error, and with whatever is known of it
// besides its body; the messages after it follow. A frame whose batch cannot be opened gives one
// error, and a Delivered without an id.
func (f *Frame) Messages() iter.Seq2[Delivered, error] {
	return func(yield func(Delivered, error) bool) {
		switch {
		case f.Kind == FramePayload:
			yield(f.payloadMessage())
		case f.Reference != nil:
			f.indexed(yield)
		default:
			f.inline(yield)
		}
	}
}

// message fills in what holds for message i of every kind of frame.
func (f *Frame) message(i int) Delivered {
	offset := f.Offset + queue.Offset(i) // #nosec G115 -- 0 to MaxBatchRecords
	d := Delivered{
		ID: queue.MessageID{Segment: f.Segment, Offset: offset}, Slot: f.Slot, Key: f.Key, Headers: f.Headers,
		Created: f.Created, Visible: f.Visible, Expires: f.Expires,
	}
	if d.Visible == 0 {
		d.Visible = f.Created
	}
	if f.Claimed {
		d.Attempt, d.ClaimExpires = f.Attempt, f.ClaimExpires
		d.Receipt = queue.Receipt{Segment: f.Segment, Claim: f.Claim, Lo: offset, Hi: offset + 1}
	}
	return d
}

func (f *Frame) payloadMessage() (Delivered, error) {
	d := f.message(0)
	d.BodyCRC, d.HasCRC = f.CRC, f.HasCRC
	if f.Reference != nil {
		d.BodyLen = f.Reference.Len
		return d, nil
	}
	d.BodyLen = int64(len(f.Payload))
	if f.HasCRC && crc32.Checksum(f.Payload, crc32.MakeTable(crc32.Castagnoli)) != f.CRC {
		return d, corruptFrame("message %s: checksum does not fit", d.ID)
	}
	d.Body = f.Payload
	return d, nil
}

func (f *Frame) indexed(yield func(Delivered, error) bool) {
	index, err := batch.OpenIndex(f.Payload)
	if err == nil && int(f.First)+f.Count > index.Count() {
		err = corruptFrame("records [%d,+%d) are not in a batch of %d", f.First, f.Count, index.Count())
	}
	if err != nil {
		yield(Delivered{}, err)
		return
	}
	over, h := f.Headers.Map(), index.Header()
	for i, e := range index.EntriesOf(int(f.First), f.Count) {
		if !yield(f.recordMessage(i, &e, over, h), nil) {
			return
		}
	}
}

func (f *Frame) inline(yield func(Delivered, error) bool) {
	r, err := batch.Open(f.Payload)
	if err == nil && int(f.First)+f.Count > r.Index().Count() {
		err = corruptFrame("records [%d,+%d) are not in a batch of %d", f.First, f.Count, r.Index().Count())
	}
	if err == nil {
		err = r.Seek(int(f.First), f.Count)
	}
	if err != nil {
		yield(Delivered{}, err)
		return
	}
	over, h := f.Headers.Map(), r.Index().Header()
	// With CodecZstd a body lies in a buffer that the next block overwrites.
	volatile := h.Codec != batch.CodecNone
	var rec batch.Record
	for i, e := range r.Index().EntriesOf(int(f.First), f.Count) {
		d := f.recordMessage(i, &e, over, h)
		err := f.read(r, i, &rec)
		if err == nil {
			if d.Body = rec.Body; volatile {
				d.Body = bytes.Clone(rec.Body)
			}
		}
		if !yield(d, err) {
			return
		}
	}
}

// read reads record i; a damaged one must not lose those after it, so the reader is set behind it.
func (f *Frame) read(r *batch.Reader, i int, rec *batch.Record) error {
	if r.Next(rec) {
		return nil
	}
	err := r.Err()
	next := i + 1
	if seekErr := r.Seek(next, int(f.First)+f.Count-next); seekErr != nil {
		return seekErr
	}
	return err
}

func (f *Frame) recordMessage(i int, e *batch.Entry, over map[string]string, h batch.Header) Delivered {
	d := f.message(i - int(f.First))
	d.Slot, d.Key, d.Headers, d.DedupID = e.Slot, e.Key, e.Headers, e.DedupID
	if len(over) > 0 {
		d.Headers = e.Headers.Merge(over)
	}
	d.Record, d.BodyLen, d.BodyCRC, d.HasCRC = i, e.BodyLen, e.BodyCRC, true
	if d.BodyPos = int64(h.PrefixLen()) + e.BodyPos; h.Codec != batch.CodecNone {
		d.BodyPos = -1
	}
	d.Created = f.Created.Add(e.CreatedDelta)
	if f.Visible == 0 {
		d.Visible = d.Created
	}
	if f.OneExpiry {
		return d
	}
	ttl := e.TTL
	if ttl == 0 {
		ttl = time.Duration(f.DefaultTTL) * time.Millisecond
	}
	d.Expires = 0
	if ttl > 0 {
		d.Expires = d.Created.Add(ttl)
	}
	return d
}
