package batch

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// DefaultBlockBytes is the raw size at which an encoder closes a block, unless told otherwise.
	DefaultBlockBytes = 64 << 10
	// MaxBlockBytes bounds the raw size of a compressed block, and so what a decoder must set aside
	// to read one record. A larger record is stored as it is.
	MaxBlockBytes = queue.MaxInlineMessageBytes

	// blockEntrySize is that of a block table entry: stored length, raw length and CRC32C of the
	// stored bytes, 32 bits each.
	blockEntrySize = 12

	// zstdWindow is larger than any usual block; blocks are compressed apart from each other, so a
	// larger window would only cost memory.
	zstdWindow = 1 << 20
)

// compressor makes stored blocks. The library's encoder is made at the first use and then kept, by
// the Encoder that owns it, because making one costs far more than compressing a block.
type compressor struct{ enc *zstd.Encoder }

// appendBlock appends the stored form of raw to dst: compressed, or as it is where compression would
// not make it smaller or raw is over MaxBlockBytes.
func (c *compressor) appendBlock(dst, raw []byte) ([]byte, error) {
	if len(raw) > MaxBlockBytes {
		return append(dst, raw...), nil
	}
	if c.enc == nil {
		// The fastest level: a flood is bound by CPU before it is bound by bytes stored. Our own
		// checksums make zstd's redundant.
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstdWindow), zstd.WithEncoderCRC(false))
		if err != nil {
			return dst, fmt.Errorf("make zstd encoder: %w", err)
		}
		c.enc = enc
	}
	start := len(dst)
	dst = c.enc.EncodeAll(raw, dst)
	if len(dst)-start >= len(raw) {
		dst = append(dst[:start], raw...)
	}
	return dst, nil
}

// decompressor reads stored blocks. Its buffer and the library's decoder are kept for reuse by the
// Reader that owns it.
type decompressor struct {
	dec *zstd.Decoder
	buf []byte
}

// block gives the raw bytes of a stored block, whose lengths the index has checked. The result is
// stored itself or lives in the buffer, until the next call.
func (d *decompressor) block(stored []byte, rawLen int) ([]byte, error) {
	if len(stored) == rawLen {
		return stored, nil
	}
	if d.dec == nil {
		// The cap limit holds the output to the declared length whatever the frame claims.
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(MaxBlockBytes), zstd.WithDecoderMaxMemory(MaxBlockBytes),
			zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, fmt.Errorf("make zstd decoder: %w", err)
		}
		d.dec = dec
	}
	d.buf = slices.Grow(d.buf[:0], rawLen)
	raw, err := d.dec.DecodeAll(stored, d.buf[:0:rawLen])
	if err != nil {
		e := corrupt("zstd block")
		e.Err = err
		return nil, e
	}
	if len(raw) != rawLen {
		return nil, corrupt("zstd block holds %d bytes, not %d", len(raw), rawLen)
	}
	return raw, nil
}
