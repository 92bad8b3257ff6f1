package dynamometa

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// putPayload puts an append's payload if it is absent; nil is no payload. One PutItem. A payload's bytes
// follow from its id, so one that is there already is the same.
func (s *Store) putPayload(ctx context.Context, p *meta.Payload) error {
	if p == nil {
		return nil
	}
	w, err := payloadWrite(p)
	if err != nil {
		return err
	}
	for n := range s.opts.Tries {
		_, c, err := s.send(ctx, "put payload", w)
		switch {
		case err == nil:
			return nil
		case !conflicted(err) || c.lost:
			if err = c.fail(ctx, err); queue.Is(err, queue.KindOutcomeUnknown) {
				// The head has not been touched: nothing of the append can have taken effect.
				return &queue.Error{Op: "put payload", Subject: w.key.String(), Kind: queue.KindUnavailable, Err: err}
			}
			return err
		case !pause(ctx, n):
			return c.fail(ctx, err)
		}
	}
	return contended("put payload", w.key.String(), nil)
}

func payloadWrite(p *meta.Payload) (write, error) {
	raw, err := encodeItem(&meta.Item{Record: p})
	if err != nil {
		return write{}, err
	}
	w := write{key: p.Key(), put: raw, expr: &expr{}}
	w.state(meta.Absent())
	return w, nil
}

// check carries out a Check by itself: a read.
func (s *Store) check(ctx context.Context, op meta.Check) (meta.Result, error) {
	cur, err := s.get(ctx, op.Name(), op.Key)
	if err != nil {
		return meta.Result{}, err
	}
	_, res, err := op.Change(cur.item)
	return res, err
}

// head carries out an Append, Seal, Trim, Touch or Void.
func (s *Store) head(ctx context.Context, op meta.Op) (meta.Result, error) {
	trim, isTrim := op.(meta.Trim)
	out, err := s.try(ctx, op, func(cur *stored) (*write, bool, error) {
		var last *meta.Head
		switch {
		case cur != nil:
			last, _ = cur.item.Record.(*meta.Head)
			if _, touch := op.(meta.Touch); touch {
				if next, _, err := op.Change(cur.item); err != nil || next == cur.item {
					return nil, false, err // it is past that already, or sealed
				}
			}
		case isTrim:
			if last = seenBy(trim); last == nil {
				return nil, true, nil
			}
		}
		w := &write{key: op.Target(), expr: headPlan(op, last), want: types.ReturnValueAllNew, single: meta.Once(op)}
		return w, false, nil
	})
	if err != nil {
		return meta.Result{}, err
	}
	res := meta.Result{Item: *out.got.item}
	if a, ok := op.(meta.Append); ok {
		head, _ := out.got.item.Record.(*meta.Head)
		if res.Offset = head.Next - queue.Offset(meta.CountOf(a.Refs)); !out.held {
			res.Offset, _ = placeOf(&out.got, a) // others may have appended since
		}
	}
	return res, nil
}

// seenBy is the head that a trim is stated for without a read; nil if there is none that would do. The refs behind
// an offset never change, and which producers are forgotten is a condition.
func seenBy(t meta.Trim) *meta.Head {
	if t.Seen == nil || t.Seen.TailFirst != t.First || len(t.Seen.Tail) < t.Count {
		return nil
	}
	return t.Seen
}

// cursor carries out a Settle, or a Take on a cursor that is there.
func (s *Store) cursor(ctx context.Context, op meta.Op) (meta.Result, error) {
	out, err := s.try(ctx, op, func(cur *stored) (*write, bool, error) {
		if cur == nil {
			if e, ok := blindPlan(op); ok {
				return &write{key: op.Target(), expr: e, want: types.ReturnValueAllOld}, false, nil
			}
			return nil, true, nil
		}
		w, err := cursorWrite(op, *cur)
		return w, false, err
	})
	if err != nil {
		return meta.Result{}, err
	}
	// What was found and what the op makes of it is what is stored now. An ack may find that it named
	// nothing that is still held, and be refused here: it changed nothing that the cursor says.
	next, res, err := op.Change(out.got.item)
	if err != nil {
		return meta.Result{}, err
	}
	if out.held {
		s.fold(ctx, out.got, next)
	}
	return sized(res, next), nil
}

// sized fills in the size of a cursor that an op has made.
func sized(res meta.Result, next *meta.Item) meta.Result {
	if c, ok := next.Record.(*meta.Cursor); ok {
		next.Size = cursorSize(c)
	}
	res.Item = *next
	return res
}

func blindPlan(op meta.Op) (*expr, bool) {
	switch op := op.(type) {
	case meta.Settle:
		return settleBlind(op)
	case meta.Take:
		d := takeEdits(op, stored{})
		if takeIsBlind(op, d) {
			return d.plan(nil), true
		}
	}
	return nil, false
}

// cursorWrite states op for a cursor as it was found, which op.Change has accepted; nil if op leaves it
// as it is.
func cursorWrite(op meta.Op, cur stored) (*write, error) {
	w := &write{key: op.Target(), want: types.ReturnValueAllOld}
	switch op := op.(type) {
	case meta.Take:
		w.expr = takeEdits(op, cur).plan(cur.raw)
	case meta.Settle:
		next, _, err := op.Change(cur.item)
		if err != nil {
			return nil, err
		}
		after, _ := next.Record.(*meta.Cursor)
		before, _ := cur.item.Record.(*meta.Cursor)
		if claim, held := after.Claims[op.Claim]; held && claim.Same(before.Claims[op.Claim]) {
			return nil, nil
		}
		w.expr = settleEdits(op, cur, after).plan(cur.raw)
	}
	return w, nil
}

// fold clears a cursor's litter once an op took it over the next multiple of FoldEvery, so that of many
// that see it one acts. It is not the op's own work: if it fails, a later op's will do it.
func (s *Store) fold(ctx context.Context, before stored, next *meta.Item) {
	was := litter(before)
	// What the op itself leaves behind is not in before; two entries are what an ack leaves at most
	// for each claim.
	if was/s.opts.FoldEvery == (was+2)/s.opts.FoldEvery || next == nil {
		return
	}
	e := foldPlan(before)
	if e == nil {
		return
	}
	_, _, _ = s.send(ctx, "fold cursor", write{key: next.Record.Key(), expr: e, want: types.ReturnValueNone})
}
