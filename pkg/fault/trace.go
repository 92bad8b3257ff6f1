package fault

import (
	"fmt"
	"slices"
	"strings"
)

// Call is one call of a wrapped store, as a plan remembers it.
type Call struct {
	// Step is its number in the plan, from 1.
	Step int
	// Op and Key name it; a transaction has the names and keys of its ops, comma-separated.
	Op, Key string
	// Write says that it may change the store.
	Write bool
	// Fault is what was done to it.
	Fault Fault
	// Outcome says how it ended: "ok", the error that the caller got, or, if the answer was
	// dropped, that and what the store had said. Empty while it is under way.
	Outcome string

	// parts are the ops or keys of a call that has several.
	parts []part
	// halves says that Cut means something to the call.
	halves bool
}

type part struct{ op, key string }

// remember keeps c in the log; the plan's lock is held. The oldest calls are forgotten by halves, so
// that forgetting costs nothing per call.
func (p *Plan) remember(c *Call) {
	if len(p.log) >= maxLog {
		p.log = slices.Delete(p.log, 0, maxLog/2)
	}
	p.log = append(p.log, c)
}

// end notes how c ended: with answer for the caller, while the store said stored.
func (p *Plan) end(c *Call, answer, stored error, carriedOut bool) {
	if c.Step == 0 {
		return
	}
	text := "ok"
	if answer != nil {
		text = answer.Error()
	}
	if IsInjected(answer) && carriedOut {
		said := "ok"
		if stored != nil {
			said = stored.Error()
		}
		text += " (the store said: " + said + ")"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.Outcome = text
}

// Calls lists what the plan remembers of its calls, in the order of their steps: all, or the last
// several thousand. Calls made when dead or healed are not steps and not in it.
func (p *Plan) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Call, len(p.log))
	for i, c := range p.log {
		out[i] = *c
	}
	return out
}

// Fired lists the calls that got a fault.
func (p *Plan) Fired() []Call {
	return slices.DeleteFunc(p.Calls(), func(c Call) bool { return c.Fault == None })
}

// String renders the call as one line of a trace.
func (c Call) String() string {
	outcome := c.Outcome
	if outcome == "" {
		outcome = "under way"
	}
	s := fmt.Sprintf("step %d %s %s", c.Step, c.Op, c.Key)
	if c.Fault != None {
		s += ": " + strings.ToUpper(c.Fault.String())
	}
	return s + ": " + outcome
}

// Trace renders what the plan is and a line for each call that it remembers.
func (p *Plan) Trace() string {
	calls := p.Calls()
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	b.WriteString("fault plan")
	if p.chance != nil {
		b.WriteString(", " + p.chance.String())
	}
	fmt.Fprintf(&b, ": %d calls\n", p.steps)
	for _, c := range calls {
		fmt.Fprintf(&b, "  %s\n", c)
	}
	if p.dead > 0 {
		fmt.Fprintf(&b, "  %d calls by the dead process\n", p.dead)
	}
	if n := len(p.late); n > 0 {
		fmt.Fprintf(&b, "  %d calls still on their way\n", n)
	}
	return b.String()
}

// String renders the plan's seed and odds if it is random, and how far it has come.
func (p *Plan) String() string {
	first, _, _ := strings.Cut(p.Trace(), "\n")
	return first
}
