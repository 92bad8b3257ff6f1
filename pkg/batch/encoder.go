package batch

import (
	"encoding/binary"
	"slices"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Options are the optional arguments of NewEncoder.
type Options struct {
	// Codec is CodecNone unless set.
	Codec Codec
	// BlockBytes is the raw size at which a compressed block is closed, in bytes; 0 means
	// DefaultBlockBytes, larger than MaxBlockBytes is taken as that. A block holds whole records
	// and at least one; CodecNone has no blocks.
	BlockBytes int
}

// Encoder makes batches, one after another. Once its buffers have grown to the size of the traffic
// it allocates nothing. Not safe for concurrent use.
type Encoder struct {
	options Options

	records    []Record
	indexBytes int
	bodyBytes  int64

	keys  []uint64 // slot and position of each Add, to sort by; scratch of Finish
	order []int
	raw   []byte // gathers the bodies of one block
	zstd  compressor
}

// NewEncoder makes an encoder. An unknown codec is refused by Add and Finish.
func NewEncoder(o Options) *Encoder {
	if o.BlockBytes <= 0 {
		o.BlockBytes = DefaultBlockBytes
	}
	o.BlockBytes = min(o.BlockBytes, MaxBlockBytes)
	return &Encoder{options: o}
}

// Reset drops all records, and the references to the callers' bytes, and keeps the buffers.
func (e *Encoder) Reset() {
	clear(e.records)
	e.records = e.records[:0]
	e.indexBytes, e.bodyBytes = 0, 0
	e.order = e.order[:0]
}

// Len is the number of records added.
func (e *Encoder) Len() int { return len(e.records) }

// BodyBytes is the length of the bodies added, before compression.
func (e *Encoder) BodyBytes() int64 { return e.bodyBytes }

// SizeBound is the length, in bytes, that the batch of the records added will not be over. With
// CodecNone it is exact.
func (e *Encoder) SizeBound() int64 {
	return int64(e.prefixBound(e.indexBytes, len(e.records))) + e.bodyBytes
}

// prefixBound allows for a block per record, the most that there can be.
func (e *Encoder) prefixBound(indexBytes, records int) int {
	n := HeaderSize + indexBytes
	if e.options.Codec != CodecNone {
		n += records * blockEntrySize
	}
	return n
}

// Add adds one record. The record is copied, the bytes that it points to are not: they must not
// change until Finish. Durations are rounded up to milliseconds.
//
// A record over a limit is refused and not added: KindInvalid, or KindTooLarge where it is the batch
// or the body that is too large, with Field "key", "headers", "body", "delay", "ttl",
// "created_delta", "dedup_id", or "messages" for the batch as a whole.
func (e *Encoder) Add(r *Record) error {
	if e.options.Codec > CodecZstd {
		return encodeError(queue.Invalid("codec", nil, "unknown %v", e.options.Codec))
	}
	if err := r.check(); err != nil {
		return encodeError(err)
	}
	if len(e.records) >= queue.MaxBatchRecords {
		return encodeError(queue.TooLarge("messages", queue.MaxBatchRecords, queue.MaxBatchRecords+1))
	}
	indexBytes := e.indexBytes + r.entrySize()
	prefix := e.prefixBound(indexBytes, len(e.records)+1)
	if prefix > queue.MaxBatchIndexBytes {
		return encodeError(queue.TooLarge("messages", queue.MaxBatchIndexBytes, int64(prefix)))
	}
	bodyBytes := e.bodyBytes + int64(len(r.Body))
	if total := int64(prefix) + bodyBytes; total > MaxBatchBytes {
		return encodeError(queue.TooLarge("messages", MaxBatchBytes, total))
	}
	e.records = append(e.records, *r)
	e.indexBytes, e.bodyBytes = indexBytes, bodyBytes
	return nil
}

// Order gives for each position in the encoded batch the number of the Add call, from 0, that its
// record came by. It is valid after Finish until Reset.
func (e *Encoder) Order() []int { return e.order }

// Finish appends the encoded batch to dst. The nonce should be 16 random bytes, new for each batch.
// Records and Order stay until Reset, so a batch may be encoded again under another nonce. An
// encoder without records gives a KindInvalid error on field "messages"; on an error dst comes back
// as it was.
func (e *Encoder) Finish(dst []byte, nonce [NonceSize]byte) ([]byte, error) {
	if len(e.records) == 0 {
		return dst, encodeError(queue.Invalid("messages", nil, "a batch holds at least one record"))
	}
	e.sort()
	h := Header{
		Codec: e.options.Codec, Records: len(e.records), IndexLen: e.indexBytes,
		StoredBodies: e.bodyBytes, RawBodies: e.bodyBytes, Nonce: nonce,
	}
	if h.Codec == CodecZstd {
		return e.finishBlocks(dst, h)
	}
	start := len(dst)
	total := int(h.Len())
	dst = slices.Grow(dst, total)[:start+total]
	out := dst[start:]
	prefix := h.PrefixLen()
	index, bodies := out[HeaderSize:HeaderSize:prefix], out[prefix:prefix]
	for _, i := range e.order {
		r := &e.records[i]
		index = r.appendEntry(index, checksum(r.Body))
		bodies = append(bodies, r.Body...) // right after its checksum, while it is in the cache
	}
	h.IndexCRC = checksum(index)
	h.put(out)
	return dst, nil
}

// sort fills order. The position makes the keys unique, so an unstable sort is stable.
func (e *Encoder) sort() {
	e.keys = e.keys[:0]
	for i := range e.records {
		e.keys = append(e.keys, uint64(e.records[i].Slot)<<32|uint64(i)) // #nosec G115 -- an index
	}
	slices.Sort(e.keys)
	e.order = e.order[:0]
	for _, k := range e.keys {
		e.order = append(e.order, int(k&(1<<32-1))) // #nosec G115 -- an index
	}
}

// finishBlocks is Finish for CodecZstd; h lacks Blocks, StoredBodies and IndexCRC.
func (e *Encoder) finishBlocks(dst []byte, h Header) ([]byte, error) {
	for next := 0; next < len(e.order); {
		end, rawLen := e.nextBlock(next)
		if rawLen > 0 {
			h.Blocks++
		}
		next = end
	}
	start := len(dst)
	prefix := h.PrefixLen()
	dst = slices.Grow(dst, prefix+int(h.RawBodies))[:start+prefix]
	index := dst[start+HeaderSize : start+HeaderSize : start+HeaderSize+h.IndexLen]
	for _, i := range e.order {
		r := &e.records[i]
		index = r.appendEntry(index, checksum(r.Body))
	}
	table := start + HeaderSize + h.IndexLen
	for next := 0; next < len(e.order); {
		end, rawLen := e.nextBlock(next)
		if rawLen > 0 {
			at := len(dst)
			raw := e.gather(next, end, rawLen)
			var err error
			if dst, err = e.zstd.appendBlock(dst, raw); err != nil {
				return dst[:start], &queue.Error{Op: "encode batch", Kind: queue.KindInternal, Err: err}
			}
			putBlockEntry(dst[table:], dst[at:], rawLen)
			table += blockEntrySize
		}
		next = end
	}
	h.StoredBodies = int64(len(dst) - start - prefix)
	h.IndexCRC = checksum(dst[start+HeaderSize : start+prefix])
	h.put(dst[start:])
	return dst, nil
}

// nextBlock says which records, [first, end) in encoded order, make one block: whole records up to
// the target size, or one larger record alone. A block of empty bodies, of length 0, is not stored.
func (e *Encoder) nextBlock(first int) (end, rawLen int) {
	for end = first; end < len(e.order); end++ {
		n := len(e.records[e.order[end]].Body)
		if rawLen > 0 && n > 0 && rawLen+n > e.options.BlockBytes {
			break
		}
		rawLen += n
	}
	return end, rawLen
}

// gather puts the bodies of a block together; a body that is all of it needs no copy.
func (e *Encoder) gather(first, end, rawLen int) []byte {
	e.raw = e.raw[:0]
	for _, i := range e.order[first:end] {
		body := e.records[i].Body
		if len(body) == rawLen {
			return body
		}
		e.raw = append(e.raw, body...)
	}
	return e.raw
}

func putBlockEntry(b, stored []byte, rawLen int) {
	binary.LittleEndian.PutUint32(b, uint32(len(stored))) // #nosec G115 -- at most rawLen
	binary.LittleEndian.PutUint32(b[4:], uint32(rawLen))  // #nosec G115 -- within MaxBodyBytes
	binary.LittleEndian.PutUint32(b[8:], checksum(stored))
}
