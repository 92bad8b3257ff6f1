package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The model of a name: it leads to nothing, to a thing, or to a thing that is being deleted, which is found by
// nobody and may still be listed. A creation makes a thing of a new id where there is none, and finds one of
// its own config; a deletion marks what it finds, and frees the name if it still leads there. Anyone may end a
// deletion that was begun. What the name is in may be deleted with it, at once, whether there was anything or not.
//
// A creation or deletion without an answer is no step of its own: it takes effect when a step needs it to, once
// at most, and not before it was called. Had it come earlier, all that is seen would be the same.

const nameName = "name"

// nameState is a name. Comparable: its lists are texts.
type nameState struct {
	// id is what it leads to; "" is nothing. What a creation without an answer made has an id that begins with "#"
	// until it is seen.
	id, config string
	deleting   bool
	// used are the ids that it led to, each after a space; marks the deletions under way, as " number:id".
	used, marks string
	// spent are the calls without an answer that took effect, each as its token, sorted.
	spent string
}

func (s nameState) String() string {
	switch {
	case s.id == "":
		return "nothing"
	case s.deleting:
		return s.id + ", being deleted"
	}
	return s.id
}

func (s nameState) guessed() bool { return strings.HasPrefix(s.id, "#") }

// nameStep is a step of a Name; a deletion has two, the second of which frees the name.
type nameStep struct {
	*Name
	number int
	second bool
	unsure *unsureNames
}

// unsureNames are the calls about a name that have no answer.
type unsureNames struct {
	// creates are when those of each config were called, deletes the same.
	creates map[string][]time.Duration
	deletes []time.Duration
}

// observes implements step.
func (t nameStep) observes() bool {
	return t.Kind == Get || t.Kind == List || t.Answer == Refused
}

// String implements step.
func (t nameStep) String() string {
	verb := [...]string{"create", "delete", "get", "list", "delete what it is in"}[t.Kind]
	if t.Kind == Create {
		verb += " " + t.Config
	}
	if t.second {
		verb = "free the name after the delete"
	}
	switch {
	case t.Answer == Refused && t.Kind == Create:
		return verb + ": there is another"
	case t.Answer == Refused, t.Kind == List && t.ID == "":
		return verb + ": not there"
	}
	return strings.TrimSuffix(verb+": ok "+t.ID, " ")
}

// mostUnsure is how many calls without an answer one step can need: a deletion, and a creation of another thing.
const mostUnsure = 2

// nextName takes a step, after as few calls without an answer as it needs.
func nextName(s nameState, t nameStep) []nameState {
	before := []nameState{s}
	for range mostUnsure + 1 {
		var after, changed []nameState
		for _, b := range before {
			if n, ok := t.take(b); ok {
				after = append(after, n)
			}
			changed = append(changed, t.late(b)...)
		}
		if len(after) > 0 {
			return after
		}
		before = changed
	}
	return nil
}

// late gives what a state may become by a call without an answer that began before the step returned.
func (t nameStep) late(s nameState) []nameState {
	if s.id != "" && !s.deleting {
		n, ok := s.spend("d", t.unsure.deletes, t.Return)
		n.deleting = true
		if !ok {
			return nil
		}
		return []nameState{n}
	}
	var out []nameState
	for _, config := range slices.Sorted(maps.Keys(t.unsure.creates)) {
		if n, ok := s.spend("c"+config, t.unsure.creates[config], t.Return); ok {
			n.id, n.config, n.deleting = "#", config, false
			for strings.Contains(n.marks+" ", ":"+n.id+" ") {
				n.id += "#"
			}
			out = append(out, n)
		}
	}
	return out
}

// spend uses up one of the calls that a token stands for; false if there is none left.
func (s nameState) spend(token string, calls []time.Duration, until time.Duration) (nameState, bool) {
	n := 0
	for _, call := range calls {
		if call <= until {
			n++
		}
	}
	tokens := strings.Fields(s.spent)
	for _, have := range tokens {
		if have == token {
			n--
		}
	}
	if n <= 0 {
		return s, false
	}
	tokens = append(tokens, token)
	slices.Sort(tokens)
	s.spent = strings.Join(tokens, " ")
	return s, true
}

// take is the step itself.
func (t nameStep) take(s nameState) (nameState, bool) {
	there := s.id != "" && !s.deleting
	switch {
	case t.Kind == Create && t.Answer == Refused:
		return s, there && s.config != t.Config
	case t.Kind == Create && there && s.config != t.Config:
		return s, false
	case t.Kind == Create && !there:
		return t.make(s)
	case t.second:
		return t.free(s)
	case t.Kind == Delete && t.Answer == Refused, t.Kind == List && t.ID == "":
		return gone(s)
	case t.Kind == Delete:
		if s.id == "" {
			return s, false
		}
		s.deleting, s.marks = true, fmt.Sprintf("%s %d:%s", s.marks, t.number, s.id)
		return s, true
	case t.Kind == Clear && t.Answer == OK:
		s.id, s.config, s.deleting = "", "", false
		return s, true
	case t.Answer == Refused: // a Get, or a Clear, since what deletes the surroundings ends the name
		return s, !there
	case t.Kind == Get && !there:
		return s, false
	}
	return t.shown(s)
}

// gone is an answer that the name is not there: it never was, or its deletion has come to its end by now.
func gone(s nameState) (nameState, bool) {
	if s.deleting {
		s.id, s.config, s.deleting = "", "", false
	}
	return s, s.id == ""
}

// shown is an answer with an id: it is the name's, or the one that a creation without an answer gave.
func (t nameStep) shown(s nameState) (nameState, bool) {
	switch {
	case s.id == "" || t.ID == "":
		return s, false
	case s.id == t.ID:
		return s, true
	case !s.guessed() || s.led(t.ID):
		return s, false
	}
	s.used += " " + t.ID
	s.marks = strings.TrimSuffix(strings.ReplaceAll(s.marks+" ", ":"+s.id+" ", ":"+t.ID+" "), " ")
	s.id = t.ID
	return s, true
}

// led reports whether the name led to an id before.
func (s nameState) led(id string) bool { return strings.Contains(s.used+" ", " "+id+" ") }

func (t nameStep) make(s nameState) (nameState, bool) {
	if s.led(t.ID) {
		return s, false
	}
	s.id, s.config, s.deleting = t.ID, t.Config, false
	s.used += " " + t.ID
	return s, true
}

// free is the end of a deletion: what it marked is not there any more, by its own doing or another's.
func (t nameStep) free(s nameState) (nameState, bool) {
	prefix := fmt.Sprintf(" %d:", t.number)
	at := strings.Index(s.marks, prefix)
	if at < 0 {
		return s, false
	}
	id, _, _ := strings.Cut(s.marks[at+len(prefix):], " ")
	s.marks = s.marks[:at] + s.marks[at+len(prefix)+len(id):]
	if s.id == id {
		s.id, s.config, s.deleting = "", "", false
	}
	return s, true
}

func nameParts(h *History) []part {
	steps := make(map[string][]step)
	unsure := make(map[string]*unsureNames)
	for i, n := range h.Names {
		u := unsure[n.Name]
		if u == nil {
			u = &unsureNames{creates: make(map[string][]time.Duration)}
			unsure[n.Name] = u
		}
		switch {
		case n.Kind == Create && n.Answer == Unknown:
			u.creates[n.Config] = append(u.creates[n.Config], n.Call)
		case (n.Kind == Delete || n.Kind == Clear) && (n.Answer == Unknown || n.Answer == Void):
			// One that failed may have done its first half, whatever it was answered.
			u.deletes = append(u.deletes, n.Call)
		case n.Answer == Unknown || n.Answer == Void:
		default:
			steps[n.Name] = append(steps[n.Name], nameStep{Name: n, number: i, unsure: u})
			if n.Kind == Delete && n.Answer == OK {
				steps[n.Name] = append(steps[n.Name], nameStep{Name: n, number: i, second: true, unsure: u})
			}
		}
	}
	var out []part
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		p := part{
			model: nameName, key: name, steps: steps[name],
			states: several(nameState{}, nextName, same[nameState]),
		}
		for _, config := range slices.Sorted(maps.Keys(unsure[name].creates)) {
			p.hints = append(p.hints, fmt.Sprintf("creations of %s without an answer, at %v", config, unsure[name].creates[config]))
		}
		if d := unsure[name].deletes; len(d) > 0 {
			p.hints = append(p.hints, fmt.Sprintf("deletions without an answer, at %v", d))
		}
		out = append(out, p)
	}
	return out
}
