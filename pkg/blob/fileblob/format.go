package fileblob

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The forms of a pack and of a packed key; docs/FORMAT.md, "Local object files", has the tables.

const (
	packMagic   = "SPLWPCK1"
	entryMagic  = "SPE1"
	packHeader  = 256
	entryHeader = 64
	// entryAlign keeps each entry header inside one disk sector, so that a header is never
	// half old and half new, and bounds the steps of a search for the next header.
	entryAlign = 64
	nonceChars = 16
	saltBytes  = 32
	tagBytes   = 8

	// stateAt is the place of the state byte in an entry header; the tag leaves it out.
	stateAt      = 4
	stateLive    = 1
	stateDeleted = 0

	// maxEntryBytes is what the six digits of a length in a key can say.
	maxEntryBytes = 1<<24 - 1
)

// packInfo is the content of a pack's header.
type packInfo struct {
	seq     uint32
	prefix  string
	created queue.Millis
	// salt is the secret that entry tags and key checks are made with. It never leaves the
	// folder, so bytes of a message cannot pose as an entry, nor an invented key as a real one.
	salt [saltBytes]byte
}

func (p *packInfo) encode() []byte {
	b := make([]byte, packHeader)
	copy(b, packMagic)
	binary.LittleEndian.PutUint32(b[8:], p.seq)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(p.prefix))) // #nosec G115 -- below MaxKeyBytes
	binary.LittleEndian.PutUint64(b[16:], uint64(p.created))     // #nosec G115 -- not negative
	copy(b[24:], p.salt[:])
	copy(b[56:], p.prefix)
	binary.LittleEndian.PutUint32(b[packHeader-4:], blob.CRC32C(b[:packHeader-4]))
	return b
}

func decodePack(b []byte) (packInfo, bool) {
	var p packInfo
	if len(b) != packHeader || string(b[:8]) != packMagic ||
		binary.LittleEndian.Uint32(b[packHeader-4:]) != blob.CRC32C(b[:packHeader-4]) {
		return p, false
	}
	p.seq = binary.LittleEndian.Uint32(b[8:])
	n := binary.LittleEndian.Uint32(b[12:])
	p.created = queue.Millis(binary.LittleEndian.Uint64(b[16:])) // #nosec G115 -- any value is a time
	copy(p.salt[:], b[24:])
	if n > blob.MaxKeyBytes-blob.MaxChosenBytes {
		return p, false
	}
	p.prefix = string(b[56 : 56+n])
	return p, blob.ValidatePrefix("prefix", p.prefix) == nil
}

// entry is the content of an entry's header.
type entry struct {
	nonce   string
	pos     int64 // of the header in its pack, bytes
	size    int64 // of the data, bytes
	sum     uint32
	created queue.Millis
	deleted bool
}

// stride is the room that an entry of size bytes takes in a pack.
func stride(size int64) int64 {
	return (entryHeader + size + entryAlign - 1) / entryAlign * entryAlign
}

func (e *entry) encode(b []byte, salt *[saltBytes]byte) {
	clear(b[:entryHeader])
	copy(b, entryMagic)
	copy(b[8:], e.nonce)
	binary.LittleEndian.PutUint32(b[24:], uint32(e.size)) // #nosec G115 -- at most maxEntryBytes
	binary.LittleEndian.PutUint32(b[28:], e.sum)
	binary.LittleEndian.PutUint64(b[32:], uint64(e.pos))     // #nosec G115 -- not negative
	binary.LittleEndian.PutUint64(b[40:], uint64(e.created)) // #nosec G115 -- not negative
	tag := entryTag(salt, b)
	copy(b[entryHeader-tagBytes:], tag[:])
	b[stateAt] = stateLive
	if e.deleted {
		b[stateAt] = stateDeleted
	}
}

// entryTag is a keyed hash of the header without its state byte. Salt and header have fixed
// lengths, so hashing one after the other is a sound MAC.
func entryTag(salt *[saltBytes]byte, b []byte) [tagBytes]byte {
	var in [saltBytes + entryHeader - tagBytes]byte
	copy(in[:], salt[:])
	copy(in[saltBytes:], b[:entryHeader-tagBytes])
	in[saltBytes+stateAt] = 0
	sum := sha256.Sum256(in[:])
	return [tagBytes]byte(sum[:tagBytes])
}

// decodeEntry reads the header that should stand at pos of the pack with salt.
func decodeEntry(b []byte, pos int64, salt *[saltBytes]byte) (entry, bool) {
	if len(b) < entryHeader || string(b[:4]) != entryMagic || b[stateAt] > stateLive {
		return entry{}, false
	}
	tag := entryTag(salt, b)
	e := entry{
		nonce:   string(b[8 : 8+nonceChars]),
		size:    int64(binary.LittleEndian.Uint32(b[24:])),
		sum:     binary.LittleEndian.Uint32(b[28:]),
		pos:     int64(binary.LittleEndian.Uint64(b[32:])),        // #nosec G115 -- compared with pos
		created: queue.Millis(binary.LittleEndian.Uint64(b[40:])), // #nosec G115 -- any value is a time
		deleted: b[stateAt] == stateDeleted,
	}
	ok := bytes.Equal(tag[:], b[entryHeader-tagBytes:entryHeader]) &&
		e.pos == pos && e.size <= maxEntryBytes && queue.ValidID(e.nonce)
	return e, ok
}

// location is what the key of a packed object says.
type location struct {
	prefix string
	seq    uint32
	pos    int64
	size   int64
	nonce  string
	check  string
}

const (
	checkChars = 8
	// chosenChars is "p", 8 digits pack, 8 position, 6 length, nonce and check, and 3 dashes.
	chosenChars = 1 + 8 + 1 + 8 + 1 + 6 + 1 + nonceChars + checkChars
)

// key renders the key of e in a pack. Fixed widths make key order the order of packs and positions.
func (p *packInfo) key(e *entry) string {
	loc := location{prefix: p.prefix, seq: p.seq, pos: e.pos, size: e.size, nonce: e.nonce}
	loc.check = loc.checkFor(&p.salt)
	return loc.String()
}

func (l *location) String() string {
	return fmt.Sprintf("%sp%08x-%08x-%06x-%s%s", l.prefix, l.seq, l.pos, l.size, l.nonce, l.check)
}

// checkFor is a keyed hash of the key: it tells an invented key from a real one whose entry is
// damaged, which are NotFound and Corrupt.
func (l *location) checkFor(salt *[saltBytes]byte) string {
	var in [saltBytes + 20 + nonceChars]byte
	copy(in[:], salt[:])
	binary.LittleEndian.PutUint32(in[saltBytes:], l.seq)
	binary.LittleEndian.PutUint64(in[saltBytes+4:], uint64(l.pos))   // #nosec G115 -- not negative
	binary.LittleEndian.PutUint64(in[saltBytes+12:], uint64(l.size)) // #nosec G115 -- not negative
	copy(in[saltBytes+20:], l.nonce)
	sum := sha256.Sum256(in[:])
	return hex.EncodeToString(sum[:checkChars/2])
}

func (l *location) genuine(salt *[saltBytes]byte) bool {
	return subtle.ConstantTimeCompare([]byte(l.check), []byte(l.checkFor(salt))) == 1
}

// parseLocation reads a key; ok is false if it does not have the form of a packed object's.
func parseLocation(key string) (loc location, ok bool) {
	cut := strings.LastIndexByte(key, '/') + 1
	rest := key[cut:]
	if cut == 0 || len(rest) != chosenChars || rest[0] != 'p' || rest[9] != '-' || rest[18] != '-' || rest[25] != '-' {
		return loc, false
	}
	seq, ok1 := parseHex(rest[1:9])
	pos, ok2 := parseHex(rest[10:18])
	size, ok3 := parseHex(rest[19:25])
	loc = location{
		prefix: key[:cut], seq: uint32(seq), pos: int64(pos), size: int64(size), // #nosec G115 -- at most 8 digits
		nonce: rest[26 : 26+nonceChars], check: rest[26+nonceChars:],
	}
	_, ok4 := parseHex(loc.check)
	return loc, ok1 && ok2 && ok3 && ok4 && queue.ValidID(loc.nonce)
}

// parseHex takes lower-case digits only: one value has one text.
func parseHex(s string) (uint64, bool) {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s, 16, 64)
	return n, err == nil
}
