package sim

import (
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// recording takes down what clients see, for pkg/history. Its methods do nothing in a run that is not recorded.
type recording struct {
	w   *world
	rec *history.Recorder
}

func newRecording(w *world) *recording {
	r := &recording{w: w}
	if w.opts.Record {
		r.rec = history.New(func() time.Duration { return time.Since(w.began) })
	}
	return r
}

func (r *recording) on() bool { return r.rec != nil }

// judged is what Check must know of a recorded run.
func judged(opts Options) history.Options {
	o := history.Options{Tolerance: tolerance, Stale: 2 * time.Second, Copies: []string{deadName}, Unsure: true}
	if opts.Mutation != nil {
		o.Limit = 10 * time.Second
	}
	return o
}

// answered is what an error says of an outcome; lost is the code that the operation's model knows.
func answered(err error, lost ...queue.Code) history.Answer {
	switch {
	case err == nil:
		return history.OK
	case uncertain(err):
		return history.Unknown
	}
	for _, code := range lost {
		if queue.CodeOf(err) == code {
			return history.Refused
		}
	}
	return history.Void
}

// goes reports whether a message may leave by itself.
func (r *recording) goes(uid string) bool {
	l := r.w.model.letters[uid]
	return l == nil || l.call == nil || l.call.messages[l.pos].TTL > 0 || l.call.p.topic.config.DefaultTTL > 0
}

func (r *recording) call(c *produceCall) {
	if !r.on() {
		return
	}
	op := history.Produce{Span: history.Span{Client: c.number % 16}, Topic: c.p.topic.name}
	for i := range c.fate {
		uid := c.fate[i].uid
		op.Messages = append(op.Messages, history.Sent{Body: uid, MayGo: r.goes(uid)})
	}
	c.recorded = r.rec.Produce(op)
}

// tried takes down what is known of a call after a try; over says that there is no other.
func (r *recording) tried(c *produceCall, over bool) {
	if !r.on() {
		return
	}
	fill := func(op *history.Produce) {
		for i := range c.fate {
			m := &op.Messages[i]
			switch at, ok := c.places[i]; {
			case ok:
				m.Answer, m.At = history.OK, at
			case c.refusedFor(i):
				m.Answer = history.Void
			default:
				m.Answer = history.Unknown
			}
		}
	}
	if over {
		c.recorded.End(fill)
		return
	}
	c.recorded.Fill(fill)
}

// now is when a read begins.
func (r *recording) now() time.Duration {
	if !r.on() {
		return 0
	}
	return r.rec.Now()
}

// show takes down a read of [from, next) of a segment, or, if next is 0, of just what it shows.
func (r *recording) show(o *op, began time.Duration, read history.Read, all []consume.Delivery) {
	if !r.on() {
		return
	}
	var at []queue.SegmentID
	for i := range all {
		d := &all[i]
		for j, got := range r.w.load.contents(o, d) {
			at = append(at, d.Segment)
			read.Seen = append(read.Seen, history.Seen{Offset: d.Offset + queue.Offset(j), Body: got.uid}) // #nosec G115 -- small
		}
	}
	if read.Next > 0 {
		r.rec.Read(began, read)
		return
	}
	for i, s := range read.Seen {
		one := read
		one.Segment, one.From, one.Next, one.Seen = at[i], s.Offset, s.Offset+1, read.Seen[i:i+1]
		r.rec.Read(began, one)
	}
}

func (r *recording) claim(s *subSpec, hold time.Duration) *history.Pending[history.Claim] {
	if !r.on() {
		return nil
	}
	if hold == 0 {
		hold = s.config.VisibilityTimeout
	}
	return r.rec.Claim(history.Claim{Span: history.Span{Client: 20 + r.w.opCount%16}, Topic: s.topic.name, Subscription: s.name, Hold: hold})
}

// got takes down what a claim call handed out.
func (r *recording) got(o *op, p *history.Pending[history.Claim], s *subSpec, all []consume.Delivery) {
	if p == nil {
		return
	}
	p.End(func(c *history.Claim) {
		c.Answer = history.OK
		for i := range all {
			d := &all[i]
			for j, body := range r.w.load.contents(o, d) {
				c.Got = append(c.Got, history.Delivery{
					ID:   queue.MessageID{Segment: d.Segment, Offset: d.Offset + queue.Offset(j)}, // #nosec G115 -- small
					Body: body.uid, Claim: d.Claim, Attempt: d.Attempt,
					Ends:   d.ClaimExpires.Time().Sub(r.w.began),
					MayEnd: s.config.MaxDeliveries > 0 || r.goes(body.uid),
				})
			}
		}
	})
}

func (r *recording) settle(h *held, receipts []queue.Receipt, op history.Settle) *history.Pending[history.Settle] {
	if !r.on() {
		return nil
	}
	op.Client, op.Topic, op.Subscription = 40+r.w.opCount%16, h.sub.topic.name, h.sub.name
	for _, c := range receipts {
		op.Receipts = append(op.Receipts, history.Settled{ID: queue.MessageID{Segment: c.Segment, Offset: c.Lo}, Claim: c.Claim})
	}
	return r.rec.Settle(op)
}

// settled takes down the answers of a settle; errs is nil for a call that failed as a whole.
func (r *recording) settled(o *op, p *history.Pending[history.Settle], errs []error, err error) {
	if p == nil || o.killed || err == nil && len(errs) == 0 {
		return
	}
	p.End(func(op *history.Settle) {
		for i := range op.Receipts {
			of := err
			if of == nil {
				of = errs[i]
			}
			op.Receipts[i].Answer = answered(of, queue.CodeClaimLost)
		}
	})
}

func (r *recording) reset(topic, sub string) *history.Pending[history.Reset] {
	if !r.on() {
		return nil
	}
	return r.rec.Reset(history.Reset{Topic: topic, Subscription: sub})
}

// wasReset takes down how a call ended after which a subscription begins anew; changed is false if it found what it
// was to make.
func (r *recording) wasReset(o *op, p *history.Pending[history.Reset], err error, changed bool) {
	if p == nil || o.killed {
		return
	}
	p.End(func(op *history.Reset) {
		if op.Answer = answered(err); op.Answer == history.OK && !changed {
			op.Answer = history.Void
		}
	})
}
