package histories

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// namer makes, deletes, finds and lists names that nothing else uses.
type namer struct{}

func (*namer) call(ctx context.Context, u *user) {
	op := history.Name{
		Span: history.Span{Client: u.number}, Kind: history.NameKind(u.rng.IntN(4)),
		Name: fmt.Sprintf("history.name%d", time.Since(u.began)/u.o.Era), Config: fmt.Sprint(1 + u.rng.IntN(2)),
	}
	pending := u.rec.Name(op)
	var id queue.TopicID
	var err error
	what := [...]string{"create", "delete", "get", "list"}[op.Kind]
	switch op.Kind {
	case history.Create:
		var made *client.Topic
		made, err = u.client().CreateTopic(ctx, op.Name, configOf(int(op.Config[0]-'0')))
		id = made.ID
	case history.Delete:
		err = u.client().DeleteTopic(ctx, op.Name)
	case history.Get:
		var found *client.Topic
		found, err = u.client().GetTopic(ctx, op.Name)
		id = found.ID
	case history.List:
		for entry, lerr := range u.client().ListTopics(ctx, op.Name) {
			if err = lerr; err == nil && entry.Name == op.Name {
				id = entry.ID
			}
		}
	}
	u.strange(what, err)
	a := answer(err, queue.CodeTopicExists, queue.CodeTopicNotFound)
	u.count(what, a)
	pending.End(func(op *history.Name) { op.Answer, op.ID = a, string(id) })
}

// subscriber makes, deletes, finds and lists a subscription that nothing else uses, and makes and deletes the topic
// that it is in.
type subscriber struct {
	// made counts its creations; config is what the last one asked for.
	made, config int
}

// perSubscriber is how many creations of one client differ from one another.
const perSubscriber = 1000

func (s *subscriber) call(ctx context.Context, u *user) {
	topic := fmt.Sprintf("history.subs%d", time.Since(u.began)/u.o.Era)
	op := history.Name{Span: history.Span{Client: u.number}, Name: topic + "/s", Kind: history.NameKind(u.rng.IntN(4))}
	switch u.rng.IntN(12) {
	case 0:
		op.Kind = history.Clear
	case 1, 2:
		_ = s.topic(ctx, u, history.Name{Span: op.Span, Name: topic, Kind: history.Create, Config: "1"}) // it is in the record
		return
	}
	if op.Kind == history.Create && (s.made == 0 || u.rng.IntN(3) > 0) {
		s.made++
		s.config = 1 + u.number*perSubscriber + s.made%perSubscriber
	}
	op.Config = fmt.Sprint(s.config)
	pending := u.rec.Name(op)
	var id string
	var err error
	what := [...]string{"create", "delete", "get", "list", "clear"}[op.Kind]
	missing := []queue.Code{queue.CodeSubscriptionNotFound, queue.CodeTopicNotFound}
	switch op.Kind {
	case history.Create:
		var made *client.Subscription
		made, err = u.client().CreateSubscription(ctx, topic, "s", client.SubscriptionConfig{MaxInFlight: &s.config})
		id, missing = identity(made), []queue.Code{queue.CodeSubscriptionExists}
	case history.Delete:
		err = u.client().DeleteSubscription(ctx, topic, "s")
	case history.Get:
		var found *client.Subscription
		found, err = u.client().GetSubscription(ctx, topic, "s")
		id = identity(found)
	case history.List:
		for entry, lerr := range u.client().ListSubscriptions(ctx, topic) {
			if err = lerr; err == nil && entry.Name == "s" {
				id = identity(entry)
			}
		}
		if errors.Is(err, client.CodeError(queue.CodeTopicNotFound)) {
			err = nil // nothing is listed where there is no topic
		}
	case history.Clear:
		err = s.topic(ctx, u, history.Name{Span: op.Span, Name: topic, Kind: history.Delete})
	}
	u.strange(what+" subscription", err)
	a := answer(err, missing...)
	u.count(what+" subscription", a)
	pending.End(func(op *history.Name) { op.Answer, op.ID = a, id })
}

// identity tells a subscription from others of its name: the API shows no id of it. Those of one config are made by one client, some
// milliseconds apart.
func identity(s *client.Subscription) string {
	if s == nil || s.Config.MaxInFlight == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.CreatedAt, *s.Config.MaxInFlight)
}

// topic makes or deletes a subscriber's topic, a name like any other.
func (*subscriber) topic(ctx context.Context, u *user, op history.Name) error {
	pending := u.rec.Name(op)
	var id queue.TopicID
	var err error
	if op.Kind == history.Create {
		var made *client.Topic
		made, err = u.client().CreateTopic(ctx, op.Name, configOf(1))
		id = made.ID
	} else {
		err = u.client().DeleteTopic(ctx, op.Name)
	}
	u.strange("topic of subscriptions", err)
	pending.End(func(op *history.Name) {
		op.Answer, op.ID = answer(err, queue.CodeTopicExists, queue.CodeTopicNotFound), string(id)
	})
	return err
}
