package blob

import (
	"hash"
	"hash/crc32"
	"strconv"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// ChecksumHeader is the HTTP header that carries an object's checksum, in FormatChecksum's form.
const ChecksumHeader = "x-spillway-checksum"

const (
	checksumPrefix = "crc32c:"
	checksumDigits = 8
)

// CRC32C is the Castagnoli checksum of data.
func CRC32C(data []byte) uint32 {
	// MakeTable gives the one shared table of the polynomial, so this costs no memory.
	return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
}

// NewCRC32C computes the same checksum over a stream.
func NewCRC32C() hash.Hash32 { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

// FormatChecksum renders sum as "crc32c:" and 8 hexadecimal digits in lower case.
func FormatChecksum(sum uint32) string {
	digits := strconv.FormatUint(uint64(sum), 16)
	return checksumPrefix + "00000000"[len(digits):] + digits
}

// ParseChecksum reads what FormatChecksum renders; anything else, upper case included, is a
// KindInvalid error on field. One value has one text, so a text may be signed or compared.
func ParseChecksum(field, text string) (uint32, error) {
	bad := queue.Invalid(field, nil, "must be crc32c: and 8 lower-case hexadecimal digits")
	if len(text) != len(checksumPrefix)+checksumDigits || text[:len(checksumPrefix)] != checksumPrefix {
		return 0, bad
	}
	sum, err := strconv.ParseUint(text[len(checksumPrefix):], 16, 32)
	if err != nil || FormatChecksum(uint32(sum)) != text {
		return 0, bad
	}
	return uint32(sum), nil
}
