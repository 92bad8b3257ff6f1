package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// topicID is the topic that a name leads to in the truth; "" if there is none.
func (l *workload) topicID(name string) queue.TopicID {
	rec, _, err := meta.Fetch[*meta.Name](l.w.background(), l.w.truth, meta.NameKey(name))
	if err != nil {
		return ""
	}
	return rec.Topic
}

// drain heals everything, lets what is still on its way arrive, and takes all messages out of all
// subscriptions: whatever is left then was lost.
func (w *world) drain() {
	w.say("everything is healed")
	for _, i := range w.instances {
		w.thaw(i)
	}
	w.healed.Store(true)
	w.idle()
	for w.result.Finding == nil && w.arriveStray() {
		w.idle()
	}
	time.Sleep(2 * time.Minute)
	w.idle()
	w.instances = []*instance{w.newInstance()}
	for _, t := range w.load.topics {
		w.load.createTopic(t)
		w.idle()
	}
	w.promoteAll()
	w.leadOn()
	if w.rec.on() {
		w.readOn()
	}
	// The dead-letter topic comes last.
	for _, t := range w.load.topics {
		for _, s := range w.load.subs(t.name) {
			w.drainSub(t.name, s)
		}
	}
	w.account()
	if w.result.Finding == nil {
		w.model.audit()
		w.collect()
	}
}

// idle carries on until no op is under way, without faults.
func (w *world) idle() {
	for w.settle(); len(w.ops) > 0 && w.result.Finding == nil; w.settle() {
		w.step++
		if !w.serveOne() {
			time.Sleep(50 * time.Millisecond)
		}
		if w.step > w.opts.Steps+200_000 {
			w.find("end", "ops do not end: %s", w.ops[0].what)
			return
		}
	}
}

func (w *world) promoteAll() {
	for range 50 {
		var next queue.Millis
		var err error
		inst := w.instances[0]
		w.begin(inst, "promote", func(ctx context.Context) {
			_, next, err = inst.system.Delay.PromoteAll(ctx)
		}, func(o *op) { w.load.said(o, err) })
		w.idle()
		if err != nil {
			w.find("delayed", "nothing fails any more, and the backstop cannot promote: %v", err)
		}
		if next == 0 || w.result.Finding != nil {
			return
		}
		time.Sleep(time.Minute)
	}
	w.find("delayed", "the delayed index does not become empty")
}

// subs are the subscriptions of a topic in the truth.
func (l *workload) subs(topic string) []*meta.Subscription {
	page, err := l.w.truth.Query(l.w.background(), meta.Range{
		PK: meta.TopicPK(l.topicID(topic)), From: meta.SubscriptionPrefix, To: meta.SubscriptionRangeEnd, Limit: meta.MaxQueryLimit,
	})
	if err != nil {
		return nil
	}
	var out []*meta.Subscription
	for _, item := range page.Items {
		if s, ok := item.Record.(*meta.Subscription); ok {
			out = append(out, s)
		}
	}
	return out
}

// spec is how clients made a subscription.
func (l *workload) spec(topic, name string) *subSpec {
	for _, t := range l.topics {
		for _, s := range t.subs {
			if t.name == topic && s.name == name {
				return s
			}
		}
	}
	return nil
}

// drainSub claims and acks until a subscription has nothing left.
func (w *world) drainSub(topic string, sub *meta.Subscription) {
	inst := w.instances[0]
	const patience = 60
	for best, stalled := w.left(topic, sub), 0; stalled < patience; stalled++ {
		left := w.left(topic, sub)
		if left == 0 || w.result.Finding != nil {
			return
		}
		if left < best {
			best, stalled = left, 0
		}
		var got consume.Claimed
		var err error
		req := consume.ClaimRequest{Topic: topic, Subscription: sub.Name, MaxMessages: 500, MaxBytes: queue.MaxClaimBytes}
		spec := w.load.spec(topic, sub.Name)
		recorded := w.rec.claim(spec, 0)
		w.begin(inst, fmt.Sprintf("drain %s/%s, %d left", topic, sub.Name, left), func(ctx context.Context) {
			got, err = inst.system.Consume.Claim(ctx, req)
		}, func(o *op) {
			w.load.said(o, err)
			for i := range got.Deliveries {
				w.load.delivered(o, &got.Deliveries[i], &req)
			}
			if err == nil {
				w.rec.got(o, recorded, spec, got.Deliveries)
			}
		})
		w.idle()
		if len(got.Deliveries) == 0 {
			time.Sleep(30 * time.Second)
			continue
		}
		h := &held{sub: spec}
		for i := range got.Deliveries {
			d := &got.Deliveries[i]
			for j := range d.Count {
				off := d.Offset + queue.Offset(j) // #nosec G115 -- small
				h.receipts = append(h.receipts, queue.Receipt{Segment: d.Segment, Claim: d.Claim, Lo: off, Hi: off + 1})
			}
		}
		w.load.ack(h, h.receipts)
		w.idle()
	}
	w.find("drain", "%s/%s cannot be drained: %d left", topic, sub.Name, w.left(topic, sub))
}

// left counts the messages of a subscription that are not done and have not expired.
func (w *world) left(topic string, sub *meta.Subscription) int {
	n := 0
	id := w.load.topicID(topic)
	for _, seg := range w.model.order {
		log := w.model.logs[seg]
		if log.topic != id {
			continue
		}
		cur, _, err := meta.Fetch[*meta.Cursor](w.background(), w.truth, meta.CursorKey(sub.ID, seg))
		if err != nil {
			cur = w.model.freshCursor(&meta.Cursor{Subscription: sub.ID, Segment: seg})
		}
		for off := cur.Floor; int(off) < len(log.msgs); off++ {
			if e := log.msgs[off].expires; !cur.IsDone(off) && (e == 0 || e > w.clients.now()) {
				n++
			}
		}
	}
	return n
}

// account asks of every message that was acknowledged where it is.
func (w *world) account() {
	for _, uid := range sortedKeys(w.model.letters) {
		l := w.model.letters[uid]
		if l.call == nil || !l.call.fate[l.pos].acked || w.result.Finding != nil {
			continue
		}
		somewhere := false
		for _, s := range l.states {
			somewhere = somewhere || s.over() || s.waiting && !w.current(l, s)
		}
		if !somewhere {
			w.find("account", "%s was acknowledged and is nowhere", uid)
		}
	}
	if w.result.Finding == nil {
		w.say("every message is accounted for: %d", len(w.model.letters))
	}
}

// current reports whether a state is of a topic that its name still leads to: what waits in the index of
// a deleted topic waits for ever.
func (w *world) current(l *letter, s *state) bool {
	for id, have := range l.states {
		if have == s {
			return slices.ContainsFunc(w.load.topics, func(t *topicSpec) bool { return w.load.topicID(t.name) == id })
		}
	}
	return false
}
