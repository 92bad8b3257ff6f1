package meta

import (
	"cmp"
	"slices"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Take is the update of a claim call: computed from a cursor that the caller read, and conditional on
// just those parts of it that it uses up, so that two claimers contend only on what both want. It may
// take fresh messages, take over expired claims and due retries, put back what it does not deliver,
// and mark messages done (expired ones, or, in a transaction with the append to the dead-letter
// topic, those that were delivered too often).
//
// It is refused if the cursor is absent and Create is nil (absent), there and Create is set (exists);
// Next is not From (next); a claim of Drop is gone or changed (claim); a retry of DropRetries is gone
// or changed (retry). The result's Item is the cursor after it, Before the one before.
type Take struct {
	Subscription queue.SubscriptionID
	Segment      queue.SegmentID
	// Create is the cursor to start from where there is none yet; nil if there is one.
	Create *Cursor
	// From and To move Next; From == To leaves it alone and asks nothing of it.
	From, To queue.Offset
	// Drop are the claims used up, as they were read.
	Drop []Claim
	// DropRetries are the retries used up, as they were read.
	DropRetries []Retry
	// Add are new claims, AddRetries what is put back, Done what is done now. Together they
	// cover exactly what was used up and [From, To).
	Add        []Claim
	AddRetries []Retry
	Done       []OffsetRange
}

// Target implements Op.
func (t Take) Target() Key { return CursorKey(t.Subscription, t.Segment) }

// Name implements Op.
func (t Take) Name() string { return "take" }

// Change implements Op.
func (t Take) Change(cur *Item) (*Item, Result, error) {
	c, err := t.start(cur)
	if err != nil {
		return nil, Result{}, err
	}
	if t.From != t.To && c.Next != t.From {
		return nil, Result{}, refuse(t, cur, ReasonNext)
	}
	n := c.clone()
	for _, d := range t.Drop {
		if have, ok := n.Claims[d.ID]; !ok || !have.Same(d) {
			return nil, Result{}, refuse(t, cur, ReasonClaim)
		}
		delete(n.Claims, d.ID)
	}
	for _, d := range t.DropRetries {
		i := slices.Index(n.Retries, d)
		if i < 0 {
			return nil, Result{}, refuse(t, cur, ReasonRetry)
		}
		n.Retries = slices.Delete(n.Retries, i, i+1)
	}
	if t.From != t.To {
		n.Next = t.To
	}
	for _, a := range t.Add {
		n.Claims[a.ID] = a
	}
	n.addRetries(t.AddRetries)
	n.finish(t.Done)
	next := &Item{Record: n, Version: versionOf(cur)}
	return next, Result{Item: *next, Before: c}, nil
}

// validate refuses a take that would lose a message or hand it out twice: what it uses up and what
// it makes of that must be the same offsets.
func (t Take) validate() error {
	if t.From > t.To || t.To > queue.MaxOffset {
		return queue.Invalid("take", nil, "[%d,%d) is no range of offsets", t.From, t.To)
	}
	used := []OffsetRange{{t.From, t.To}}
	var made []OffsetRange
	for _, c := range t.Drop {
		used = appendParts(used, c)
	}
	for _, r := range t.DropRetries {
		used = append(used, r.OffsetRange)
	}
	for _, c := range t.Add {
		if len(c.Parts) == 0 || c.Attempt == 0 {
			return queue.Invalid("take", nil, "adds a claim without messages or attempt")
		}
		made = appendParts(made, c)
	}
	for _, r := range t.AddRetries {
		made = append(made, r.OffsetRange)
	}
	made = append(made, t.Done...)
	used, ok1 := joinRanges(used)
	made, ok2 := joinRanges(made)
	if !ok1 || !ok2 || !slices.Equal(used, made) {
		return queue.Invalid("take", nil, "does not account for each offset exactly once: used up %v, made %v", used, made)
	}
	return nil
}

func appendParts(ranges []OffsetRange, c Claim) []OffsetRange {
	for _, p := range c.Parts {
		ranges = append(ranges, p.OffsetRange)
	}
	return ranges
}

// joinRanges sorts ranges and joins neighbours; not ok if two overlap or one is backwards.
func joinRanges(ranges []OffsetRange) (joined []OffsetRange, ok bool) {
	ranges = slices.DeleteFunc(slices.Clone(ranges), func(r OffsetRange) bool { return r.Lo == r.Hi })
	slices.SortFunc(ranges, func(a, b OffsetRange) int { return cmp.Compare(a.Lo, b.Lo) })
	for _, r := range ranges {
		n := len(joined)
		switch {
		case r.Lo > r.Hi || n > 0 && r.Lo < joined[n-1].Hi:
			return nil, false
		case n > 0 && r.Lo == joined[n-1].Hi:
			joined[n-1].Hi = r.Hi
		default:
			joined = append(joined, r)
		}
	}
	return joined, true
}

func versionOf(cur *Item) Version {
	if cur == nil {
		return 0
	}
	return cur.Version
}

func (t Take) start(cur *Item) (*Cursor, error) {
	if t.Create == nil {
		return cursorOf(t, cur)
	}
	if cur != nil {
		return nil, refuse(t, cur, ReasonExists)
	}
	return t.Create, nil
}

// Settle ends (ack, release, dead letter) or extends the hold of one claim on some of its messages.
// It is refused only if the cursor or the claim is absent (claim). Offsets that the claim no longer
// holds are passed over: the caller sees by Before (the cursor as the op found it) which those were.
// Settles of different claims never conflict.
type Settle struct {
	Subscription queue.SubscriptionID
	Segment      queue.SegmentID
	Claim        queue.ClaimID
	// Done are acked, or dead-lettered in the same transaction.
	Done []OffsetRange
	// Release are given back, each as the retry it becomes; only what the claim still holds of
	// its range.
	Release []Retry
	// Extend are held until Until.
	Extend []OffsetRange
	Until  queue.Millis
	// All refuses the op (claim) unless the claim holds every offset that it names: for a
	// transaction that must not go half-way.
	All bool
}

// Target implements Op.
func (s Settle) Target() Key { return CursorKey(s.Subscription, s.Segment) }

// Name implements Op.
func (s Settle) Name() string { return "settle" }

// Change implements Op.
func (s Settle) Change(cur *Item) (*Item, Result, error) {
	c, err := cursorOf(s, cur)
	if err != nil {
		return nil, Result{}, err
	}
	claim, ok := c.Claims[s.Claim]
	if !ok || s.All && !s.holdsAll(claim) {
		return nil, Result{}, refuse(s, cur, ReasonClaim)
	}
	n := c.clone()
	parts := claim.Parts
	var done []OffsetRange
	for _, r := range s.Done {
		var cut []Part
		parts, cut = cutParts(parts, r)
		for _, p := range cut {
			done = append(done, p.OffsetRange)
		}
	}
	n.finish(done)
	var retries []Retry
	for _, r := range s.Release {
		var cut []Part
		parts, cut = cutParts(parts, r.OffsetRange)
		for _, p := range cut {
			r.OffsetRange = p.OffsetRange
			retries = append(retries, r)
		}
	}
	n.addRetries(retries)
	for _, r := range s.Extend {
		var cut []Part
		parts, cut = cutParts(parts, r)
		for _, p := range cut {
			parts = append(parts, Part{p.OffsetRange, s.Until})
		}
	}
	if parts = joinParts(parts); len(parts) == 0 {
		delete(n.Claims, s.Claim)
	} else {
		claim.Parts = parts
		n.Claims[s.Claim] = claim
	}
	next := &Item{Record: n, Version: cur.Version}
	return next, Result{Item: *next, Before: c}, nil
}

// validate refuses ranges that run backwards, and a reason that is too long to keep.
func (s Settle) validate() error {
	backwards := func(r OffsetRange) bool { return r.Lo > r.Hi }
	if slices.ContainsFunc(s.Done, backwards) || slices.ContainsFunc(s.Extend, backwards) ||
		slices.ContainsFunc(s.Release, func(r Retry) bool { return backwards(r.OffsetRange) }) {
		return queue.Invalid("settle", nil, "has a range that runs backwards")
	}
	if slices.ContainsFunc(s.Release, func(r Retry) bool { return len(r.Reason) > MaxReasonBytes }) {
		return queue.Invalid("reason", MaxReasonBytes, "is longer than %d bytes", MaxReasonBytes)
	}
	return nil
}

func (s Settle) holdsAll(claim Claim) bool {
	holds := func(r OffsetRange) bool {
		_, cut := cutParts(claim.Parts, r)
		n := 0
		for _, p := range cut {
			n += p.Len()
		}
		return n == r.Len()
	}
	for _, r := range s.Release {
		if !holds(r.OffsetRange) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Done, func(r OffsetRange) bool { return !holds(r) }) &&
		!slices.ContainsFunc(s.Extend, func(r OffsetRange) bool { return !holds(r) })
}

// cutParts takes r out of parts: what remains, and the pieces that lay in r.
func cutParts(parts []Part, r OffsetRange) (rest, cut []Part) {
	for _, p := range parts {
		lo, hi := max(p.Lo, r.Lo), min(p.Hi, r.Hi)
		if lo >= hi {
			rest = append(rest, p)
			continue
		}
		cut = append(cut, Part{OffsetRange{lo, hi}, p.Expires})
		if p.Lo < lo {
			rest = append(rest, Part{OffsetRange{p.Lo, lo}, p.Expires})
		}
		if hi < p.Hi {
			rest = append(rest, Part{OffsetRange{hi, p.Hi}, p.Expires})
		}
	}
	return rest, cut
}

// joinParts sorts parts and joins neighbours of one expiry.
func joinParts(parts []Part) []Part {
	slices.SortFunc(parts, func(a, b Part) int {
		if a.Lo < b.Lo {
			return -1
		}
		return 1
	})
	var out []Part
	for _, p := range parts {
		if n := len(out); n > 0 && out[n-1].Hi == p.Lo && out[n-1].Expires == p.Expires {
			out[n-1].Hi = p.Hi
			continue
		}
		out = append(out, p)
	}
	return out
}
