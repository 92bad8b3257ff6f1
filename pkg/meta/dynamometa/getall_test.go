package dynamometa_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// partial answers a BatchGetItem for the first most keys, with no items, and leaves the others unprocessed, as
// DynamoDB does with what it throttles or what does not fit into an answer.
type partial struct {
	dynamometa.API
	most  int
	asked []int
}

func (p *partial) BatchGetItem(_ context.Context, in *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	out := &dynamodb.BatchGetItemOutput{}
	for table, ask := range in.RequestItems {
		p.asked = append(p.asked, len(ask.Keys))
		if n := min(p.most, len(ask.Keys)); n < len(ask.Keys) {
			out.UnprocessedKeys = map[string]types.KeysAndAttributes{table: {Keys: ask.Keys[n:]}}
		}
		if ask.ConsistentRead == nil || !*ask.ConsistentRead {
			return nil, fmt.Errorf("request %d is not consistent", len(p.asked))
		}
	}
	return out, nil
}

// TestUnprocessedKeys: what DynamoDB leaves out of an answer is asked for again, after a pause; if it never
// answers, that is throttling, and not a record that is not there.
func TestUnprocessedKeys(t *testing.T) {
	keys := make([]meta.Key, 100)
	for i := range keys {
		keys[i] = meta.HeadKey(queue.SegmentID(fmt.Sprintf("s%d", i)))
	}
	synctest.Test(t, func(t *testing.T) {
		api := &partial{most: 40}
		items, err := dynamometa.New(api, "t", dynamometa.Options{}).GetAll(t.Context(), keys)
		if err != nil || len(items) != len(keys) || fmt.Sprint(api.asked) != "[100 60 20]" {
			t.Errorf("%d items, %v; asked for %v", len(items), err, api.asked)
		}
		none := &partial{}
		_, err = dynamometa.New(none, "t", dynamometa.Options{}).GetAll(t.Context(), keys)
		if !queue.Is(err, queue.KindThrottled) || len(none.asked) != 10 {
			t.Errorf("%v after %d requests", err, len(none.asked))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = dynamometa.New(none, "t", dynamometa.Options{}).GetAll(ctx, keys); !queue.Is(err, queue.KindCanceled) {
			t.Errorf("a caller that has gone: %v", err)
		}
	})
}
