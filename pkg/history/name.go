package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The model of a name: it leads to nothing, to a thing, or to a thing that is being deleted, which is found by
// nobody and may still be listed. A creation makes a thing of a new id where there is none, and finds one of
// its own config; a deletion marks what it finds, and frees the name if it still leads there. Anyone may end a
// deletion that was begun.

const nameName = "name"

// nameState is a name. Comparable: its lists are texts.
type nameState struct {
	// id is what it leads to; "" is nothing. One whose creation was never answered has the id "#" and the
	// creation's number, until it is seen.
	id, config string
	deleting   bool
	// used are the ids that it led to, each after a space; marks the deletions under way, as " number:id".
	used, marks string
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
}

// observes implements step.
func (t nameStep) observes() bool {
	return t.Kind == Get || t.Kind == List || t.Answer == Refused
}

// String implements step.
func (t nameStep) String() string {
	verb := [...]string{"create", "delete", "get", "list"}[t.Kind]
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
	case t.Answer == Unknown:
		return verb + ": unknown"
	}
	return strings.TrimSuffix(verb+": ok "+t.ID, " ")
}

func nextName(s nameState, t nameStep) []nameState {
	switch t.Kind {
	case Create:
		return t.create(s)
	case Delete:
		if t.second {
			return t.free(s)
		}
		return t.mark(s)
	case List:
		if t.ID == "" {
			return gone(s)
		}
		return t.shown(s)
	}
	if t.Answer == Refused {
		return kept(s, s.id == "" || s.deleting)
	}
	if s.deleting {
		return nil
	}
	return t.shown(s)
}

func kept(s nameState, ok bool) []nameState {
	if !ok {
		return nil
	}
	return []nameState{s}
}

// gone is an answer that the name is not there: it never was, or its deletion has come to its end by now.
func gone(s nameState) []nameState {
	if s.deleting {
		s.id, s.config, s.deleting = "", "", false
	}
	return kept(s, s.id == "")
}

// shown is an answer with an id: it is the name's, or the one that a creation of unknown outcome gave.
func (t nameStep) shown(s nameState) []nameState {
	switch {
	case s.id == "" || t.ID == "":
		return nil
	case s.id == t.ID:
		return []nameState{s}
	case !s.guessed() || strings.Contains(s.used+" ", " "+t.ID+" "):
		return nil
	}
	s.used = strings.TrimSuffix(s.used, " "+s.id) + " " + t.ID
	s.marks = strings.ReplaceAll(s.marks+" ", ":"+s.id+" ", ":"+t.ID+" ")
	s.marks = strings.TrimSuffix(s.marks, " ")
	s.id = t.ID
	return []nameState{s}
}

func (t nameStep) create(s nameState) []nameState {
	there := s.id != "" && !s.deleting
	switch {
	case t.Answer == Refused:
		return kept(s, there && s.config != t.Config)
	case there && t.Answer == Unknown:
		return []nameState{s}
	case there:
		if s.config != t.Config {
			return nil
		}
		return t.shown(s)
	}
	id := t.ID
	if t.Answer == Unknown {
		id = fmt.Sprintf("#%d", t.number)
	}
	if strings.Contains(s.used+" ", " "+id+" ") {
		return nil
	}
	n := nameState{id: id, config: t.Config, used: s.used + " " + id, marks: s.marks}
	if t.Answer == Unknown {
		return []nameState{n, s}
	}
	return []nameState{n}
}

func (t nameStep) mark(s nameState) []nameState {
	switch {
	case t.Answer == Refused:
		return gone(s)
	case s.id == "" && t.Answer == Unknown:
		return []nameState{s}
	case s.id == "":
		return nil
	}
	n := s
	n.deleting, n.marks = true, fmt.Sprintf("%s %d:%s", s.marks, t.number, s.id)
	if t.Answer == Unknown {
		return []nameState{n, s}
	}
	return []nameState{n}
}

// free is the end of a deletion: what it marked is not there any more, by its own doing or another's.
func (t nameStep) free(s nameState) []nameState {
	prefix := fmt.Sprintf(" %d:", t.number)
	at := strings.Index(s.marks, prefix)
	if at < 0 {
		return kept(s, t.Answer == Unknown)
	}
	id, _, _ := strings.Cut(s.marks[at+len(prefix):], " ")
	n := s
	n.marks = s.marks[:at] + s.marks[at+len(prefix)+len(id):]
	if n.id == id {
		n.id, n.config, n.deleting = "", "", false
	}
	if t.Answer == Unknown {
		return []nameState{n, s}
	}
	return []nameState{n}
}

func nameParts(h *History) []part {
	steps := make(map[string][]step)
	for i, n := range h.Names {
		// A deletion that failed may have done its first half, whatever it was answered.
		looks := n.Kind == Get || n.Kind == List
		if n.Answer == Void && n.Kind != Delete || n.Answer == Unknown && looks {
			continue
		}
		own := *n
		if n = &own; n.Kind == Delete && n.Answer == Void {
			n.Answer = Unknown
		}
		n.Span = n.Span.of(n.Answer)
		steps[n.Name] = append(steps[n.Name], nameStep{Name: n, number: i})
		if n.Kind == Delete && n.Answer != Refused {
			steps[n.Name] = append(steps[n.Name], nameStep{Name: n, number: i, second: true})
		}
	}
	var out []part
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		out = append(out, part{
			model: nameName, key: name, steps: steps[name],
			states: several(nameState{}, nextName, same[nameState]),
		})
	}
	return out
}
