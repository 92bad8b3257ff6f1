package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// workload is what clients do. It is only ever used by the scheduler.
type workload struct {
	w *world
	// topics are the names that clients use, the dead-letter topic last.
	topics    []*topicSpec
	producers []*producer
	held      []*held
	// waiting are delayed messages whose id a client knows.
	waiting []*waitingLetter
	calls   int
	actions []action
	weights []int
	// cancels counts the cancellations under way, or of unknown outcome, by message.
	cancels map[string]int
	// switched are the topics whose config was changed.
	switched map[string]bool
}

// topicSpec is how clients make a topic.
type topicSpec struct {
	name   string
	config topics.Config
	subs   []*subSpec
}

type subSpec struct {
	topic  *topicSpec
	name   string
	config topics.SubscriptionConfig
}

const deadName = "dead"

func newWorkload(w *world) *workload {
	l := &workload{w: w, cancels: make(map[string]int), switched: make(map[string]bool)}
	for i := range 1 + w.rng.IntN(3) {
		l.topics = append(l.topics, l.newTopic(fmt.Sprintf("t%d", i)))
	}
	dead := &topicSpec{name: deadName, config: topics.Config{MinSegments: 1 + w.rng.IntN(2)}}
	dead.subs = []*subSpec{l.newSub(dead, "s0")}
	l.topics = append(l.topics, dead)
	if w.style.narrow {
		l.topics[0].config = topics.Config{MinSegments: 1}
	}
	for i := range 2 + w.rng.IntN(6) {
		p := &producer{id: fmt.Sprintf("p%d", i), topic: l.topics[w.rng.IntN(len(l.topics))], guard: guardKind(w.rng.IntN(3))}
		if w.style.narrow {
			p.topic = l.topics[0]
		}
		p.last = make(map[string]queue.MessageID)
		l.producers = append(l.producers, p)
	}
	l.actions = actions
	if w.rec.on() {
		l.actions = slices.Concat(actions, recordedActions)
	}
	l.weights = make([]int, len(l.actions))
	for i, a := range l.actions {
		if l.weights[i] = a.weight; w.off(a.name) {
			l.weights[i] = 0
		}
		if w.style.narrow && a.name == "produce" {
			l.weights[i] *= 6
		}
		if w.style.aged && a.name == "compact" {
			l.weights[i] *= 4
		}
		if a.rare && w.rng.IntN(2) == 0 {
			l.weights[i] = 0
		}
	}
	return l
}

func (l *workload) newTopic(name string) *topicSpec {
	rng := l.w.rng
	t := &topicSpec{name: name, config: topics.Config{MinSegments: []int{1, 1, 1, 2, 3, 8}[rng.IntN(6)]}}
	if rng.IntN(2) == 0 && !l.w.off("delayed topics") {
		t.config.DefaultDelay = time.Duration(1+rng.IntN(20)) * time.Second
		t.config.MaxDelay = time.Minute
	}
	if rng.IntN(4) == 0 {
		t.config.DefaultTTL = time.Duration(20+rng.IntN(100)) * time.Second
	}
	l.scaling(&t.config)
	for i := range 1 + rng.IntN(3) {
		t.subs = append(t.subs, l.newSub(t, fmt.Sprintf("s%d", i)))
	}
	return t
}

func (l *workload) newSub(t *topicSpec, name string) *subSpec {
	rng := l.w.rng
	s := &subSpec{topic: t, name: name}
	s.config.VisibilityTimeout = time.Duration(1+rng.IntN(20)) * time.Second
	if t.name != deadName && rng.IntN(2) == 0 {
		s.config.MaxDeliveries, s.config.DeadLetterTopic = 1+rng.IntN(4), deadName
	}
	if rng.IntN(3) == 0 {
		s.config.Backoff = []time.Duration{time.Duration(rng.IntN(3)) * time.Second, 5 * time.Second}
	}
	if rng.IntN(4) == 0 {
		s.config.MaxInFlight = 1 + rng.IntN(20)
	}
	if rng.IntN(4) == 0 {
		s.config.Start = topics.Start{Kind: topics.StartLatest}
	}
	return s
}

// action is one kind of op that clients begin.
type action struct {
	name   string
	weight int
	// rare ones are absent from half of the runs.
	rare  bool
	begin func(l *workload) bool
}

var actions = []action{
	{"produce", 60, false, (*workload).produce},
	{"claim", 40, false, (*workload).claim},
	{"settle", 50, false, (*workload).settleSome},
	{"create-topic", 3, false, func(l *workload) bool { return l.createTopic(pick(l, l.topics)) }},
	{"create-subscription", 4, false, func(l *workload) bool { return l.createSub(pick(l, pick(l, l.topics).subs)) }},
	{"edit", 6, true, (*workload).edit},
	{"cancel", 4, true, (*workload).cancelOne},
	{"promote", 4, false, (*workload).promote},
	{"peek", 3, true, (*workload).peek},
	{"records", 6, false, (*workload).records},
	{"message", 4, false, (*workload).message},
	{"status", 2, true, (*workload).status},
	{"list", 2, true, (*workload).list},
	{"seek", 1, true, (*workload).seek},
	{"delete-subscription", 1, true, (*workload).deleteSub},
	{"delete-topic", 1, true, (*workload).deleteTopic},
	{"update-topic", 1, true, (*workload).updateTopic},
	{"sweep", 2, true, (*workload).sweep},
	{"compact", 5, false, (*workload).compact},
	{"split", 4, true, (*workload).split},
	{"merge", 4, true, (*workload).merge},
	{"lead", 8, false, (*workload).lead},
	{"rescale", 2, true, (*workload).rescale},
}

func pick[T any](l *workload, list []T) T { return list[l.w.rng.IntN(len(list))] }

// begin starts an op by chance. The first ops make the topics and subscriptions.
func (l *workload) begin() {
	if n := l.w.opCount; n < len(l.topics) {
		l.createTopic(l.topics[len(l.topics)-1-n])
		return
	}
	var subs []*subSpec
	for _, t := range l.topics {
		subs = append(subs, t.subs...)
	}
	if n := l.w.opCount - len(l.topics); n < len(subs) {
		l.createSub(subs[n])
		return
	}
	for range 10 {
		total := 0
		for _, n := range l.weights {
			total += n
		}
		x := l.w.rng.IntN(max(total, 1))
		for i, n := range l.weights {
			if x < n {
				if l.actions[i].begin(l) {
					return
				}
				break
			}
			x -= n
		}
	}
}

func (l *workload) instance() *instance { return pick(l, l.w.instances) }

func (l *workload) createTopic(t *topicSpec) bool {
	var err error
	inst := l.instance()
	l.w.begin(inst, "create-topic "+t.name, func(ctx context.Context) {
		_, _, err = inst.system.Topics.Create(ctx, t.name, t.config)
	}, func(o *op) { l.said(o, err) })
	return true
}

func (l *workload) createSub(s *subSpec) bool {
	var err error
	created := false
	inst := l.instance()
	recorded := l.w.rec.reset(s.topic.name, s.name)
	l.w.begin(inst, "create-subscription "+s.topic.name+"/"+s.name, func(ctx context.Context) {
		_, created, err = inst.system.Topics.CreateSubscription(ctx, s.topic.name, s.name, s.config)
	}, func(o *op) {
		l.said(o, err)
		l.w.rec.wasReset(o, recorded, err, created)
	})
	return true
}

// said notes an outcome, and that no fault may show as a fault of ours.
func (l *workload) said(o *op, err error) {
	if o.killed {
		return
	}
	o.said = "ok"
	if err != nil {
		o.said = short(err.Error())
		switch queue.KindOf(err) {
		case queue.KindInternal, queue.KindCorrupt:
			l.w.find("errors", "%s (%s) fails with %v", o.label, o.what, err)
		}
	}
}

func (l *workload) deleteTopic() bool {
	t := pick(l, l.topics)
	var err error
	inst := l.instance()
	l.w.begin(inst, "delete-topic "+t.name, func(ctx context.Context) {
		err = inst.system.Topics.Delete(ctx, t.name)
	}, func(o *op) { l.said(o, err) })
	return true
}

func (l *workload) updateTopic() bool {
	t := pick(l, l.topics)
	if t.name == deadName {
		return false
	}
	delay := time.Duration(l.w.rng.IntN(2)*(1+l.w.rng.IntN(10))) * time.Second
	patch := topics.Patch{DefaultDelay: &delay}
	var err error
	inst := l.instance()
	l.w.begin(inst, fmt.Sprintf("update-topic %s delay %s", t.name, delay), func(ctx context.Context) {
		_, err = inst.system.Topics.Update(ctx, t.name, patch)
	}, func(o *op) { l.said(o, err) })
	l.switched[t.name] = true
	return true
}

func (l *workload) deleteSub() bool {
	s := pick(l, pick(l, l.topics).subs)
	var err error
	inst := l.instance()
	recorded := l.w.rec.reset(s.topic.name, s.name)
	l.w.begin(inst, "delete-subscription "+s.topic.name+"/"+s.name, func(ctx context.Context) {
		err = inst.system.Topics.DeleteSubscription(ctx, s.topic.name, s.name)
	}, func(o *op) {
		l.said(o, err)
		l.w.rec.wasReset(o, recorded, err, true)
	})
	return true
}

func (l *workload) seek() bool {
	s := pick(l, pick(l, l.topics).subs)
	start := topics.Start{Kind: topics.StartKind(l.w.rng.IntN(3))} // #nosec G115 -- below 3
	if start.Kind == topics.StartTime {
		start.Time = l.w.clients.now().Add(-time.Duration(l.w.rng.IntN(60)) * time.Second)
	}
	var err error
	inst := l.instance()
	recorded := l.w.rec.reset(s.topic.name, s.name)
	l.w.begin(inst, "seek "+s.topic.name+"/"+s.name, func(ctx context.Context) {
		_, err = inst.system.Topics.Seek(ctx, s.topic.name, s.name, start)
	}, func(o *op) {
		l.said(o, err)
		l.w.rec.wasReset(o, recorded, err, true)
	})
	return true
}

func (l *workload) status() bool {
	s := pick(l, pick(l, l.topics).subs)
	var err error
	inst := l.instance()
	l.w.begin(inst, "status "+s.topic.name+"/"+s.name, func(ctx context.Context) {
		if _, err = inst.system.Consume.Status(ctx, s.topic.name, s.name); err == nil {
			_, err = inst.system.Topics.Status(ctx, s.topic.name)
		}
	}, func(o *op) { l.said(o, err) })
	return true
}

func (l *workload) promote() bool {
	var err error
	n := 0
	inst := l.instance()
	l.w.begin(inst, "promote", func(ctx context.Context) {
		n, _, err = inst.system.Delay.PromoteAll(ctx)
	}, func(o *op) {
		if err == nil {
			o.said = fmt.Sprintf("%d messages", n)
			return
		}
		o.said = short(err.Error())
	})
	return true
}

// sweep lets the store remove what has expired, as DynamoDB does, by its own clock and some time later.
func (l *workload) sweep() bool {
	n := l.w.truth.Sweep(l.w.clients.now().Add(-time.Duration(l.w.rng.IntN(60)) * time.Second))
	l.w.say("the store removes %d expired records", n)
	return true
}
