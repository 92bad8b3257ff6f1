package history

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// The model of a lease: epochs follow one another; who takes it finds the value of the last commit that took
// effect; a commit, a holder's trust and a giving up are the newest epoch's alone; it is taken from another no
// sooner than a TTL after the last write of that one began.

const leaseName = "lease"

// instant is more than the readings of a recorder are apart that its clock gave as one.
const instant = time.Millisecond

// leaseState is a lease. Comparable.
type leaseState struct {
	epoch, value uint64
	// free: given up. ends is when it may be taken from its holder at the earliest, now a bound from below of
	// the time of the steps so far.
	free      bool
	ends, now time.Duration
}

func (s leaseState) String() string {
	return fmt.Sprintf("epoch %d, value %d, free %v, until %v, now %v", s.epoch, s.value, s.free || s.epoch == 0, s.ends, s.now)
}

type leaseStep struct{ *Lease }

// observes implements step: a refusal and a holder's trust only look.
func (t leaseStep) observes() bool { return t.Kind == Trust || t.Answer == Refused }

// String implements step.
func (t leaseStep) String() string {
	answer := [...]string{"unknown", "ok", "refused", "no effect"}[t.Answer]
	switch t.Kind {
	case Acquire:
		if t.Answer == OK {
			return fmt.Sprintf("acquire: epoch %d, finds %d", t.Epoch, t.Value)
		}
		return "acquire: " + answer
	case Commit:
		return fmt.Sprintf("commit %d under epoch %d: %s", t.Value, t.Epoch, answer)
	case Trust:
		return fmt.Sprintf("trust in epoch %d", t.Epoch)
	}
	return fmt.Sprintf("give up epoch %d: %s", t.Epoch, answer)
}

func nextLease(s leaseState, t leaseStep) []leaseState {
	if s.now = max(s.now, t.Call); s.now > t.Return {
		return nil
	}
	mine := t.Kind != Acquire && s.epoch == t.Epoch && !s.free
	switch t.Answer {
	case Refused:
		// Others hold it when it cannot be had; none of ours is the newest epoch when we are fenced.
		if t.Kind == Acquire && (s.free || s.epoch == 0) || mine {
			return nil
		}
		return []leaseState{s}
	case OK:
		return t.effect(s, mine)
	}
	return append(t.effect(s, mine), s)
}

// effect is what a step does if it can be; it has no answer yet if it is unknown.
func (t leaseStep) effect(s leaseState, mine bool) []leaseState {
	switch t.Kind {
	case Acquire:
		if t.Answer == OK && (t.Epoch != s.epoch+1 || t.Value != s.value) {
			return nil
		}
		if !s.free && s.epoch > 0 {
			s.now = max(s.now, s.ends-instant)
		}
		if s.now > t.Return {
			return nil
		}
		s.epoch, s.free, s.ends = s.epoch+1, false, t.Call+t.TTL
		return []leaseState{s}
	case Commit:
		s.value, s.ends = t.Value, t.Call+t.TTL
	case GiveUp:
		s.free = true
	case Trust:
	}
	if !mine {
		return nil
	}
	return []leaseState{s}
}

func leaseParts(h *History) []part {
	steps := make(map[string][]step)
	for _, l := range h.Leases {
		if l.Answer != Void {
			own := *l
			own.Span = l.Span.of(l.Answer)
			steps[l.Name] = append(steps[l.Name], leaseStep{&own})
		}
	}
	var out []part
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		out = append(out, part{
			model: leaseName, key: name, steps: steps[name],
			states: several(leaseState{}, nextLease, same[leaseState]),
		})
	}
	return out
}
