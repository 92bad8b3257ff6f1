package sim

import (
	"slices"
	"time"
)

// Shrink looks for a simpler run that breaks the same rule: it leaves out whole kinds of faults and ops,
// and then single faults, as long as the rule is still broken, for about the time given. run makes a run.
func Shrink(opts Options, found *Result, run func(Options) *Result, limit time.Duration) (Options, *Result) {
	end := time.Now().Add(limit)
	best, result := opts, found
	try := func(o Options) bool {
		res := run(o)
		if res.Finding == nil || res.Finding.Rule != found.Finding.Rule {
			return false
		}
		best, result = o, res
		return true
	}
	for _, name := range Kinds() {
		if time.Now().After(end) {
			return best, result
		}
		if slices.Contains(best.Without, name) {
			continue
		}
		o := best
		o.Without = append(slices.Clone(best.Without), name)
		try(o)
	}
	for n := result.Faults; n > 0 && time.Now().Before(end); n-- {
		o := best
		o.Skip = append(slices.Clone(best.Skip), n)
		try(o)
	}
	return best, result
}

// Kinds are the names that Options.Without knows.
func Kinds() []string {
	out := []string{"process", "freeze", "kill", "skew", "delayed topics", "scaling"}
	out = append(out, faultNames[1:]...)
	for _, a := range actions {
		if a.name != "produce" {
			out = append(out, a.name)
		}
	}
	return out
}
