package dynamometa_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestRequests holds the table of the package comment: what each op sends.
func TestRequests(t *testing.T) {
	const get, put, update, transact = "GetItem", "PutItem", "UpdateItem", "TransactWriteItems"
	withPayload := appendOne
	withPayload.Payload = &meta.Payload{ID: "0001", Data: []byte("x")}
	earlier := appendOne
	earlier.At, earlier.Refs = 1000, []meta.Ref{refOf(2, 1)}
	later := appendOne
	later.At, later.Refs = 9000, []meta.Ref{refOf(3, 1)}
	stale := appendOne
	stale.Epoch = 7
	seen := &meta.Head{Segment: segID, Tail: appendOne.Refs}
	rest := &meta.Head{Segment: segID, TailFirst: 3, Tail: earlier.Refs}
	idle := &meta.Head{Segment: segID, Tail: appendSeq.Refs, Producers: meta.Producers{}.With("p", meta.ProducerState{At: 1})}
	wholly := ackSome
	wholly.Done = []meta.OffsetRange{{Lo: 0, Hi: 10}}
	extend := meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{1}, Extend: []meta.OffsetRange{{Lo: 0, Hi: 10}}, Until: 99}
	takeOver := meta.Take{
		Subscription: subID, Segment: segID, Drop: []meta.Claim{claimOf(1, 0, 10)}, Add: []meta.Claim{claimOf(5, 0, 10)},
	}
	leftover := claimOf(1, 0, 2)
	leftover.Parts = append(leftover.Parts, meta.Part{OffsetRange: meta.OffsetRange{Lo: 5, Hi: 10}, Expires: 9})
	takeRest := meta.Take{
		Subscription: subID, Segment: segID, Drop: []meta.Claim{leftover},
		Done: []meta.OffsetRange{{Lo: 0, Hi: 2}, {Lo: 5, Hi: 10}},
	}
	single := func(op meta.Op) []meta.Op { return []meta.Op{op} }
	for _, tc := range []struct {
		name   string
		before []meta.Op
		op     meta.Op
		want   []string
	}{
		{"append", nil, appendOne, []string{update}},
		{"append refused", nil, stale, []string{update}},
		{"append with a payload", nil, withPayload, []string{put, update}},
		{"append from an earlier second", single(later), earlier, []string{update, update}},
		{"seal", nil, sealIt, []string{update}},
		{"trim", single(appendOne), meta.Trim{Segment: segID, Count: 1}, []string{get, update}},
		{"trim of a head that was seen", single(appendOne), meta.Trim{Segment: segID, Count: 1, Seen: seen}, []string{update}},
		{"trim of a head that was seen before", single(appendSeq), meta.Trim{Segment: segID, Count: 1, Seen: idle, Forget: 100}, []string{update, update}},
		{"take", nil, takeMore, []string{update}},
		{"take over", nil, takeOver, []string{update}},
		{"take over what was acked in part", single(ackSome), takeRest, []string{get, update}},
		{"ack of all", nil, wholly, []string{update}},
		{"ack of a part", nil, ackSome, []string{update}},
		{"extension of all", nil, extend, []string{update}},
		{"release", nil, giveBack, []string{get, update}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 1)
			for _, op := range tc.before {
				r.must(op)
			}
			r.wire.arm("", false)
			_, err := r.store.Apply(t.Context(), tc.op)
			if _, refused := meta.AsRefused(err); err != nil && !refused {
				t.Fatal(err)
			}
			if !slices.Equal(r.wire.seen, tc.want) {
				t.Errorf("sent %v, want %v", r.wire.seen, tc.want)
			}
		})
	}
	t.Run("transactions", func(t *testing.T) {
		r := newRig(t, 1)
		r.must(appendOne)
		for _, tc := range []struct {
			ops  []meta.Op
			want []string
		}{
			{[]meta.Op{putTopic}, []string{transact}},
			{[]meta.Op{earlier, ackSome}, []string{get, transact, get}},
			{[]meta.Op{meta.Trim{Segment: segID, Count: 1}}, []string{get, transact}},
			{[]meta.Op{meta.Trim{Segment: segID, First: 3, Count: 1, Seen: rest}}, []string{transact}},
		} {
			r.wire.arm("", false)
			if _, err := r.store.Transact(t.Context(), tc.ops); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.wire.seen, tc.want) {
				t.Errorf("sent %v, want %v", r.wire.seen, tc.want)
			}
		}
	})
}

// TestFold acks one message at a time, in an order that leaves much to join, and holds how much the item
// gathers and how many requests that takes.
func TestFold(t *testing.T) {
	c := client(endpoint(t), nil)
	table := newTable(t, c)
	s := dynamometa.New(c, table, dynamometa.Options{})
	const claims, each = 20, 10
	take := meta.Take{
		Subscription: subID, Segment: segID, To: claims * each, Create: &meta.Cursor{Subscription: subID, Segment: segID},
	}
	for i := range queue.Offset(claims) {
		take.Add = append(take.Add, claimOf(byte(i+1), i*each, i*each+each))
	}
	if _, err := s.Apply(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	before := s.Stats().Requests
	for i := range queue.Offset(claims * each) {
		off := i/each*each + i*7%each // each claim's messages, out of order
		op := meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{byte(off/each + 1)}, Done: []meta.OffsetRange{{Lo: off, Hi: off + 1}}}
		res, err := s.Apply(t.Context(), op)
		if isUnknown(res, err) {
			continue // the endpoint dropped a connection, as MiniStack does now and then
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Item.Record.(*meta.Cursor).Check(); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Stats().Requests - before; n > claims*each*9/8 {
		t.Errorf("%d acks took %d requests", claims*each, n)
	}
	key := meta.CursorKey(subID, segID)
	out, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: key.PK}, "sk": &types.AttributeValueMemberS{Value: key.SK},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c", "d"} {
		if n := len(out.Item[name].(*types.AttributeValueMemberM).Value); n > 17 {
			t.Errorf("map %q has %d entries left", name, n)
		}
	}
	cur, _, err := meta.Fetch[*meta.Cursor](t.Context(), s, key)
	if err != nil || cur.Floor != claims*each || cur.Entries() != 0 {
		t.Errorf("the cursor is %+v, %v", cur, err)
	}
}

// TestUnits holds the units that the store counts by sizes of items (through pkg/meter) against those that
// the server tells, where it tells any: minidyn does not.
func TestUnits(t *testing.T) {
	c := client(endpoint(t), nil)
	s := dynamometa.New(c, newTable(t, c), dynamometa.Options{})
	m := meter.New()
	metered := m.Meta(s)
	for i := range 30 {
		var op meta.Op = meta.Append{Segment: segID, Refs: []meta.Ref{refOf(uint64(i), 5)}, At: 1000}
		if i == 0 {
			op = meta.Put{Record: &meta.Head{Segment: segID, Range: queue.Ring()}, Version: 1}
		}
		if _, err := metered.Apply(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if _, err := metered.Get(t.Context(), meta.HeadKey(segID)); err != nil {
			t.Fatal(err)
		}
	}
	got, want := s.Stats(), m.Snapshot().Total()
	t.Logf("the server tells %v, the meter %d and %d units", got, want.ReadUnits, want.WriteUnits)
	if got.Requests != 60 {
		t.Errorf("%d requests", got.Requests)
	}
	if got.WriteUnits == 0 {
		return
	}
	// One of thirty may fall on the other side of a kilobyte: DynamoDB says of numbers only
	// approximately what they take.
	if d := got.WriteUnits - float64(want.WriteUnits); d > 2 || d < -2 || got.ReadUnits != float64(want.ReadUnits) {
		t.Errorf("%s", fmt.Sprint("server: ", got, " meter: ", want))
	}
}
