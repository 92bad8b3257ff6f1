package history

import "testing"

func name(s Span, kind NameKind, a Answer, id string) *Name {
	return &Name{Span: s, Name: "n", Kind: kind, Config: "x", Answer: a, ID: id}
}

func otherConfig(n *Name) *Name {
	n.Config = "y"
	return n
}

func TestName(t *testing.T) {
	made := name(at(1, 10, 20), Create, OK, "A")
	cases := []struct {
		name  string
		wrong bool
		steps []*Name
	}{
		{"made, found, deleted and made anew", false, []*Name{
			name(at(2, 1, 2), Get, Refused, ""), made, name(at(2, 21, 22), Create, OK, "A"), otherConfig(name(at(2, 23, 24), Create, Refused, "")),
			name(at(2, 25, 26), Get, OK, "A"), name(at(2, 27, 28), List, OK, "A"), name(at(1, 30, 40), Delete, OK, ""),
			name(at(2, 41, 42), Get, Refused, ""), name(at(2, 43, 44), List, OK, ""), name(at(2, 45, 46), Delete, Refused, ""),
			otherConfig(name(at(2, 50, 60), Create, OK, "B")), name(at(2, 61, 62), Get, OK, "B"),
		}},
		{"found before it was made", true, []*Name{name(at(2, 1, 2), Get, OK, "A"), made}},
		{"made twice", true, []*Name{made, name(at(2, 15, 25), Create, OK, "B")}},
		{"made in spite of another config", true, []*Name{made, otherConfig(name(at(2, 30, 40), Create, OK, "A"))}},
		{"refused with its own config", true, []*Name{made, name(at(2, 30, 40), Create, Refused, "")}},
		{"lost", true, []*Name{made, name(at(2, 30, 40), Get, Refused, "")}},
		{"not listed", true, []*Name{made, name(at(2, 30, 40), List, OK, "")}},
		{"stale read", true, []*Name{made, name(at(1, 30, 40), Delete, OK, ""), name(at(2, 50, 60), Get, OK, "A")}},
		{"listed after its deletion", true, []*Name{made, name(at(1, 30, 40), Delete, OK, ""), name(at(2, 50, 60), List, OK, "A")}},
		{"listed while it is deleted, and found no more", false, []*Name{
			made, name(at(1, 30, 100), Delete, OK, ""), name(at(2, 40, 45), Get, Refused, ""), name(at(2, 50, 60), List, OK, "A"),
		}},
		{"found again while it is deleted", true, []*Name{
			made, name(at(1, 30, 100), Delete, OK, ""), name(at(2, 40, 45), Get, Refused, ""), name(at(2, 50, 60), Get, OK, "A"),
		}},
		{"resurrected", true, []*Name{made, name(at(1, 30, 40), Delete, OK, ""), name(at(2, 50, 60), Create, OK, "A")}},
		{"resurrected after another", true, []*Name{
			made, name(at(1, 30, 40), Delete, OK, ""), name(at(2, 50, 60), Create, OK, "B"), name(at(2, 70, 80), Get, OK, "A"),
		}},
		{"a deletion takes a newer one with it", true, []*Name{
			made, name(at(1, 30, 100), Delete, OK, ""), name(at(3, 35, 36), Get, Refused, ""), name(at(2, 40, 50), Delete, OK, ""),
			name(at(2, 60, 70), Create, OK, "B"), name(at(2, 110, 120), Get, Refused, ""),
		}},
		{"two deletions of one", false, []*Name{
			made, name(at(1, 30, 100), Delete, OK, ""), name(at(2, 40, 50), Delete, OK, ""), name(at(2, 60, 70), Create, OK, "B"), name(at(2, 110, 120), Get, OK, "B"),
		}},
		{"deleted though it was not there", true, []*Name{made, name(at(1, 30, 40), Delete, OK, ""), name(at(2, 50, 60), Delete, OK, "")}},
		{"an unanswered creation took effect", false, []*Name{name(at(1, 10, -1), Create, Unknown, ""), name(at(2, 30, 40), Get, OK, "A"), name(at(2, 50, 60), Get, OK, "A")}},
		{"an unanswered creation has two ids", true, []*Name{name(at(1, 10, -1), Create, Unknown, ""), name(at(2, 30, 40), Get, OK, "A"), name(at(2, 50, 60), Get, OK, "B")}},
		{"an unanswered creation comes late", false, []*Name{
			name(at(1, 1, -1), Create, Unknown, ""), made, name(at(1, 30, 40), Delete, OK, ""), name(at(2, 50, 60), Get, OK, "C"),
		}},
		{"an unanswered deletion half done", false, []*Name{
			made, name(at(1, 30, -1), Delete, Unknown, ""), name(at(2, 40, 50), Get, Refused, ""), name(at(2, 60, 70), List, OK, "A"),
			name(at(2, 80, 90), Delete, OK, ""), name(at(2, 100, 110), List, OK, ""),
		}},
		{"ended with what it is in", false, []*Name{
			made, name(at(1, 30, 40), Clear, OK, ""), name(at(2, 41, 42), Get, Refused, ""), name(at(2, 43, 44), Clear, Refused, ""),
			name(at(2, 45, 46), Delete, Refused, ""), otherConfig(name(at(2, 50, 60), Create, OK, "B")), name(at(2, 61, 62), Get, OK, "B"),
		}},
		{"what it is in is deleted where it is not", false, []*Name{name(at(1, 1, 2), Clear, OK, ""), made, name(at(2, 30, 40), Get, OK, "A")}},
		{"found though what it was in is deleted", true, []*Name{made, name(at(1, 30, 40), Clear, OK, ""), name(at(2, 50, 60), Get, OK, "A")}},
		{"back after what it was in was deleted", true, []*Name{
			made, name(at(1, 30, 40), Clear, OK, ""), name(at(2, 41, 42), Get, Refused, ""), name(at(2, 50, 60), Create, OK, "A"),
		}},
		{"what it is in is said not to be there", true, []*Name{made, name(at(2, 30, 40), Clear, Refused, "")}},
		{"ended by an unanswered deletion of what it is in", false, []*Name{made, name(at(1, 30, -1), Clear, Unknown, ""), name(at(2, 50, 60), Get, Refused, "")}},
	}
	var all []judged
	for _, c := range cases {
		all = append(all, judged{name: c.name, wrong: c.wrong, h: History{Names: c.steps}})
	}
	judge(t, all)
}
