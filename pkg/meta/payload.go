package meta

import (
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// PayloadShards is the number of partitions that payload records spread over: enough for the writes of a
// whole table (DynamoDB takes 1,000 write units a second from one), few enough to be listed.
const PayloadShards = 64

// payloadPrefix begins the partitions of payload records.
const payloadPrefix = "p/"

// payloadTimeDigits is the length of the time that a payload's id begins with.
const payloadTimeDigits = 12

// PayloadID makes the id of a payload record of at: ids rise with time, so that those of a time can be
// listed. rest makes it unique.
func PayloadID(at queue.Millis, rest string) string {
	return payloadTime(at) + "-" + rest
}

func payloadTime(at queue.Millis) string {
	return fmt.Sprintf("%0*x", payloadTimeDigits, int64(max(at, 0)))
}

// PayloadTime is the time that an id was made of; not ok if it is none that PayloadID made.
func PayloadTime(id string) (queue.Millis, bool) {
	if len(id) <= payloadTimeDigits || id[payloadTimeDigits] != '-' {
		return 0, false
	}
	n, err := strconv.ParseInt(id[:payloadTimeDigits], 16, 64)
	return queue.Millis(n), err == nil && n >= 0
}

// PayloadPK is one of the partitions of payload records; shard is from 0 to PayloadShards-1.
func PayloadPK(shard int) string { return fmt.Sprintf("%s%02x", payloadPrefix, shard) }

// PayloadsOf is the range of a shard's payload records whose ids were made of [from, to); from 0 begins
// with the first of all.
func PayloadsOf(shard int, from, to queue.Millis, limit int) Range {
	r := Range{PK: PayloadPK(shard), To: payloadTime(to), Limit: limit}
	if from > 0 {
		r.From = payloadTime(from)
	}
	return r
}

// PayloadKey is where a payload stands.
func PayloadKey(id string) Key {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // a hash never fails
	x := h.Sum32()
	x ^= x >> 16 // FNV alone mixes the last bytes badly
	x *= 0x85ebca6b
	x ^= x >> 13
	return Key{PayloadPK(int(x % PayloadShards)), id}
}
