package wire

import (
	"encoding/binary"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// FrameKind says what the payload of a frame is.
type FrameKind uint8

// The kinds of frames. The numbers are part of the format.
const (
	// FrameBatch: an encoded batch; the frame stands for its records [First, First+Count).
	FrameBatch FrameKind = 1
	// FramePayload: the body of one message, whose key and headers the frame carries.
	FramePayload FrameKind = 2
)

// Frame is one delivery in the binary stream: consecutive messages of one segment, under one claim.
type Frame struct {
	Kind    FrameKind
	Segment queue.SegmentID
	// Offset is the first message's, Count the number of messages, 1 to queue.MaxBatchRecords.
	Offset queue.Offset
	Count  int
	// First is the record of the first message in the batch that is the payload, or that Reference
	// leads to.
	First uint32
	// Claimed: Claim, Attempt and ClaimExpires are set. A record read from a log is not claimed.
	Claimed      bool
	Claim        queue.ClaimID
	Attempt      uint32
	ClaimExpires queue.Millis
	// Created is the commit time that the records' own times count from; Visible is when the
	// messages became visible, 0 if they were at once.
	Created, Visible queue.Millis
	// Expires, if OneExpiry, is the expiry of every message, 0 for none; of a FramePayload it always
	// is. Else each record's own ttl counts, or DefaultTTL, in ms, for records without, 0 for none.
	OneExpiry  bool
	Expires    queue.Millis
	DefaultTTL int64
	// Slot and Key are a FramePayload's message's. Headers, in the block form of the batch format,
	// are a payload message's, or are laid over the headers of each record of a batch.
	Slot    queue.Slot
	Key     []byte
	Headers batch.Headers
	// CRC is the CRC32C of a FramePayload's body, if HasCRC; a batch carries its own.
	CRC    uint32
	HasCRC bool
	// Reference is where the bytes are, if the delivery is by reference. Payload is then the
	// batch's header, index and block table, or empty for a FramePayload.
	Reference *FrameReference
	// Payload is an encoded batch, or a body.
	Payload []byte
}

// FrameReference is a presigned GET of an object, or of a part of it.
type FrameReference struct {
	URL string
	// Headers must be sent exactly so; in the block form of the batch format.
	Headers batch.Headers
	Expires queue.Millis
	// Pos and Len are the bytes of the object that hold the batch or the body.
	Pos, Len int64
}

const (
	// FrameVersion is the one version of the frame header.
	FrameVersion = 1
	// MaxFrameHeaderBytes bounds a frame's header. It has room for a key, for headers that a dead
	// letter added to, and for a presigned URL.
	MaxFrameHeaderBytes = 128 << 10
	// MaxFramePayloadBytes bounds a frame's payload: the bodies of the largest claim, twice, because
	// a batch is cut only where that saves more than half of it, and its index.
	MaxFramePayloadBytes = 2*queue.MaxClaimBytes + queue.MaxBatchIndexBytes

	flagReference = 1 << 0
	flagClaimed   = 1 << 1
	flagCRC       = 1 << 2
	flagOneExpiry = 1 << 3
	flagsKnown    = flagReference | flagClaimed | flagCRC | flagOneExpiry

	idChars = 16
	// fixedHeader is version 1, kind 1, flags 2, segment 16, offset 8, count 4, first 4, claim 12,
	// attempt 4, claim expires 8, created 8, visible 8, expires 8, default ttl 8, slot 2, crc 4;
	// key and headers follow, each behind its length.
	fixedHeader = 98
)

// AppendHeader appends what stands before the payload: the length of the header (u32), the header, the
// length of the payload (u64). All numbers are little-endian. The payload is to follow.
//
// The header is: version u8, kind u8, flags u16 (1: by reference, 2: claimed, 4: has a CRC, 8: one
// expiry), segment id
// (16 characters), offset u64, count u32, first record u32, claim id (12 bytes), attempt u32, times of
// claim expiry, commit, visibility, expiry and the default ttl (i64 each, milliseconds), slot u16, CRC
// u32; then key and headers, each behind its length as an uvarint; and for a reference: URL and its
// headers, each behind its length, then expiry, position and length (i64 each).
func (f *Frame) AppendHeader(dst []byte) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, FrameVersion, byte(f.Kind))
	dst = le.AppendUint16(dst, f.flags())
	var id [idChars]byte
	copy(id[:], f.Segment)
	dst = append(dst, id[:]...)
	dst = le.AppendUint64(dst, uint64(f.Offset))
	dst = le.AppendUint32(dst, uint32(f.Count)) // #nosec G115 -- within MaxBatchRecords
	dst = le.AppendUint32(dst, f.First)
	dst = append(dst, f.Claim[:]...)
	dst = le.AppendUint32(dst, f.Attempt)
	for _, v := range [...]int64{
		int64(f.ClaimExpires), int64(f.Created), int64(f.Visible), int64(f.Expires), f.DefaultTTL,
	} {
		dst = le.AppendUint64(dst, uint64(v)) // #nosec G115 -- its bits
	}
	dst = le.AppendUint16(dst, uint16(f.Slot))
	dst = le.AppendUint32(dst, f.CRC)
	dst = appendBytes(dst, f.Key)
	dst = appendBytes(dst, f.Headers)
	if r := f.Reference; r != nil {
		dst = appendBytes(dst, []byte(r.URL))
		dst = appendBytes(dst, r.Headers)
		for _, v := range [...]int64{int64(r.Expires), r.Pos, r.Len} {
			dst = le.AppendUint64(dst, uint64(v)) // #nosec G115 -- its bits
		}
	}
	le.PutUint32(dst[start:], uint32(len(dst)-start-4)) // #nosec G115 -- bounded by what it is made of
	return le.AppendUint64(dst, uint64(len(f.Payload)))
}

func (f *Frame) flags() uint16 {
	var flags uint16
	if f.Reference != nil {
		flags |= flagReference
	}
	if f.Claimed {
		flags |= flagClaimed
	}
	if f.HasCRC {
		flags |= flagCRC
	}
	if f.OneExpiry {
		flags |= flagOneExpiry
	}
	return flags
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}
