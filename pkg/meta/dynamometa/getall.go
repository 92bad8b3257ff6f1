package dynamometa

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxBatches bounds the requests of one GetAll: DynamoDB answers what fits in 16 MB and is not throttled, and
// names the rest.
const maxBatches = 10

// firstPause skips the shortest pauses: what was left unprocessed was throttled, as DynamoDB says.
const firstPause = 2

// GetAll implements meta.Store: strongly consistent BatchGetItems, a unit for each 4 KB of each item.
// Keys that DynamoDB leaves out of an answer are asked for again after a pause; Throttled if some are
// left out to the end.
func (s *Store) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	const op = "get records"
	if err := meta.CheckKeys(keys); err != nil {
		return nil, err
	}
	place := make(map[meta.Key]int, len(keys))
	ask := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
		place[key] = i
		ask.Keys = append(ask.Keys, keyAttrs(key))
	}
	out := make([]meta.Item, len(keys))
	for n := range maxBatches {
		if err := meta.Canceled(ctx, op); err != nil {
			return nil, err
		}
		c := &call{op: op, subject: keys[0].String()}
		s.stats.requests.Add(1)
		res, err := s.api.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems:           map[string]types.KeysAndAttributes{s.table: ask},
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		}, c.watch)
		if err != nil {
			return nil, c.fail(ctx, err)
		}
		for i := range res.ConsumedCapacity {
			s.read(&res.ConsumedCapacity[i])
		}
		for _, raw := range res.Responses[s.table] {
			key := keyOf(raw)
			cur, err := decodeItem(key, raw)
			if err != nil {
				return nil, err
			}
			if i, asked := place[key]; asked {
				out[i] = *cur.item
			}
		}
		if ask = res.UnprocessedKeys[s.table]; len(ask.Keys) == 0 {
			return out, nil
		}
		ask.ConsistentRead = aws.Bool(true)
		if !pause(ctx, n+firstPause) {
			return nil, meta.Canceled(ctx, op)
		}
	}
	return nil, &queue.Error{Op: op, Subject: keys[0].String(), Kind: queue.KindThrottled, Message: "the table leaves keys unanswered"}
}
