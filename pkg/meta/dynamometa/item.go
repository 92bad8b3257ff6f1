package dynamometa

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The attributes of every item. Names are short where a commit pays for them.
const (
	attrPK      = "pk"
	attrSK      = "sk"
	attrTTL     = "ttl" // seconds since 1970; of expiring records only
	attrVersion = "v"   // the version token, 8 bytes big-endian
	attrFrame   = "rec" // the codec's frame; of all records but heads and cursors
	attrLayout  = "k"   // layoutHead or layoutCursor
)

// Layouts of items that are not frames. A change of their attributes needs a new one.
const (
	layoutHead   = "h1"
	layoutCursor = "c1"
)

// stored is an item as it stands in the table: raw and decoded. The zero stored is no item.
type stored struct {
	raw  attrs
	item *meta.Item
}

func keyAttrs(key meta.Key) attrs {
	return attrs{attrPK: text(key.PK), attrSK: text(key.SK)}
}

// encodeItem makes the whole item of a record. Fails with KindTooLarge past meta.MaxRecordBytes by
// DynamoDB's own count, KindInvalid for what cannot be stored.
func encodeItem(item *meta.Item) (attrs, error) {
	raw := keyAttrs(item.Record.Key())
	raw[attrVersion] = versionAttr(item.Version)
	switch r := item.Record.(type) {
	case *meta.Head:
		encodeHead(raw, r)
	case *meta.Cursor:
		encodeCursor(raw, r)
	default:
		frame, err := meta.Encode(nil, item)
		if err != nil {
			return nil, err
		}
		raw[attrFrame] = binaryOf(frame)
	}
	if e, ok := item.Record.(meta.Expiring); ok && e.ExpiresAt() != 0 {
		// Rounded up: never removed before its time.
		raw[attrTTL] = number((int64(e.ExpiresAt()) + 999) / 1000)
	}
	if size := sizeOf(raw); size > meta.MaxRecordBytes {
		return nil, tooLarge("encode "+item.Record.Kind().String(), item.Record.Key(), size)
	}
	return raw, nil
}

func tooLarge(op string, key meta.Key, size int) error {
	e := queue.TooLarge("record", meta.MaxRecordBytes, int64(size))
	e.Op, e.Subject = op, key.String()
	return e
}

// decodeItem reads an item; the zero stored for none. Every failure is KindCorrupt.
func decodeItem(key meta.Key, raw attrs) (stored, error) {
	if len(raw) == 0 {
		return stored{}, nil
	}
	item, err := decodeAttrs(key, raw)
	if err != nil {
		if queue.Is(err, queue.KindCorrupt) {
			return stored{}, err
		}
		return stored{}, &queue.Error{Op: "decode record", Subject: key.String(), Kind: queue.KindCorrupt, Err: err}
	}
	return stored{raw: raw, item: item}, nil
}

func decodeAttrs(key meta.Key, raw attrs) (*meta.Item, error) {
	if v, ok := raw[attrFrame].(*types.AttributeValueMemberB); ok {
		item, err := meta.Decode(key, v.Value)
		item.Size = sizeOf(raw)
		return &item, err
	}
	f := fields{m: raw}
	item := &meta.Item{Version: f.version()}
	switch layout := f.text(attrLayout); layout {
	case layoutHead:
		head := decodeHead(key, &f)
		item.Record, item.Size = head, sizeOf(raw)
	case layoutCursor:
		c := decodeCursor(key, &f)
		item.Record = c
		if f.err == nil {
			item.Size = cursorSize(c)
		}
	default:
		return nil, fmt.Errorf("layout %q is not known: another version of Spillway wrote the table; deploy that one, or newer", layout)
	}
	if f.err != nil {
		return nil, f.err
	}
	if item.Record.Key() != key {
		return nil, errors.New("the item belongs under another key")
	}
	return item, nil
}

// keyOf reads an item's own key, for queries.
func keyOf(raw attrs) meta.Key {
	f := fields{m: raw}
	return meta.Key{PK: f.text(attrPK), SK: f.text(attrSK)}
}

func versionAttr(v meta.Version) types.AttributeValue {
	return binaryOf(binary.BigEndian.AppendUint64(nil, uint64(v)))
}

// fields reads attributes. The first failure sticks, and every read after it gives zero, so that
// callers check once, at the end.
type fields struct {
	m   attrs
	err error
}

func (f *fields) fail(name string) {
	if f.err == nil {
		f.err = fmt.Errorf("attribute %q is absent or of another form", name)
	}
}

// uint reads a number that must be there; optUint gives 0 if it is not.
func (f *fields) uint(name string) uint64 {
	if v, ok := f.m[name].(*types.AttributeValueMemberN); ok {
		if n, err := strconv.ParseUint(v.Value, 10, 64); err == nil {
			return n
		}
	}
	f.fail(name)
	return 0
}

func (f *fields) optUint(name string) uint64 {
	if _, ok := f.m[name]; !ok {
		return 0
	}
	return f.uint(name)
}

func (f *fields) uint32(name string) uint32 {
	n := f.uint(name)
	if n > math.MaxUint32 {
		f.fail(name)
		return 0
	}
	return uint32(n)
}

func (f *fields) offset(name string) queue.Offset { return queue.Offset(f.uint(name)) }

func (f *fields) millis(name string) queue.Millis {
	if v, ok := f.m[name].(*types.AttributeValueMemberN); ok {
		if n, err := strconv.ParseInt(v.Value, 10, 64); err == nil {
			return queue.Millis(n)
		}
	}
	f.fail(name)
	return 0
}

func (f *fields) text(name string) string {
	v, ok := f.m[name].(*types.AttributeValueMemberS)
	if !ok {
		f.fail(name)
		return ""
	}
	return v.Value
}

func (f *fields) bytes(name string) []byte {
	v, ok := f.m[name].(*types.AttributeValueMemberB)
	if !ok {
		f.fail(name)
		return nil
	}
	return v.Value
}

func (f *fields) version() meta.Version {
	b := f.bytes(attrVersion)
	if len(b) != 8 {
		f.fail(attrVersion)
		return 0
	}
	return meta.Version(binary.BigEndian.Uint64(b))
}

func (f *fields) list(name string) []types.AttributeValue {
	v, ok := f.m[name].(*types.AttributeValueMemberL)
	if !ok {
		f.fail(name)
		return nil
	}
	return v.Value
}

func (f *fields) object(name string) attrs {
	v, ok := f.m[name].(*types.AttributeValueMemberM)
	if !ok {
		f.fail(name)
		return nil
	}
	return v.Value
}

// sizeOf is an item's size in bytes as DynamoDB counts it: names and values, a number at about a byte
// for two digits and one more, three bytes for a list or map and one for each element
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html).
func sizeOf(raw attrs) int {
	n := 0
	for name, v := range raw {
		n += len(name) + valueSize(v)
	}
	return n
}

func valueSize(v types.AttributeValue) int {
	const container = 3
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return (len(v.Value)+1)/2 + 1
	case *types.AttributeValueMemberL:
		n := container
		for _, e := range v.Value {
			n += 1 + valueSize(e)
		}
		return n
	case *types.AttributeValueMemberM:
		return container + len(v.Value) + sizeOf(v.Value)
	}
	return 1
}
