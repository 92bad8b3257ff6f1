package dynamometa

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The attributes of a cursor, next to pk, sk, v and k.
const (
	curFloor   = "f"
	curNext    = "n"
	curClaims  = "c" // map: claim id in hexadecimal to a claim, below
	curDone    = "d" // map: lo to hi of what is done; entries may overlap, touch, and lie below the floor
	curRetries = "r" // map: lo to a retry (retryAttr)

	// A claim is a map. A simple one is one run, [l, h) until x; one that was released or extended in
	// part lists its runs. It holds of them whatever is not done by d or the floor: acks change nothing
	// of it but s.
	claimAttempt = "a"
	claimLo      = "l"
	claimHi      = "h"
	claimExpires = "x"
	claimParts   = "p"
	claimSettles = "s" // grows with each ack and each rewriting, so that a claim never looks as it did before
)

// span is a half-open range of offsets.
type span = meta.OffsetRange

func encodeCursor(raw attrs, c *meta.Cursor) {
	raw[attrLayout] = text(layoutCursor)
	raw[curFloor], raw[curNext] = number(c.Floor), number(c.Next)
	claims := make(attrs, len(c.Claims))
	for id, cl := range c.Claims {
		claims[id.String()] = claimAttr(cl, 0)
	}
	done := make(attrs, len(c.Done))
	for _, r := range c.Done {
		done[offsetKey(r.Lo)] = number(r.Hi)
	}
	retries := make(attrs, len(c.Retries))
	for _, r := range c.Retries {
		retries[offsetKey(r.Lo)] = retryAttr(r)
	}
	raw[curClaims], raw[curDone], raw[curRetries] = mapOf(claims), mapOf(done), mapOf(retries)
}

// cursorSize is the size of a cursor's item without what is not folded yet: a function of the record
// alone, so that an answer and a later read agree.
func cursorSize(c *meta.Cursor) int {
	raw := keyAttrs(c.Key())
	raw[attrVersion] = versionAttr(0)
	encodeCursor(raw, c)
	return sizeOf(raw)
}

func claimAttr(c meta.Claim, settles uint64) types.AttributeValue {
	m := attrs{claimAttempt: number(c.Attempt), claimSettles: number(settles)}
	if len(c.Parts) == 1 {
		p := c.Parts[0]
		m[claimLo], m[claimHi], m[claimExpires] = number(p.Lo), number(p.Hi), number(p.Expires)
		return mapOf(m)
	}
	var b []byte
	for _, p := range c.Parts {
		b = binary.AppendUvarint(b, uint64(p.Lo))
		b = binary.AppendUvarint(b, uint64(p.Hi-p.Lo))
		b = binary.AppendVarint(b, int64(p.Expires))
	}
	m[claimParts] = binaryOf(b)
	return mapOf(m)
}

// settlesOf is how often a stored claim was settled; 0 if there is none.
func settlesOf(v types.AttributeValue) uint64 {
	f := fields{m: claimFields(v)}
	return f.optUint(claimSettles)
}

func retryAttr(r meta.Retry) types.AttributeValue {
	b := binary.AppendUvarint(nil, uint64(r.Hi-r.Lo))
	attempts := uint64(r.Attempts) << 1
	if r.Alone {
		attempts |= 1
	}
	b = binary.AppendUvarint(b, attempts)
	b = binary.AppendVarint(b, int64(r.NotBefore))
	return binaryOf(append(b, r.Reason...))
}

func decodeCursor(key meta.Key, f *fields) *meta.Cursor {
	ids := strings.TrimPrefix(key.PK, "c/")
	slash := strings.LastIndexByte(ids, '/')
	if slash < 0 {
		f.fail(attrPK)
		return &meta.Cursor{}
	}
	c := &meta.Cursor{
		Subscription: queue.SubscriptionID(ids[:slash]), Segment: queue.SegmentID(ids[slash+1:]),
		Floor: f.offset(curFloor), Next: f.offset(curNext),
	}
	c.Floor, c.Done = foldDone(c.Floor, f.done())
	c.Claims = f.claims(c)
	c.Retries = f.retries()
	return c
}

func (f *fields) done() []span {
	m := fields{m: f.object(curDone)}
	out := make([]span, 0, len(m.m))
	for lo := range m.m {
		out = append(out, span{Lo: f.offsetOf(lo), Hi: m.offset(lo)})
	}
	if m.err != nil {
		f.fail(curDone)
	}
	return out
}

func (f *fields) offsetOf(key string) queue.Offset {
	n, err := strconv.ParseUint(key, 10, 64)
	if err != nil {
		f.fail(key)
	}
	return queue.Offset(n)
}

// foldDone moves the floor over the contiguous prefix of what is done and joins the rest.
func foldDone(floor queue.Offset, done []span) (queue.Offset, []span) {
	slices.SortFunc(done, func(a, b span) int { return cmp.Compare(a.Lo, b.Lo) })
	var out []span
	for _, r := range done {
		n := len(out)
		switch {
		case r.Lo <= floor:
			floor = max(floor, r.Hi)
		case n > 0 && r.Lo <= out[n-1].Hi:
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
		case r.Lo < r.Hi:
			out = append(out, r)
		}
	}
	return floor, out
}

// claims decodes what each claim still holds; one that holds nothing any more has ended.
func (f *fields) claims(c *meta.Cursor) map[queue.ClaimID]meta.Claim {
	stored := f.object(curClaims)
	if len(stored) == 0 {
		return nil
	}
	out := make(map[queue.ClaimID]meta.Claim, len(stored))
	for name, v := range stored {
		id, err := hex.DecodeString(name)
		m, ok := v.(*types.AttributeValueMemberM)
		if err != nil || len(id) != len(queue.ClaimID{}) || !ok {
			f.fail(curClaims)
			continue
		}
		g := fields{m: m.Value}
		cl := meta.Claim{ID: queue.ClaimID(id), Attempt: g.uint32(claimAttempt)}
		for _, run := range g.runs() {
			for _, r := range subtract(run.OffsetRange, c.Floor, c.Done) {
				cl.Parts = append(cl.Parts, meta.Part{OffsetRange: r, Expires: run.Expires})
			}
		}
		if g.err != nil && f.err == nil {
			f.err = g.err
		}
		if len(cl.Parts) > 0 {
			out[cl.ID] = cl
		}
	}
	return out
}

// subtract takes what is done, below floor or in done (ascending, disjoint), out of r.
func subtract(r span, floor queue.Offset, done []span) []span {
	var out []span
	r.Lo = max(r.Lo, floor)
	for _, d := range done {
		if d.Hi <= r.Lo {
			continue
		}
		if d.Lo >= r.Hi {
			break
		}
		if r.Lo < d.Lo {
			out = append(out, span{Lo: r.Lo, Hi: d.Lo})
		}
		r.Lo = d.Hi
	}
	if r.Lo < r.Hi {
		out = append(out, r)
	}
	return out
}

var errShort = errors.New("a binary attribute ends too early or too late")

// numbers reads varints to the end of a binary attribute.
type numbers struct {
	b   []byte
	bad bool
}

func (r *numbers) uint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *numbers) int() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

// runs are what a claim was taken, released or extended to.
func (f *fields) runs() []meta.Part {
	if f.m[claimParts] == nil {
		run := meta.Part{Expires: f.millis(claimExpires)}
		run.Lo, run.Hi = f.offset(claimLo), f.offset(claimHi)
		return []meta.Part{run}
	}
	r := numbers{b: f.bytes(claimParts)}
	var out []meta.Part
	for len(r.b) > 0 {
		lo := queue.Offset(r.uint())
		hi := lo + queue.Offset(r.uint())
		out = append(out, meta.Part{OffsetRange: span{Lo: lo, Hi: hi}, Expires: queue.Millis(r.int())})
	}
	if r.bad {
		f.fail(claimParts)
	}
	return out
}

func (f *fields) retries() []meta.Retry {
	m := fields{m: f.object(curRetries)}
	if len(m.m) == 0 {
		return nil
	}
	out := make([]meta.Retry, 0, len(m.m))
	for name := range m.m {
		r := numbers{b: m.bytes(name)}
		lo := f.offsetOf(name)
		hi := lo + queue.Offset(r.uint())
		attempts := r.uint()
		rt := meta.Retry{
			OffsetRange: span{Lo: lo, Hi: hi}, Attempts: uint32(attempts >> 1 & math.MaxUint32), Alone: attempts&1 != 0,
			NotBefore: queue.Millis(r.int()), Reason: string(r.b),
		}
		if (r.bad || attempts>>1 > math.MaxUint32) && f.err == nil {
			f.err = errShort
		}
		out = append(out, rt)
	}
	if m.err != nil {
		f.fail(curRetries)
	}
	slices.SortFunc(out, func(a, b meta.Retry) int { return cmp.Compare(a.Lo, b.Lo) })
	return out
}
