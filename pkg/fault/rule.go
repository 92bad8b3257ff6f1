package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Rule says which calls get which fault.
type Rule struct {
	// Op is a call's name, or its start and "*": "put *". A transaction is found as "transact"
	// and by each of its ops. Empty stands for every call.
	Op string
	// Key is how the call's key starts; for a transaction the key of the op that Op names, or
	// of any of them; for a delete, any of its keys. Empty stands for every key.
	Key string
	// Nth is the first call to get the fault, from 1, counted among those that match Op and Key
	// since the rule was armed; 0 stands for all of them.
	Nth int
	// Times is how many calls get the fault from Nth on; 0 stands for 1.
	Times int
	// Fault is what happens to them.
	Fault Fault
	// Pause is the length of a Delay.
	Pause time.Duration

	// exact matches the whole name of a call and never a part of a transaction.
	exact bool
}

// armed is a rule with its count.
type armed struct {
	Rule
	seen int
}

// matchesPart reports whether the rule is about an op or a key within a call that has several.
func (a *armed) matchesPart(p part) bool {
	return (a.Op == "" || a.named(p.op)) && strings.HasPrefix(p.key, a.Key)
}

func (a *armed) named(op string) bool {
	prefix, wild := strings.CutSuffix(a.Op, "*")
	return op == a.Op || wild && strings.HasPrefix(op, prefix)
}

// fires counts c if the rule is about it, and reports whether c gets the fault.
func (a *armed) fires(c *Call) bool {
	if !a.matches(c) {
		return false
	}
	a.seen++
	return a.Nth == 0 || a.seen >= a.Nth && a.seen < a.Nth+max(a.Times, 1)
}

func (a *armed) matches(c *Call) bool {
	if a.exact {
		return c.Op == a.Op
	}
	return (a.Op == "" || a.named(c.Op)) && strings.HasPrefix(c.Key, a.Key) ||
		slices.ContainsFunc(c.parts, a.matchesPart)
}

// Odds are the probabilities of faults, each 0 to 1 and together at most 1.
type Odds map[Fault]float64

// valid panics if the odds are none: they are constants of a test.
func (o Odds) valid() {
	sum := 0.0
	for f, p := range o {
		if f == None || f >= faults || p < 0 || p > 1 {
			panic(fmt.Sprintf("fault: odds of %s cannot be %g", f, p))
		}
		sum += p
	}
	// Not > 1: ten times 0.1 is a little more than 1.
	if sum > 1+1e-9 {
		panic(fmt.Sprintf("fault: odds add up to %g, more than 1", sum))
	}
}

// chance draws faults from a seed.
type chance struct {
	seed uint64
	odds Odds
	rng  *rand.Rand
	most time.Duration
}

// draw takes the same two numbers from the source for every call, so that a change of the odds does
// not shift what later calls get.
func (d *chance) draw() (Fault, time.Duration) {
	roll, pause := d.rng.Float64(), time.Duration(d.rng.Float64()*float64(d.most))
	for f := FailBefore; f < faults; f++ {
		p := d.odds[f]
		if roll < p {
			return f, pause
		}
		roll -= p
	}
	return None, 0
}

// String renders the seed and the odds, so that a failure can be repeated.
func (d *chance) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d", d.seed)
	for f := FailBefore; f < faults; f++ {
		if p := d.odds[f]; p > 0 {
			fmt.Fprintf(&b, ", %s %g", f, p)
		}
	}
	return b.String()
}
