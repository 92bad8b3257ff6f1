package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Codec says how bodies are stored.
type Codec uint8

// The codecs of format version 1.
const (
	// CodecNone stores the bodies one after another, as they are.
	CodecNone Codec = 0
	// CodecZstd stores the bodies in blocks of whole records, each compressed by itself.
	CodecZstd Codec = 1
)

// String is the codec's name in configuration and documentation.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecZstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", uint8(c))
}

const (
	// Version is the newest format version that this package reads, and the one it writes.
	Version = 1
	// HeaderSize is the length of the fixed header, in bytes.
	HeaderSize = 60
	// NonceSize is the length of a batch's nonce, in bytes.
	NonceSize = 16
	// MaxBodyBytes bounds one body inside a batch, in bytes. It keeps every length of the format
	// within 32 bits.
	MaxBodyBytes = 1 << 30
	// MaxBatchBytes bounds a whole batch as it is stored, and its bodies before compression.
	MaxBatchBytes = queue.MaxUploadBytes

	magic = "SPWB"

	offVersion   = 4
	offCodec     = 5
	offFlags     = 6
	offRecords   = 8
	offIndexLen  = 12
	offBlocks    = 16
	offIndexCRC  = 20
	offStored    = 24
	offRaw       = 32
	offNonce     = 40
	offHeaderCRC = 56
)

// Header is the decoded fixed header of a batch.
type Header struct {
	Codec Codec
	// Records is the number of records, 1 to queue.MaxBatchRecords.
	Records int
	// IndexLen is the length of the index, in bytes.
	IndexLen int
	// Blocks is the number of compressed blocks; 0 with CodecNone.
	Blocks int
	// IndexCRC is the CRC32C of index and block table.
	IndexCRC uint32
	// StoredBodies is the length of the bodies as stored, in bytes.
	StoredBodies int64
	// RawBodies is the length of the bodies before compression, in bytes.
	RawBodies int64
	// Nonce makes batches of equal content differ.
	Nonce [NonceSize]byte
	// CRC is the CRC32C of the header. It covers the nonce and IndexCRC, which covers the checksum
	// of every body: as a ref's checksum it stands for the whole batch.
	CRC uint32
}

// PrefixLen is the number of bytes before the bodies: header, index and block table. It is at most
// queue.MaxBatchIndexBytes in a header that ParseHeader gave out.
func (h Header) PrefixLen() int { return HeaderSize + h.IndexLen + h.Blocks*blockEntrySize }

// Len is the length of the whole batch, in bytes.
func (h Header) Len() int64 { return int64(h.PrefixLen()) + h.StoredBodies }

// ParseHeader decodes and checks the header at the start of b, which may be longer. It checks the
// header alone: the index may still be damaged. The error is of KindCorrupt.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < offFlags || string(b[:len(magic)]) != magic {
		return Header{}, corrupt("not a batch: no %q magic in its %d bytes", magic, len(b))
	}
	// The version comes before the checksum: a newer header may be laid out differently.
	if v := b[offVersion]; v > Version {
		return Header{}, corrupt("format version %d is newer than version %d, the newest this build reads", v, Version)
	} else if v == 0 {
		return Header{}, corrupt("format version 0 does not exist")
	}
	if len(b) < HeaderSize {
		return Header{}, corrupt("header is cut off at %d of %d bytes", len(b), HeaderSize)
	}
	le := binary.LittleEndian
	sum := le.Uint32(b[offHeaderCRC:])
	if got := checksum(b[:offHeaderCRC]); got != sum {
		return Header{}, corrupt("header checksum is %08x, not %08x as written", got, sum)
	}
	if f := le.Uint16(b[offFlags:]); f != 0 {
		return Header{}, corrupt("unknown flags %#x", f)
	}
	h := Header{
		Codec:    Codec(b[offCodec]),
		IndexCRC: le.Uint32(b[offIndexCRC:]),
		CRC:      sum,
	}
	copy(h.Nonce[:], b[offNonce:])
	records, indexLen, blocks := le.Uint32(b[offRecords:]), le.Uint32(b[offIndexLen:]), le.Uint32(b[offBlocks:])
	stored, raw := le.Uint64(b[offStored:]), le.Uint64(b[offRaw:])
	switch {
	case records == 0 || records > queue.MaxBatchRecords:
		return Header{}, corrupt("%d records, not 1 to %d", records, queue.MaxBatchRecords)
	case blocks > records:
		return Header{}, corrupt("%d blocks for %d records", blocks, records)
	case indexLen > queue.MaxBatchIndexBytes,
		HeaderSize+uint64(indexLen)+uint64(blocks)*blockEntrySize > queue.MaxBatchIndexBytes:
		return Header{}, corrupt("prefix is over the limit of %d bytes", queue.MaxBatchIndexBytes)
	case uint64(indexLen) < uint64(records)*minEntrySize:
		return Header{}, corrupt("%d bytes of index cannot hold %d records", indexLen, records)
	case stored > MaxBatchBytes || raw > MaxBatchBytes:
		return Header{}, corrupt("bodies are over the limit of %d bytes", int64(MaxBatchBytes))
	}
	h.Records, h.IndexLen, h.Blocks = int(records), int(indexLen), int(blocks)
	h.StoredBodies, h.RawBodies = int64(stored), int64(raw) // #nosec G115 -- bounded above
	if err := h.checkCodec(); err != nil {
		return Header{}, err
	}
	return h, nil
}

// checkCodec checks what the codec says of the other fields.
func (h Header) checkCodec() error {
	switch {
	case h.Len() > MaxBatchBytes:
		return corrupt("batch is over the limit of %d bytes", int64(MaxBatchBytes))
	case h.Codec > CodecZstd:
		return corrupt("unknown %v", h.Codec)
	case h.Codec == CodecNone && (h.Blocks != 0 || h.StoredBodies != h.RawBodies):
		return corrupt("blocks or a compressed length with codec none")
	case h.Codec == CodecZstd && (h.Blocks == 0) != (h.RawBodies == 0):
		return corrupt("%d blocks for %d bytes of bodies", h.Blocks, h.RawBodies)
	case h.StoredBodies > h.RawBodies:
		return corrupt("bodies are stored in %d bytes, more than their %d", h.StoredBodies, h.RawBodies)
	}
	return nil
}

// put writes h over the first HeaderSize bytes of b and sets its CRC.
func (h *Header) put(b []byte) {
	le := binary.LittleEndian
	copy(b, magic)
	b[offVersion] = Version
	b[offCodec] = byte(h.Codec)
	le.PutUint16(b[offFlags:], 0)
	le.PutUint32(b[offRecords:], uint32(h.Records))   // #nosec G115 -- within MaxBatchRecords
	le.PutUint32(b[offIndexLen:], uint32(h.IndexLen)) // #nosec G115 -- within MaxBatchIndexBytes
	le.PutUint32(b[offBlocks:], uint32(h.Blocks))     // #nosec G115 -- within MaxBatchRecords
	le.PutUint32(b[offIndexCRC:], h.IndexCRC)
	le.PutUint64(b[offStored:], uint64(h.StoredBodies)) // #nosec G115 -- a length
	le.PutUint64(b[offRaw:], uint64(h.RawBodies))       // #nosec G115 -- a length
	copy(b[offNonce:offNonce+NonceSize], h.Nonce[:])
	h.CRC = checksum(b[:offHeaderCRC])
	le.PutUint32(b[offHeaderCRC:], h.CRC)
}

// checksum is CRC32C, which amd64 and arm64 compute in hardware.
func checksum(b []byte) uint32 {
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) // the table is made once, by the library
}

func corrupt(format string, args ...any) *queue.Error {
	return &queue.Error{Op: "decode batch", Kind: queue.KindCorrupt, Message: fmt.Sprintf(format, args...)}
}

// encodeError marks an error of the domain's validators as one of encoding.
func encodeError(e *queue.Error) *queue.Error {
	e.Op = "encode batch"
	return e
}
