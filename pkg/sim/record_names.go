package sim

import (
	"context"
	"fmt"

	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// nameOp makes, deletes, finds or lists a topic that nothing else uses.
func (l *workload) nameOp() bool {
	rng := l.w.rng
	// Names come and go, so that no history of one becomes long.
	name := fmt.Sprintf("n%d.%d", l.w.opCount/400, rng.IntN(2))
	call := history.Name{Span: history.Span{Client: rng.IntN(16)}, Name: name, Kind: history.NameKind(rng.IntN(4))} // #nosec G115 -- below 4
	config := topics.Config{MinSegments: 1 + rng.IntN(2)}
	call.Config = fmt.Sprint(config.MinSegments)
	inst := l.instance()
	recorded := l.w.rec.rec.Name(call)
	var id queue.TopicID
	var err error
	l.w.begin(inst, fmt.Sprintf("name %s %d", name, call.Kind), func(ctx context.Context) {
		var status topics.Status
		switch call.Kind {
		case history.Create:
			status, _, err = inst.system.Topics.Create(ctx, name, config)
		case history.Delete:
			err = inst.system.Topics.Delete(ctx, name)
		case history.Get:
			status, err = inst.system.Topics.Status(ctx, name)
		case history.List:
			var page []topics.Listed
			if page, _, err = inst.system.Topics.List(ctx, name, "", 1); err == nil && len(page) > 0 {
				status.ID = page[0].ID
			}
		}
		id = status.ID
	}, func(o *op) {
		if l.said(o, err); o.killed {
			return
		}
		recorded.End(func(op *history.Name) {
			op.Answer, op.ID = answered(err, queue.CodeTopicExists, queue.CodeTopicNotFound), string(id)
		})
	})
	return true
}

// subscriptionName makes, deletes, finds or lists a subscription that nothing else uses, or makes or deletes its topic.
func (l *workload) subscriptionName() bool {
	rng := l.w.rng
	topic := fmt.Sprintf("st%d", l.w.opCount/300)
	call := history.Name{Span: history.Span{Client: rng.IntN(16)}, Name: topic + "/s", Kind: history.NameKind(rng.IntN(4))} // #nosec G115 -- below 4
	config := topics.SubscriptionConfig{MaxInFlight: 1 + rng.IntN(2)}
	call.Config = fmt.Sprint(config.MaxInFlight)
	inst := l.instance()
	switch rng.IntN(16) {
	case 0:
		call.Kind = history.Clear
	case 1, 2, 3:
		var err error
		l.w.begin(inst, "create-topic "+topic, func(ctx context.Context) {
			_, _, err = inst.system.Topics.Create(ctx, topic, topics.Config{})
		}, func(o *op) { l.said(o, err) })
		return true
	}
	recorded := l.w.rec.rec.Name(call)
	var id queue.SubscriptionID
	var err error
	missing := []queue.Code{queue.CodeSubscriptionNotFound, queue.CodeTopicNotFound}
	l.w.begin(inst, fmt.Sprintf("name-subscription %s/s %d", topic, call.Kind), func(ctx context.Context) {
		sub := &meta.Subscription{}
		switch call.Kind {
		case history.Create:
			missing = []queue.Code{queue.CodeSubscriptionExists}
			sub, _, err = inst.system.Topics.CreateSubscription(ctx, topic, "s", config)
		case history.Delete:
			err = inst.system.Topics.DeleteSubscription(ctx, topic, "s")
		case history.Get:
			sub, err = inst.system.Topics.Subscription(ctx, topic, "s")
		case history.List:
			var page []*meta.Subscription
			page, _, err = inst.system.Topics.ListSubscriptions(ctx, topic, "", 1)
			if queue.CodeOf(err) == queue.CodeTopicNotFound {
				err = nil // nothing is listed where there is no topic
			}
			if len(page) > 0 {
				sub = page[0]
			}
		case history.Clear:
			err = inst.system.Topics.Delete(ctx, topic)
		}
		if sub != nil {
			id = sub.ID
		}
	}, func(o *op) {
		if l.said(o, err); o.killed {
			return
		}
		recorded.End(func(op *history.Name) { op.Answer, op.ID = answered(err, missing...), string(id) })
	})
	return true
}
