package boltmeta

import (
	"encoding/binary"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The buckets of the file:
//
//	records   partition key, NUL, sort key → frame (meta.Encode)
//	payloads  payload id, NUL, shard → frame, for payload records: ids made one after the other go
//	          to the right edge of a tree of their own, whose pages are filled up
//	expiry    expiry in ms (8 bytes, big-endian), then a key of records → nothing
const (
	bucketRecords  = "records"
	bucketPayloads = "payloads"
	bucketExpiry   = "expiry"

	payloadPrefix = "p/"
	// edgeFill is how full a page of a bucket that grows at its right edge is made: there will be
	// no insertions into it.
	edgeFill = 0.95
)

// buckets are the buckets of one transaction.
type buckets struct {
	records, payloads, expiry *bolt.Bucket
}

func bucketsOf(tx *bolt.Tx) (buckets, error) {
	b := buckets{tx.Bucket([]byte(bucketRecords)), tx.Bucket([]byte(bucketPayloads)), tx.Bucket([]byte(bucketExpiry))}
	if b.records == nil || b.payloads == nil || b.expiry == nil {
		return b, &queue.Error{Op: "open buckets", Kind: queue.KindCorrupt, Message: "a bucket is missing"}
	}
	b.payloads.FillPercent = edgeFill
	return b, nil
}

func createBuckets(tx *bolt.Tx) error {
	for _, name := range []string{bucketRecords, bucketPayloads, bucketExpiry} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// place finds the bucket of a record and its key there.
func (b buckets) place(dst []byte, key meta.Key) (*bolt.Bucket, []byte) {
	if shard, ok := strings.CutPrefix(key.PK, payloadPrefix); ok {
		return b.payloads, appendKey(dst, key.SK, shard)
	}
	return b.records, appendKey(dst, key.PK, key.SK)
}

func (b buckets) get(key meta.Key) []byte {
	var buf [128]byte
	bucket, k := b.place(buf[:0], key)
	return bucket.Get(k)
}

func appendKey(dst []byte, pk, sk string) []byte {
	dst = append(dst, pk...)
	dst = append(dst, 0)
	return append(dst, sk...)
}

func keyOf(pk string, stored []byte) (meta.Key, bool) {
	have, sk, ok := strings.Cut(string(stored), "\x00")
	return meta.Key{PK: pk, SK: sk}, ok && have == pk
}

// expiryKey is where the expiry index names the record under key.
func expiryKey(at queue.Millis, key meta.Key) []byte {
	dst := binary.BigEndian.AppendUint64(nil, uint64(at)) // #nosec G115 -- times are not negative
	return appendKey(dst, key.PK, key.SK)
}

// expiryOf is 0 for a record that does not expire, or that is not there.
func expiryOf(item *meta.Item) queue.Millis {
	if item == nil {
		return 0
	}
	if e, ok := item.Record.(meta.Expiring); ok {
		return max(0, e.ExpiresAt())
	}
	return 0
}
