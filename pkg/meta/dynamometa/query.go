package dynamometa

import (
	"context"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Query implements meta.Store: one strongly consistent Query, a unit for each 4 KB of all items
// together. DynamoDB ends a page at 1 MB.
func (s *Store) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	const op = "query records"
	if err := meta.CheckRange(q); err != nil {
		return meta.Page{}, err
	}
	if !utf8.ValidString(q.PK) || !utf8.ValidString(q.From) || !utf8.ValidString(q.To) {
		return meta.Page{}, queue.Invalid("range", nil, "is not UTF-8")
	}
	if err := meta.Canceled(ctx, op); err != nil {
		return meta.Page{}, err
	}
	e, some := keyCondition(q)
	if !some {
		return meta.Page{}, nil
	}
	in := &dynamodb.QueryInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true), KeyConditionExpression: e.condition(),
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.vals,
		Limit: aws.Int32(int32(q.Limit)), ScanIndexForward: aws.Bool(!q.Reverse),
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}
	var page meta.Page
	for {
		c := &call{op: op, subject: q.PK}
		s.stats.requests.Add(1)
		out, err := s.api.Query(ctx, in, c.watch)
		if err != nil {
			return meta.Page{}, c.fail(ctx, err)
		}
		s.read(out.ConsumedCapacity)
		for _, raw := range out.Items {
			cur, err := decodeItem(keyOf(raw), raw)
			if err != nil {
				return meta.Page{}, err
			}
			page.Items = append(page.Items, *cur.item)
		}
		page.More = len(out.LastEvaluatedKey) > 0
		// A page without items does not happen without a filter; if it does, the caller could not
		// tell where to go on.
		if !page.More || len(page.Items) > 0 {
			return page, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// keyCondition states a range; not some if it is empty. A key condition takes one comparison of the
// sort key, and BETWEEN takes both its ends in, so the end is given as the key just below it: a page
// of the range is then full of what was asked for, and nothing else is read and paid for.
func keyCondition(q meta.Range) (e *expr, some bool) {
	e = &expr{}
	e.where(e.path(attrPK), " = ", e.val(text(q.PK)))
	switch {
	case q.To == "" && q.From == "":
	case q.To == "":
		e.where(e.path(attrSK), " >= ", e.val(text(q.From)))
	case q.From == "":
		e.where(e.path(attrSK), " < ", e.val(text(q.To)))
	default:
		last := below(q.To)
		if q.From > last {
			return nil, false
		}
		e.where(e.path(attrSK), " BETWEEN ", e.val(text(q.From)), " AND ", e.val(text(last)))
	}
	return e, true
}

// below is the greatest sort key below sk, which is not empty, as far as keys go: they hold no control
// characters and none ends in several of Unicode's last, unassigned one.
func below(sk string) string {
	const top = "\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF"
	last, n := utf8.DecodeLastRuneInString(sk)
	head := sk[:len(sk)-n]
	switch {
	case last <= ' ':
		return head // nothing lies between head and head + a control character
	case last == 0xE000:
		last = 0xD7FF // what is between are halves of pairs
	default:
		last--
	}
	return head + string(last) + top
}
