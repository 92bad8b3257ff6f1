package dynamometa

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Transact implements meta.Store: one TransactWriteItems, at twice the write units. A Trim, Settle or
// Take is stated for its record as a GetItem finds it just before; a Trim, where it can, for the head that its caller has seen. The answer of DynamoDB tells no items,
// so each Append, Seal and Void is followed by a GetItem of its head: the result's Item is the head a moment
// after the transaction, and may show later appends. The Item of a Trim, Settle or Take is the record as
// it was read with the op's change made, and may lack what others changed in between; what the op itself
// rests on cannot have changed.
func (s *Store) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if err := meta.CheckTransact(ops); err != nil {
		return nil, err
	}
	for _, op := range ops {
		if err := checkOp(op); err != nil {
			return nil, err
		}
		if a, ok := op.(meta.Append); ok {
			if err := checkAppend(a); err != nil {
				return nil, err
			}
		}
	}
	if err := meta.Canceled(ctx, "transact"); err != nil {
		return nil, err
	}
	t := &transaction{store: s, ops: ops, found: make([]*stored, len(ops))}
	for i, op := range ops {
		if trim, ok := op.(meta.Trim); ok {
			if seen := seenBy(trim); seen != nil {
				t.found[i] = &stored{item: &meta.Item{Record: seen}}
			}
		}
	}
	for n := range s.opts.Tries {
		done, err := t.once(ctx)
		if err != nil {
			return nil, err
		}
		if done {
			return t.answer(ctx)
		}
		if !pause(ctx, n) {
			return nil, meta.Canceled(ctx, "transact") // nothing is on its way
		}
	}
	return nil, contended("transact", ops[0].Target().String(), nil)
}

// transaction is a Transact under way.
type transaction struct {
	store *Store
	ops   []meta.Op
	// found holds the records as the ops are stated for them; nil where an op is stated blind, or
	// where the record is to be read.
	found   []*stored
	results []meta.Result
	items   []types.TransactWriteItem
	// owner is the op that each item belongs to.
	owner []int
}

// once reads what is to be read and makes one attempt. Not done and no error asks for another.
func (t *transaction) once(ctx context.Context) (done bool, err error) {
	for i, op := range t.ops {
		if t.found[i] == nil && wantsRead(op) {
			cur, err := t.store.get(ctx, op.Name(), op.Target())
			if err != nil {
				return false, err
			}
			t.found[i] = &cur
		}
		if t.found[i] != nil {
			if _, _, err := op.Change(t.found[i].item); err != nil {
				return false, t.firstRefusal(ctx, i, err)
			}
		}
	}
	if err := t.state(); err != nil {
		return false, err
	}
	c := &call{op: "transact", subject: t.ops[0].Target().String(), write: true}
	t.store.stats.requests.Add(1)
	out, err := t.store.api.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: t.items, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, c.watch)
	if err == nil {
		t.store.wrote(out.ConsumedCapacity...)
		return true, nil
	}
	var canceled *types.TransactionCanceledException
	if !errors.As(err, &canceled) {
		if conflicted(err) && !c.lost {
			return false, nil
		}
		return false, c.fail(ctx, err)
	}
	if err = t.canceled(ctx, canceled.CancellationReasons, c.fail(ctx, err)); c.lost {
		// The attempt whose answer was lost may have done it all.
		return false, c.unknown(err)
	}
	return false, err
}

// wantsRead reports whether op is stated for its record as it is, in a transaction.
func wantsRead(op meta.Op) bool {
	switch op := op.(type) {
	case meta.Trim, meta.Settle, meta.Touch:
		return true
	case meta.Take:
		return op.Create == nil
	}
	return false
}

// firstRefusal is the answer if op i is refused by what was read: the first op that is refused is to be
// named, so the records of those before it are looked at too.
func (t *transaction) firstRefusal(ctx context.Context, i int, refusal error) error {
	for j, op := range t.ops[:i] {
		if wantsRead(op) {
			continue // has been looked at
		}
		cur, err := t.store.get(ctx, op.Name(), op.Target())
		if err != nil {
			return err
		}
		if _, _, err := op.Change(cur.item); err != nil {
			return meta.Indexed(err, j)
		}
	}
	return meta.Indexed(refusal, i)
}

// state states all ops and works out the results, as far as they are known before.
func (t *transaction) state() error {
	t.items, t.owner = t.items[:0], t.owner[:0]
	t.results = make([]meta.Result, len(t.ops))
	for i, op := range t.ops {
		if a, ok := op.(meta.Append); ok && a.Payload != nil {
			w, err := payloadWrite(a.Payload)
			if err != nil {
				return err
			}
			// Put if absent must not refuse the transaction if the payload is there: it is the same.
			w.cond[0] += " OR " + w.path(attrFrame) + " = " + w.val(w.put[attrFrame])
			t.add(i, w)
		}
		w, err := t.write(i, op)
		if err != nil {
			return err
		}
		t.add(i, w)
	}
	return nil
}

func (t *transaction) write(i int, op meta.Op) (write, error) {
	cur := t.found[i]
	switch op := op.(type) {
	case meta.Touch:
		next, res, err := op.Change(cur.item)
		if err != nil {
			return write{}, err
		}
		t.results[i] = res
		w := write{key: op.Target(), expr: headPlan(op, nil)}
		if next == cur.item {
			w.check, w.expr = true, &expr{}
			w.exists()
		}
		return w, nil
	case meta.Append, meta.Seal, meta.Void, meta.Trim:
		var last *meta.Head
		if cur != nil {
			last, _ = cur.item.Record.(*meta.Head)
		}
		if trim, ok := op.(meta.Trim); ok {
			t.results[i].Item = trimmed(trim, cur.item)
		}
		return write{key: op.Target(), expr: headPlan(op, last)}, nil
	case meta.Take:
		if op.Create == nil {
			return t.cursorWrite(i, op, takeEdits(op, *cur))
		}
	case meta.Settle:
		next, _, err := op.Change(cur.item)
		if err != nil {
			return write{}, err
		}
		after, _ := next.Record.(*meta.Cursor)
		return t.cursorWrite(i, op, settleEdits(op, *cur, after))
	}
	w, item, before, err := wholeWrite(op)
	t.results[i].Item, t.results[i].Before = item, before
	return w, err
}

func (t *transaction) cursorWrite(i int, op meta.Op, d *edits) (write, error) {
	next, res, err := op.Change(t.found[i].item)
	if err != nil {
		return write{}, err
	}
	t.results[i] = sized(res, next)
	return write{key: op.Target(), expr: d.plan(t.found[i].raw)}, nil
}

// trimmed is the head after a trim that forgets no more producers than planTrim does.
func trimmed(t meta.Trim, cur *meta.Item) meta.Item {
	next, _, err := meta.Trim{Segment: t.Segment, First: t.First, Count: t.Count}.Change(cur)
	if err != nil {
		return *cur
	}
	h, _ := next.Record.(*meta.Head)
	was, _ := cur.Record.(*meta.Head)
	if idle := forgotten(was, t.Forget); len(idle) > 0 {
		h.Producers = was.Producers.Without(func(p *meta.Producer) bool {
			_, gone := idle.Get(p.ID)
			return gone
		})
	}
	raw, err := encodeItem(next)
	if err == nil {
		next.Size = sizeOf(raw)
	}
	return *next
}

func (t *transaction) add(i int, w write) {
	const allOld = types.ReturnValuesOnConditionCheckFailureAllOld
	table := aws.String(t.store.table)
	var item types.TransactWriteItem
	switch {
	case w.put != nil:
		item.Put = &types.Put{
			TableName: table, Item: w.put, ConditionExpression: w.condition(),
			ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.vals, ReturnValuesOnConditionCheckFailure: allOld,
		}
	case w.check:
		item.ConditionCheck = &types.ConditionCheck{
			TableName: table, Key: keyAttrs(w.key), ConditionExpression: w.condition(),
			ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.vals, ReturnValuesOnConditionCheckFailure: allOld,
		}
	case w.del:
		item.Delete = &types.Delete{
			TableName: table, Key: keyAttrs(w.key), ConditionExpression: w.condition(),
			ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.vals, ReturnValuesOnConditionCheckFailure: allOld,
		}
	default:
		item.Update = &types.Update{
			TableName: table, Key: keyAttrs(w.key), ConditionExpression: w.condition(), UpdateExpression: w.update(),
			ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.vals, ReturnValuesOnConditionCheckFailure: allOld,
		}
	}
	t.items, t.owner = append(t.items, item), append(t.owner, i)
}

// canceled finds out why a transaction was canceled; nil if it is to be tried again. other is the answer
// for what is not a matter of conditions and conflicts.
func (t *transaction) canceled(ctx context.Context, reasons []types.CancellationReason, other error) error {
	found := make([]*stored, len(t.ops))
	again := false
	for j, reason := range reasons {
		if j >= len(t.owner) {
			break
		}
		i := t.owner[j]
		op := t.ops[i]
		switch code := aws.ToString(reason.Code); code {
		case "", "None":
		case "ConditionalCheckFailed":
			if t.items[j].Put != nil && op.Target() != keyOf(t.items[j].Put.Item) {
				return &queue.Error{
					Op: op.Name(), Subject: op.Target().String(), Kind: queue.KindCorrupt,
					Message: "another payload stands under the payload's id",
				}
			}
			got, err := decodeItem(op.Target(), reason.Item)
			if err != nil {
				return err
			}
			if found[i], err = t.store.judge(ctx, op, outcome{got: got}); err != nil {
				return meta.Indexed(err, i)
			}
			again = true
		case "TransactionConflict":
			again = true
		default:
			return t.reason(op, code, aws.ToString(reason.Message), other)
		}
	}
	if !again {
		return other
	}
	t.found = found // the others are read again
	return nil
}

func (t *transaction) reason(op meta.Op, code, message string, other error) error {
	e := &queue.Error{Op: op.Name(), Subject: op.Target().String(), Kind: queue.KindInternal, Err: other}
	switch code {
	case "ProvisionedThroughputExceeded", "ThrottlingError":
		e.Kind = queue.KindThrottled
	case "ItemCollectionSizeLimitExceeded":
		e.Kind = queue.KindFull
	case "ValidationError":
		if isTooLarge(message) {
			e.Kind = queue.KindTooLarge
		}
	}
	return e
}

// answer completes the results of a transaction that was carried out.
func (t *transaction) answer(ctx context.Context) ([]meta.Result, error) {
	for i, op := range t.ops {
		a, isAppend := op.(meta.Append)
		switch op.(type) {
		case meta.Append, meta.Seal, meta.Void:
		default:
			continue
		}
		cur, err := t.store.get(ctx, op.Name(), op.Target())
		if err == nil && cur.item == nil {
			err = meta.NotFound(op.Target())
		}
		if err == nil {
			t.results[i].Item = *cur.item
		}
		if err == nil && isAppend {
			t.results[i].Offset, err = t.store.offsetOf(ctx, a, cur)
		}
		if err != nil {
			return nil, &queue.Error{
				Op: op.Name(), Subject: op.Target().String(), Kind: queue.KindOutcomeUnknown,
				Message: "the transaction is carried out, but its result could not be read", Err: err,
			}
		}
	}
	return t.results, nil
}

// offsetOf finds where an append that was carried out has put its refs: in the tail, or, if others have
// rolled it since, in one of the newest pages.
func (s *Store) offsetOf(ctx context.Context, a meta.Append, cur stored) (queue.Offset, error) {
	head, ok := cur.item.Record.(*meta.Head)
	if !ok {
		return 0, meta.NotFound(a.Target())
	}
	if off, _, ok := head.Find(a.Refs[0].ID, a.Refs[0].First); ok {
		return off, nil
	}
	const pages = 8
	from := meta.PagesFrom(a.Segment, 0, pages)
	from.Reverse = true
	page, err := s.Query(ctx, from)
	if err != nil {
		return 0, err
	}
	for _, item := range page.Items {
		p, ok := item.Record.(*meta.RefPage)
		if !ok {
			continue
		}
		rolled := meta.Head{TailFirst: p.First, Tail: p.Refs}
		if off, _, ok := rolled.Find(a.Refs[0].ID, a.Refs[0].First); ok {
			return off, nil
		}
	}
	return 0, meta.NotFound(a.Target())
}
