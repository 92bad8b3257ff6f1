// Package meta is the contract of the metadata store: the few small records that must change
// atomically. Drivers stand in folders below (memmeta, boltmeta, dynamometa); metatest holds
// the one conformance suite that every driver passes.
//
// Vocabulary: a record is one typed value under a Key (partition and sort key, as in DynamoDB); an
// item is a record with its version and size; an op is one atomic change of one record, with its
// condition; refused means that the condition did not hold and nothing changed.
//
// Every op is a plain struct whose effect is a pure function of the record it finds (ops.go, head.go,
// cursor.go). The embedded and memory drivers run that function; the DynamoDB driver states the same
// as one UpdateItem; the conformance suite holds them together.
//
// Invariants every driver keeps:
//   - Apply changes one record (and, for an Append, first puts its payload) or nothing.
//   - Transact changes all records or none, at one instant.
//   - When either returns nil the change is durable and every later read sees it (strong reads).
//   - A refused op changes nothing and tells the record as it found it.
//   - Records handed out are snapshots that never change; callers must not change them either.
//
// Errors are *queue.Error, or *Refused, whose kind queue.KindOf finds too. Kinds: NotFound, TooLarge
// (a record past MaxRecordBytes), Corrupt, Full, Throttled, Unavailable (nothing changed), Canceled
// (nothing changed) and OutcomeUnknown (read before deciding).
//
// All methods of all drivers are safe for concurrent use.
//
// Non-goals: scans without a partition, secondary indexes, stored procedures.
package meta

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Store keeps records.
type Store interface {
	// Get reads one record; KindNotFound if there is none.
	Get(ctx context.Context, key Key) (Item, error)
	// GetAll reads 1 to MaxGetKeys records of different keys, each as Get does, but not all at one
	// instant. The answer is in the order of keys; an Item without a Record is of a record that is not
	// there.
	GetAll(ctx context.Context, keys []Key) ([]Item, error)
	// Query reads records of one partition in the order of their sort keys.
	Query(ctx context.Context, q Range) (Page, error)
	// Apply carries out one op. One that is to be sent Once (see there) is carried out once at most, as is a
	// transaction of such.
	Apply(ctx context.Context, op Op) (Result, error)
	// Transact carries out 1 to MaxTransactOps ops on as many different records, all or none. A
	// *Refused names the first op (by index) whose condition did not hold. An Append's payload
	// counts as one more op.
	Transact(ctx context.Context, ops []Op) ([]Result, error)
}

const (
	// MaxTransactOps bounds one transaction (DynamoDB: 100 items).
	MaxTransactOps = 100
	// MaxGetKeys bounds one GetAll (DynamoDB's BatchGetItem: 100 keys).
	MaxGetKeys = 100
	// MaxRecordBytes bounds one encoded record (DynamoDB: 400 KB).
	MaxRecordBytes = 400 << 10
	// MaxQueryLimit bounds one page of a query.
	MaxQueryLimit = 1000
)

// Key is where a record stands. Neither part is empty or holds a NUL byte.
type Key struct {
	PK, SK string
}

// String renders "pk sk", for errors and logs.
func (k Key) String() string { return k.PK + " " + k.SK }

// Item is a record as it is stored.
type Item struct {
	Record Record
	// Version is the token that the last Put wrote with; 0 for records that only ops of their
	// own kind change (Head, Cursor, and whatever was never Put).
	Version Version
	// Size is the encoded size in bytes, which is what a store charges for.
	Size int
}

// Version is a random token, new with each Put: equal tokens mean that nobody has written between,
// and a writer whose answer was lost finds its own token. It is not ordered.
type Version uint64

// NewVersion draws a token; never 0.
func NewVersion(ids *queue.IDs) Version {
	n := ids.Nonce()
	var v Version
	for _, b := range n[:8] {
		v = v<<8 | Version(b)
	}
	return max(v, 1)
}

// Range is a part of one partition: sort keys in [From, To), From "" meaning the start and To ""
// the end.
type Range struct {
	PK       string
	From, To string
	// Limit is the number of items wanted, 1 to MaxQueryLimit.
	Limit int
	// Reverse reads from the greatest sort key down.
	Reverse bool
}

// Page is one page of a query. Fewer items than asked for do not mean the end: More does. The next
// page starts after (or, in reverse, ends before) the last item's sort key.
type Page struct {
	Items []Item
	More  bool
}

// After is a sort key greater than sk and below every other that is greater: sort keys hold only
// printable characters.
func After(sk string) string { return sk + "\x01" }

// Op is one atomic change of one record: Put, Delete, Check, Append, Void, Touch, Trim, Seal, Take or Settle.
type Op interface {
	// Target is the record that the op changes.
	Target() Key
	// Name is a short constant word, for metrics and faults: "append", "put page".
	Name() string
	// Change is the op's effect as a pure function: cur is the item found, nil if there is none.
	// next nil means that the record is deleted, next == cur that it stays as it is. The
	// returned error is a *Refused without Index. Change never modifies cur.
	Change(cur *Item) (next *Item, res Result, err error)
}

// Result is what an op answers with.
type Result struct {
	// Item is the record after the op (the zero Item after a Delete); its Size is filled in by
	// the driver.
	Item Item
	// Before is the record that the op found; nil if there was none. Only Settle and Take fill it.
	Before Record
	// Offset is the offset of the first message that an Append added.
	Offset queue.Offset
}

// Reason says which part of an op's condition did not hold.
type Reason uint8

// The reasons for a refusal.
const (
	ReasonAbsent    Reason = iota + 1 // there is no such record
	ReasonExists                      // the record exists already
	ReasonVersion                     // the record has another version
	ReasonSealed                      // the head is sealed
	ReasonEpoch                       // the op's epoch is not the record's
	ReasonTailFull                    // the head's tail has no room: roll
	ReasonDuplicate                   // the tail holds this ref already
	ReasonLate                        // the head moved past the op's deadline
	ReasonSequence                    // the producer's sequence is not new
	ReasonUnseen                      // the tail no longer reaches back to SeenFrom
	ReasonProducers                   // the head remembers too many producers: trim
	ReasonTrim                        // the tail does not start where the trim says
	ReasonNext                        // the cursor's next has moved
	ReasonClaim                       // a claim is gone or has changed
	ReasonRetry                       // a retry is gone or has changed
)

var reasonNames = [...]string{
	ReasonAbsent: "absent", ReasonExists: "exists", ReasonVersion: "version", ReasonSealed: "sealed",
	ReasonEpoch: "epoch", ReasonTailFull: "tail full", ReasonDuplicate: "duplicate", ReasonLate: "late",
	ReasonSequence: "sequence", ReasonUnseen: "unseen", ReasonProducers: "producers", ReasonTrim: "trim",
	ReasonNext: "next", ReasonClaim: "claim", ReasonRetry: "retry",
}

// String names the reason.
func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

func (r Reason) kind() queue.Kind {
	switch r {
	case ReasonAbsent:
		return queue.KindNotFound
	case ReasonExists, ReasonDuplicate:
		return queue.KindExists
	case ReasonSealed:
		return queue.KindSealed
	case ReasonEpoch:
		return queue.KindFenced
	default:
		return queue.KindConflict
	}
}

// Refused is the error of an op whose condition did not hold. Nothing was changed.
type Refused struct {
	// Op is the op's name and Key its target.
	Op  string
	Key Key
	// Index is the op's place in its transaction; 0 for Apply.
	Index  int
	Reason Reason
	// Current is the record as the op found it; nil if there was none.
	Current *Item
}

// Error renders op, key and reason.
func (r *Refused) Error() string { return fmt.Sprintf("%s %q refused: %s", r.Op, r.Key, r.Reason) }

// Unwrap gives the refusal its kind.
func (r *Refused) Unwrap() error {
	return &queue.Error{Op: r.Op, Subject: r.Key.String(), Kind: r.Reason.kind(), Message: r.Reason.String()}
}

// AsRefused finds a refusal in err's chain.
func AsRefused(err error) (*Refused, bool) {
	return errors.AsType[*Refused](err)
}

// IsRefused reports whether err is a refusal for that reason.
func IsRefused(err error, reason Reason) bool {
	r, ok := AsRefused(err)
	return ok && r.Reason == reason
}

func refuse(op Op, cur *Item, reason Reason) error {
	return &Refused{Op: op.Name(), Key: op.Target(), Reason: reason, Current: cur}
}

// Fetch reads the record of type T under key, with its version. NotFound if there is none, Corrupt if
// another type stands there.
func Fetch[T Record](ctx context.Context, s Store, key Key) (T, Version, error) {
	var zero T
	item, err := s.Get(ctx, key)
	if err != nil {
		return zero, 0, err
	}
	rec, ok := item.Record.(T)
	if !ok {
		return zero, 0, &queue.Error{Op: "load record", Subject: key.String(), Kind: queue.KindCorrupt, Message: "a record of another kind stands there"}
	}
	return rec, item.Version, nil
}
