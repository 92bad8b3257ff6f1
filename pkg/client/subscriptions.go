package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// What subscriptions look like in the API.
type (
	// SubscriptionConfig is what the owner of a subscription sets; a nil field is not given.
	SubscriptionConfig = wire.SubscriptionConfig
	// Subscription is the status of a subscription.
	Subscription = wire.Subscription
	// Position is a place in a topic: one of the words Earliest and Latest, a time, or a cut.
	Position = wire.Position
)

// The orderings of a subscription, which is set when it is created.
const (
	// OrderingNone hands messages out about in the order they came in.
	OrderingNone = wire.OrderingNone
	// OrderingKey hands out those of one key in the order they came in, one after another.
	OrderingKey = wire.OrderingKey
)

// Words of a Position.
const (
	// Earliest is before the oldest message.
	Earliest = wire.Earliest
	// Latest is after the newest message.
	Latest = wire.Latest
)

// CreateSubscription creates a subscription; one that exists with the same config is given as it is.
// A nil field of config takes its default. ErrSubscriptionExists if there is one with another config.
func (c *Client) CreateSubscription(ctx context.Context, topic, name string, config SubscriptionConfig) (*Subscription, error) {
	out := new(Subscription)
	return out, c.onSubscription(ctx, topic, name, &call{
		op: "create subscription", method: http.MethodPut, in: &config, out: out,
	})
}

// UpdateSubscription changes what config gives and leaves the rest as it is.
func (c *Client) UpdateSubscription(ctx context.Context, topic, name string, config SubscriptionConfig) (*Subscription, error) {
	out := new(Subscription)
	return out, c.onSubscription(ctx, topic, name, &call{
		op: "update subscription", method: http.MethodPatch, in: &config, out: out,
	})
}

// GetSubscription gives a subscription's status, with its messages counted.
func (c *Client) GetSubscription(ctx context.Context, topic, name string) (*Subscription, error) {
	out := new(Subscription)
	return out, c.onSubscription(ctx, topic, name, &call{
		op: "get subscription", method: http.MethodGet, out: out,
	})
}

// DeleteSubscription deletes a subscription and its position. Where an answer was lost and the
// subscription is gone at the next try, it was deleted.
func (c *Client) DeleteSubscription(ctx context.Context, topic, name string) error {
	return c.onSubscription(ctx, topic, name, &call{op: "delete subscription", method: http.MethodDelete})
}

// ListSubscriptions iterates over a topic's subscriptions, by name.
func (c *Client) ListSubscriptions(ctx context.Context, topic string) iter.Seq2[*Subscription, error] {
	if err := queue.ValidateTopicName("topic", topic); err != nil {
		return failed[*Subscription](err)
	}
	return pages(ctx, c, &call{op: "list subscriptions", path: topicPath(topic, "subscriptions")},
		func(page *wire.SubscriptionList) ([]Subscription, string) { return page.Subscriptions, page.NextCursor })
}

// Seek moves a subscription: back to read again, or ahead to skip.
func (c *Client) Seek(ctx context.Context, topic, name string, to Position) error {
	return c.onSubscription(ctx, topic, name, &call{
		op: "seek", method: http.MethodPost, in: &wire.SeekRequest{To: &to},
	}, "seek")
}

// onSubscription makes a call to a subscription, or to what is below it.
func (c *Client) onSubscription(ctx context.Context, topic, name string, call *call, below ...string) error {
	if err := queue.ValidateSubscriptionName("subscription", name); err != nil {
		return err
	}
	call.path = topicPath(topic, append([]string{"subscriptions", name}, below...)...)
	return c.onTopic(ctx, topic, call)
}
