package dynamometa_test

import (
	"context"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestAcksOfOneClaim has 8 consumers ack the messages of the same claims one by one, while others extend
// them, and litter is folded all the time. No ack is refused, none is lost, and the claims end.
func TestAcksOfOneClaim(t *testing.T) {
	c := client(endpoint(t), nil)
	s := dynamometa.New(c, newTable(t, c), dynamometa.Options{FoldEvery: 2})
	const workers, claims, each = 8, 4, 40
	take := meta.Take{
		Subscription: subID, Segment: segID, To: claims * each, Create: &meta.Cursor{Subscription: subID, Segment: segID},
	}
	for i := range queue.Offset(claims) {
		take.Add = append(take.Add, claimOf(byte(i), i*each, i*each+each))
	}
	if _, err := s.Apply(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range queue.Offset(workers) {
		wg.Go(func() {
			for off := w; off < claims*each; off += workers {
				op := meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{byte(off / each)}}
				if off%11 == 0 {
					extend := op
					extend.Extend, extend.Until = []meta.OffsetRange{{Lo: off, Hi: off + 1}}, 99
					if res, err := s.Apply(t.Context(), extend); err != nil && !isUnknown(res, err) {
						t.Error(err)
					}
				}
				op.Done = []meta.OffsetRange{{Lo: off, Hi: off + 1}}
				res, err := s.Apply(t.Context(), op)
				if err != nil && !isUnknown(res, err) {
					t.Errorf("ack of %d: %v", off, err)
				}
			}
		})
	}
	wg.Wait()
	cur, _, err := meta.Fetch[*meta.Cursor](t.Context(), s, meta.CursorKey(subID, segID))
	if err != nil || cur.Floor != claims*each || cur.Entries() != 0 || cur.Check() != nil {
		t.Errorf("the cursor is %+v, %v", cur, err)
	}
}

// TestAckBetween has an ack come between the read and the write of an op on the same claim.
func TestAckBetween(t *testing.T) {
	rangeOf := func(lo, hi queue.Offset) []meta.OffsetRange { return []meta.OffsetRange{{Lo: lo, Hi: hi}} }
	settle := meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{1}}
	all, release, extend, mixed := settle, settle, settle, settle
	all.All, all.Done = true, rangeOf(2, 6)
	release.Release = []meta.Retry{{OffsetRange: meta.OffsetRange{Lo: 2, Hi: 6}}}
	extend.Extend, extend.Until = rangeOf(2, 6), 99
	mixed.Extend, mixed.Until, mixed.Done = rangeOf(5, 8), 99, rangeOf(2, 5)
	for name, tc := range map[string]struct {
		op      meta.Settle
		refused bool
		left    int
	}{
		"all":     {all, true, 9},
		"release": {release, false, 6},
		"extend":  {extend, false, 9},
		"mixed":   {mixed, false, 7},
	} {
		for _, transact := range []bool{false, true} {
			r := newRig(t, 1)
			ack := settle
			ack.Done = rangeOf(3, 4)
			r.wire.arm("UpdateItem", false)
			if transact {
				r.wire.arm("TransactWriteItems", false)
			}
			r.wire.between = func(n int) {
				if n == 1 {
					r.must(ack)
				}
			}
			var err error
			if transact {
				_, err = r.store.Transact(t.Context(), []meta.Op{tc.op})
			} else {
				_, err = r.store.Apply(t.Context(), tc.op)
			}
			if tc.refused != meta.IsRefused(err, meta.ReasonClaim) || !tc.refused && err != nil {
				t.Errorf("%s, transact %v: ended with %v", name, transact, err)
			}
			cur, _, err := meta.Fetch[*meta.Cursor](t.Context(), r.calm, meta.CursorKey(subID, segID))
			if err != nil || cur.Check() != nil || cur.InFlight() != tc.left || !cur.IsDone(3) {
				t.Errorf("%s, transact %v: the cursor is %+v, %v, %v", name, transact, cur, err, cur.Check())
			}
		}
	}
}

// pager gives pages of at most two items, each after a page of none, as DynamoDB may.
type pager struct {
	dynamometa.API
	empty bool
}

func (p *pager) Query(ctx context.Context, in *dynamodb.QueryInput, opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	start := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "start"}}
	few := *in
	if p.empty = !p.empty; p.empty {
		if in.ExclusiveStartKey != nil {
			start = in.ExclusiveStartKey
		}
		return &dynamodb.QueryOutput{LastEvaluatedKey: start}, nil
	}
	if len(in.ExclusiveStartKey) == len(start) {
		few.ExclusiveStartKey = nil
	}
	few.Limit = new(int32(2))
	return p.API.Query(ctx, &few, opts...)
}

func TestShortPages(t *testing.T) {
	c := client(endpoint(t), nil)
	s := dynamometa.New(&pager{API: c}, newTable(t, c), dynamometa.Options{})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if _, err := s.Apply(t.Context(), meta.Put{Record: &meta.Name{Name: name}, Version: 1}); err != nil {
			t.Fatal(err)
		}
	}
	q := meta.Range{PK: meta.NamespacePK, Limit: 100}
	var got string
	for {
		page, err := s.Query(t.Context(), q)
		if err != nil || len(page.Items) > 2 || page.More && len(page.Items) == 0 {
			t.Fatalf("a page is %+v, %v", page, err)
		}
		for _, item := range page.Items {
			got += item.Record.Key().SK
		}
		if !page.More {
			break
		}
		q.From = meta.After(page.Items[len(page.Items)-1].Record.Key().SK)
	}
	if got != "abcde" {
		t.Errorf("read %q", got)
	}
}
