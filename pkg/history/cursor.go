package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// The model of a subscription's deliveries, of one message: it is free, held by a claim, or done. A claim takes
// it while it is free or its holder's time is up, and counts; ack, release and extend are the holder's. Time is a
// condition of the steps: a step is not before its call, nor before the end of the hold that it needs ended, and not
// after its return. When a subscription begins anew, some processes know of it a while later (Options.Stale): what
// happens meanwhile is not judged, and the message may be anywhere afterwards.

const cursorName = "cursor"

type phase uint8

const (
	free phase = iota
	held
	done
	// anything: its subscription has begun anew.
	anything
)

// cursorState is where a message is. Comparable.
type cursorState struct {
	phase phase
	// claim holds it, or did last; attempt counts deliveries.
	claim   queue.ClaimID
	attempt uint32
	// ends is when a hold ends, or what was released may be claimed again, at the earliest.
	ends time.Duration
	// now is a bound from below of the time of the steps so far.
	now time.Duration
}

func (s cursorState) String() string {
	return fmt.Sprintf("%s by %.6s, delivered %d times, until %v, now %v", [...]string{"free", "held", "done", "anywhere"}[s.phase], s.claim, s.attempt, s.ends, s.now)
}

// cursorStep is what one operation did to one message.
type cursorStep struct {
	Span
	rules *cursorRules
	kind  cursorKind
	// claim, attempt and ends are of a delivery; claim is of a settle, too.
	claim   queue.ClaimID
	attempt uint32
	ends    time.Duration
	wait    time.Duration
	// uncounted and answer are of a settle.
	uncounted bool
	answer    Answer
	// mayEnd: the message may leave the subscription by itself.
	mayEnd bool
}

type cursorKind uint8

const (
	delivered cursorKind = iota
	acked
	released
	extended
	reset
)

// cursorRules are what is known of a subscription.
type cursorRules struct {
	tolerance time.Duration
	unsure    bool
	// hidden are the calls of claims that may have taken messages which nobody got, ascending; hold is how long
	// the shortest of them held.
	hidden []time.Duration
	hold   time.Duration
}

// observes implements step: a refused settle only looks.
func (t *cursorStep) observes() bool { return t.kind != delivered && t.answer == Refused }

// String implements step.
func (t *cursorStep) String() string {
	verb := [...]string{"claimed", "ack", "release", "extend", "begun anew"}[t.kind]
	answer := [...]string{"unknown", "ok", "claim lost", "no effect"}[t.answer]
	switch t.kind {
	case delivered:
		return fmt.Sprintf("claimed by %.6s, delivery %d, until %.6f", t.claim, t.attempt, t.ends.Seconds())
	case released, extended:
		return fmt.Sprintf("%s of %.6s for %v: %s", verb, t.claim, t.wait, answer)
	case acked:
		return fmt.Sprintf("%s of %.6s: %s", verb, t.claim, answer)
	}
	return verb
}

// not gives no state: the step cannot be.
func not() []cursorState { return nil }

func nextCursor(s cursorState, t *cursorStep) []cursorState {
	s.now = max(s.now, t.Call)
	if s.now > t.Return {
		return not()
	}
	switch t.kind {
	case delivered:
		return t.deliver(s)
	case reset:
		return []cursorState{{phase: anything, now: s.now}}
	}
	mine := s.phase == held && s.claim == t.claim
	switch {
	case t.answer == Unknown && mine:
		return append(t.effect(s), s)
	case t.answer == Unknown:
		return []cursorState{s}
	case t.answer == Refused:
		return t.refused(s, mine)
	case mine:
		return t.effect(s)
	case s.phase == anything && t.kind == acked:
		return t.effect(s)
	case s.phase == anything:
		return []cursorState{s}
	case t.kind == acked && (s.phase == done || t.mayEnd):
		return []cursorState{s}
	case t.kind == released && (t.rules.unsure || t.mayEnd):
		return []cursorState{s}
	}
	return not()
}

// deliver is a claim. Between it and the delivery before there may have been some that nobody got, each of which
// held the message to its end; the first of them is not before the last known hold's end.
func (t *cursorStep) deliver(s cursorState) []cursorState {
	if s.phase == anything {
		return []cursorState{{phase: held, claim: t.claim, attempt: t.attempt, ends: t.ends, now: s.now}}
	}
	if s.phase == done || t.attempt <= s.attempt {
		return not()
	}
	s.now = max(s.now, s.ends-t.rules.tolerance)
	if between := int(t.attempt-s.attempt) - 1; between > 0 {
		calls, _ := slices.BinarySearch(t.rules.hidden, t.Return)
		if between > calls {
			return not()
		}
		begun := max(s.ends-t.rules.tolerance, t.rules.hidden[0])
		s.now = max(s.now, begun+time.Duration(between)*max(0, t.rules.hold-t.rules.tolerance))
	}
	if s.now > t.Return {
		return not()
	}
	return []cursorState{{phase: held, claim: t.claim, attempt: t.attempt, ends: t.ends, now: s.now}}
}

// effect is what a settle does that its claim's hold allows.
func (t *cursorStep) effect(s cursorState) []cursorState {
	out := s
	switch t.kind {
	case acked:
		out.phase = done
	case extended:
		out.ends = t.Call + t.wait
	case released:
		out.phase, out.ends = free, t.Call+t.wait
		if t.uncounted {
			out.attempt--
		}
		if t.mayEnd {
			dead := s
			dead.phase = done
			return []cursorState{out, dead}
		}
	}
	return []cursorState{out}
}

// refused is a settle whose claim was said to be lost: its time is up, or another holds the message.
func (t *cursorStep) refused(s cursorState, mine bool) []cursorState {
	switch {
	case mine:
		if s.now = max(s.now, s.ends-t.rules.tolerance); s.now > t.Return {
			return not()
		}
		s.phase = free // its end is kept: one that nobody got may have followed it
		return []cursorState{s}
	case t.kind == acked && s.phase == done:
		return not() // what is done may be acked as often as one likes
	}
	return []cursorState{s}
}

// messageKey names a part: a message in a subscription.
type messageKey struct {
	topic, subscription string
	id                  queue.MessageID
}

func (k messageKey) String() string {
	return fmt.Sprintf("%s in %s/%s", k.id, k.topic, k.subscription)
}

func (k messageKey) compare(o messageKey) int {
	return cmp.Or(cmp.Compare(k.topic, o.topic), cmp.Compare(k.subscription, o.subscription),
		cmp.Compare(k.id.Segment, o.id.Segment), cmp.Compare(k.id.Offset, o.id.Offset))
}

func cursorParts(h *History, o *Options) []part {
	rules := rulesOf(h, o)
	steps := make(map[messageKey][]*cursorStep)
	mayEnd := make(map[messageKey]bool)
	for _, c := range h.Claims {
		for i := range c.Got {
			d := &c.Got[i]
			key := messageKey{c.Topic, c.Subscription, d.ID}
			t := &cursorStep{Span: c.Span, kind: delivered, claim: d.Claim, attempt: d.Attempt, ends: d.Ends}
			if t.ends == 0 {
				t.ends = c.Call + c.Hold
			}
			mayEnd[key] = mayEnd[key] || d.MayEnd
			steps[key] = append(steps[key], t)
		}
	}
	for _, s := range h.Settles {
		for i := range s.Receipts {
			r := &s.Receipts[i]
			key := messageKey{s.Topic, s.Subscription, r.ID}
			if r.Answer == Void {
				continue
			}
			steps[key] = append(steps[key], &cursorStep{
				Span: s.Span.of(r.Answer), kind: [...]cursorKind{acked, released, extended}[s.Kind],
				claim: r.Claim, wait: s.For, uncounted: s.Uncounted, answer: r.Answer,
			})
		}
	}
	var out []part
	for _, key := range slices.SortedFunc(maps.Keys(steps), messageKey.compare) {
		p := part{model: cursorName, key: key.String(), states: several(cursorState{}, nextCursor, same[cursorState])}
		for _, t := range withResets(steps[key], h.Resets, key, o.Stale) {
			t.rules, t.mayEnd = rules[key.topic+"/"+key.subscription], mayEnd[key]
			p.steps = append(p.steps, t)
		}
		out = append(out, p)
	}
	return out
}

// withResets puts the times at which a subscription began anew into the steps of one of its messages, in place of those
// that may be of the subscription as it was or as it is.
func withResets(steps []*cursorStep, resets []*Reset, key messageKey, stale time.Duration) []*cursorStep {
	for _, r := range resets {
		if r.Topic != key.topic || r.Subscription != key.subscription || r.Answer == Void {
			continue
		}
		during := r.Span.of(r.Answer)
		if during.Return < Open-stale {
			during.Return += stale
		}
		steps = slices.DeleteFunc(steps, func(t *cursorStep) bool {
			return t.kind != reset && t.Call <= during.Return && t.Return >= during.Call
		})
		steps = append(steps, &cursorStep{Span: during, kind: reset})
	}
	return steps
}

func rulesOf(h *History, o *Options) map[string]*cursorRules {
	out := make(map[string]*cursorRules)
	of := func(name string) *cursorRules {
		if out[name] == nil {
			out[name] = &cursorRules{tolerance: o.Tolerance, unsure: o.Unsure, hold: math.MaxInt64}
		}
		return out[name]
	}
	for _, c := range h.Claims {
		r := of(c.Topic + "/" + c.Subscription)
		if c.Answer != OK || o.Unsure {
			r.hidden, r.hold = append(r.hidden, c.Call), min(r.hold, c.Hold)
		}
	}
	for _, s := range h.Settles {
		of(s.Topic + "/" + s.Subscription)
	}
	for _, r := range out {
		slices.Sort(r.hidden)
	}
	return out
}
