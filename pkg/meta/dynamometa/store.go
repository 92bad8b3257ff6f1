package dynamometa

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// API is what the store uses of *dynamodb.Client.
type API interface {
	GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	PutItem(ctx context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Query(ctx context.Context, in *dynamodb.QueryInput, opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, opts ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Options tune a store; the zero value is what production uses.
type Options struct {
	// Tries bounds how often one op is stated anew because others got in between; 0 stands for 10.
	Tries int
	// FoldEvery is how much litter a cursor gathers before a settle clears it; 0 stands for 16.
	FoldEvery int
}

// Store implements meta.Store. It keeps no state but counters.
type Store struct {
	api   API
	table string
	opts  Options
	stats counters
}

var _ meta.Store = (*Store)(nil)

// New makes a store on a table as CreateTable makes it. Nothing is sent before the first call.
func New(api API, table string, opts Options) *Store {
	if opts.Tries <= 0 {
		opts.Tries = 10
	}
	if opts.FoldEvery <= 0 {
		opts.FoldEvery = 16
	}
	return &Store{api: api, table: table, opts: opts}
}

// Stats is what a store has sent and consumed since it was made.
type Stats struct {
	// Requests counts calls of the client; what it retries by itself counts once.
	Requests int64
	// ReadUnits and WriteUnits are the capacity units that the answers told. Answers of failed
	// conditions tell none, though they are charged for.
	ReadUnits, WriteUnits float64
}

// counters are Stats in the making; units are counted in halves, the least that a read consumes.
type counters struct {
	requests, readHalves, writeHalves atomic.Int64
}

// Stats tells the counts so far.
func (s *Store) Stats() Stats {
	return Stats{
		Requests:   s.stats.requests.Load(),
		ReadUnits:  float64(s.stats.readHalves.Load()) / 2,
		WriteUnits: float64(s.stats.writeHalves.Load()) / 2,
	}
}

func (s *Store) read(c *types.ConsumedCapacity) {
	if c != nil {
		s.stats.readHalves.Add(int64(2 * aws.ToFloat64(c.CapacityUnits)))
	}
}

func (s *Store) wrote(c ...types.ConsumedCapacity) {
	for i := range c {
		s.stats.writeHalves.Add(int64(2 * aws.ToFloat64(c[i].CapacityUnits)))
	}
}

// Get implements meta.Store: one strongly consistent GetItem, a unit for each 4 KB.
func (s *Store) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	if err := checkKey(key); err != nil {
		return meta.Item{}, err
	}
	if err := meta.Canceled(ctx, "get record"); err != nil {
		return meta.Item{}, err
	}
	cur, err := s.get(ctx, "get record", key)
	switch {
	case err != nil:
		return meta.Item{}, err
	case cur.item == nil:
		return meta.Item{}, meta.NotFound(key)
	}
	return *cur.item, nil
}

func (s *Store) get(ctx context.Context, op string, key meta.Key) (stored, error) {
	c := &call{op: op, subject: key.String()}
	s.stats.requests.Add(1)
	out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: keyAttrs(key), ConsistentRead: aws.Bool(true),
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, c.watch)
	if err != nil {
		return stored{}, c.fail(ctx, err)
	}
	s.read(out.ConsumedCapacity)
	return decodeItem(key, out.Item)
}

// Apply implements meta.Store. The package comment says what each op costs.
func (s *Store) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if err := checkOp(op); err != nil {
		return meta.Result{}, err
	}
	if err := meta.Canceled(ctx, op.Name()); err != nil {
		return meta.Result{}, err
	}
	switch op := op.(type) {
	case meta.Put, meta.Delete:
		return s.whole(ctx, op)
	case meta.Append:
		if err := checkAppend(op); err != nil {
			return meta.Result{}, err
		}
		if err := s.putPayload(ctx, op.Payload); err != nil {
			return meta.Result{}, err
		}
		return s.head(ctx, op)
	case meta.Check:
		return s.check(ctx, op)
	case meta.Trim, meta.Seal, meta.Touch, meta.Void:
		return s.head(ctx, op)
	case meta.Take:
		if op.Create != nil {
			return s.whole(ctx, op)
		}
		return s.cursor(ctx, op)
	}
	return s.cursor(ctx, op)
}

// checkAppend refuses (KindTooLarge) what no head could hold, before its payload is written.
func checkAppend(a meta.Append) error {
	size := 0
	for i := range a.Refs {
		size += len(meta.AppendRef(nil, &a.Refs[i]))
	}
	if size > meta.MaxRecordBytes {
		return tooLarge(a.Name(), a.Target(), size)
	}
	return nil
}

func checkOp(op meta.Op) error {
	if err := meta.CheckOp(op); err != nil {
		return err
	}
	if a, ok := op.(meta.Append); ok && a.Payload != nil {
		if err := checkKey(a.Payload.Key()); err != nil {
			return err
		}
	}
	return checkKey(op.Target())
}

// checkKey asks, beyond meta.CheckKey, for UTF-8: DynamoDB's keys are strings.
func checkKey(key meta.Key) error {
	if err := meta.CheckKey(key); err != nil {
		return err
	}
	if !utf8.ValidString(key.PK) || !utf8.ValidString(key.SK) {
		return queue.Invalid("key", nil, "is not UTF-8")
	}
	return nil
}

// pause waits before try n+1, with jitter, so that those who met do not meet again. It reports whether
// ctx lives.
func pause(ctx context.Context, n int) bool {
	return queue.Backoff{First: 4 * time.Millisecond, Last: 250 * time.Millisecond}.Wait(ctx, n, jitter) == nil
}

func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2) // #nosec G404 -- jitter needs no secrecy
}

// contended is the answer of an op that others got before at each of its tries; nothing was changed.
func contended(op, subject string, err error) error {
	return &queue.Error{Op: op, Subject: subject, Kind: queue.KindThrottled, Message: "too much contention on the record", Err: err}
}
