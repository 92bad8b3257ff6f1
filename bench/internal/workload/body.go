package workload

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"time"
)

// A body is text, since the API of SQS takes nothing else: number and stamp, filler, and a checksum of all before it,
// the numbers in hexadecimal.
const (
	wordBytes     = 16
	headBytes     = 2 * wordBytes
	checksumBytes = 8
	// minBody is the shortest body.
	minBody = headBytes + checksumBytes
)

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// newBody gives a body of random text, to be marked.
func newBody(size int, random *rand.Rand) []byte {
	body := make([]byte, max(size, minBody))
	for i := range body {
		body[i] = alphabet[random.IntN(len(alphabet))]
	}
	return body
}

// mark writes number and stamp into a body, and its checksum.
func mark(body []byte, number uint64, stamp time.Duration) {
	putWord(body, number)
	putWord(body[wordBytes:], uint64(stamp))
	end := len(body) - checksumBytes
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(body[:end], castagnoli()))
	hex.Encode(body[end:], sum[:])
}

func putWord(at []byte, v uint64) {
	var word [8]byte
	binary.BigEndian.PutUint64(word[:], v)
	hex.Encode(at, word[:])
}

// read gives what mark wrote; ok is false if the body is not one that mark wrote.
func read(body []byte) (number uint64, stamp time.Duration, ok bool) {
	if len(body) < minBody {
		return 0, 0, false
	}
	end := len(body) - checksumBytes
	var sum [4]byte
	if _, err := hex.Decode(sum[:], body[end:]); err != nil || binary.BigEndian.Uint32(sum[:]) != crc32.Checksum(body[:end], castagnoli()) {
		return 0, 0, false
	}
	var words [16]byte
	if _, err := hex.Decode(words[:], body[:headBytes]); err != nil {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(words[:]), time.Duration(binary.BigEndian.Uint64(words[8:])), true
}
