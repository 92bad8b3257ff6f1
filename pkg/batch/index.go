package batch

import (
	"encoding/binary"
	"iter"
	"slices"
	"sort"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Index is the checked prefix of a batch: enough to verify, count and route its records without any
// body. It points into the bytes it was opened on, which must not change. Many goroutines may read
// one Index.
type Index struct {
	header  Header
	entries []byte
	table   []byte
	marks   []mark
	blocks  []blockStart // one more than there are blocks: the last is the end
}

// mark is where every markStride-th record is, so that a search need not start at the first.
type mark struct {
	off  int // in entries
	slot queue.Slot
	pos  int64 // BodyPos
}

const markStride = 32

// blockStart is where a block starts, as stored and before compression.
type blockStart struct{ stored, raw int64 }

// OpenIndex checks header, index and block table, every entry included, and keeps prefix. Bytes past
// Header.PrefixLen are ignored. The error is of KindCorrupt.
func OpenIndex(prefix []byte) (*Index, error) {
	x := new(Index)
	if err := x.Reset(prefix); err != nil {
		return nil, err
	}
	return x, nil
}

// Reset is OpenIndex into an existing Index, whose memory is used again. After an error the Index is
// empty.
func (x *Index) Reset(prefix []byte) error {
	*x = Index{marks: x.marks[:0], blocks: x.blocks[:0]}
	h, err := ParseHeader(prefix)
	if err != nil {
		return err
	}
	n := h.PrefixLen()
	if len(prefix) < n {
		return corrupt("prefix is cut off at %d of %d bytes", len(prefix), n)
	}
	if got := checksum(prefix[HeaderSize:n]); got != h.IndexCRC {
		return corrupt("index checksum is %08x, not %08x as written", got, h.IndexCRC)
	}
	fresh := Index{
		header:  h,
		entries: prefix[HeaderSize : HeaderSize+h.IndexLen : HeaderSize+h.IndexLen],
		table:   prefix[HeaderSize+h.IndexLen : n : n],
		marks:   x.marks,
		blocks:  x.blocks,
	}
	if err := fresh.checkBlocks(); err != nil {
		return err
	}
	if err := fresh.checkEntries(); err != nil {
		return err
	}
	*x = fresh
	return nil
}

func (x *Index) checkBlocks() error {
	if x.header.Codec == CodecNone {
		return nil
	}
	x.blocks = slices.Grow(x.blocks, x.header.Blocks+1)
	var at blockStart
	for i := range x.header.Blocks {
		stored, raw, _ := x.blockEntry(i)
		switch {
		case stored == 0 || stored > raw:
			return corrupt("block %d: %d bytes stored for %d", i, stored, raw)
		case stored < raw && raw > MaxBlockBytes:
			return corrupt("block %d: compressed, but over the limit of %d bytes", i, MaxBlockBytes)
		}
		x.blocks = append(x.blocks, at)
		at.stored += int64(stored)
		at.raw += int64(raw)
	}
	x.blocks = append(x.blocks, at)
	if at.stored != x.header.StoredBodies || at.raw != x.header.RawBodies {
		return corrupt("blocks hold %d bytes of %d, the header says %d of %d",
			at.stored, at.raw, x.header.StoredBodies, x.header.RawBodies)
	}
	return nil
}

func (x *Index) checkEntries() error {
	x.marks = slices.Grow(x.marks, (x.header.Records+markStride-1)/markStride)
	var e Entry
	var pos int64
	var previous queue.Slot
	off, block := 0, 0
	for i := range x.header.Records {
		n, bad := parseEntry(x.entries[off:], &e)
		if bad == "" {
			bad = e.Headers.check()
		}
		if bad == "" && len(e.DedupID) > 0 {
			if what := checkToken(e.DedupID, queue.MaxDedupIDBytes); what != "" {
				bad = "dedup id " + what
			}
		}
		switch {
		case bad != "":
			return corrupt("record %d: %s", i, bad)
		case e.Slot < previous:
			return corrupt("record %d: slot %d comes after slot %d", i, e.Slot, previous)
		}
		if bad = x.checkBlockOf(&block, pos, e.BodyLen); bad != "" {
			return corrupt("record %d: %s", i, bad)
		}
		if i%markStride == 0 {
			x.marks = append(x.marks, mark{off, e.Slot, pos})
		}
		previous = e.Slot
		off += n
		pos += e.BodyLen
	}
	if off != len(x.entries) {
		return corrupt("%d bytes of index after the last record", len(x.entries)-off)
	}
	if pos != x.header.RawBodies {
		return corrupt("records hold %d bytes of bodies, the header says %d", pos, x.header.RawBodies)
	}
	return nil
}

// checkBlockOf says what is wrong with where a body lies, or ""; block is where the last one was. A
// block over MaxBlockBytes holds one body: otherwise a writer could make every reader of a small
// message fetch all of a huge one.
func (x *Index) checkBlockOf(block *int, pos, length int64) string {
	if x.header.Codec == CodecNone || length == 0 {
		return ""
	}
	for *block < x.header.Blocks && pos >= x.blocks[*block+1].raw {
		*block++
	}
	if *block == x.header.Blocks || pos+length > x.blocks[*block+1].raw {
		return "body lies across blocks"
	}
	if size := x.blocks[*block+1].raw - x.blocks[*block].raw; size > MaxBlockBytes && length != size {
		return "body shares a block over the limit"
	}
	return ""
}

func (x *Index) blockEntry(i int) (stored, raw, crc uint32) {
	b := x.table[i*blockEntrySize:]
	le := binary.LittleEndian
	return le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
}

// blockAt finds the block that holds the raw position pos, which lies before RawBodies.
func (x *Index) blockAt(pos int64) int {
	return sort.Search(x.header.Blocks, func(i int) bool { return x.blocks[i+1].raw > pos })
}

// Header is the batch's header.
func (x *Index) Header() Header { return x.header }

// Count is the number of records.
func (x *Index) Count() int { return x.header.Records }

// Entries iterates over all records, with their number in the batch. It does not allocate; the
// slices of an Entry point into the prefix.
func (x *Index) Entries() iter.Seq2[int, Entry] {
	return func(yield func(int, Entry) bool) { x.each(0, x.header.Records, yield) }
}

// EntriesOf is Entries for the run [first, first+count); a run that does not lie in the batch gives
// nothing.
func (x *Index) EntriesOf(first, count int) iter.Seq2[int, Entry] {
	return func(yield func(int, Entry) bool) { x.each(first, count, yield) }
}

func (x *Index) each(first, count int, yield func(int, Entry) bool) {
	if !x.has(first, count) {
		return
	}
	var e Entry
	c := x.at(first)
	for i := first; i < first+count; i++ {
		x.next(&c, &e)
		if !yield(i, e) {
			return
		}
	}
}

// Entry gives one record's entry; ok is false if there is no such record. Its cost does not grow
// with i.
func (x *Index) Entry(i int) (e Entry, ok bool) {
	if !x.has(i, 1) {
		return Entry{}, false
	}
	c := x.at(i)
	x.next(&c, &e)
	return e, true
}

// has reports whether the run lies in the batch.
func (x *Index) has(first, count int) bool {
	return first >= 0 && count >= 0 && first <= x.header.Records-count
}

// position is where a record's entry and body start.
type position struct {
	off int // in entries
	pos int64
}

// at finds record i of 0..Records; Records itself is the end.
func (x *Index) at(i int) position {
	if i == x.header.Records {
		return position{len(x.entries), x.header.RawBodies}
	}
	m := x.marks[i/markStride]
	c := position{m.off, m.pos}
	var e Entry
	for range i % markStride {
		x.next(&c, &e)
	}
	return c
}

// next reads the entry at c and moves on. The entries have been checked when the index was opened.
func (x *Index) next(c *position, e *Entry) {
	n, _ := parseEntry(x.entries[c.off:], e)
	e.BodyPos = c.pos
	c.off += n
	c.pos += e.BodyLen
}

// Run gives the records whose slots lie in r: the run [first, first+count). Where there are none,
// count is 0 and first is where they would be.
func (x *Index) Run(r queue.SlotRange) (first, count int) {
	first = x.lowerBound(r.Lo)
	return first, max(0, x.lowerBound(r.Hi)-first)
}

// lowerBound is the number of records whose slot is below slot.
func (x *Index) lowerBound(slot uint32) int {
	// The marks below the slot are a prefix; the bound lies after the last of them.
	below := sort.Search(len(x.marks), func(i int) bool { return uint32(x.marks[i].slot) >= slot })
	if below == 0 {
		return 0
	}
	i := (below - 1) * markStride
	c := position{x.marks[below-1].off, x.marks[below-1].pos}
	var e Entry
	for ; i < x.header.Records; i++ {
		if x.next(&c, &e); uint32(e.Slot) >= slot {
			break
		}
	}
	return i
}

// Span gives the bytes of the batch, from its start, that hold the bodies of a run: with CodecNone
// exactly these, with CodecZstd the blocks that they lie in. A run without bodies, and one that does
// not lie in the batch, has length 0.
func (x *Index) Span(first, count int) (pos, length int64) {
	prefix := int64(x.header.PrefixLen())
	if !x.has(first, count) {
		return prefix, 0
	}
	lo, hi := x.at(first).pos, x.at(first+count).pos
	if lo == hi {
		return prefix, 0
	}
	if x.header.Codec == CodecNone {
		return prefix + lo, hi - lo
	}
	start := x.blocks[x.blockAt(lo)].stored
	end := x.blocks[x.blockAt(hi-1)+1].stored
	return prefix + start, end - start
}
