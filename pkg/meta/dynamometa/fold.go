package dynamometa

import (
	"encoding/hex"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// litter counts what a stored cursor holds more than it needs to: done entries that could be joined or
// lie below the floor, and claims of which nothing is left.
func litter(cur stored) int {
	c, ok := cur.item.Record.(*meta.Cursor)
	if !ok {
		return 0
	}
	return len(objectOf(cur.raw, curDone)) - len(c.Done) + len(objectOf(cur.raw, curClaims)) - len(c.Claims)
}

// maxFold bounds the entries that one fold removes.
const maxFold = 60

// foldPlan is the update that clears a cursor's litter without changing what it says: the floor moves
// up, done entries are joined, ended claims go. It holds if what it touches is as it was read, so of two
// folds one fails and no other op does. nil if there is nothing to do.
func foldPlan(cur stored) *expr {
	c := cur.item.Record.(*meta.Cursor)
	e := &expr{}
	f := fields{m: cur.raw}
	floor := f.offset(curFloor)
	e.where(e.path(curFloor), " = ", e.val(number(floor)))
	if c.Floor != floor {
		e.setTo(e.path(curFloor), number(c.Floor))
	}
	room := maxFold
	keep := make(map[string]bool, len(c.Done))
	for _, r := range c.Done {
		keep[offsetKey(r.Lo)] = true
	}
	for id, v := range objectOf(cur.raw, curClaims) {
		if _, live := c.Claims[claimIDOf(id)]; !live && room > 0 {
			room--
			path := e.path(curClaims, id)
			e.where(path, " = ", e.val(v))
			e.drop(path)
		}
	}
	// First what is joined says all that it stands for, and only then the entries go that it makes needless: where
	// there is no room for all, an entry must not go before the one that says the same.
	done := objectOf(cur.raw, curDone)
	for _, r := range c.Done {
		lo := offsetKey(r.Lo)
		if v := done[lo]; offsetOf(v) != r.Hi && room > 0 {
			room--
			path := e.path(curDone, lo)
			e.where(path, " = ", e.val(v))
			e.setTo(path, number(r.Hi))
		}
	}
	for lo, v := range done {
		if _, first := keep[lo]; first || room == 0 {
			continue
		}
		room--
		path := e.path(curDone, lo)
		e.where(path, " = ", e.val(v))
		e.drop(path)
	}
	if len(e.set)+len(e.remove) == 0 {
		return nil
	}
	return e
}

func offsetOf(v types.AttributeValue) queue.Offset {
	f := fields{m: attrs{"": v}}
	return f.offset("")
}

func claimIDOf(name string) (id queue.ClaimID) {
	b, err := hex.DecodeString(name)
	if err == nil {
		copy(id[:], b)
	}
	return id
}
