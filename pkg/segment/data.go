package segment

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// wholeBatchBytes is the size up to which a batch is read whole even if only a part is wanted: one
// request costs more than the bytes.
const wholeBatchBytes = 1 << 20

// Data gives an encoded batch that holds the records [first, first+count) of a batch ref, and the
// number that record first has in it; or, for a payload ref, the body and 0. The bytes are shared:
// they must not be changed. Of a large batch only the run is fetched.
//
// Errors: NotFound if the object is gone, Corrupt if its bytes do not fit the ref.
func (l *Log) Data(ctx context.Context, ref *meta.Ref, first, count uint32) (data []byte, base uint32, err error) {
	if ref.Len <= wholeBatchBytes || ref.Kind == meta.RefPayload || ref.Inline {
		data, err = l.whole(ctx, ref)
		return data, first, err
	}
	idx, prefix, err := l.Index(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	data, err = l.part(ctx, ref, source{idx, prefix}, first, count)
	return data, 0, err
}

// Index gives the index of a batch ref without its bodies, and the bytes that it was opened on
// (header, index and block table).
func (l *Log) Index(ctx context.Context, ref *meta.Ref) (*batch.Index, []byte, error) {
	if ref.Inline || ref.Len <= wholeBatchBytes {
		data, err := l.whole(ctx, ref)
		if err != nil {
			return nil, nil, err
		}
		if int64(ref.Prefix) > int64(len(data)) {
			return nil, nil, corrupt(ref, "the prefix is longer than the batch")
		}
		idx, err := batch.OpenIndex(data)
		return idx, data[:ref.Prefix], err
	}
	key := cacheKey(ref, 'i')
	if prefix, ok := l.cache.bytes(key); ok {
		idx, err := batch.OpenIndex(prefix)
		return idx, prefix, err
	}
	prefix, err := l.blob.Get(ctx, ref.Object, blob.Span{Pos: ref.Pos, Len: int64(ref.Prefix)}, nil)
	if err != nil {
		return nil, nil, err
	}
	idx, err := batch.OpenIndex(prefix)
	if err != nil {
		return nil, nil, err
	}
	if ref.HasCRC && idx.Header().CRC != ref.CRC {
		return nil, nil, corrupt(ref, "another batch lies where the ref points")
	}
	l.cache.putBytes(key, prefix)
	return idx, prefix, nil
}

func (l *Log) whole(ctx context.Context, ref *meta.Ref) ([]byte, error) {
	key := cacheKey(ref, 'd')
	if data, ok := l.cache.bytes(key); ok {
		return data, nil
	}
	data, err := l.fetch(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := verify(ref, data); err != nil {
		return nil, err
	}
	l.cache.putBytes(key, data)
	return data, nil
}

func (l *Log) fetch(ctx context.Context, ref *meta.Ref) ([]byte, error) {
	if !ref.Inline {
		return l.blob.Get(ctx, ref.Object, blob.Span{Pos: ref.Pos, Len: ref.Len}, nil)
	}
	p, _, err := meta.Fetch[*meta.Payload](ctx, l.meta, meta.PayloadKey(ref.Object))
	if err != nil {
		return nil, err
	}
	if ref.Pos < 0 || ref.Len < 0 || ref.Pos+ref.Len > int64(len(p.Data)) {
		return nil, corrupt(ref, "the payload record is shorter than the ref says")
	}
	return p.Data[ref.Pos : ref.Pos+ref.Len : ref.Pos+ref.Len], nil
}

// verify holds fetched bytes against the ref; a batch's bodies are checked as they are read.
func verify(ref *meta.Ref, data []byte) error {
	if ref.Kind == meta.RefPayload {
		if ref.HasCRC && blob.CRC32C(data) != ref.CRC {
			return corrupt(ref, "the body's checksum does not fit")
		}
		return nil
	}
	h, err := batch.ParseHeader(data)
	if err != nil {
		return err
	}
	if h.Len() != int64(len(data)) || ref.HasCRC && h.CRC != ref.CRC {
		return corrupt(ref, "another batch lies where the ref points")
	}
	return nil
}

// source is the prefix of a large batch, opened.
type source struct {
	index  *batch.Index
	prefix []byte
}

// part fetches a run's bodies and encodes it as a small batch of its own.
func (l *Log) part(ctx context.Context, ref *meta.Ref, src source, first, count uint32) ([]byte, error) {
	pos, length := src.index.Span(int(first), int(count))
	var bodies []byte
	var err error
	if length > 0 {
		bodies, err = l.blob.Get(ctx, ref.Object, blob.Span{Pos: ref.Pos + pos, Len: length}, make([]byte, 0, length))
		if err != nil {
			return nil, err
		}
	}
	r, err := batch.OpenRun(src.prefix, bodies, pos, int(first), int(count))
	if err != nil {
		return nil, err
	}
	enc := batch.NewEncoder(batch.Options{})
	var rec batch.Record
	for r.Next(&rec) {
		if src.index.Header().Codec != batch.CodecNone {
			rec.Body = append([]byte(nil), rec.Body...) // the reader's buffer is good until the next Next only
		}
		if err := enc.Add(&rec); err != nil {
			return nil, err
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return enc.Finish(nil, l.ids.Nonce())
}

func corrupt(ref *meta.Ref, message string) error {
	return &queue.Error{Op: "read batch", Subject: ref.Object, Kind: queue.KindCorrupt, Message: message}
}

// ExpiryOf is when a record of ref expires; 0 for never. Where all messages of the ref expire together,
// the ref decides, whatever the records say: a dead letter has left its own ttl behind.
func ExpiryOf(ref *meta.Ref, rec *batch.Record) queue.Millis {
	created := ref.Created.Add(rec.CreatedDelta)
	switch {
	case ref.MinExpires == ref.MaxExpires:
		return ref.MinExpires
	case rec.TTL > 0:
		return created.Add(rec.TTL)
	case ref.DefaultTTL > 0:
		return created + queue.Millis(ref.DefaultTTL)
	}
	return 0
}
