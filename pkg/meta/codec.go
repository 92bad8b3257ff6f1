package meta

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// codecVersion is the format written. A new field anywhere means a new version: a decoder of this
// one would drop the field when it writes the record back. Decode reads every version ever written;
// golden files in testdata pin each.
const codecVersion = 1

// The frame of a stored record, integers big-endian:
//
//	0   kind of the record
//	1   codec version
//	2   version token, 8 bytes
//	10  CRC32C of the partition key, a NUL, the sort key, and all other bytes of the frame, 4 bytes
//	14  body
//
// What a record's key says (segment, payload id, …) is not repeated in binary bodies; the checksum
// takes it in, so that a frame that got under another key is found out.
const (
	frameCRC  = 10
	frameBody = 14
)

// Encode appends item's stored form to dst: the frame above. Equal items give equal bytes. It fails
// with KindTooLarge past MaxRecordBytes and with KindInvalid for a record that cannot be stored; dst
// is then of no use beyond its old length. item.Size is not read and not set: the size is what was
// appended.
func Encode(dst []byte, item *Item) ([]byte, error) {
	start := len(dst)
	dst = append(dst, byte(item.Record.Kind()), codecVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(item.Version))
	dst = append(dst, 0, 0, 0, 0)
	dst, err := encodeBody(dst, item.Record)
	if err != nil {
		return dst, err
	}
	frame := dst[start:]
	if len(frame) > MaxRecordBytes {
		e := queue.TooLarge("record", MaxRecordBytes, int64(len(frame)))
		e.Op, e.Subject = "encode "+item.Record.Kind().String(), item.Record.Key().String()
		return dst, e
	}
	binary.BigEndian.PutUint32(frame[frameCRC:], frameSum(item.Record.Key(), frame))
	return dst, nil
}

func encodeBody(dst []byte, r Record) ([]byte, error) {
	switch r := r.(type) {
	case *Head:
		return appendHead(dst, r), nil
	case *Cursor:
		return appendCursor(dst, r)
	case *RefPage:
		return appendRefs(binary.AppendVarint(dst, int64(r.Rolled)), r.Refs), nil
	case *Payload:
		return append(dst, r.Data...), nil
	case *Delayed:
		return appendDelayed(dst, r), nil
	case *Name, *Topic, *Segment, *Subscription, *Forward, *Attempt,
		*Lease, *Work, *Drop, *Hold, *Freed, *Condemned, *Progress, *Watch, *Gauge, *Event, *Removal:
		body, err := json.Marshal(r)
		if err != nil {
			return dst, &queue.Error{Op: "encode " + r.Kind().String(), Subject: r.Key().String(), Kind: queue.KindInvalid, Err: err}
		}
		return append(dst, body...), nil
	}
	return dst, &queue.Error{Op: "encode record", Kind: queue.KindInvalid, Message: fmt.Sprintf("%T is not a record of this store", r)}
}

// frameSum is the CRC32C of a key and its frame, without the frame's own sum.
func frameSum(key Key, frame []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // made once, by the library
	sum := textSum(textSum(0, table, key.PK), table, "\x00")
	sum = textSum(sum, table, key.SK)
	sum = crc32.Update(sum, table, frame[:frameCRC])
	return crc32.Update(sum, table, frame[frameBody:])
}

// textSum is crc32.Update for a short text: the library takes bytes only, and a copy of each key would
// be garbage.
func textSum(sum uint32, table *crc32.Table, text string) uint32 {
	sum = ^sum
	for i := range len(text) {
		sum = table[byte(sum)^text[i]] ^ sum>>8
	}
	return ^sum
}

// Decode reads what Encode wrote of the record under key; its Size is len(data). It keeps no part of
// data. Every failure is KindCorrupt: a wrong checksum, an unknown kind or version, a body that does
// not parse to its last byte, a record that belongs under another key.
func Decode(key Key, data []byte) (Item, error) {
	rec, err := decodeFrame(key, data)
	if err != nil {
		return Item{}, &queue.Error{Op: "decode record", Subject: key.String(), Kind: queue.KindCorrupt, Err: err}
	}
	return Item{Record: rec, Version: Version(binary.BigEndian.Uint64(data[2:])), Size: len(data)}, nil
}

func decodeFrame(key Key, data []byte) (Record, error) {
	if len(data) < frameBody {
		return nil, io.ErrUnexpectedEOF
	}
	if sum := binary.BigEndian.Uint32(data[frameCRC:]); sum != frameSum(key, data) {
		return nil, errors.New("checksum does not match")
	}
	if data[1] != codecVersion {
		return nil, fmt.Errorf("codec version %d is not known: another version of Spillway wrote the store; run that one, or newer", data[1])
	}
	rec, err := decodeBody(Kind(data[0]), key, data[frameBody:])
	if err != nil {
		return nil, err
	}
	if got := rec.Key(); got != key {
		return nil, fmt.Errorf("the record belongs under %q", got.String())
	}
	return rec, nil
}

func decodeBody(kind Kind, key Key, body []byte) (Record, error) {
	switch kind {
	case KindHead:
		return decodeHead(key, body)
	case KindCursor:
		return decodeCursor(key, body)
	case KindPage:
		return decodePage(key, body)
	case KindPayload:
		return decodePayload(key, body)
	case KindDelayed:
		return decodeDelayed(key, body)
	case KindName:
		return decodeJSON(new(Name), body)
	case KindTopic:
		return decodeJSON(new(Topic), body)
	case KindSegment:
		return decodeJSON(new(Segment), body)
	case KindSubscription:
		return decodeJSON(new(Subscription), body)
	case KindForward:
		return decodeJSON(new(Forward), body)
	case KindAttempt:
		return decodeJSON(new(Attempt), body)
	case KindLease:
		return decodeJSON(new(Lease), body)
	case KindWork:
		return decodeJSON(new(Work), body)
	case KindDrop:
		return decodeJSON(new(Drop), body)
	case KindHold:
		return decodeJSON(new(Hold), body)
	case KindFreed:
		return decodeJSON(new(Freed), body)
	case KindCondemned:
		return decodeJSON(new(Condemned), body)
	case KindProgress:
		return decodeJSON(new(Progress), body)
	case KindWatch:
		return decodeJSON(new(Watch), body)
	case KindGauge:
		return decodeJSON(new(Gauge), body)
	case KindEvent:
		return decodeJSON(new(Event), body)
	case KindRemoval:
		return decodeJSON(new(Removal), body)
	}
	return nil, fmt.Errorf("unknown record kind %d", uint8(kind))
}

// decodeJSON refuses unknown fields: a field that this program does not know would be lost when it
// writes the record back.
func decodeJSON(r Record, body []byte) (Record, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	if d.InputOffset() != int64(len(body)) {
		return nil, errors.New("bytes after the record")
	}
	return r, nil
}
