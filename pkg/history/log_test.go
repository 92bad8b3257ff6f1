package history

import "testing"

// put is a produce call whose messages were acknowledged from an offset on.
func put(s Span, off int, bodies ...string) *Produce {
	p := &Produce{Span: s, Topic: "t"}
	for i, b := range bodies {
		p.Messages = append(p.Messages, Sent{Body: b, Answer: OK, At: id(off + i)})
	}
	return p
}

// tried is a produce call of one message that was not acknowledged.
func tried(s Span, body string, a Answer) *Produce {
	return &Produce{Span: s, Topic: "t", Messages: []Sent{{Body: body, Answer: a}}}
}

// read shows bodies from an offset on; "" is an offset that is passed over.
func read(s Span, from int, end bool, bodies ...string) *Read {
	r := &Read{Span: s, Topic: "t", Segment: "seg", From: id(from).Offset, Next: id(from + len(bodies)).Offset, AtEnd: end}
	for i, b := range bodies {
		if b != "" {
			r.Seen = append(r.Seen, Seen{id(from + i).Offset, b})
		}
	}
	return r
}

func sealed(r *Read) *Read {
	r.Sealed = true
	return r
}

func mayGo(p *Produce) *Produce {
	for i := range p.Messages {
		p.Messages[i].MayGo = true
	}
	return p
}

func TestLog(t *testing.T) {
	judge(t, []judged{
		{name: "appends and reads", h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a", "b"), put(at(2, 5, 30), 2, "c")},
			Reads:    []*Read{read(at(3, 0, 1), 0, true), read(at(3, 11, 12), 0, false, "a", "b"), read(at(3, 31, 40), 1, true, "b", "c")},
		}},
		{name: "a read under way sees what is not acknowledged yet", h: History{
			Produces: []*Produce{put(at(1, 0, 100), 0, "a")},
			Reads:    []*Read{read(at(2, 10, 20), 0, true, "a"), read(at(2, 30, 40), 0, true, "a")},
		}},
		{name: "what was seen vanishes", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 100), 0, "a")},
			Reads:    []*Read{read(at(2, 10, 20), 0, true, "a"), read(at(3, 30, 40), 0, true)},
		}},
		{name: "lost acknowledged write", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a")},
			Reads:    []*Read{read(at(2, 20, 30), 0, true)},
		}},
		{name: "acknowledged write replaced", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a"), put(at(2, 20, 30), 0, "b")},
			Reads:    []*Read{read(at(2, 40, 50), 0, true, "b")},
		}},
		{name: "acknowledged write passed over", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a", "b")},
			Reads:    []*Read{read(at(2, 20, 30), 0, true, "", "b")},
		}},
		{name: "expired write passed over", h: History{
			Produces: []*Produce{mayGo(put(at(1, 0, 10), 0, "a")), put(at(1, 11, 12), 1, "b")},
			Reads:    []*Read{read(at(2, 20, 30), 0, true, "", "b")},
		}},
		{name: "doubled write", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a"), put(at(1, 11, 12), 1, "b")},
			Reads:    []*Read{read(at(2, 20, 30), 0, true, "a", "b", "a")},
		}},
		{name: "doubled write of unknown fate", wrong: true, h: History{
			Produces: []*Produce{tried(at(1, 0, -1), "a", Unknown)},
			Reads:    []*Read{read(at(2, 20, 30), 0, true, "a"), read(at(2, 40, 50), 0, true, "a", "a")},
		}},
		{name: "stale read", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a"), put(at(1, 20, 30), 1, "b")},
			Reads:    []*Read{read(at(1, 40, 50), 0, true, "a")},
		}},
		{name: "an acknowledged batch is half there", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 100), 0, "a", "b")},
			Reads:    []*Read{read(at(2, 20, 30), 0, true, "a")},
		}},
		{name: "order of acknowledged writes turned round", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 1, "a"), put(at(1, 20, 30), 0, "b")},
		}},
		{name: "two writes at one offset", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a"), put(at(2, 0, 10), 0, "b")},
		}},
		{name: "a write of unknown fate comes late", h: History{
			Produces: []*Produce{tried(at(1, 0, -1), "a", Unknown), put(at(2, 10, 20), 0, "b")},
			Reads:    []*Read{read(at(2, 30, 40), 0, true, "b"), read(at(2, 50, 60), 0, true, "b", "a")},
		}},
		{name: "a write of unknown fate never seen takes an offset", h: History{
			Produces: []*Produce{tried(at(1, 0, -1), "a", Unknown), put(at(2, 10, 20), 1, "b")},
		}},
		{name: "nobody's message takes an offset", wrong: true, h: History{
			Produces: []*Produce{tried(at(1, 0, 5), "a", Void), put(at(2, 10, 20), 1, "b")},
		}},
		{name: "a refused write is there", wrong: true, h: History{
			Produces: []*Produce{tried(at(1, 0, 5), "a", Void)},
			Reads:    []*Read{read(at(2, 20, 30), 0, true, "a")},
		}},
		{name: "a message that nobody sent", wrong: true, h: History{
			Reads: []*Read{read(at(2, 20, 30), 0, true, "x")},
		}},
		{name: "a dead letter", o: Options{Copies: []string{"t"}}, h: History{
			Reads: []*Read{read(at(2, 20, 30), 0, true, "x")},
		}},
		{name: "a message read before it was sent", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 50, 60), 0, "a")},
			Reads:    []*Read{read(at(2, 20, 30), 0, true, "a")},
		}},
		{name: "sealed", h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a")},
			Reads:    []*Read{sealed(read(at(2, 20, 30), 0, true, "a"))},
		}},
		{name: "append after the seal", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a"), put(at(1, 40, 50), 1, "b")},
			Reads:    []*Read{sealed(read(at(2, 20, 30), 0, true, "a"))},
		}},
		{name: "a delivery shows what is not there", wrong: true, h: History{
			Produces: []*Produce{put(at(1, 0, 10), 0, "a")},
			Claims:   []*Claim{{Span: at(2, 20, 30), Topic: "t", Subscription: "s", Answer: OK, Got: []Delivery{{ID: id(0), Body: "b", Attempt: 1}}}},
		}},
	})
}
