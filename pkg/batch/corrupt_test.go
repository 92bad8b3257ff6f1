package batch_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// seal makes the checksums of block table, index and header fit, as far as the lengths in the header
// allow, so that what is tested behind them can be reached. Offsets are those of docs/FORMAT.md, not
// the package's own.
func seal(data []byte) []byte {
	b := bytes.Clone(data)
	if len(b) < 60 {
		return b
	}
	le := binary.LittleEndian
	index, blocks := uint64(le.Uint32(b[12:])), uint64(le.Uint32(b[16:]))
	prefix := 60 + index + 12*blocks
	if prefix <= uint64(len(b)) {
		at := prefix
		for entry := 60 + index; entry < prefix; entry += 12 {
			stored := uint64(le.Uint32(b[entry:]))
			if at+stored > uint64(len(b)) {
				break
			}
			le.PutUint32(b[entry+8:], crc(b[at:at+stored]))
			at += stored
		}
		le.PutUint32(b[20:], crc(b[60:prefix]))
	}
	le.PutUint32(b[56:], crc(b[:56]))
	return b
}

func smallBatches(t testing.TB) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"none": encode(t, batch.Options{}, goldenRecords(t)),
		"zstd": encode(t, batch.Options{Codec: batch.CodecZstd, BlockBytes: 64}, goldenRecords(t)),
	}
}

func TestEveryChangedByteIsFound(t *testing.T) {
	for name, data := range smallBatches(t) {
		h, err := batch.ParseHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		for at := range data {
			for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
				changed := bytes.Clone(data)
				changed[at] ^= mask
				if err := batch.Verify(changed); !queue.Is(err, queue.KindCorrupt) {
					t.Fatalf("%s: byte %d ^ %#x: %v", name, at, mask, err)
				}
				_, err := batch.OpenIndex(changed)
				if found := queue.Is(err, queue.KindCorrupt); found != (at < h.PrefixLen()) {
					t.Fatalf("%s: byte %d ^ %#x in a prefix of %d: index %v", name, at, mask, h.PrefixLen(), err)
				}
			}
		}
		for n := range data {
			if err := batch.Verify(data[:n]); !queue.Is(err, queue.KindCorrupt) {
				t.Fatalf("%s: cut to %d bytes: %v", name, n, err)
			}
		}
		if err := batch.Verify(append(bytes.Clone(data), 0)); !queue.Is(err, queue.KindCorrupt) {
			t.Fatalf("%s: a byte more: %v", name, err)
		}
	}
}

// TestBodyDamageStaysLocal: the records before the damage are read, and those after it too, by Seek.
func TestBodyDamageStaysLocal(t *testing.T) {
	for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecZstd} {
		records := []batch.Record{{Body: compressible(100)}, {Body: compressible(100)}, {Body: compressible(100)}}
		data := encode(t, batch.Options{Codec: codec, BlockBytes: 1}, records)
		r, err := batch.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		pos, _ := r.Index().Span(1, 1)
		data[pos]++
		var rec batch.Record
		n := 0
		for r.Next(&rec) {
			n++
		}
		if n != 1 || !queue.Is(r.Err(), queue.KindCorrupt) {
			t.Errorf("%v: %d records, %v", codec, n, r.Err())
		}
		if err := r.Seek(2, 1); err != nil || !r.Next(&rec) || !same(rec, records[2]) {
			t.Errorf("%v: after the damage: %v, %v", codec, err, r.Err())
		}
		if out, err := batch.Slice(nil, data, 0, 3, nonce); err == nil && batch.Verify(out) == nil {
			t.Errorf("%v: slicing covered the damage up", codec)
		}
	}
}

// raw builds a batch by hand from its parts.
func raw(codec byte, records, blocks uint32, stored, rawLen uint64, index, table, bodies []byte) []byte {
	le := binary.LittleEndian
	b := append([]byte("SPWB"), 1, codec, 0, 0)
	b = le.AppendUint32(b, records)
	b = le.AppendUint32(b, uint32(len(index)))
	b = le.AppendUint32(b, blocks)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, stored)
	b = le.AppendUint64(b, rawLen)
	b = append(b, make([]byte, 16+4)...)
	b = append(b, index...)
	b = append(b, table...)
	return seal(append(b, bodies...))
}

// entry builds an index entry by hand: flags and slot, a body, and what follows the body's checksum.
func entry(flags byte, slot uint16, body []byte, rest ...byte) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{flags}, slot)
	b = binary.AppendUvarint(b, uint64(len(body)))
	b = binary.LittleEndian.AppendUint32(b, crc(body))
	return append(b, rest...)
}

func uv(v uint64) []byte { return binary.AppendUvarint(nil, v) }

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func blockRow(stored, rawLen uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, stored)
	b = binary.LittleEndian.AppendUint32(b, rawLen)
	return append(b, 0, 0, 0, 0)
}

func TestHandMadeBatchOpens(t *testing.T) {
	body := []byte("hi")
	data := raw(0, 1, 0, 2, 2, entry(1|2|4|8, 7, body, cat([]byte{1, 'k'}, []byte{4, 1, 'n', 1, 'v'}, uv(0), uv(1), uv(300), []byte{1, 'd'})...), nil, body)
	r, err := batch.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, readAll(t, r), []batch.Record{{
		Slot: 7, Key: []byte("k"), Headers: batch.Headers("\x01n\x01v"), Body: body, HasDelay: true,
		TTL: time.Millisecond, CreatedDelta: 300 * time.Millisecond, DedupID: []byte("d"),
	}})
}

func TestDecoderRefuses(t *testing.T) {
	plain := entry(0, 0, nil, 0, 0)
	one := entry(0, 0, []byte("a"), 0, 0)
	two := entry(0, 0, []byte("ab"), 0, 0)
	large := make([]byte, batch.MaxBlockBytes)
	set := func(data []byte, at int, to ...byte) []byte {
		copy(data[at:], to)
		return seal(data)
	}
	ok := func() []byte { return raw(0, 1, 0, 0, 0, plain, nil, nil) }
	cases := []struct {
		name string
		data []byte
		says string
	}{
		{"nothing", nil, "not a batch"},
		{"other file", []byte("PAR1 and so on"), "not a batch"},
		{"newer version", set(ok(), 4, 2), "newer"},
		{"newer version, short", []byte("SPWB\x02\x00"), "newer"},
		{"version 0", set(ok(), 4, 0), "version 0"},
		{"short header", ok()[:59], "cut off"},
		{"codec", set(ok(), 5, 2), "unknown codec"},
		{"flags", set(ok(), 6, 1), "unknown flags"},
		{"no records", raw(0, 0, 0, 0, 0, nil, nil, nil), "0 records"},
		{"too many records", raw(0, queue.MaxBatchRecords+1, 0, 0, 0, plain, nil, nil), "records"},
		{"records without index", raw(0, 3, 0, 0, 0, plain, nil, nil), "cannot hold"},
		{"huge index", set(ok(), 12, 255, 255, 255, 255), "over the limit"},
		{"huge block count", set(ok(), 16, 255, 255, 255, 255), "blocks"},
		{"huge bodies", raw(0, 1, 0, 1<<63, 1<<63, plain, nil, nil), "over the limit"},
		{"batch over the limit", raw(0, 1, 0, queue.MaxUploadBytes, queue.MaxUploadBytes, plain, nil, nil), "over the limit"},
		{"index cut off", ok()[:65], "cut off"},
		{"entry flags", raw(0, 1, 0, 0, 0, entry(16, 0, nil, 0, 0), nil, nil), "entry flags"},
		{"long varint", raw(0, 1, 0, 0, 0, entry(0, 0, nil, 0x80, 0, 0), nil, nil), "key length"},
		{"key past the end", raw(0, 1, 0, 0, 0, entry(0, 0, nil, 5, 0), nil, nil), "past the end"},
		{"key too long", raw(0, 1, 0, 0, 0, entry(0, 0, nil, cat(uv(1025), make([]byte, 1026))...), nil, nil), "key length"},
		{"headers past the end", raw(0, 1, 0, 0, 0, entry(0, 0, nil, 0, 9), nil, nil), "past the end"},
		{"headers malformed", raw(0, 1, 0, 0, 0, entry(0, 0, nil, 0, 1, 9), nil, nil), "malformed"},
		{"delay missing", raw(0, 1, 0, 0, 0, entry(1, 0, nil, 0, 0), nil, nil), "delay"},
		{"delay too long", raw(0, 1, 0, 0, 0, entry(1, 0, nil, cat([]byte{0, 0}, uv(uint64(queue.MaxMaxDelay.Milliseconds())+1))...), nil, nil), "delay"},
		{"ttl 0", raw(0, 1, 0, 0, 0, entry(2, 0, nil, 0, 0, 0), nil, nil), "ttl"},
		{"created delta 0", raw(0, 1, 0, 0, 0, entry(4, 0, nil, 0, 0, 0), nil, nil), "created"},
		{"dedup id empty", raw(0, 1, 0, 0, 0, entry(8, 0, nil, 0, 0, 0), nil, nil), "dedup"},
		{"dedup id with control", raw(0, 1, 0, 0, 0, entry(8, 0, nil, 0, 0, 1, 7), nil, nil), "dedup"},
		{"unsorted", raw(0, 2, 0, 0, 0, cat(entry(0, 8, nil, 0, 0), plain), nil, nil), "comes after slot 8"},
		{"entry too many", raw(0, 1, 0, 0, 0, cat(plain, plain), nil, nil), "after the last record"},
		{"entry missing", raw(0, 2, 0, 0, 0, cat(entry(0, 0, nil, 10), make([]byte, 11)), nil, nil), "cut off"},
		{"bodies and records differ", raw(0, 1, 0, 2, 2, one, nil, []byte("ab")), "records hold"},
		{"compressed length with codec none", raw(0, 1, 0, 1, 2, two, nil, []byte("a")), "codec none"},
		{"blocks with codec none", raw(0, 1, 1, 1, 1, one, blockRow(1, 1), []byte("a")), "codec none"},
		{"no blocks with zstd", raw(1, 1, 0, 1, 1, one, nil, []byte("a")), "0 blocks"},
		{"stored more than raw", raw(1, 1, 1, 2, 1, one, blockRow(2, 1), []byte("ab")), "more than"},
		{"empty block", raw(1, 2, 2, 1, 1, cat(one, plain), cat(blockRow(0, 0), blockRow(1, 1)), []byte("a")), "block 0"},
		{"large block", raw(1, 1, 1, 1, batch.MaxBlockBytes+1, one, blockRow(1, batch.MaxBlockBytes+1), []byte("a")), "over the limit"},
		{"blocks and header differ", raw(1, 1, 1, 1, 2, two, blockRow(1, 1), []byte("a")), "the header says"},
		{"body across two blocks", raw(1, 2, 2, 3, 3, cat(two, one), cat(blockRow(1, 1), blockRow(2, 2)), []byte("aba")), "across blocks"},
		{"large block of several bodies", raw(1, 2, 1, batch.MaxBlockBytes+1, batch.MaxBlockBytes+1, cat(entry(0, 0, large, 0, 0), one), blockRow(batch.MaxBlockBytes+1, batch.MaxBlockBytes+1), cat(large, []byte("a"))), "shares a block"},
		{"trailing bytes", append(ok(), 0), "long"},
		{"bodies cut off", raw(0, 1, 0, 1, 1, one, nil, nil), "long"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := batch.Verify(c.data)
			if !queue.Is(err, queue.KindCorrupt) || !strings.HasPrefix(err.Error(), "decode batch: ") ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

// TestBlockOfAnotherLength: a frame that holds more or less than the block table says is refused,
// and one that holds more is never decoded past it.
func TestBlockOfAnotherLength(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 1<<20)
	frame := enc.EncodeAll(body, nil)
	for _, said := range []int{len(frame) + 1, 1000, 1<<20 - 1, 1<<20 + 1, batch.MaxBlockBytes} {
		claimed := make([]byte, said)
		data := raw(1, 1, 1, uint64(len(frame)), uint64(said), entry(0, 0, claimed, 0, 0),
			blockRow(uint32(len(frame)), uint32(said)), frame)
		if err := batch.Verify(data); !queue.Is(err, queue.KindCorrupt) || !strings.Contains(err.Error(), "zstd") {
			t.Errorf("a frame of %d bytes passes as one of %d: %v", len(body), said, err)
		}
	}
	data := raw(1, 1, 1, uint64(len(frame)), 1<<20, entry(0, 0, body, 0, 0), blockRow(uint32(len(frame)), 1<<20), frame)
	if err := batch.Verify(data); err != nil {
		t.Errorf("a frame of another encoder: %v", err)
	}
}
