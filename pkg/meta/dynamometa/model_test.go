package dynamometa_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa/dynamotest"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	segID = queue.SegmentID("seg0000000000000")
	subID = queue.SubscriptionID("sub0000000000000")
)

// TestModel makes the same random ops on DynamoDB and in memory: answers, refusals and records are the
// same after each. The memory store runs the ops' own Change functions.
func TestModel(t *testing.T) {
	url := endpoint(t)
	c := client(url, nil)
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			m := &model{
				t: t, rand: rand.New(rand.NewPCG(seed, 1)), mem: memmeta.New(t),
				dyn: dynamometa.New(c, newTable(t, c), dynamometa.Options{FoldEvery: 3}),
			}
			m.both(meta.Put{Record: &meta.Head{Segment: segID, Range: queue.Ring()}, If: meta.Absent(), Version: 1})
			m.both(meta.Put{Record: &meta.Cursor{Subscription: subID, Segment: segID}, If: meta.Absent(), Version: 1})
			for range 250 {
				if m.rand.IntN(3) == 0 {
					m.both(m.headOp())
				} else {
					m.both(m.cursorOp())
				}
			}
		})
	}
}

type model struct {
	t        *testing.T
	rand     *rand.Rand
	mem, dyn meta.Store
	// stale is a cursor of some time ago, from which some takes are computed.
	stale *meta.Cursor
	// seen is the head as it was at an earlier trim.
	seen  *meta.Head
	refs  uint64
	claim byte
}

func (m *model) both(op meta.Op) {
	m.t.Helper()
	want, wantErr := m.mem.Apply(m.t.Context(), op)
	var got meta.Result
	var gotErr error
	if m.rand.IntN(3) == 0 {
		var all []meta.Result
		if all, gotErr = m.dyn.Transact(m.t.Context(), []meta.Op{op}); gotErr == nil {
			got = all[0]
		}
	} else {
		got, gotErr = m.dyn.Apply(m.t.Context(), op)
	}
	unknown := queue.Is(gotErr, queue.KindOutcomeUnknown)
	if unknown {
		got, gotErr = want, wantErr // MiniStack dropped the connection, as it does now and then: the record decides
	}
	r, refused := meta.AsRefused(wantErr)
	if q, ok := meta.AsRefused(gotErr); ok != refused || ok && q.Reason != r.Reason || (gotErr == nil) != (wantErr == nil) {
		m.t.Fatalf("%s ended with %v, want %v; op %+v", op.Name(), gotErr, wantErr, op)
	}
	if wantErr == nil && (!same(m.t, got.Item.Record, want.Item.Record) || !same(m.t, got.Before, want.Before) || got.Offset != want.Offset) {
		m.t.Fatalf("%s answered\n%+v, want\n%+v; op %+v", op.Name(), got, want, op)
	}
	a, errA := m.mem.Get(m.t.Context(), op.Target())
	b, errB := m.dyn.Get(m.t.Context(), op.Target())
	if err := errors.Join(errA, errB); err != nil {
		m.t.Fatal(err)
	}
	if !same(m.t, a.Record, b.Record) {
		m.t.Fatalf("after %+v the record is\n%+v, want\n%+v", op, b.Record, a.Record)
	}
	if wantErr == nil && !unknown && got.Item.Size != b.Size {
		m.t.Fatalf("%s answered size %d, a read says %d", op.Name(), got.Item.Size, b.Size)
	}
}

func same(t *testing.T, a, b meta.Record) bool {
	t.Helper()
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, err := meta.Encode(nil, &meta.Item{Record: a})
	if err != nil {
		t.Fatal(err)
	}
	y, err := meta.Encode(nil, &meta.Item{Record: b})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}

func fetch[T meta.Record](m *model, key meta.Key) T {
	r, _, err := meta.Fetch[T](m.t.Context(), m.mem, key)
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

func (m *model) headOp() meta.Op {
	h := fetch[*meta.Head](m, meta.HeadKey(segID))
	if m.rand.IntN(4) == 0 {
		seen := m.seen
		if m.seen = h; m.rand.IntN(2) == 0 {
			seen = h
		}
		return meta.Trim{
			Segment: segID, First: h.TailFirst, Count: m.rand.IntN(len(h.Tail) + 2),
			Forget: h.LastAppend.Add(-5e9), Seen: seen,
		}
	}
	if m.rand.IntN(6) == 0 {
		v := meta.Void{Segment: segID, At: h.LastAppend}
		for n := range 1 + m.rand.IntN(2) {
			v.IDs = append(v.IDs, string(rune('a'+2*n+m.rand.IntN(2))))
		}
		last, _ := h.Producers.Get(v.IDs[0])
		v.Number = last.Sequence + uint64(m.rand.IntN(3))
		return v
	}
	n := 1 + m.rand.IntN(3)
	a := meta.Append{Segment: segID, At: h.LastAppend + queue.Millis(1000*(m.rand.IntN(6)-2))}
	for range n {
		m.refs++
		a.Refs = append(a.Refs, refOf(m.refs, uint32(1+m.rand.IntN(5))))
	}
	if m.rand.IntN(6) == 0 && len(h.Tail) > 0 {
		a.Refs[0] = h.Tail[m.rand.IntN(len(h.Tail))]
	}
	if m.rand.IntN(2) == 0 {
		id := string(rune('a' + m.rand.IntN(4)))
		last, _ := h.Producers.Get(id)
		a.Producer = &meta.Sequence{ID: id, Number: last.Sequence + uint64(m.rand.IntN(3))}
	}
	if m.rand.IntN(3) == 0 {
		a.Deadline = h.LastAppend + queue.Millis(1000*(m.rand.IntN(4)-1))
	}
	if m.rand.IntN(3) == 0 {
		seen := h.TailFirst + queue.Offset(m.rand.IntN(3))
		a.SeenFrom = &seen
	}
	a.Buckets[m.rand.IntN(16)] = uint32(n)
	return a
}

func refOf(n uint64, count uint32) meta.Ref {
	r := meta.Ref{Kind: meta.RefBatch, Object: fmt.Sprintf("batches/%d", n), Len: 100, Count: count, Created: 1000, Bytes: 50}
	r.ID[0], r.ID[1], r.ID[2] = byte(n), byte(n>>8), byte(n>>16)
	return r
}

func (m *model) cursorOp() meta.Op {
	c := fetch[*meta.Cursor](m, meta.CursorKey(subID, segID))
	if err := c.Check(); err != nil {
		m.t.Fatal(err)
	}
	if m.stale == nil || m.rand.IntN(10) == 0 {
		m.stale = c
	}
	if m.rand.IntN(3) == 0 {
		if m.rand.IntN(8) == 0 {
			c = m.stale
		}
		return m.take(c)
	}
	return m.settle(c)
}

func (m *model) newClaim() queue.ClaimID {
	m.claim++
	return queue.ClaimID{m.claim, 1}
}

func (m *model) millis() queue.Millis { return queue.Millis(1000 + m.rand.IntN(4)) }

func (m *model) take(c *meta.Cursor) meta.Op {
	t := meta.Take{Subscription: subID, Segment: segID, From: c.Next, To: c.Next}
	if m.rand.IntN(2) == 0 || len(c.Claims)+len(c.Retries) == 0 {
		t.To += queue.Offset(1 + m.rand.IntN(12))
		t.Add = append(t.Add, meta.Claim{ID: m.newClaim(), Attempt: 1, Parts: []meta.Part{
			{OffsetRange: meta.OffsetRange{Lo: t.From, Hi: t.To}, Expires: m.millis()},
		}})
	}
	place := func(r meta.OffsetRange) {
		switch m.rand.IntN(3) {
		case 0:
			t.Done = append(t.Done, r)
		case 1:
			t.AddRetries = append(t.AddRetries, meta.Retry{OffsetRange: r, Attempts: 1, NotBefore: m.millis(), Alone: true})
		default:
			t.Add = append(t.Add, meta.Claim{ID: m.newClaim(), Attempt: 2, Parts: []meta.Part{{OffsetRange: r, Expires: m.millis()}}})
		}
	}
	for _, id := range claimIDs(c) {
		if m.rand.IntN(4) == 0 {
			t.Drop = append(t.Drop, c.Claims[id])
			for _, p := range c.Claims[id].Parts {
				place(p.OffsetRange)
			}
		}
	}
	for _, r := range c.Retries {
		if m.rand.IntN(3) == 0 {
			t.DropRetries = append(t.DropRetries, r)
			place(r.OffsetRange)
		}
	}
	return t
}

func claimIDs(c *meta.Cursor) []queue.ClaimID {
	var ids []queue.ClaimID
	for id := range c.Claims {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b queue.ClaimID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

func (m *model) settle(c *meta.Cursor) meta.Op {
	s := meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{m.claim, 1}, Until: m.millis(), All: m.rand.IntN(6) == 0}
	ids := claimIDs(c)
	var parts []meta.Part
	if len(ids) > 0 && m.rand.IntN(8) != 0 {
		s.Claim = ids[m.rand.IntN(len(ids))]
		parts = c.Claims[s.Claim].Parts
	}
	span := func() meta.OffsetRange {
		lo, hi := c.Floor, c.Next
		if len(parts) > 0 {
			lo, hi = parts[0].Lo, parts[len(parts)-1].Hi
		}
		if m.rand.IntN(3) == 0 {
			return meta.OffsetRange{Lo: lo, Hi: hi} // all of it
		}
		at := lo + queue.Offset(m.rand.IntN(int(hi-lo)+1))
		return meta.OffsetRange{Lo: at, Hi: at + queue.Offset(m.rand.IntN(4))}
	}
	for range 1 + m.rand.IntN(2) {
		switch m.rand.IntN(5) {
		case 0:
			s.Release = append(s.Release, meta.Retry{OffsetRange: span(), Attempts: 1, NotBefore: m.millis(), Reason: "why"})
		case 1:
			s.Extend = append(s.Extend, span())
		default:
			s.Done = append(s.Done, span())
		}
	}
	return s
}

// TestManyEntries goes past what one expression holds: maps are then written whole.
func TestManyEntries(t *testing.T) {
	srv := httptest.NewServer(dynamotest.New())
	defer srv.Close()
	c := client(srv.URL, nil)
	m := &model{t: t, rand: rand.New(rand.NewPCG(1, 1)), mem: memmeta.New(t), dyn: dynamometa.New(c, newTable(t, c), dynamometa.Options{})}
	m.both(meta.Put{Record: &meta.Cursor{Subscription: subID, Segment: segID}, Version: 1})
	take := meta.Take{Subscription: subID, Segment: segID, To: 600}
	for i := range queue.Offset(200) {
		take.Add = append(take.Add, meta.Claim{ID: queue.ClaimID{byte(i), 2}, Attempt: 1, Parts: []meta.Part{
			{OffsetRange: meta.OffsetRange{Lo: 3 * i, Hi: 3*i + 3}, Expires: 9},
		}})
	}
	m.both(take)
	one := meta.Take{Subscription: subID, Segment: segID, From: 600, To: 1000, Add: []meta.Claim{{ID: queue.ClaimID{1, 3}, Attempt: 1, Parts: []meta.Part{
		{OffsetRange: meta.OffsetRange{Lo: 600, Hi: 1000}, Expires: 9},
	}}}}
	m.both(one)
	acks := meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{1, 3}}
	back := acks
	for off := queue.Offset(600); off < 1000; off += 4 {
		acks.Done = append(acks.Done, meta.OffsetRange{Lo: off, Hi: off + 1})
		back.Release = append(back.Release, meta.Retry{OffsetRange: meta.OffsetRange{Lo: off + 2, Hi: off + 3}, Attempts: 1})
	}
	m.both(acks)
	m.both(back)
	cur := fetch[*meta.Cursor](m, meta.CursorKey(subID, segID))
	over := meta.Take{Subscription: subID, Segment: segID, DropRetries: cur.Retries}
	for _, r := range cur.Retries {
		over.Done = append(over.Done, r.OffsetRange)
	}
	for _, id := range claimIDs(cur) {
		over.Drop = append(over.Drop, cur.Claims[id])
		for _, p := range cur.Claims[id].Parts {
			over.Done = append(over.Done, p.OffsetRange)
		}
	}
	m.both(over)
}
