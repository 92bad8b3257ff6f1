package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// held is what a client got by one claim call, and has not forgotten.
type held struct {
	sub      *subSpec
	receipts []queue.Receipt
	since    time.Time
}

func (l *workload) claim() bool {
	s := pick(l, pick(l, l.topics).subs)
	rng := l.w.rng
	req := consume.ClaimRequest{
		Topic: s.topic.name, Subscription: s.name, MaxMessages: []int{1, 3, 10, 50}[rng.IntN(4)],
		ByReference: rng.IntN(8) == 0,
	}
	if rng.IntN(3) == 0 {
		req.Wait = time.Duration(1+rng.IntN(5)) * time.Second
	}
	if rng.IntN(4) == 0 {
		req.Visibility = time.Duration(1+rng.IntN(10)) * time.Second
	}
	if rng.IntN(8) == 0 {
		req.MaxBytes = int64(1 + rng.IntN(5000))
	}
	var got consume.Claimed
	var err error
	inst := l.instance()
	recorded := l.w.rec.claim(s, req.Visibility)
	what := fmt.Sprintf("claim %s/%s: %d messages, wait %s, hold %s", s.topic.name, s.name, req.MaxMessages, req.Wait, req.Visibility)
	l.w.begin(inst, what, func(ctx context.Context) {
		got, err = inst.system.Consume.Claim(ctx, req)
	}, func(o *op) {
		l.unhurt(o, err)
		if l.said(o, err); o.killed || err != nil {
			return
		}
		l.w.rec.got(o, recorded, s, got.Deliveries)
		h := &held{sub: s, since: time.Now()}
		o.said = ""
		for i := range got.Deliveries {
			d := &got.Deliveries[i]
			l.delivered(o, d, &req)
			for j := range d.Count {
				off := d.Offset + queue.Offset(j) // #nosec G115 -- small
				h.receipts = append(h.receipts, queue.Receipt{Segment: d.Segment, Claim: d.Claim, Lo: off, Hi: off + 1})
			}
			o.said += fmt.Sprintf("%d of %s-%d by %s, attempt %d; ", d.Count, d.Segment, d.Offset, d.Claim.String()[:6], d.Attempt)
		}
		if len(h.receipts) > 0 {
			l.held = append(l.held, h)
		}
		if n := len(h.receipts); n > req.MaxMessages {
			l.w.find("claim", "%s got %d messages, more than %d", o.label, n, req.MaxMessages)
		}
	})
	return true
}

// delivered holds a delivery against the truth.
func (l *workload) delivered(o *op, d *consume.Delivery, req *consume.ClaimRequest) {
	m := l.w.model
	by, ok := m.claims[d.Claim]
	key := by.cursor
	if !ok || key.PK != meta.CursorKey(subOf(key), d.Segment).PK {
		l.w.find("delivery", "%s got claim %s of %s, which was never made", o.label, d.Claim, d.Segment)
		return
	}
	hold := req.Visibility
	if sub := m.subs[subOf(key)]; hold == 0 && sub != nil {
		hold = sub.VisibilityTimeout
	}
	now := d.ClaimExpires.Add(-hold)
	for i, got := range l.contents(o, d) {
		id := queue.MessageID{Segment: d.Segment, Offset: d.Offset + queue.Offset(i)} // #nosec G115 -- small
		want := m.logs[d.Segment].msgs[id.Offset]
		switch {
		case got.uid != want.uid || got.edit != want.edit:
			l.w.find("delivery", "%s got %q as %s, which is %q", o.label, got.uid, id, want.uid)
		case want.expires != 0 && want.expires <= now:
			l.w.find("expired", "%s got %s, which had expired at %d, at %d", o.label, id, want.expires, now)
		case want.visible > by.at.Add(tolerance):
			l.w.find("early", "%s got %s %s early", o.label, id, want.visible.Sub(by.at))
		}
	}
}

// subOf is the subscription of a cursor's key: c/<subscription>/<segment>.
func subOf(key meta.Key) queue.SubscriptionID {
	const idChars = 16
	return queue.SubscriptionID(key.PK[2 : 2+idChars])
}

// contents decodes a delivery as a client does.
func (l *workload) contents(o *op, d *consume.Delivery) []logged {
	data := d.Data
	if d.Presigned != nil {
		var err error
		span := blob.Span{Pos: d.Ref.Pos, Len: d.Ref.Len}
		if data, err = l.w.bodies.Get(l.w.background(), d.Presigned.URL, span, nil); err != nil {
			l.w.find("delivery", "%s cannot fetch %s: %v", o.label, d.Presigned.URL, err)
			return nil
		}
	}
	if d.Ref.Kind == meta.RefPayload {
		uid, edit := uidOf(data)
		return []logged{{uid: uid, edit: edit}}
	}
	r, err := batch.Open(data)
	if err == nil {
		err = r.Seek(int(d.First), d.Count)
	}
	var out []logged
	var rec batch.Record
	for err == nil && r.Next(&rec) {
		uid, edit := uidOf(rec.Body)
		out = append(out, logged{uid: uid, edit: edit, key: string(rec.Key)})
	}
	if len(out) != d.Count {
		l.w.find("delivery", "%s got %s-%d, which does not decode: %v", o.label, d.Segment, d.Offset, err)
	}
	return out
}

// settleSome acks, releases or extends some of what a client holds, or forgets it.
func (l *workload) settleSome() bool {
	if len(l.held) == 0 {
		return false
	}
	rng := l.w.rng
	at := rng.IntN(len(l.held))
	if len(l.held) > 40 {
		l.held = slices.Delete(l.held, at, at+1) // forgotten: left to expire
		return false
	}
	h := l.held[at]
	receipts := h.receipts
	if rng.IntN(3) == 0 {
		i := rng.IntN(len(receipts))
		receipts = receipts[i : i+1+rng.IntN(len(receipts)-i)]
	}
	switch n := rng.IntN(20); {
	case n < 12:
		l.ack(h, receipts)
	case n < 16:
		l.release(h, receipts)
	case n < 18:
		l.extend(h, receipts)
	}
	if rng.IntN(2) == 0 {
		l.held = slices.Delete(l.held, at, at+1)
	}
	return true
}

func (l *workload) ack(h *held, receipts []queue.Receipt) {
	acked := l.w.model.acked
	for _, r := range receipts {
		if acked[r.Claim] == nil {
			acked[r.Claim] = make(map[queue.Offset]bool)
		}
		acked[r.Claim][r.Lo] = true
	}
	var errs []error
	var err error
	inst := l.instance()
	recorded := l.w.rec.settle(h, receipts, history.Settle{Kind: history.Ack})
	what := fmt.Sprintf("ack %s/%s: %d of claim %s", h.sub.topic.name, h.sub.name, len(receipts), receipts[0].Claim.String()[:6])
	l.w.begin(inst, what, func(ctx context.Context) {
		errs, err = inst.system.Consume.Ack(ctx, h.sub.topic.name, h.sub.name, receipts)
	}, func(o *op) {
		l.w.rec.settled(o, recorded, errs, err)
		if l.said(o, err); o.killed || err != nil {
			return
		}
		l.eachReceipt(o, receipts, errs, func(r *queue.Receipt, err error) {
			done, holds := l.w.model.done(r.Claim, r.Lo)
			switch {
			case err == nil && !done && !l.doneNow(h, r):
				l.w.find("ack", "%s acked %s-%d, and it is not done", o.label, r.Segment, r.Lo)
			case queue.CodeOf(err) == queue.CodeClaimLost && err != nil && holds && l.current(h, r):
				l.w.find("ack", "%s lost %s-%d, and its claim holds it", o.label, r.Segment, r.Lo)
			}
		})
	})
}

// doneNow reports whether a message is done in the subscription of that name now: a receipt from before
// a seek is void, but what is done anyway is no error.
func (l *workload) doneNow(h *held, r *queue.Receipt) bool {
	for _, sub := range l.subs(h.sub.topic.name) {
		cur, _, err := meta.Fetch[*meta.Cursor](l.w.background(), l.w.truth, meta.CursorKey(sub.ID, r.Segment))
		if err == nil && sub.Name == h.sub.name && cur.IsDone(r.Lo) {
			return true
		}
	}
	return false
}

// current reports whether a receipt's subscription is the one of that name now, so that its claim counts.
func (l *workload) current(h *held, r *queue.Receipt) bool {
	name, _, err := meta.Fetch[*meta.Name](l.w.background(), l.w.truth, meta.NameKey(h.sub.topic.name))
	if err != nil {
		return false
	}
	sub, _, err := meta.Fetch[*meta.Subscription](l.w.background(), l.w.truth, meta.SubscriptionKey(name.Topic, h.sub.name))
	return err == nil && sub.ID == subOf(l.w.model.claims[r.Claim].cursor)
}

// eachReceipt judges the answers of one call, and counts them for the history.
func (l *workload) eachReceipt(o *op, receipts []queue.Receipt, errs []error, judge func(*queue.Receipt, error)) {
	if len(errs) != len(receipts) {
		l.w.find("answer", "%s got %d answers for %d receipts", o.label, len(errs), len(receipts))
		return
	}
	counts := make(map[string]int)
	for i := range receipts {
		what := "ok"
		if errs[i] != nil {
			what = string(queue.CodeOf(errs[i]))
			if k := queue.KindOf(errs[i]); k == queue.KindInternal || k == queue.KindCorrupt {
				l.w.find("errors", "%s fails with %v", o.label, errs[i])
			}
		}
		counts[what]++
		judge(&receipts[i], errs[i])
	}
	o.said = fmt.Sprint(counts)
}

func (l *workload) release(h *held, receipts []queue.Receipt) {
	rng := l.w.rng
	how := consume.Release{Uncounted: rng.IntN(3) == 0, DeadLetter: h.sub.config.DeadLetterTopic != "" && rng.IntN(4) == 0}
	if rng.IntN(2) == 0 {
		how.HasDelay, how.Delay = true, time.Duration(rng.IntN(8))*time.Second
	}
	if rng.IntN(3) == 0 {
		how.Reason = "because"
	}
	var errs []error
	var err error
	inst := l.instance()
	recorded := l.w.rec.settle(h, receipts, history.Settle{Kind: history.Release, For: how.Delay, Uncounted: how.Uncounted})
	what := fmt.Sprintf("release %s/%s: %d of claim %s %+v", h.sub.topic.name, h.sub.name, len(receipts), receipts[0].Claim.String()[:6], how)
	l.w.begin(inst, what, func(ctx context.Context) {
		errs, err = inst.system.Consume.Release(ctx, h.sub.topic.name, h.sub.name, receipts, how)
	}, func(o *op) {
		l.w.rec.settled(o, recorded, errs, err)
		if l.said(o, err); o.killed || err != nil {
			return
		}
		l.eachReceipt(o, receipts, errs, func(r *queue.Receipt, err error) {
			if _, holds := l.w.model.done(r.Claim, r.Lo); err == nil && holds {
				l.w.find("release", "%s released %s-%d, and its claim still holds it", o.label, r.Segment, r.Lo)
			}
		})
	})
}

func (l *workload) extend(h *held, receipts []queue.Receipt) {
	d := time.Duration(1+l.w.rng.IntN(20)) * time.Second
	var errs []error
	var err error
	inst := l.instance()
	recorded := l.w.rec.settle(h, receipts, history.Settle{Kind: history.Extend, For: d})
	what := fmt.Sprintf("extend %s/%s: %d of claim %s by %s", h.sub.topic.name, h.sub.name, len(receipts), receipts[0].Claim.String()[:6], d)
	l.w.begin(inst, what, func(ctx context.Context) {
		errs, err = inst.system.Consume.Extend(ctx, h.sub.topic.name, h.sub.name, receipts, d)
	}, func(o *op) {
		l.w.rec.settled(o, recorded, errs, err)
		if l.said(o, err); o.killed || err != nil {
			return
		}
		l.eachReceipt(o, receipts, errs, func(*queue.Receipt, error) {})
	})
}
