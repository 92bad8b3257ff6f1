package batch

import (
	"slices"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Slice appends to dst a new batch that holds only the run [first, first+count) of the whole batch
// data, under a new nonce and with the same codec. Blocks that lie in the run are copied as they
// are; of a block that the run cuts, the part inside is compressed anew. Bodies that are only copied
// are not checked: their checksums are copied too, so damage shows when they are read.
//
// The error is of KindCorrupt where data is damaged, of KindInvalid with Field "run" where the run is
// empty or does not lie in the batch; on an error dst comes back as it was.
func Slice(dst, data []byte, first, count int, nonce [NonceSize]byte) ([]byte, error) {
	r, err := Open(data)
	if err != nil {
		return dst, err
	}
	if count < 1 || !r.index.has(first, count) {
		return dst, encodeError(queue.Invalid("run", r.index.Count(),
			"[%d,+%d) is empty or not in a batch of %d records", first, count, r.index.Count()))
	}
	lo, hi := r.index.at(first), r.index.at(first+count)
	h := Header{
		Codec: r.index.header.Codec, Records: count, IndexLen: hi.off - lo.off,
		StoredBodies: hi.pos - lo.pos, RawBodies: hi.pos - lo.pos, Nonce: nonce,
	}
	// Entries hold lengths and no positions, so those of a run are copied as they are.
	entries := r.index.entries[lo.off:hi.off]
	firstBlock, endBlock := 0, 0
	if h.Codec == CodecZstd && hi.pos > lo.pos {
		firstBlock, endBlock = r.index.blockAt(lo.pos), r.index.blockAt(hi.pos-1)+1
		h.Blocks = endBlock - firstBlock
	}
	start, prefix := len(dst), h.PrefixLen()
	out := slices.Grow(dst, prefix+int(h.RawBodies))[:start+prefix]
	copy(out[start+HeaderSize:], entries)
	if h.Codec == CodecNone {
		bodies, err := r.stored(lo.pos, hi.pos-lo.pos)
		if err != nil {
			return dst, err
		}
		out = append(out, bodies...)
	}
	table := start + HeaderSize + h.IndexLen
	var zstd compressor
	for i := firstBlock; i < endBlock; i++ {
		at := len(out)
		var rawLen int
		if out, rawLen, err = r.appendPart(out, &zstd, i, lo.pos, hi.pos); err != nil {
			return dst, err
		}
		putBlockEntry(out[table:], out[at:], rawLen)
		table += blockEntrySize
	}
	h.StoredBodies = int64(len(out) - start - prefix)
	h.IndexCRC = checksum(out[start+HeaderSize : start+prefix])
	h.put(out[start:])
	return out, nil
}

// appendPart appends the part of block i that lies in the raw range [lo, hi), as a stored block.
func (r *Reader) appendPart(dst []byte, zstd *compressor, i int, lo, hi int64) ([]byte, int, error) {
	start, end := r.index.blocks[i], r.index.blocks[i+1]
	lo, hi = max(lo, start.raw), min(hi, end.raw)
	if lo == start.raw && hi == end.raw {
		stored, err := r.stored(start.stored, end.stored-start.stored)
		if err != nil {
			return dst, 0, err
		}
		if _, _, crc := r.index.blockEntry(i); checksum(stored) != crc {
			// putBlockEntry is about to make a new checksum, which must not cover up damage.
			return dst, 0, corrupt("block %d: checksum does not fit", i)
		}
		return append(dst, stored...), int(hi - lo), nil
	}
	if err := r.load(i); err != nil {
		return dst, 0, err
	}
	dst, err := zstd.appendBlock(dst, r.raw[lo-start.raw:hi-start.raw])
	if err != nil {
		return dst, 0, &queue.Error{Op: "encode batch", Kind: queue.KindInternal, Err: err}
	}
	return dst, int(hi - lo), nil
}
