package delay

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// edited makes the entry that an edit moves a message to, and puts its bytes unless they are few: then
// they are the payload, to be put with the entry.
func (s *Service) edited(ctx context.Context, id queue.DelayedID, p place, e Edit) (*meta.Delayed, *meta.Payload, error) {
	i := int(p.index)
	next := &meta.Delayed{
		Topic: p.entry.Topic, Shard: p.entry.Shard, Visible: p.entry.Visible, ID: s.IDs.Entry(),
		Ref: refOf(p.entry, i, 1), Slots: []queue.Slot{p.entry.Slots[i]}, Home: &id,
	}
	if e.Delay != nil {
		next.Visible = max(next.Ref.Created.Add(*e.Delay), s.Clock.Millis())
	}
	next.Ref.Visible = next.Visible
	var payload *meta.Payload
	var err error
	switch {
	case e.Body == nil && e.Headers == nil:
	case e.Body == nil && next.Ref.Kind == meta.RefPayload:
		// The headers are in the ref; the body may be far too large to be read.
		next.Ref.Headers, err = batch.MakeHeaders(*e.Headers)
	default:
		payload, err = s.rewrite(ctx, &next.Ref, next.Slots[0], e)
	}
	if err != nil {
		return nil, nil, err
	}
	if n := next.Ref.Bytes; n <= 1<<32-1 {
		next.Sizes = []uint32{uint32(n)} // #nosec G115 -- bounded above
	}
	return next, payload, nil
}

// rewrite puts an edited message into a batch of its own and makes ref point there.
func (s *Service) rewrite(ctx context.Context, ref *meta.Ref, slot queue.Slot, e Edit) (*meta.Payload, error) {
	rec, err := s.record(ctx, ref, nil, e.Body == nil)
	if err != nil {
		return nil, err
	}
	rec.Slot = slot
	if e.Body != nil {
		rec.Body = *e.Body
	}
	if e.Headers != nil {
		if rec.Headers, err = batch.MakeHeaders(*e.Headers); err != nil {
			return nil, err
		}
	}
	if e.Delay != nil {
		rec.Delay, rec.HasDelay = e.Delay.Round(time.Millisecond), true
	}
	enc := batch.NewEncoder(batch.Options{})
	if err := enc.Add(rec); err != nil {
		return nil, err
	}
	nonce := s.IDs.Nonce()
	data, err := enc.Finish(nil, nonce)
	if err != nil {
		return nil, err
	}
	h, err := batch.ParseHeader(data)
	if err != nil {
		return nil, err
	}
	*ref = meta.Ref{
		Kind: meta.RefBatch, ID: nonce, Len: int64(len(data)), Count: 1, Total: 1, Prefix: uint32(h.PrefixLen()), // #nosec G115 -- within MaxBatchIndexBytes
		CRC: h.CRC, HasCRC: true, Created: ref.Created, Visible: ref.Visible, DefaultTTL: ref.DefaultTTL,
		MinExpires: ref.MinExpires, MaxExpires: ref.MaxExpires, Bytes: int64(len(rec.Body)),
	}
	if len(data) <= queue.InlinePayloadBytes {
		ref.Inline, ref.Object = true, meta.PayloadID(s.Clock.Millis(), s.IDs.ID())
		return &meta.Payload{ID: ref.Object, Data: data}, nil
	}
	ref.Object, err = s.Blob.Create(ctx, blob.PrefixBatches, data)
	return nil, err
}

// record reads the one message of ref, with its body if that is asked for. A body that only went by
// reference, and is larger than what the server takes itself, is refused with TooLarge. idx is the
// batch's index if the caller has it.
func (s *Service) record(ctx context.Context, ref *meta.Ref, idx *batch.Index, body bool) (*batch.Record, error) {
	if body && ref.Bytes > queue.MaxInlineMessageBytes {
		err := queue.TooLarge("headers", queue.MaxInlineMessageBytes, ref.Bytes)
		err.Message = "the message's body was uploaded in a batch and is too large to be written anew with other headers"
		return nil, err
	}
	if ref.Kind == meta.RefPayload {
		rec := &batch.Record{Key: ref.Key, Headers: ref.Headers}
		if ref.MinExpires != 0 {
			rec.TTL = ref.MinExpires.Sub(ref.Created)
		}
		return rec, s.payloadBody(ctx, ref, rec, body)
	}
	var err error
	if idx == nil {
		if idx, _, err = s.Log.Index(ctx, ref); err != nil {
			return nil, err
		}
	}
	entry, ok := idx.Entry(int(ref.First))
	if !ok {
		return nil, outside(ref)
	}
	rec := entry.Record
	if len(ref.Headers) > 0 {
		rec.Headers = rec.Headers.Merge(batch.Headers(ref.Headers).Map())
	}
	if body {
		rec.Body, err = s.batchBody(ctx, ref)
	}
	return &rec, err
}

func (s *Service) payloadBody(ctx context.Context, ref *meta.Ref, rec *batch.Record, body bool) (err error) {
	if body {
		rec.Body, _, err = s.Log.Data(ctx, ref, 0, 1)
	}
	return err
}

// batchBody reads the body of the one record of ref.
func (s *Service) batchBody(ctx context.Context, ref *meta.Ref) ([]byte, error) {
	data, base, err := s.Log.Data(ctx, ref, ref.First, 1)
	if err != nil {
		return nil, err
	}
	r, err := batch.Open(data)
	if err != nil {
		return nil, err
	}
	if err := r.Seek(int(base), 1); err != nil {
		return nil, outside(ref)
	}
	var rec batch.Record
	if !r.Next(&rec) {
		return nil, r.Err()
	}
	return rec.Body, nil
}

func outside(ref *meta.Ref) error {
	return &queue.Error{Op: "read delayed message", Subject: ref.Object, Kind: queue.KindCorrupt, Message: "the batch has no such record"}
}
