package batch

import (
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Reader reads the records of a batch, or of the part of it whose bytes it was given. Not safe for
// concurrent use. The zero value is ready for Reset; a Reader that is Reset again and again does not
// allocate.
type Reader struct {
	index     Index
	bodies    []byte
	bodiesPos int64 // of bodies[0] in the batch

	at    position
	left  int
	err   error
	entry Entry

	block    int // the block that raw holds; -1 for none
	raw      []byte
	blockBuf decompressor
}

// Open opens a whole batch, which must be exactly as long as its header says, and stands before its
// first record. It checks all but the bodies, which are checked as they are read. It keeps data,
// which must not change. The error is of KindCorrupt.
func Open(data []byte) (*Reader, error) {
	r := new(Reader)
	if err := r.Reset(data); err != nil {
		return nil, err
	}
	return r, nil
}

// Reset is Open into an existing Reader, whose memory is used again.
func (r *Reader) Reset(data []byte) error {
	if err := r.resetIndex(data); err != nil {
		return err
	}
	h := r.index.header
	if int64(len(data)) != h.Len() {
		return r.fail(corrupt("batch is %d bytes long, its header says %d", len(data), h.Len()))
	}
	r.bodies, r.bodiesPos = data[h.PrefixLen():], int64(h.PrefixLen())
	r.seek(0, h.Records)
	return nil
}

// OpenRun opens the run [first, first+count) of a batch of which only some bytes were fetched: the
// prefix, and the bodies from the byte bodiesPos of the batch on, which must cover what Index.Span
// says of the run. The error is of KindCorrupt, also for a run that is not in the batch: runs come
// from refs, and such a ref is damaged.
func OpenRun(prefix, bodies []byte, bodiesPos int64, first, count int) (*Reader, error) {
	r := new(Reader)
	if err := r.ResetRun(prefix, bodies, bodiesPos, first, count); err != nil {
		return nil, err
	}
	return r, nil
}

// ResetRun is OpenRun into an existing Reader, whose memory is used again.
func (r *Reader) ResetRun(prefix, bodies []byte, bodiesPos int64, first, count int) error {
	if err := r.resetIndex(prefix); err != nil {
		return err
	}
	if !r.index.has(first, count) {
		return r.fail(corrupt("run [%d,+%d) is not in a batch of %d records", first, count, r.index.Count()))
	}
	pos, length := r.index.Span(first, count)
	if length > 0 && (pos < bodiesPos || pos+length > bodiesPos+int64(len(bodies))) {
		return r.fail(corrupt("bodies [%d,+%d) do not cover the run's [%d,+%d)", bodiesPos, len(bodies), pos, length))
	}
	r.bodies, r.bodiesPos = bodies, bodiesPos
	r.seek(first, count)
	return nil
}

func (r *Reader) resetIndex(prefix []byte) error {
	r.bodies, r.bodiesPos, r.left, r.err = nil, 0, 0, nil
	r.block, r.raw, r.entry = -1, nil, Entry{}
	if err := r.index.Reset(prefix); err != nil {
		return r.fail(err)
	}
	return nil
}

func (r *Reader) fail(err error) error {
	r.err, r.left = err, 0
	return err
}

// Index is the index of the open batch; it is valid until the next Reset.
func (r *Reader) Index() *Index { return &r.index }

// Err is the error that ended the reading; nil at the plain end of a run.
func (r *Reader) Err() error { return r.err }

// Seek moves before record first and lets Next give count records. It clears the error of an earlier
// read, not that of opening. A run that does not lie in the batch gives a KindInvalid error.
func (r *Reader) Seek(first, count int) error {
	if r.index.header.Records == 0 && r.err != nil {
		return r.err
	}
	if !r.index.has(first, count) {
		return &queue.Error{
			Op: "seek in batch", Kind: queue.KindInvalid, Field: "run", Limit: r.index.Count(),
			Message: "the run does not lie in the batch",
		}
	}
	r.seek(first, count)
	return nil
}

func (r *Reader) seek(first, count int) {
	r.at, r.left, r.err = r.index.at(first), count, nil
}

// Next reads the next record of the run into rec and checks its body. At the end of the run and at
// an error it reports false; Err tells which.
//
// Key, Headers and DedupID point into the prefix. Body points into the bodies that the Reader was
// given with CodecNone; with CodecZstd it points into a buffer of the Reader and is valid only until
// the next call of Next, Seek or Reset.
func (r *Reader) Next(rec *Record) bool {
	if r.left == 0 || r.err != nil {
		return false
	}
	r.left--
	r.index.next(&r.at, &r.entry)
	body, err := r.body(&r.entry)
	if err == nil && checksum(body) != r.entry.BodyCRC {
		err = corrupt("body at %d, %d bytes: checksum does not fit", r.entry.BodyPos, r.entry.BodyLen)
	}
	if err != nil {
		r.err = err
		return false
	}
	*rec = r.entry.Record
	rec.Body = body
	return true
}

func (r *Reader) body(e *Entry) ([]byte, error) {
	if e.BodyLen == 0 {
		return nil, nil
	}
	if r.index.header.Codec == CodecNone {
		return r.stored(e.BodyPos, e.BodyLen)
	}
	if err := r.load(r.index.blockAt(e.BodyPos)); err != nil {
		return nil, err
	}
	at := e.BodyPos - r.index.blocks[r.block].raw
	return r.raw[at : at+e.BodyLen : at+e.BodyLen], nil
}

// stored cuts [pos, pos+length) of the stored bodies out of the bytes that the Reader was given.
func (r *Reader) stored(pos, length int64) ([]byte, error) {
	at := int64(r.index.header.PrefixLen()) + pos - r.bodiesPos
	if at < 0 || length > int64(len(r.bodies)) || at > int64(len(r.bodies))-length {
		return nil, corrupt("bodies [%d,+%d) are not among the bytes at hand", pos, length)
	}
	return r.bodies[at : at+length : at+length], nil
}

// load makes block i the one in raw.
func (r *Reader) load(i int) error {
	if r.block == i {
		return nil
	}
	r.block, r.raw = -1, nil
	_, rawLen, crc := r.index.blockEntry(i)
	lo, hi := r.index.blocks[i].stored, r.index.blocks[i+1].stored
	stored, err := r.stored(lo, hi-lo)
	if err != nil {
		return err
	}
	if checksum(stored) != crc {
		return corrupt("block %d: checksum does not fit", i)
	}
	raw, err := r.blockBuf.block(stored, int(rawLen))
	if err != nil {
		return err
	}
	r.block, r.raw = i, raw
	return nil
}

// Verify checks a whole batch: every field, every checksum, every body. The error is of KindCorrupt.
func Verify(data []byte) error {
	r, err := Open(data)
	if err != nil {
		return err
	}
	var rec Record
	for r.Next(&rec) {
		// Each block holds at least one byte, each byte belongs to a body: all have been read.
		continue
	}
	return r.Err()
}
