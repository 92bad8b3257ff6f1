package meta

import "encoding/binary"

// FixChecksum makes the checksum of a frame right, whatever the frame holds.
func FixChecksum(key Key, frame []byte) {
	if len(frame) >= frameBody {
		binary.BigEndian.PutUint32(frame[frameCRC:], frameSum(key, frame))
	}
}
