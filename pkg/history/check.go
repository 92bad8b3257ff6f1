package history

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Options are what Check knows besides the history.
type Options struct {
	// Tolerance is how far two clocks of the system are apart at most.
	Tolerance time.Duration
	// Stale is for how long after a subscription began anew a process may take it for what it was.
	Stale time.Duration
	// Copies are topics that take messages which nobody sent to them: dead-letter topics.
	Copies []string
	// Unsure: answers between the system and its stores may be lost. Then any claim call may have made a claim
	// that nobody got, and a release may be answered as done where its claim's end did it.
	Unsure bool
	// Limit bounds the check of one part; a minute unless set.
	Limit time.Duration
	// Dir, if not empty, is a folder in which violations are drawn; it is made. Label begins the files' names.
	Dir, Label string
}

// Violation is a part of a history that no correct system gives.
type Violation struct {
	// Model and Part name what was judged.
	Model, Part string
	// Text is a history as small as could be found that shows it, with what the model could make of it.
	Text string
	// File is the drawing, if one was asked for.
	File string
}

// String renders all of it.
func (v *Violation) String() string {
	where := ""
	if v.File != "" {
		where = "\ndrawn in " + v.File
	}
	return fmt.Sprintf("no correct %s answers so: %s\n%s%s", v.Model, v.Part, v.Text, where)
}

// Report is what Check found.
type Report struct {
	Violations []*Violation
	// Parts and Operations count what was judged, by model.
	Parts, Operations map[string]int
	// Slowest is how long the slowest part took.
	Slowest time.Duration
}

// String counts what was judged.
func (r *Report) String() string {
	var b strings.Builder
	for _, m := range []string{logName, cursorName, leaseName, nameName} {
		fmt.Fprintf(&b, "%s: %d operations in %d parts; ", m, r.Operations[m], r.Parts[m])
	}
	return b.String() + fmt.Sprintf("slowest part %v", r.Slowest.Round(time.Millisecond))
}

const defaultLimit = time.Minute

// step is one operation of a part, in the form that porcupine takes: the input; there is no output apart.
type step interface {
	span() *Span
	// String says what was asked and answered.
	String() string
	// observes: leaving it out makes no right history wrong.
	observes() bool
}

// part is what is judged alone.
type part struct {
	model, key string
	states     porcupine.Model
	steps      []step
	// hints say what was noticed besides, for whoever reads a violation.
	hints []string
}

// Check judges a history by all models.
func Check(h *History, o Options) (*Report, error) {
	if o.Limit == 0 {
		o.Limit = defaultLimit
	}
	rep := &Report{Parts: make(map[string]int), Operations: make(map[string]int)}
	for _, p := range slices.Concat(logParts(h, &o), cursorParts(h, &o), leaseParts(h), nameParts(h)) {
		rep.Parts[p.model]++
		rep.Operations[p.model] += len(p.steps)
		began := time.Now()
		res := porcupine.CheckOperationsTimeout(p.states, operations(p.steps), o.Limit)
		rep.Slowest = max(rep.Slowest, time.Since(began))
		if res == porcupine.Ok {
			continue
		}
		v, err := p.violation(res, &o, len(rep.Violations))
		if err != nil {
			return rep, err
		}
		rep.Violations = append(rep.Violations, v)
	}
	return rep, nil
}

func operations(steps []step) []porcupine.Operation {
	out := make([]porcupine.Operation, len(steps))
	for i, s := range steps {
		out[i] = porcupine.Operation{ClientId: s.span().Client, Input: s, Call: int64(s.span().Call), Return: int64(s.span().Return)}
	}
	return out
}

// maxDrawn bounds how many violations of one check are drawn.
const maxDrawn = 8

// violation shrinks a part that is not right, and tells of it.
func (p *part) violation(res porcupine.CheckResult, o *Options, number int) (*Violation, error) {
	v := &Violation{Model: p.model, Part: p.key}
	if res == porcupine.Unknown {
		v.Text = fmt.Sprintf("not judged within %v: %d operations", o.Limit, len(p.steps))
		return v, nil
	}
	small := p.shrink(o.Limit)
	_, info := porcupine.CheckOperationsVerbose(p.states, operations(small), o.Limit)
	v.Text = p.tell(small, &info)
	if o.Dir == "" || number >= maxDrawn {
		return v, nil
	}
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, err
	}
	v.File = filepath.Join(o.Dir, fmt.Sprintf("%s-%s-%d.html", o.Label, p.model, number+1))
	return v, porcupine.VisualizePath(p.states, info, v.File)
}

const (
	shrinkTries = 400
	shrinkTime  = 10 * time.Second
)

// shrink leaves out observations while what remains is still not right.
func (p *part) shrink(limit time.Duration) []step {
	end, tries := time.Now().Add(shrinkTime), 0
	wrong := func(steps []step) bool {
		tries++
		return porcupine.CheckOperationsTimeout(p.states, operations(steps), limit) == porcupine.Illegal
	}
	best := p.steps
	for size := len(best) / 2; size > 0; size /= 2 {
		for at := 0; at < len(best) && tries < shrinkTries && time.Now().Before(end); {
			var less []step
			for i, s := range best {
				if i < at || i >= at+size || !s.observes() {
					less = append(less, s)
				}
			}
			if len(less) < len(best) && wrong(less) {
				best = less
				continue
			}
			at += size
		}
	}
	return best
}

const (
	// toldBefore and toldAfter bound what is told of an order: its last operations, and those that do not fit.
	toldBefore = 14
	toldAfter  = 8
)

// tell renders the longest order that the model follows, and what then does not fit.
func (p *part) tell(steps []step, info *porcupine.LinearizationInfo) string {
	var order []step
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, ops := range partition {
			if len(ops) > len(order) {
				order = order[:0:0]
				for i := range ops {
					if s, ok := ops[i].Input.(step); ok {
						order = append(order, s)
					}
				}
			}
		}
	}
	var b strings.Builder
	for _, hint := range p.hints {
		fmt.Fprintf(&b, "  %s\n", hint)
	}
	fmt.Fprintf(&b, "  %d operations, of which these can be put in order:\n", len(steps))
	if n := len(order) - toldBefore; n > 0 {
		fmt.Fprintf(&b, "    (%d more before)\n", n)
	}
	for _, s := range order[max(0, len(order)-toldBefore):] {
		fmt.Fprintf(&b, "    %s\n", line(s))
	}
	rest := slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return slices.Contains(order, s) })
	slices.SortFunc(rest, func(a, b step) int { return cmp.Compare(a.span().Return, b.span().Return) })
	b.WriteString("  and then none of these can be next:\n")
	for _, s := range rest[:min(len(rest), toldAfter)] {
		fmt.Fprintf(&b, "    %s\n", line(s))
	}
	if n := len(rest) - toldAfter; n > 0 {
		fmt.Fprintf(&b, "    (%d more)\n", n)
	}
	return b.String()
}

func line(s step) string {
	until := "open"
	if r := s.span().Return; r != Open {
		until = fmt.Sprintf("%.6f", r.Seconds())
	}
	return fmt.Sprintf("[%.6f, %s] client %d: %s", s.span().Call.Seconds(), until, s.span().Client, s)
}

// deterministic makes a model whose state, a comparable value or one with an equality, has one next state at most.
func deterministic[S any, T step](initial S, next func(S, T) (S, bool), equal func(a, b S) bool) porcupine.Model {
	return several(initial, func(s S, t T) []S {
		if n, ok := next(s, t); ok {
			return []S{n}
		}
		return nil
	}, equal)
}

// several makes a model in which an operation may have several next states; none is a refusal.
func several[S any, T step](initial S, next func(S, T) []S, equal func(a, b S) bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		StepContext: func(_ context.Context, state, input, _ any) []any {
			s, ok1 := state.(S)
			t, ok2 := input.(T)
			if !ok1 || !ok2 {
				return nil
			}
			var out []any
			for _, n := range next(s, t) {
				out = append(out, n)
			}
			return out
		},
		Equal: func(a, b any) bool {
			x, ok1 := a.(S)
			y, ok2 := b.(S)
			return ok1 && ok2 && equal(x, y)
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
	return m.ToModel()
}

func same[S comparable](a, b S) bool { return a == b }
