package history

import "testing"

func lease(s Span, kind LeaseKind, epoch, value uint64, a Answer) *Lease {
	return &Lease{Span: s, Name: "l", Kind: kind, Epoch: epoch, Value: value, TTL: ms(1000), Answer: a}
}

func TestLease(t *testing.T) {
	first := lease(at(1, 10, 20), Acquire, 1, 0, OK)
	cases := []struct {
		name  string
		wrong bool
		steps []*Lease
	}{
		{"taken, renewed, given up and taken", false, []*Lease{
			first, lease(at(2, 30, 40), Acquire, 0, 0, Refused), lease(at(1, 50, 60), Commit, 1, 7, OK), lease(at(1, 70, 75), Trust, 1, 0, OK),
			lease(at(1, 80, 90), GiveUp, 1, 0, OK), lease(at(2, 100, 110), Acquire, 2, 7, OK),
		}},
		{"taken over after its time", false, []*Lease{first, lease(at(2, 1005, 1015), Acquire, 2, 0, OK), lease(at(1, 1100, 1110), Commit, 1, 7, Refused)}},
		{"taken over before its time", true, []*Lease{first, lease(at(2, 500, 510), Acquire, 2, 0, OK)}},
		{"taken over before its time since it was renewed", true, []*Lease{first, lease(at(1, 900, 910), Commit, 1, 7, OK), lease(at(2, 1500, 1510), Acquire, 2, 7, OK)}},
		{"two holders trust", true, []*Lease{first, lease(at(2, 1005, 1015), Acquire, 2, 0, OK), lease(at(1, 1100, 1110), Trust, 1, 0, OK)}},
		{"an epoch comes twice", true, []*Lease{first, lease(at(2, 1100, 1110), Acquire, 1, 0, OK)}},
		{"an epoch is left out", true, []*Lease{first, lease(at(2, 1100, 1110), Acquire, 3, 0, OK)}},
		{"an epoch goes to one who was not answered", false, []*Lease{first, lease(at(3, 1020, -1), Acquire, 0, 0, Unknown), lease(at(2, 2100, 2110), Acquire, 3, 0, OK)}},
		{"a write of an old epoch takes effect", true, []*Lease{
			first, lease(at(2, 1100, 1110), Acquire, 2, 0, OK), lease(at(1, 1200, 1210), Commit, 1, 7, OK),
		}},
		{"a fenced write takes effect", true, []*Lease{
			first, lease(at(2, 1100, 1110), Acquire, 2, 0, OK), lease(at(1, 1200, 1210), Commit, 1, 7, Refused), lease(at(3, 2200, 2210), Acquire, 3, 7, OK),
		}},
		{"an acknowledged write is lost", true, []*Lease{first, lease(at(1, 50, 60), Commit, 1, 7, OK), lease(at(2, 1100, 1110), Acquire, 2, 0, OK)}},
		{"an unanswered write took effect", false, []*Lease{first, lease(at(1, 50, -1), Commit, 1, 7, Unknown), lease(at(2, 1100, 1110), Acquire, 2, 7, OK)}},
		{"an unanswered write took no effect", false, []*Lease{first, lease(at(1, 50, -1), Commit, 1, 7, Unknown), lease(at(2, 1100, 1110), Acquire, 2, 0, OK)}},
		{"an unanswered write of an old epoch comes late", true, []*Lease{
			first, lease(at(1, 50, -1), Commit, 1, 7, Unknown), lease(at(2, 1100, 1110), Acquire, 2, 0, OK), lease(at(3, 2200, 2210), Acquire, 3, 7, OK),
		}},
		{"a holder is fenced", true, []*Lease{first, lease(at(1, 50, 60), Commit, 1, 7, Refused)}},
		{"a lease given up cannot be had", true, []*Lease{first, lease(at(1, 50, 60), GiveUp, 1, 0, OK), lease(at(2, 70, 80), Acquire, 0, 0, Refused)}},
	}
	var all []judged
	for _, c := range cases {
		all = append(all, judged{name: c.name, wrong: c.wrong, h: History{Leases: c.steps}})
	}
	judge(t, all)
}
