package history

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/queue"
)

func claimID(n byte) queue.ClaimID { return queue.ClaimID{n} }

// claim is a claim call of one second that delivers message 0.
func claim(s Span, n byte, attempt uint32) *Claim {
	return &Claim{Span: s, Topic: "t", Subscription: "s", Hold: ms(1000), Answer: OK, Got: []Delivery{{ID: id(0), Body: "a", Claim: claimID(n), Attempt: attempt}}}
}

func settle(s Span, kind SettleKind, n byte, a Answer) *Settle {
	return &Settle{Span: s, Topic: "t", Subscription: "s", Kind: kind, For: ms(1000), Receipts: []Settled{{ID: id(0), Claim: claimID(n), Answer: a}}}
}

func at0(s *Settle) *Settle {
	s.For = 0
	return s
}

func uncounted(s *Settle) *Settle {
	s.For, s.Uncounted = 0, true
	return s
}

func TestCursor(t *testing.T) {
	sent := []*Produce{put(at(1, 0, 1), 0, "a")}
	lost := &Claim{Span: at(9, 1050, -1), Topic: "t", Subscription: "s", Hold: ms(1000)}
	seek := func(a Answer) []*Reset {
		return []*Reset{{Span: at(3, 30, 40), Topic: "t", Subscription: "s", Answer: a}}
	}
	cases := []judged{
		{name: "claim and ack", h: History{Claims: []*Claim{claim(at(1, 10, 20), 1, 1)}, Settles: []*Settle{settle(at(1, 30, 40), Ack, 1, OK), settle(at(1, 50, 60), Ack, 1, OK)}}},
		{name: "acked message delivered again", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 5000, 5010), 2, 2)}, Settles: []*Settle{settle(at(1, 30, 40), Ack, 1, OK)},
		}},
		{name: "message of an unanswered ack delivered again", h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 5000, 5010), 2, 2)}, Settles: []*Settle{settle(at(1, 30, -1), Ack, 1, Unknown)},
		}},
		{name: "two holders", wrong: true, h: History{Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 500, 510), 2, 2)}}},
		{name: "two holders within the clocks' tolerance", o: Options{Tolerance: ms(600)}, h: History{Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 500, 510), 2, 2)}}},
		{name: "claimed anew after the timeout", h: History{
			Claims:  []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 1005, 1015), 2, 2)},
			Settles: []*Settle{settle(at(1, 1100, 1110), Ack, 1, Refused), settle(at(2, 1200, 1210), Ack, 2, OK)},
		}},
		{name: "an old receipt is taken", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 1005, 1015), 2, 2)}, Settles: []*Settle{settle(at(1, 1100, 1110), Ack, 1, OK)},
		}},
		{name: "an old receipt releases", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 1005, 1015), 2, 2)}, Settles: []*Settle{at0(settle(at(1, 1100, 1110), Release, 1, OK))},
		}},
		{name: "a hold that stands is called lost", wrong: true, h: History{Claims: []*Claim{claim(at(1, 10, 20), 1, 1)}, Settles: []*Settle{settle(at(1, 30, 40), Ack, 1, Refused)}}},
		{name: "what is done is called lost", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1)}, Settles: []*Settle{settle(at(1, 30, 40), Ack, 1, OK), settle(at(1, 50, 60), Ack, 1, Refused)},
		}},
		{name: "released and claimed at once", h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 50, 60), 2, 2)}, Settles: []*Settle{at0(settle(at(1, 30, 40), Release, 1, OK))},
		}},
		{name: "claimed before its pause ends", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 50, 60), 2, 2)}, Settles: []*Settle{settle(at(1, 30, 40), Release, 1, OK)},
		}},
		{name: "extended hold kept", h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 1900, 1910), 2, 2)}, Settles: []*Settle{settle(at(1, 900, 910), Extend, 1, OK)},
		}},
		{name: "extended hold broken", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 1500, 1510), 2, 2)}, Settles: []*Settle{settle(at(1, 900, 910), Extend, 1, OK)},
		}},
		{name: "attempts do not grow", wrong: true, h: History{Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 2000, 2010), 2, 1)}}},
		{name: "uncounted release", h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 50, 60), 2, 1)}, Settles: []*Settle{uncounted(settle(at(1, 30, 40), Release, 1, OK))},
		}},
		{name: "a delivery that nobody got", h: History{Claims: []*Claim{claim(at(1, 10, 20), 1, 1), lost, claim(at(2, 2100, 2110), 2, 3)}}},
		{name: "a delivery that nobody got takes a receipt's claim", h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), lost, claim(at(2, 2100, 2110), 2, 3)}, Settles: []*Settle{settle(at(1, 2000, 2010), Ack, 1, Refused)},
		}},
		{name: "a delivery that nobody made", wrong: true, h: History{Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 2100, 2110), 2, 3)}}},
		{name: "a delivery that nobody got ends early", wrong: true, h: History{Claims: []*Claim{claim(at(1, 10, 20), 1, 1), lost, claim(at(2, 1500, 1510), 2, 3)}}},
		{name: "done and delivered after a seek", h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 50, 60), 2, 1)}, Settles: []*Settle{settle(at(1, 22, 25), Ack, 1, OK)}, Resets: seek(OK),
		}},
		{name: "a receipt of before a seek is lost", h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 50, 60), 2, 1)}, Settles: []*Settle{settle(at(1, 70, 80), Ack, 1, Refused)}, Resets: seek(OK),
		}},
		{name: "two holders after a seek", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 50, 60), 1, 1), claim(at(2, 70, 80), 2, 2)}, Resets: seek(OK),
		}},
		{name: "two holders just after a seek", o: Options{Stale: ms(15)}, h: History{
			Claims: []*Claim{claim(at(1, 50, 60), 1, 1), claim(at(2, 70, 80), 2, 1)}, Resets: seek(OK),
		}},
		{name: "acked after a seek and delivered again", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 50, 60), 1, 1), claim(at(2, 5000, 5010), 2, 2)}, Settles: []*Settle{settle(at(1, 70, 80), Ack, 1, OK)}, Resets: seek(OK),
		}},
		{name: "a seek that had no effect", wrong: true, h: History{
			Claims: []*Claim{claim(at(1, 10, 20), 1, 1), claim(at(2, 50, 60), 2, 1)}, Settles: []*Settle{settle(at(1, 22, 25), Ack, 1, OK)}, Resets: seek(Void),
		}},
		{name: "a dead letter", h: History{
			Claims:  []*Claim{{Span: at(1, 10, 20), Topic: "t", Subscription: "s", Hold: ms(1000), Answer: OK, Got: []Delivery{{ID: id(0), Body: "a", Claim: claimID(1), Attempt: 1, MayEnd: true}}}},
			Settles: []*Settle{at0(settle(at(1, 30, 40), Release, 1, OK)), settle(at(1, 50, 60), Ack, 1, OK)},
		}},
	}
	for i := range cases {
		cases[i].h.Produces = sent
	}
	judge(t, cases)
}
