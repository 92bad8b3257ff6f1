package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// FrameReader reads a stream of frames. Not safe for concurrent use.
type FrameReader struct {
	r   io.Reader
	err error
}

// NewFrameReader reads from r, with many small reads: give it a buffer if r has none.
func NewFrameReader(r io.Reader) *FrameReader { return &FrameReader{r: r} }

// Next reads one frame, whose memory is the caller's. At the end of the stream, between two frames, it
// gives io.EOF. A malformed frame is a KindCorrupt error, and a stream that ends inside a frame, or
// that cannot be read, a KindUnavailable one; after an error every call gives the same.
func (d *FrameReader) Next() (*Frame, error) {
	if d.err != nil {
		return nil, d.err
	}
	f, err := d.next()
	if err != nil {
		d.err = err
		return nil, err
	}
	return f, nil
}

func (d *FrameReader) next() (*Frame, error) {
	var n [8]byte
	if _, err := io.ReadFull(d.r, n[:4]); err != nil {
		if errors.Is(err, io.EOF) { // not ErrUnexpectedEOF: nothing was read
			return nil, io.EOF
		}
		return nil, cutOff(err)
	}
	headerLen := binary.LittleEndian.Uint32(n[:4])
	if headerLen < fixedHeader || headerLen > MaxFrameHeaderBytes {
		return nil, corruptFrame("header of %d bytes, not %d to %d", headerLen, fixedHeader, MaxFrameHeaderBytes)
	}
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(d.r, header); err != nil {
		return nil, cutOff(err)
	}
	f := new(Frame)
	if err := f.parseHeader(header); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(d.r, n[:]); err != nil {
		return nil, cutOff(err)
	}
	payloadLen := binary.LittleEndian.Uint64(n[:])
	if payloadLen > MaxFramePayloadBytes {
		return nil, corruptFrame("payload of %d bytes, more than %d", payloadLen, MaxFramePayloadBytes)
	}
	var err error
	if f.Payload, err = readPayload(d.r, int(payloadLen)); err != nil { // #nosec G115 -- bounded above
		return nil, err
	}
	return f, nil
}

// readPayload grows its memory as bytes arrive: a length alone buys no more than the first step.
func readPayload(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	buf := make([]byte, 0, min(n, step))
	for len(buf) < n {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(n, 2*cap(buf)))
			copy(grown, buf)
			buf = grown
		}
		at := len(buf)
		buf = buf[:cap(buf)]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return nil, cutOff(err)
		}
	}
	return buf, nil
}

func (f *Frame) parseHeader(b []byte) error {
	le := binary.LittleEndian
	if b[0] != FrameVersion {
		return corruptFrame("frame version %d, this build reads %d", b[0], FrameVersion)
	}
	flags := le.Uint16(b[2:])
	*f = Frame{
		Kind: FrameKind(b[1]), Segment: queue.SegmentID(b[4:20]), Offset: queue.Offset(le.Uint64(b[20:])),
		Count: int(le.Uint32(b[28:])), First: le.Uint32(b[32:]), Attempt: le.Uint32(b[48:]),
		ClaimExpires: millisAt(b[52:]), Created: millisAt(b[60:]), Visible: millisAt(b[68:]),
		Expires: millisAt(b[76:]), DefaultTTL: int64(millisAt(b[84:])),
		Slot: queue.Slot(le.Uint16(b[92:])), CRC: le.Uint32(b[94:]),
		Claimed: flags&flagClaimed != 0, HasCRC: flags&flagCRC != 0,
		OneExpiry: flags&flagOneExpiry != 0,
	}
	copy(f.Claim[:], b[36:48])
	rest := variable{b: b[fixedHeader:]}
	f.Key = rest.bytes()
	f.Headers = rest.bytes()
	if flags&flagReference != 0 {
		f.Reference = &FrameReference{URL: string(rest.bytes()), Headers: rest.bytes()}
		f.Reference.Expires = queue.Millis(rest.int64())
		f.Reference.Pos, f.Reference.Len = rest.int64(), rest.int64()
	}
	if rest.bad || len(rest.b) > 0 || flags&^flagsKnown != 0 {
		return corruptFrame("header of %d bytes does not fit its lengths and flags", len(b))
	}
	return f.check()
}

func (f *Frame) check() error {
	last := uint64(f.Offset) + uint64(f.Count) // #nosec G115 -- a u32 once
	switch {
	case f.Kind != FrameBatch && f.Kind != FramePayload:
		return corruptFrame("unknown kind %d", f.Kind)
	case !queue.ValidID(string(f.Segment)):
		return corruptFrame("segment id is malformed")
	case f.Count < 1 || f.Count > queue.MaxBatchRecords:
		return corruptFrame("%d messages, not 1 to %d", f.Count, queue.MaxBatchRecords)
	case f.Offset > queue.MaxOffset || last > uint64(queue.MaxOffset)+1:
		return corruptFrame("offset %d is out of range", f.Offset)
	case f.Kind == FramePayload && (f.Count != 1 || f.First != 0):
		return corruptFrame("a payload is one message, not %d from %d", f.Count, f.First)
	case f.First > queue.MaxBatchRecords:
		return corruptFrame("record %d is out of range", f.First)
	case len(f.Key) > queue.MaxKeyBytes:
		return corruptFrame("key of %d bytes", len(f.Key))
	}
	for _, t := range [...]queue.Millis{f.ClaimExpires, f.Created, f.Visible, f.Expires} {
		if t < 0 || t > maxTime {
			return corruptFrame("time %d is out of range", int64(t))
		}
	}
	if f.DefaultTTL < 0 || f.DefaultTTL > queue.MaxTTL.Milliseconds() {
		return corruptFrame("default ttl %d is out of range", f.DefaultTTL)
	}
	if r := f.Reference; r != nil {
		if r.URL == "" || r.Expires < 0 || r.Expires > maxTime ||
			r.Pos < 0 || r.Len < 0 || r.Pos > queue.MaxUploadBytes || r.Len > queue.MaxUploadBytes {
			return corruptFrame("reference is out of range")
		}
	}
	return nil
}

// variable reads the fields that have lengths; after the first fault it reads nothing.
type variable struct {
	b   []byte
	bad bool
}

func (v *variable) bytes() []byte {
	n, size := binary.Uvarint(v.b)
	if size <= 0 || n > uint64(len(v.b)-size) {
		v.b, v.bad = nil, true
		return nil
	}
	end := size + int(n) // #nosec G115 -- bounded by a length
	out := v.b[size:end:end]
	v.b = v.b[end:]
	if n == 0 {
		return nil
	}
	return out
}

func (v *variable) int64() int64 {
	if len(v.b) < 8 {
		v.b, v.bad = nil, true
		return 0
	}
	out := int64(binary.LittleEndian.Uint64(v.b)) // #nosec G115 -- its bits
	v.b = v.b[8:]
	return out
}

func millisAt(b []byte) queue.Millis {
	return queue.Millis(binary.LittleEndian.Uint64(b)) // #nosec G115 -- its bits; check bounds it
}

func corruptFrame(format string, args ...any) error {
	return &queue.Error{Op: "decode frame", Kind: queue.KindCorrupt, Message: fmt.Sprintf(format, args...)}
}

// cutOff hides io.EOF, which between two reads of one frame is not the end that Next speaks of.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &queue.Error{
		Op: "read frames", Kind: queue.KindUnavailable, Message: "the stream was cut off", Err: err,
	}
}
