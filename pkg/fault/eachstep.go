package fault

import (
	"fmt"
	"slices"
	"testing"
)

// Standard are the faults that EachStep injects unless it is told others: each durable step fails
// before and after it took effect, and the process dies before and after it.
func Standard() []Fault { return []Fault{FailBefore, FailAfter, CrashBefore, CrashAfter} }

// EachStep runs scenario once without a fault, as subtest "clean", and counts the calls that it makes
// through plan; then once for each call and each of faults (none given: Standard) with that one fault
// in that one call, as subtests like "step 3 append s/abc head: fail after". Each run gets a plan of
// its own and must build its own stores. A run that fails prints its calls.
//
// The scenario tells by the errors it gets, or by plan.Fired and plan.Crashed, what it may expect, and
// then checks what must hold in any case, on the bare stores or after plan.Heal: those calls are not
// steps. With Freeze, Hang or Late among faults it must itself release the plan or end its context.
//
// The scenario must not try again for ever: a dead process never gets an answer.
//
// The k-th call of its name gets the fault, not the k-th call of all, so scenarios may make calls of
// several names at once. A read is not tried with a fault that to it is the same as another of the
// list: a caller cannot tell whether a read that failed was carried out. Nor is Repeat.
func EachStep(t *testing.T, scenario func(t *testing.T, plan *Plan), faults ...Fault) {
	t.Helper()
	if len(faults) == 0 {
		faults = Standard()
	}
	clean := Script(Options{})
	if !t.Run("clean", func(t *testing.T) {
		traceIfFailed(t, clean)
		scenario(t, clean)
	}) {
		return
	}
	if n := clean.Steps(); n > maxLog/2 {
		t.Fatalf("the scenario makes %d calls, too many to fail each of them", n)
	}
	runs := enumerate(clean.Calls(), faults)
	if len(runs) == 0 {
		t.Fatal("the scenario makes no call through its plan that a fault could be tried on")
	}
	for _, r := range runs {
		t.Run(r.name(), func(t *testing.T) {
			plan := Script(Options{}, r.rule)
			traceIfFailed(t, plan)
			scenario(t, plan)
			if len(plan.Fired()) == 0 {
				t.Errorf("the scenario made this call in its clean run and not in this one, though nothing had failed yet: it is not repeatable")
			}
		})
	}
}

func traceIfFailed(t *testing.T, plan *Plan) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(plan.Trace())
		}
	})
}

// trial is one run of a scenario with one fault.
type trial struct {
	call Call
	rule Rule
}

func (r trial) name() string {
	return fmt.Sprintf("step %d %s %s: %s", r.call.Step, r.call.Op, r.call.Key, r.rule.Fault)
}

// enumerate lists the runs that are worth making for the calls of a clean run.
func enumerate(calls []Call, faults []Fault) []trial {
	var out []trial
	seen := make(map[string]int)
	for _, c := range calls {
		seen[c.Op]++
		for _, f := range faults {
			if pointless(c, f, faults) {
				continue
			}
			out = append(out, trial{c, Rule{Op: c.Op, Nth: seen[c.Op], Fault: f, exact: true}})
		}
	}
	return out
}

// pointless reports whether to c the fault f is the same as another of faults, or none at all.
func pointless(c Call, f Fault, faults []Fault) bool {
	before := slices.Contains(faults, FailBefore)
	switch f {
	case FailAfter, Late:
		return !c.Write && before
	case CrashAfter:
		return !c.Write && slices.Contains(faults, CrashBefore)
	case Cut:
		return !c.halves && before
	case Repeat:
		return !c.Write
	default:
		return false
	}
}
