package dynamometa

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// write is one conditional change of one item.
type write struct {
	key meta.Key
	// put is the whole item; nil for an update or a delete.
	put attrs
	del bool
	// check: nothing is changed. Of transactions only.
	check bool
	*expr
	// want is what an update answers with: the item before or after it.
	want types.ReturnValue
	// single: after a lost answer only the caller may try again (meta.Once): a second copy of the request
	// could take effect before the first and hide it, or after what the first one made is gone.
	single bool
}

// outcome is how a write ended, if it did not fail.
type outcome struct {
	// held: the condition held and the change is made; got is the item that an update answered with.
	held bool
	got  stored
	// lost: an earlier try of the same call may have been the one that took effect.
	lost bool
}

// send carries out w once. If the condition does not hold, got is the item as it was found.
func (s *Store) send(ctx context.Context, op string, w write) (outcome, *call, error) {
	c := &call{op: op, subject: w.key.String(), write: true, single: w.single}
	s.stats.requests.Add(1)
	var raw attrs
	var used *types.ConsumedCapacity
	var err error
	const allOld = types.ReturnValuesOnConditionCheckFailureAllOld
	switch {
	case w.put != nil:
		var out *dynamodb.PutItemOutput
		out, err = s.api.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &s.table, Item: w.put, ConditionExpression: w.condition(),
			ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.vals,
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal, ReturnValuesOnConditionCheckFailure: allOld,
		}, c.watch)
		if err == nil {
			used = out.ConsumedCapacity
		}
	case w.del:
		var out *dynamodb.DeleteItemOutput
		out, err = s.api.DeleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: &s.table, Key: keyAttrs(w.key), ConditionExpression: w.condition(),
			ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.vals,
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal, ReturnValuesOnConditionCheckFailure: allOld,
		}, c.watch)
		if err == nil {
			used = out.ConsumedCapacity
		}
	default:
		var out *dynamodb.UpdateItemOutput
		out, err = s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &s.table, Key: keyAttrs(w.key), ConditionExpression: w.condition(), UpdateExpression: w.update(),
			ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.vals, ReturnValues: w.want,
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal, ReturnValuesOnConditionCheckFailure: allOld,
		}, c.watch)
		if err == nil {
			used, raw = out.ConsumedCapacity, out.Attributes
		}
	}
	if found, refused := refusedWith(err); refused {
		got, derr := decodeItem(w.key, found)
		return outcome{got: got, lost: c.lost}, c, derr
	}
	if err != nil {
		return outcome{}, c, err
	}
	if used != nil {
		s.wrote(*used)
	}
	got, err := decodeItem(w.key, raw)
	return outcome{held: true, got: got}, c, err
}

// planner states op for the item as it was last found: nil before the first try. read asks for the
// item first; a nil write says that op leaves the item as it is.
type planner func(cur *stored) (w *write, read bool, err error)

// try states op until it is carried out or refused: the first time blind, where the planner can, and
// then for the item that was found. It answers with the outcome of the write that held, or with that
// of a planner which wanted none.
func (s *Store) try(ctx context.Context, op meta.Op, plan planner) (outcome, error) {
	var cur *stored
	var last error
	for n := range s.opts.Tries {
		w, read, err := plan(cur)
		if err != nil {
			return outcome{}, err
		}
		if read {
			found, err := s.get(ctx, op.Name(), op.Target())
			if err != nil {
				return outcome{}, err
			}
			cur = &found
			if _, _, err := op.Change(cur.item); err != nil {
				return outcome{}, err
			}
			w, _, err = plan(cur)
			if err != nil {
				return outcome{}, err
			}
		}
		if w == nil {
			return outcome{got: *cur}, nil
		}
		out, c, err := s.send(ctx, op.Name(), *w)
		switch {
		case err != nil && conflicted(err) && !c.lost:
			last = err
			if !pause(ctx, n) {
				return outcome{}, c.fail(ctx, err)
			}
			continue
		case err != nil && queue.Is(err, queue.KindCorrupt):
			return outcome{}, err
		case err != nil:
			return outcome{}, c.fail(ctx, err)
		case out.held:
			return out, nil
		}
		if cur, err = s.judge(ctx, op, out); err != nil {
			if out.lost {
				return outcome{got: *cur}, own(op, cur, c, err)
			}
			return outcome{}, err
		}
		if out.lost {
			return outcome{}, c.unknown(nil)
		}
		// The first time it was the blind try that missed; then others got in between.
		if n > 0 && !pause(ctx, n) {
			return outcome{}, meta.Canceled(ctx, op.Name())
		}
	}
	return outcome{}, contended(op.Name(), op.Target().String(), last)
}

// judge finds out why a condition did not hold: a *Refused, or nil if op would change the item after all,
// because the try was stated for another one. It gives the item in any case.
func (s *Store) judge(ctx context.Context, op meta.Op, out outcome) (*stored, error) {
	cur := out.got
	if cur.item == nil {
		// No item, or a server that does not send it.
		found, err := s.get(ctx, op.Name(), op.Target())
		if err != nil {
			return &cur, err
		}
		cur = found
	}
	_, _, err := op.Change(cur.item)
	return &cur, err
}

// own looks whether a condition that a retry of the client met was spoilt by the op's own first try: nil
// if that is sure, as a put's version is there or an append's refs are, whatever else is wrong with the
// head by now (sealed, say). For the rest the caller has to read.
func own(op meta.Op, cur *stored, c *call, refusal error) error {
	switch op := op.(type) {
	case meta.Put:
		if cur.item != nil && cur.item.Version == op.Version {
			return nil
		}
	case meta.Append:
		if _, in := placeOf(cur, op); in {
			return nil
		}
	}
	return c.unknown(refusal)
}

// placeOf finds an append in the head's tail.
func placeOf(cur *stored, a meta.Append) (queue.Offset, bool) {
	if cur.item == nil {
		return 0, false
	}
	h, ok := cur.item.Record.(*meta.Head)
	if !ok {
		return 0, false
	}
	off, ref, ok := h.Find(a.Refs[0].ID, a.Refs[0].First)
	return off, ok && ref.Same(&a.Refs[0])
}

// whole carries out a Put, a Delete, or a Take that creates its cursor.
func (s *Store) whole(ctx context.Context, op meta.Op) (meta.Result, error) {
	w, item, before, err := wholeWrite(op)
	if err != nil {
		return meta.Result{}, err
	}
	if _, err := s.try(ctx, op, func(*stored) (*write, bool, error) { return &w, false, nil }); err != nil {
		return meta.Result{}, err
	}
	return meta.Result{Item: item, Before: before}, nil
}

// wholeWrite states an op that needs to know no more of the item than its condition, the item that it
// makes and, for a Take, the cursor it starts from.
func wholeWrite(op meta.Op) (w write, made meta.Item, before meta.Record, err error) {
	w = write{key: op.Target(), expr: &expr{}, single: meta.Once(op)}
	var item *meta.Item
	cond := meta.Absent()
	switch op := op.(type) {
	case meta.Delete:
		w.del = true
		w.state(op.If)
		return w, meta.Item{}, nil, nil
	case meta.Check:
		w.check = true
		if w.state(op.If); len(w.cond) == 0 {
			// DynamoDB wants a condition of a check.
			w.where("attribute_exists(", w.path(attrPK), ") OR attribute_not_exists(", w.path(attrPK), ")")
		}
		return w, meta.Item{}, nil, nil
	case meta.Put:
		item, cond = &meta.Item{Record: op.Record, Version: op.Version}, op.If
	case meta.Take:
		next, res, err := op.Change(nil)
		if err != nil {
			return w, meta.Item{}, nil, err
		}
		item, before = next, res.Before
	}
	if w.put, err = encodeItem(item); err != nil {
		return w, meta.Item{}, nil, err
	}
	w.state(cond)
	// What is handed out is what a reader will see, and shares nothing with the caller's record.
	got, err := decodeItem(w.key, w.put)
	if err != nil {
		return w, meta.Item{}, nil, err
	}
	return w, *got.item, before, nil
}

// state adds the condition of a Put or Delete.
func (w *write) state(c meta.Condition) {
	absent := &meta.Item{}
	_, onNone := c.Holds(nil)
	_, onAny := c.Holds(absent)
	switch {
	case onNone && onAny:
	case onNone:
		w.where("attribute_not_exists(", w.path(attrPK), ")")
	default:
		if v, ok := c.Version(); ok {
			w.where(w.path(attrVersion), " = ", w.val(versionAttr(v)))
			return
		}
		w.exists()
	}
}
