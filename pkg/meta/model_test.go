package meta_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// cursorModel has the place of each offset below next: "done", "retry" or "claim<id>", and until when
// it is held or kept back there.
type cursorModel struct {
	places  []string
	expires []queue.Millis
	claims  byte // made so far
}

func (m *cursorModel) set(r meta.OffsetRange, place string, expires queue.Millis) {
	for off := r.Lo; off < r.Hi; off++ {
		if int(off) == len(m.places) {
			m.places, m.expires = append(m.places, ""), append(m.expires, 0)
		}
		m.places[off], m.expires[off] = place, expires
	}
}

func (m *cursorModel) check(t *rapid.T, c *meta.Cursor) {
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if int(c.Next) != len(m.places) {
		t.Fatalf("next is %d, want %d", c.Next, len(m.places))
	}
	floor := slices.IndexFunc(m.places, func(p string) bool { return p != "done" })
	if floor < 0 {
		floor = len(m.places)
	}
	if int(c.Floor) != floor {
		t.Fatalf("floor is %d, want %d", c.Floor, floor)
	}
	for off, want := range m.places {
		if got := placeOf(c, queue.Offset(off)); got != at(want, m.expires[off]) {
			t.Fatalf("offset %d is at %q, want %q", off, got, at(want, m.expires[off]))
		}
	}
}

func at(place string, expires queue.Millis) string { return fmt.Sprintf("%s until %d", place, expires) }

func placeOf(c *meta.Cursor, off queue.Offset) string {
	if c.IsDone(off) {
		return at("done", 0)
	}
	for id, cl := range c.Claims {
		for _, p := range cl.Parts {
			if off >= p.Lo && off < p.Hi {
				return at(fmt.Sprint("claim", id[0]), p.Expires)
			}
		}
	}
	for _, r := range c.Retries {
		if off >= r.Lo && off < r.Hi {
			return at("retry", r.NotBefore)
		}
	}
	return "nowhere"
}

func drawRange(t *rapid.T, limit int) meta.OffsetRange {
	lo := rapid.IntRange(0, max(0, limit-1)).Draw(t, "lo")
	return meta.OffsetRange{Lo: queue.Offset(lo), Hi: queue.Offset(rapid.IntRange(lo, min(limit, lo+6)).Draw(t, "hi"))}
}

// take claims fresh messages, and at times takes over a claim and a retry whole: part of that is done,
// part claimed anew, part put back.
func (m *cursorModel) take(t *rapid.T, c *meta.Cursor) meta.Take {
	m.claims++
	id := queue.ClaimID{m.claims}
	fresh := meta.OffsetRange{Lo: c.Next, Hi: c.Next + queue.Offset(rapid.IntRange(0, 8).Draw(t, "fresh"))}
	op := meta.Take{Subscription: subID, Segment: segID, From: fresh.Lo, To: fresh.Hi}
	var used []meta.OffsetRange
	if fresh.Len() > 0 {
		used = append(used, fresh)
	}
	if len(c.Claims) > 0 && rapid.Bool().Draw(t, "take over a claim") {
		ids := slices.SortedFunc(maps.Keys(c.Claims), func(a, b queue.ClaimID) int { return int(a[0]) - int(b[0]) })
		d := c.Claims[rapid.SampledFrom(ids).Draw(t, "claim")]
		op.Drop = append(op.Drop, d)
		for _, p := range d.Parts {
			used = append(used, p.OffsetRange)
		}
	}
	if len(c.Retries) > 0 && rapid.Bool().Draw(t, "take over a retry") {
		d := rapid.SampledFrom(c.Retries).Draw(t, "retry")
		op.DropRetries = append(op.DropRetries, d)
		used = append(used, d.OffsetRange)
	}
	slices.SortFunc(used, func(a, b meta.OffsetRange) int { return int(a.Lo) - int(b.Lo) })
	cl := meta.Claim{ID: id, Attempt: 1}
	for _, r := range used {
		cut := r.Lo + queue.Offset(rapid.IntRange(0, r.Len()).Draw(t, "cut"))
		first, second := meta.OffsetRange{Lo: r.Lo, Hi: cut}, meta.OffsetRange{Lo: cut, Hi: r.Hi}
		expires := queue.Millis(rapid.IntRange(1, 9).Draw(t, "expires"))
		if first.Len() > 0 {
			cl.Parts = append(cl.Parts, meta.Part{OffsetRange: first, Expires: expires})
			m.set(first, fmt.Sprint("claim", id[0]), expires)
		}
		switch {
		case second.Len() == 0:
		case rapid.Bool().Draw(t, "rest is done"):
			op.Done = append(op.Done, second)
			m.set(second, "done", 0)
		default:
			op.AddRetries = append(op.AddRetries, meta.Retry{OffsetRange: second, Attempts: 1, NotBefore: expires})
			m.set(second, "retry", expires)
		}
	}
	if len(cl.Parts) > 0 {
		op.Add = append(op.Add, cl)
	}
	return op
}

// settle names ranges at random: those that the claim does not hold are passed over.
func (m *cursorModel) settle(t *rapid.T, c *meta.Cursor) (op meta.Settle, ok bool) {
	op = meta.Settle{Subscription: subID, Segment: segID, Claim: queue.ClaimID{rapid.ByteRange(1, max(1, m.claims)).Draw(t, "claim")}}
	_, ok = c.Claims[op.Claim]
	op.Until = queue.Millis(rapid.IntRange(1, 9).Draw(t, "until"))
	mine := fmt.Sprint("claim", op.Claim[0])
	move := func(r meta.OffsetRange, place string, expires queue.Millis) {
		for off := r.Lo; off < r.Hi; off++ {
			if ok && m.places[off] == mine {
				m.set(meta.OffsetRange{Lo: off, Hi: off + 1}, place, expires)
			}
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "done") {
		r := drawRange(t, len(m.places))
		op.Done = append(op.Done, r)
		move(r, "done", 0)
	}
	for range rapid.IntRange(0, 3).Draw(t, "releases") {
		r := meta.Retry{OffsetRange: drawRange(t, len(m.places)), NotBefore: queue.Millis(rapid.IntRange(1, 9).Draw(t, "not before"))}
		op.Release = append(op.Release, r)
		move(r.OffsetRange, "retry", r.NotBefore)
	}
	for range rapid.IntRange(0, 3).Draw(t, "extends") {
		r := drawRange(t, len(m.places))
		op.Extend = append(op.Extend, r)
		move(r, mine, op.Until)
	}
	return op, ok
}

// TestCursorAgainstModel holds Take and Settle to a plain list of where each offset is.
func TestCursorAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &cursorModel{}
		item := &meta.Item{Record: &meta.Cursor{Subscription: subID, Segment: segID}}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			c := item.Record.(*meta.Cursor)
			before, err := meta.Encode(nil, item)
			if err != nil {
				t.Fatal(err)
			}
			var op meta.Op
			holds := true
			if rapid.Bool().Draw(t, "take") && m.claims < 250 {
				op = m.take(t, c)
			} else {
				op, holds = m.settle(t, c)
			}
			if err := meta.CheckOp(op); err != nil {
				t.Fatal(err)
			}
			next, _, err := op.Change(item)
			if holds != (err == nil) {
				t.Fatalf("%+v ended with %v", op, err)
			}
			if after, err := meta.Encode(nil, item); err != nil || !slices.Equal(before, after) {
				t.Fatalf("%+v changed the record it found (%v)", op, err)
			}
			if err == nil {
				item = next
			}
			m.check(t, item.Record.(*meta.Cursor))
			data, err := meta.Encode(nil, item)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := meta.Decode(item.Record.Key(), data)
			if err != nil {
				t.Fatal(err)
			}
			m.check(t, decoded.Record.(*meta.Cursor))
			item = &decoded
		}
	})
}

// TestHeadAgainstModel holds Append, Trim and Seal to a plain list of refs.
func TestHeadAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []meta.Ref // ever appended
		trimmed, sealed := 0, false
		item := &meta.Item{Record: &meta.Head{Segment: segID, Range: queue.Ring()}, Version: 5}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h := item.Record.(*meta.Head)
			var op meta.Op
			refused := false
			var apply func()
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			default:
				var refs []meta.Ref
				for range rapid.IntRange(1, 12).Draw(t, "refs") {
					n := len(all) + len(refs)
					refs = append(refs, meta.Ref{ID: meta.RefID{byte(n), byte(n >> 8)}, Count: rapid.Uint32Range(1, 9).Draw(t, "count"), Bytes: 3})
				}
				again := len(h.Tail) > 0 && rapid.IntRange(0, 5).Draw(t, "again") == 0
				if again {
					refs[len(refs)-1] = rapid.SampledFrom(h.Tail).Draw(t, "ref")
				}
				op = meta.Append{Segment: segID, Refs: refs, At: 1}
				refused = sealed || again || len(h.Tail)+len(refs) > queue.MaxTailRefs
				apply = func() { all = append(all, refs...) }
			case 0, 1:
				n := rapid.IntRange(0, queue.MaxTailRefs).Draw(t, "count")
				first := h.TailFirst + queue.Offset(rapid.IntRange(0, 1).Draw(t, "moved"))
				op = meta.Trim{Segment: segID, First: first, Count: n}
				refused = n > len(h.Tail) || first != h.TailFirst
				apply = func() { trimmed += n }
			case 2:
				if rapid.IntRange(0, 9).Draw(t, "seal") > 0 {
					continue
				}
				op = meta.Seal{Segment: segID}
				apply = func() { sealed = true }
			}
			next, res, err := op.Change(item)
			if refused != (err != nil) {
				t.Fatalf("%s ended with %v", op.Name(), err)
			}
			if err == nil {
				if a, ok := op.(meta.Append); ok && res.Offset != queue.Offset(meta.CountOf(all)) {
					t.Fatalf("%v was answered offset %d, want %d", a.Refs, res.Offset, meta.CountOf(all))
				}
				apply()
				item = next
			}
			h = item.Record.(*meta.Head)
			if err := h.Check(); err != nil {
				t.Fatal(err)
			}
			if h.Sealed != sealed || h.Next != queue.Offset(meta.CountOf(all)) || h.TailFirst != queue.Offset(meta.CountOf(all[:trimmed])) ||
				len(h.Tail) != len(all)-trimmed || h.Bytes != uint64(3*len(all)) || item.Version != 5 {
				t.Fatalf("head is %+v after %d refs, %d trimmed", h, len(all), trimmed)
			}
			for i := range h.Tail {
				if !h.Tail[i].Same(&all[trimmed+i]) {
					t.Fatalf("ref %d of the tail is %+v", i, h.Tail[i])
				}
			}
		}
	})
}

// TestCheckFindsWhatIsBroken breaks one invariant at a time.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	good := func() *meta.Cursor {
		return &meta.Cursor{
			Subscription: subID, Segment: segID, Floor: 2, Next: 20,
			Claims:  map[queue.ClaimID]meta.Claim{{1}: {ID: queue.ClaimID{1}, Attempt: 1, Parts: []meta.Part{{OffsetRange: meta.OffsetRange{Lo: 2, Hi: 5}}}}},
			Done:    []meta.OffsetRange{{Lo: 5, Hi: 10}},
			Retries: []meta.Retry{{OffsetRange: meta.OffsetRange{Lo: 10, Hi: 20}}},
		}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*meta.Cursor){
		"floor above next":       func(c *meta.Cursor) { c.Floor = 21 },
		"floor lags behind done": func(c *meta.Cursor) { c.Floor = 5; c.Claims = nil },
		"a gap":                  func(c *meta.Cursor) { c.Next++ },
		"an offset twice":        func(c *meta.Cursor) { c.Retries[0].Lo-- },
		"an empty range":         func(c *meta.Cursor) { c.Retries[0].Lo = c.Retries[0].Hi },
		"adjacent done":          func(c *meta.Cursor) { c.Done = []meta.OffsetRange{{Lo: 5, Hi: 7}, {Lo: 7, Hi: 10}} },
		"a claim without parts":  func(c *meta.Cursor) { c.Claims[queue.ClaimID{2}] = meta.Claim{ID: queue.ClaimID{2}, Attempt: 1} },
		"a claim misfiled": func(c *meta.Cursor) {
			c.Claims[queue.ClaimID{2}] = c.Claims[queue.ClaimID{1}]
			delete(c.Claims, queue.ClaimID{1})
		},
	} {
		c := good()
		if spoil(c); !queue.Is(c.Check(), queue.KindCorrupt) {
			t.Errorf("%s passes: %v", name, c.Check())
		}
	}
	for name, h := range map[string]*meta.Head{
		"no range":           {Segment: segID},
		"next past the tail": {Segment: segID, Range: queue.Ring(), Next: 1},
		"start above next":   {Segment: segID, Range: queue.Ring(), Start: 1},
		"empty ref":          {Segment: segID, Range: queue.Ring(), Tail: []meta.Ref{{}}},
		"a ref twice":        {Segment: segID, Range: queue.Ring(), Next: 2, Tail: []meta.Ref{{Count: 1}, {Count: 1}}},
		"producer ahead":     {Segment: segID, Range: queue.Ring(), Producers: meta.Producers{{ID: "p", ProducerState: meta.ProducerState{Count: 1}}}},
		"producers astray":   {Segment: segID, Range: queue.Ring(), Producers: meta.Producers{{ID: "p"}, {ID: "o"}}},
		"a producer twice":   {Segment: segID, Range: queue.Ring(), Producers: meta.Producers{{ID: "p"}, {ID: "p"}}},
	} {
		if !queue.Is(h.Check(), queue.KindCorrupt) {
			t.Errorf("%s passes", name)
		}
	}
}
