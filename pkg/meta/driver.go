package meta

import (
	"context"
	"strings"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// What every driver needs, so that all refuse the same input in the same words.

const (
	// MaxPKBytes bounds the partition key (as DynamoDB does).
	MaxPKBytes = 2048
	// MaxSKBytes bounds the sort key (as DynamoDB does).
	MaxSKBytes = 1024
)

// CheckKey refuses (KindInvalid) a key with a part that is empty, too long, or holds a control
// character: NUL parts the two in the embedded store, and After counts on there being none.
func CheckKey(k Key) error {
	switch {
	case k.PK == "" || k.SK == "":
		return queue.Invalid("key", nil, "has an empty part")
	case len(k.PK) > MaxPKBytes:
		return queue.Invalid("key", MaxPKBytes, "partition key is longer than %d bytes", MaxPKBytes)
	case len(k.SK) > MaxSKBytes:
		return queue.Invalid("key", MaxSKBytes, "sort key is longer than %d bytes", MaxSKBytes)
	case strings.ContainsFunc(k.PK, isControl) || strings.ContainsFunc(k.SK, isControl):
		return queue.Invalid("key", nil, "holds a control character")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' }

// CheckKeys refuses (KindInvalid) no keys, more than MaxGetKeys, one twice, and one that CheckKey refuses.
func CheckKeys(keys []Key) error {
	if n := len(keys); n == 0 || n > MaxGetKeys {
		return queue.Invalid("keys", MaxGetKeys, "has %d, not 1 to %d", n, MaxGetKeys)
	}
	seen := make(map[Key]struct{}, len(keys))
	for _, k := range keys {
		if err := CheckKey(k); err != nil {
			return err
		}
		seen[k] = struct{}{}
	}
	if len(seen) != len(keys) {
		return queue.Invalid("keys", nil, "has one key twice")
	}
	return nil
}

// CheckRange refuses (KindInvalid) a range without a partition, with a NUL in a bound, or with a
// limit outside 1 to MaxQueryLimit. From at or above To is an empty range, not an error.
func CheckRange(q Range) error {
	switch {
	case q.PK == "" || len(q.PK) > MaxPKBytes || strings.ContainsFunc(q.PK, isControl):
		return queue.Invalid("range", nil, "has no well-formed partition key")
	case strings.IndexByte(q.From, 0) >= 0 || strings.IndexByte(q.To, 0) >= 0:
		return queue.Invalid("range", nil, "holds a NUL byte")
	case q.Limit < 1 || q.Limit > MaxQueryLimit:
		return queue.Invalid("limit", MaxQueryLimit, "must be 1 to %d, not %d", MaxQueryLimit, q.Limit)
	}
	return nil
}

// CheckOp refuses (KindInvalid) an op that no state of the store could make sense of: a key that is
// not well formed, an append without refs, a put without a version, a take that loses messages.
func CheckOp(op Op) error {
	var err error
	switch op := op.(type) {
	case Put:
		if op.Record == nil {
			return queue.Invalid("record", nil, "is missing")
		}
		if op.Version == 0 {
			return queue.Invalid("version", nil, "is missing: draw a new one for each put")
		}
	case Append:
		err = op.validate()
	case Trim:
		if op.Count < 0 || op.Count > queue.MaxTailRefs {
			err = queue.Invalid("count", queue.MaxTailRefs, "must be 0 to %d, not %d", queue.MaxTailRefs, op.Count)
		}
	case Void:
		err = op.validate()
	case Take:
		err = op.validate()
	case Settle:
		err = op.validate()
	}
	if err != nil {
		return err
	}
	return CheckKey(op.Target())
}

// CheckTransact refuses (KindInvalid) a transaction of no ops, of more than MaxTransactOps (an
// Append's payload counts), of two on one record, or with an op that CheckOp refuses.
func CheckTransact(ops []Op) error {
	if len(ops) == 0 {
		return queue.Invalid("ops", nil, "is empty")
	}
	seen := make(map[Key]struct{}, len(ops))
	targets := 0
	add := func(k Key) {
		seen[k] = struct{}{}
		targets++
	}
	for _, op := range ops {
		if err := CheckOp(op); err != nil {
			return err
		}
		add(op.Target())
		if a, ok := op.(Append); ok && a.Payload != nil {
			add(a.Payload.Key())
		}
	}
	switch {
	case targets > MaxTransactOps:
		return queue.Invalid("ops", MaxTransactOps, "has %d, more than %d", targets, MaxTransactOps)
	case len(seen) != targets:
		return queue.Invalid("ops", nil, "has two ops on one record")
	}
	return nil
}

// Canceled translates the end of ctx into the contract's error; nil while ctx lives.
func Canceled(ctx context.Context, op string) error {
	if err := context.Cause(ctx); err != nil {
		return &queue.Error{Op: op, Kind: queue.KindCanceled, Err: err}
	}
	return nil
}

// NotFound is the answer to a Get of a record that is not there.
func NotFound(key Key) error {
	return &queue.Error{Op: "get record", Subject: key.String(), Kind: queue.KindNotFound}
}

// Effect is what an op makes of the item it found.
type Effect struct {
	// Item is the record after the op, nil if there is none.
	Item *Item
	// Frame is Item in stored form; nil unless Changed, or if Item is nil.
	Frame []byte
	// Changed is false if the op left everything as it was.
	Changed bool
	// Result is the op's answer, sizes filled in.
	Result Result
}

// Carry works out op's effect on cur for a driver that runs Change itself: it changes nothing. The
// frame is appended to buf. It fails with a *Refused or as Encode does.
func Carry(op Op, cur *Item, buf []byte) (Effect, error) {
	next, res, err := op.Change(cur)
	if err != nil {
		return Effect{}, err
	}
	e := Effect{Item: next, Changed: next != cur, Result: res}
	if next == nil || !e.Changed {
		return e, nil
	}
	frame, err := Encode(buf, next)
	if err != nil {
		return Effect{}, err
	}
	e.Frame = frame[len(buf):]
	next.Size = len(e.Frame)
	e.Result.Item = *next
	return e, nil
}

// Indexed gives a refusal its place in a transaction; other errors pass through.
func Indexed(err error, index int) error {
	if r, ok := AsRefused(err); ok {
		r.Index = index
	}
	return err
}
