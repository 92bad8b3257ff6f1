package dynamometa

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// maxPathEdits bounds the entries of one map that an update names one by one: an expression holds 4 KB.
// Past it the map is written whole, on condition that it is as it was read.
const maxPathEdits = 40

// edit changes one entry of a cursor's map. was is what must stand there, nil if that does not matter;
// is what will, nil if the entry goes.
type edit struct {
	name    string
	was, is types.AttributeValue
}

// edits are changes of a cursor, by map.
type edits struct {
	claims, done, retries []edit
	// ack is a claim of which done is acked, or that is extended (then is is set); no more than its runs
	// is a condition, so that acks get in nobody's way. nil for other changes.
	ack *edit
	// from and to are next before and after; equal if it stays.
	from, to queue.Offset
}

// plan renders the edits. raw is the item that they were made for; nil if they are made blind, which
// they must not be past maxPathEdits.
func (d *edits) plan(raw attrs) *expr {
	e := &expr{}
	e.exists()
	if d.from != d.to {
		e.where(e.path(curNext), " = ", e.val(number(d.from)))
		e.setTo(e.path(curNext), number(d.to))
	}
	if d.ack != nil {
		d.planAck(e)
		return e
	}
	for _, m := range []struct {
		name string
		list []edit
	}{{curClaims, d.claims}, {curDone, d.done}, {curRetries, d.retries}} {
		if len(m.list) > maxPathEdits {
			replaceMap(e, m.name, raw, m.list)
			continue
		}
		for _, ed := range m.list {
			path := e.path(m.name, ed.name)
			if ed.was != nil {
				e.where(path, " = ", e.val(ed.was))
			}
			if ed.is != nil {
				e.setTo(path, ed.is)
			} else {
				e.drop(path)
			}
		}
	}
	if len(e.set)+len(e.remove) == 0 {
		e.set = append(e.set, e.path(curNext)+" = "+e.path(curNext)) // an update has to say something
	}
	return e
}

// planAck states acks of what a claim was seen to hold, and new runs. An entry of d must not be there:
// another ack may have made a longer one that starts at the same offset. What is acked in between is
// done, whatever the runs say.
func (d *edits) planAck(e *expr) {
	was, is := claimFields(d.ack.was), claimFields(d.ack.is)
	for _, name := range []string{claimLo, claimHi, claimParts, claimExpires} {
		path := []string{curClaims, d.ack.name, name}
		if v := was[name]; v != nil && (d.ack.is != nil || name != claimExpires) {
			e.where(e.path(path...), " = ", e.val(v))
		}
		switch {
		case is[name] != nil:
			e.setTo(e.path(path...), is[name])
		case d.ack.is != nil && was[name] != nil:
			e.drop(e.path(path...))
		}
	}
	for _, ed := range d.done {
		entry := e.path(curDone, ed.name)
		e.where("attribute_not_exists(", entry, ")")
		e.setTo(entry, ed.is)
	}
	countSettle(e, d.ack.name)
}

func claimFields(v types.AttributeValue) attrs {
	if m, ok := v.(*types.AttributeValueMemberM); ok {
		return m.Value
	}
	return nil
}

// countSettle notes that a claim was acked, for those who rewrite it.
func countSettle(e *expr, id string) {
	settles := e.path(curClaims, id, claimSettles)
	e.set = append(e.set, settles+" = "+settles+" + "+e.val(number(1)))
}

func (d *edits) blind() bool {
	return len(d.claims) <= maxPathEdits && len(d.done) <= maxPathEdits && len(d.retries) <= maxPathEdits
}

func replaceMap(e *expr, name string, raw attrs, list []edit) {
	f := fields{m: raw}
	old := f.object(name)
	next := make(attrs, len(old)+len(list))
	for k, v := range old {
		next[k] = v
	}
	for _, ed := range list {
		if ed.is != nil {
			next[ed.name] = ed.is
		} else {
			delete(next, ed.name)
		}
	}
	e.where(e.path(name), " = ", e.val(mapOf(old)))
	e.setTo(e.path(name), mapOf(next))
}

// takeEdits are those of a Take on a cursor that is there. With the stored cursor they hold by its exact
// claims; without (zero), by what a claim of one part looks like that was never settled.
func takeEdits(t meta.Take, cur stored) *edits {
	d := &edits{from: t.From, to: t.To}
	claims := objectOf(cur.raw, curClaims)
	at := make(map[string]int)
	for _, c := range t.Drop {
		was := claims[c.ID.String()]
		if was == nil {
			was = claimAttr(c, 0)
		}
		at[c.ID.String()] = len(d.claims)
		d.claims = append(d.claims, edit{name: c.ID.String(), was: was})
	}
	for _, c := range t.Add {
		if i, ok := at[c.ID.String()]; ok {
			d.claims[i].is = claimAttr(c, settlesOf(d.claims[i].was)+1)
			continue
		}
		d.claims = append(d.claims, edit{name: c.ID.String(), is: claimAttr(c, 0)})
	}
	clear(at)
	for _, r := range t.DropRetries {
		at[offsetKey(r.Lo)] = len(d.retries)
		d.retries = append(d.retries, edit{name: offsetKey(r.Lo), was: retryAttr(r)})
	}
	for _, r := range t.AddRetries {
		if r.Lo == r.Hi {
			continue
		}
		if i, ok := at[offsetKey(r.Lo)]; ok {
			d.retries[i].is = retryAttr(r)
			continue
		}
		d.retries = append(d.retries, edit{name: offsetKey(r.Lo), is: retryAttr(r)})
	}
	d.done = doneEdits(t.Done)
	return d
}

func doneEdits(ranges []span) (out []edit) {
	for _, r := range joinSpans(ranges) {
		out = append(out, edit{name: offsetKey(r.Lo), is: number(r.Hi)})
	}
	return out
}

// takeIsBlind reports whether a Take can be tried without a read: what it drops looks as the guess of
// takeEdits, unless it was settled in part.
func takeIsBlind(t meta.Take, d *edits) bool {
	return d.blind() && !slices.ContainsFunc(t.Drop, func(c meta.Claim) bool { return len(c.Parts) != 1 })
}

// settleEdits are those of a Settle, from the cursor as it is stored and as it will be. Nothing but the
// claim itself is a condition: what it holds, no op without it touches.
func settleEdits(s meta.Settle, cur stored, next *meta.Cursor) *edits {
	old := cur.item.Record.(*meta.Cursor)
	name := s.Claim.String()
	was := objectOf(cur.raw, curClaims)[name]
	claim, kept := next.Claims[s.Claim]
	d := &edits{claims: []edit{{name: name, was: was}}}
	rest := partSpans(claim)
	if kept {
		d.claims[0].is = claimAttr(asRun(claim, next), settlesOf(was)+1)
	}
	before := make(map[meta.Retry]bool, len(old.Retries))
	for _, r := range old.Retries {
		before[r] = true
	}
	for _, r := range next.Retries {
		if !before[r] {
			d.retries = append(d.retries, edit{name: offsetKey(r.Lo), is: retryAttr(r)})
			rest = append(rest, r.OffsetRange)
		}
	}
	// What the claim held and nobody holds now is done.
	_, rest = foldDone(0, shifted(rest, 1))
	var done []span
	for _, p := range partSpans(old.Claims[s.Claim]) {
		done = append(done, subtract(shifted([]span{p}, 1)[0], 0, rest)...)
	}
	for i := range done {
		done[i].Lo--
		done[i].Hi--
	}
	d.done = doneEdits(done)
	// A release, and an op that must hold all it names, rest on nothing having been acked since.
	if len(s.Release) == 0 && !s.All && len(d.done) <= maxPathEdits {
		d.ack, d.claims = &d.claims[0], nil
		if len(s.Extend) == 0 {
			d.ack.is = nil
		}
	}
	return d
}

// asRun makes one part of a claim's parts if they end together and all between them is done: then the
// claim is stored as simple, and acks of it stay blind. That is a claim that was acked in part and then
// extended.
func asRun(claim meta.Claim, c *meta.Cursor) meta.Claim {
	run := meta.Part{OffsetRange: span{Lo: claim.Parts[0].Lo, Hi: claim.Parts[len(claim.Parts)-1].Hi}, Expires: claim.Parts[0].Expires}
	rest := subtract(run.OffsetRange, c.Floor, c.Done)
	if len(rest) != len(claim.Parts) {
		return claim
	}
	for i, p := range claim.Parts {
		if p.OffsetRange != rest[i] || p.Expires != run.Expires {
			return claim
		}
	}
	claim.Parts = []meta.Part{run}
	return claim
}

// shifted moves ranges up, so that one which starts at 0 is not taken for the prefix of a floor of 0.
func shifted(ranges []span, by queue.Offset) []span {
	out := make([]span, len(ranges))
	for i, r := range ranges {
		out[i] = span{Lo: r.Lo + by, Hi: r.Hi + by}
	}
	return out
}

func partSpans(c meta.Claim) []span {
	out := make([]span, len(c.Parts))
	for i, p := range c.Parts {
		out[i] = p.OffsetRange
	}
	return out
}

// settleBlind is the update of a Settle that needs no read, if there is one:
//
//   - Acks that lie within a simple claim. What of them is done already may be marked again: within
//     the claim's run everything is either held by it or done. An entry of d that starts at the same
//     offset would be cut short, so there must be none.
//   - An extension that covers a simple claim's whole run.
//
// A claim of which nothing is left may still be stored, so what the op found decides whether it is
// refused (Store.settle); marking done what is done changes no cursor.
func settleBlind(s meta.Settle) (*expr, bool) {
	done, extend := joinSpans(s.Done), joinSpans(s.Extend)
	acks := len(extend) == 0 && len(done) > 0 && len(done) <= maxPathEdits
	extends := len(extend) == 1 && len(done) == 0
	if s.All || len(s.Release) > 0 || !acks && !extends {
		return nil, false
	}
	e := &expr{}
	id := s.Claim.String()
	lo, hi := e.path(curClaims, id, claimLo), e.path(curClaims, id, claimHi) // unused names are an error
	if extends {
		e.where(lo, " >= ", e.val(number(extend[0].Lo)))
		e.where(hi, " <= ", e.val(number(extend[0].Hi)))
		e.setTo(e.path(curClaims, id, claimExpires), number(s.Until))
		return e, true
	}
	e.where(lo, " <= ", e.val(number(done[0].Lo)))
	e.where(hi, " >= ", e.val(number(done[len(done)-1].Hi)))
	for _, r := range done {
		entry := e.path(curDone, offsetKey(r.Lo))
		e.where("attribute_not_exists(", entry, ")")
		e.setTo(entry, number(r.Hi))
	}
	countSettle(e, id)
	return e, true
}

// joinSpans sorts ranges and joins those that touch or overlap; empty ones go.
func joinSpans(ranges []span) []span {
	_, out := foldDone(0, shifted(ranges, 1))
	for i := range out {
		out[i].Lo--
		out[i].Hi--
	}
	return out
}

func objectOf(raw attrs, name string) attrs {
	if m, ok := raw[name].(*types.AttributeValueMemberM); ok {
		return m.Value
	}
	return nil
}
