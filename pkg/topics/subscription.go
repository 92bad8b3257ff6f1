package topics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// SubscriptionConfig is what the owner of a subscription sets. The zero value of a field takes its
// default.
type SubscriptionConfig struct {
	// VisibilityTimeout is how long a claim holds, queue.MinVisibilityTimeout to
	// queue.MaxVisibilityTimeout; 0 takes queue.DefaultVisibilityTimeout.
	VisibilityTimeout time.Duration
	// MaxDeliveries, 1 to queue.MaxDeliveries, is how often a message is delivered before it goes
	// to DeadLetterTopic. Both are set, or neither.
	MaxDeliveries   int
	DeadLetterTopic string
	// MaxInFlight bounds the messages in flight per segment, 1 to queue.MaxMaxInFlight; 0 takes
	// queue.DefaultMaxInFlight.
	MaxInFlight int
	// Backoff are the delays after a first, second, … failure, the last one for all further
	// ones; at most queue.MaxBackoffSteps of 0 to queue.MaxVisibilityTimeout each.
	Backoff []time.Duration
	// Ordering is meta.OrderingNone or meta.OrderingKey; it cannot be changed later.
	Ordering meta.Ordering
	// Start is where it begins to read; the zero Start is the earliest message.
	Start Start
}

// SubscriptionPatch changes a subscription's config: nil fields stay as they are.
type SubscriptionPatch struct {
	VisibilityTimeout *time.Duration
	MaxDeliveries     *int
	DeadLetterTopic   *string
	MaxInFlight       *int
	Backoff           *[]time.Duration
}

// CreateSubscription makes a subscription. One of that name and the same config, the same start
// included, is answered with created false, wherever it has come to since.
//
// Errors: NotFound with CodeTopicNotFound; Exists with CodeSubscriptionExists if it has another
// config; Invalid, also where the topic has queue.MaxSubscriptions already and where the dead-letter
// topic does not exist; Conflict where others keep changing the topic.
func (s *Service) CreateSubscription(ctx context.Context, topic, name string, cfg SubscriptionConfig) (_ *meta.Subscription, created bool, _ error) {
	if err := queue.ValidateSubscriptionName("subscription", name); err != nil {
		return nil, false, err
	}
	for range maxTries {
		m, err := s.Reload(ctx, topic)
		if err != nil {
			return nil, false, err
		}
		sub := s.newSubscription(m, name, cfg)
		if err := s.checkSubscription(ctx, m, sub); err != nil {
			return nil, false, err
		}
		if have := m.Subscriptions[name]; have != nil {
			return settleExisting(have, sub)
		}
		if n := len(m.Subscriptions); n >= queue.MaxSubscriptions {
			return nil, false, queue.Invalid("subscription", queue.MaxSubscriptions, "the topic has %d subscriptions already", n)
		}
		if sub.Cut, sub.Drained, err = s.cut(ctx, m, cfg.Start); errors.Is(err, errTorn) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		again, err := s.putSubscription(ctx, m, sub)
		if !again {
			return sub, err == nil, err
		}
	}
	return nil, false, tooBusy("create subscription", name, false)
}

func (s *Service) newSubscription(m *Map, name string, cfg SubscriptionConfig) *meta.Subscription {
	now := s.clock.Millis()
	sub := &meta.Subscription{
		Topic: m.ID(), Name: name, ID: s.ids.Subscription(), Created: now, Modified: now,
		VisibilityTimeout: cfg.VisibilityTimeout.Round(time.Millisecond),
		MaxDeliveries:     cfg.MaxDeliveries, DeadLetterTopic: cfg.DeadLetterTopic,
		MaxInFlight: cfg.MaxInFlight, Backoff: roundedAll(cfg.Backoff), Start: cfg.Start.text(),
		Ordering: cfg.Ordering,
	}
	if sub.VisibilityTimeout == 0 {
		sub.VisibilityTimeout = queue.DefaultVisibilityTimeout
	}
	if sub.MaxInFlight == 0 {
		sub.MaxInFlight = queue.DefaultMaxInFlight
	}
	return sub
}

// putSubscription puts a new subscription if the topic's record is as it was read, and gives that a new
// version. Absence alone is no fence, because subscriptions are deleted: a request whose answer was
// lost, made again, could arrive after the deletion and bring the subscription back. Its topic version
// is then long gone. The same makes the limit of subscriptions exact. again asks for a new look.
func (s *Service) putSubscription(ctx context.Context, m *Map, sub *meta.Subscription) (again bool, _ error) {
	defer s.cache.drop(m.Name)
	err := s.putAll(ctx, []meta.Op{
		s.putNew(sub),
		meta.Put{Record: m.Topic, If: meta.At(m.Version), Version: meta.NewVersion(s.ids)},
	})
	_, refused := meta.AsRefused(err)
	return refused, err
}

// settleExisting answers a creation that finds a subscription of that name.
func settleExisting(have, want *meta.Subscription) (*meta.Subscription, bool, error) {
	if sameSubscription(have, want) {
		return have, false, nil
	}
	return nil, false, &queue.Error{
		Op: "create subscription", Subject: want.Name, Kind: queue.KindExists, Code: queue.CodeSubscriptionExists,
		Message: "the subscription exists with another config; PATCH changes it, seek moves it",
	}
}

func sameSubscription(a, b *meta.Subscription) bool {
	return a.VisibilityTimeout == b.VisibilityTimeout && a.MaxDeliveries == b.MaxDeliveries &&
		a.DeadLetterTopic == b.DeadLetterTopic && a.MaxInFlight == b.MaxInFlight &&
		slices.Equal(a.Backoff, b.Backoff) && a.Ordering == b.Ordering && a.Start == b.Start
}

// checkSubscription holds a subscription to the limits. Errors are Invalid and name the field as the
// API does.
func (s *Service) checkSubscription(ctx context.Context, m *Map, sub *meta.Subscription) error {
	switch {
	case sub.VisibilityTimeout < queue.MinVisibilityTimeout || sub.VisibilityTimeout > queue.MaxVisibilityTimeout:
		return queue.Invalid("visibility_timeout", queue.MaxVisibilityTimeout.Seconds(), "must be %s to %s seconds",
			queue.Plain(queue.MinVisibilityTimeout.Seconds()), queue.Plain(queue.MaxVisibilityTimeout.Seconds()))
	case sub.MaxInFlight < 1 || sub.MaxInFlight > queue.MaxMaxInFlight:
		return queue.Invalid("max_in_flight", queue.Bound(sub.MaxInFlight, 1, queue.MaxMaxInFlight), "must be 1 to %d", queue.MaxMaxInFlight)
	case sub.MaxDeliveries < 0 || sub.MaxDeliveries > queue.MaxDeliveries:
		return queue.Invalid("max_deliveries", queue.Bound(sub.MaxDeliveries, 0, queue.MaxDeliveries), "must be 1 to %d, or absent", queue.MaxDeliveries)
	case len(sub.Backoff) > queue.MaxBackoffSteps:
		return queue.Invalid("backoff", queue.MaxBackoffSteps, "has more than %d steps", queue.MaxBackoffSteps)
	case sub.Ordering != meta.OrderingNone && sub.Ordering != meta.OrderingKey:
		return queue.Invalid("ordering", nil, "must be none or key")
	case sub.MaxDeliveries > 0 && sub.DeadLetterTopic == "":
		return queue.Invalid("dead_letter_topic", nil, "is needed where max_deliveries is set: a message that has used up its deliveries must go somewhere")
	case sub.MaxDeliveries == 0 && sub.DeadLetterTopic != "":
		return queue.Invalid("max_deliveries", nil, "is needed where dead_letter_topic is set")
	}
	for _, d := range sub.Backoff {
		if d < 0 || d > queue.MaxVisibilityTimeout {
			return queue.Invalid("backoff", queue.MaxVisibilityTimeout.Seconds(), "each step must be 0 to %s seconds", queue.Plain(queue.MaxVisibilityTimeout.Seconds()))
		}
	}
	if sub.DeadLetterTopic == "" {
		return nil
	}
	if err := queue.ValidateTopicName("dead_letter_topic", sub.DeadLetterTopic); err != nil {
		return err
	}
	dead, err := s.Open(ctx, sub.DeadLetterTopic)
	switch {
	case queue.Is(err, queue.KindNotFound):
		return queue.Invalid("dead_letter_topic", nil, "no topic is named %q: create it first", sub.DeadLetterTopic)
	case err != nil:
		return err
	case dead.ID() == m.ID():
		return queue.Invalid("dead_letter_topic", nil, "is the topic itself: a message would go round for ever")
	}
	return nil
}

func roundedAll(steps []time.Duration) []time.Duration {
	var out []time.Duration
	for _, d := range steps {
		out = append(out, d.Round(time.Millisecond))
	}
	return out
}

func noSubscription(op, name string) error {
	return &queue.Error{
		Op: op, Subject: name, Kind: queue.KindNotFound, Code: queue.CodeSubscriptionNotFound,
		Message: "the topic has no subscription of that name",
	}
}

// UpdateSubscription changes a subscription's config; where it has come to stays. Errors: NotFound with
// CodeTopicNotFound or CodeSubscriptionNotFound; Invalid; Conflict if others keep changing it.
func (s *Service) UpdateSubscription(ctx context.Context, topic, name string, patch SubscriptionPatch) (*meta.Subscription, error) {
	return s.changeSubscription(ctx, subscriptionCall{"update subscription", topic, name}, func(m *Map, sub *meta.Subscription) error {
		set(&sub.VisibilityTimeout, rounded(patch.VisibilityTimeout))
		set(&sub.MaxDeliveries, patch.MaxDeliveries)
		set(&sub.DeadLetterTopic, patch.DeadLetterTopic)
		set(&sub.MaxInFlight, patch.MaxInFlight)
		if patch.Backoff != nil {
			sub.Backoff = roundedAll(*patch.Backoff)
		}
		return s.checkSubscription(ctx, m, sub)
	})
}

// Seek moves a subscription to start. It gets a new id, so what was claimed under the old one is
// claimable anew and its receipts are void. Errors as UpdateSubscription.
//
// Unlike a creation it needs no condition on the topic. A segment that is made while Seek looks is read
// from its first message, and nothing before the look is in it; of one that is sealed meanwhile the
// offset is as right as before.
func (s *Service) Seek(ctx context.Context, topic, name string, start Start) (*meta.Subscription, error) {
	for range maxTries {
		m, err := s.Reload(ctx, topic)
		if err != nil {
			return nil, err
		}
		have := m.Subscriptions[name]
		if have == nil {
			return nil, noSubscription("seek subscription", name)
		}
		cut, drained, err := s.cut(ctx, m, start)
		if errors.Is(err, errTorn) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The id that dies is noted in the same transaction.
		sub, err := s.changeSubscription(ctx, subscriptionCall{"seek subscription", topic, name}, func(_ *Map, sub *meta.Subscription) error {
			if sub.ID != have.ID {
				return errSought
			}
			sub.ID, sub.Cut, sub.Drained = s.ids.Subscription(), cut, drained
			return nil
		}, s.retire(m.ID(), have.ID))
		if !errors.Is(err, errSought) {
			return sub, err
		}
	}
	return nil, tooBusy("seek subscription", name, false)
}

// errSought says that another has moved the subscription since it was read.
var errSought = errors.New("the subscription was moved meanwhile")

// retire notes that what a subscription noted under an id is to be removed.
func (s *Service) retire(topic queue.TopicID, id queue.SubscriptionID) meta.Op {
	due := s.clock.Millis().Add(queue.GracePeriod)
	return meta.PutRemoval(&meta.Removal{Due: due, Topic: topic, Subscription: id}, s.ids)
}

// subscriptionCall is a subscription that an operation is on.
type subscriptionCall struct{ op, topic, name string }

// changeSubscription changes a subscription by compare-and-swap; ops beside go with the change.
func (s *Service) changeSubscription(ctx context.Context, of subscriptionCall, change func(*Map, *meta.Subscription) error, beside ...meta.Op) (*meta.Subscription, error) {
	m, err := s.Reload(ctx, of.topic)
	if err != nil {
		return nil, err
	}
	if err := queue.ValidateSubscriptionName("subscription", of.name); err != nil {
		return nil, err
	}
	defer s.cache.drop(of.topic)
	sub, err := swap(ctx, s, meta.SubscriptionKey(m.ID(), of.name), func(old *meta.Subscription) (*meta.Subscription, error) {
		next := *old
		next.Modified = s.clock.Millis()
		return &next, change(m, &next)
	}, beside...)
	if queue.Is(err, queue.KindNotFound) {
		return nil, noSubscription(of.op, of.name)
	}
	return sub, err
}

// DeleteSubscription removes a subscription; its cursors are removed by the compactor, for which a note
// comes with it. Errors:
// NotFound with CodeTopicNotFound or CodeSubscriptionNotFound; the store's.
func (s *Service) DeleteSubscription(ctx context.Context, topic, name string) error {
	m, err := s.Reload(ctx, topic)
	if err != nil {
		return err
	}
	if err := queue.ValidateSubscriptionName("subscription", name); err != nil {
		return err
	}
	defer s.cache.drop(topic)
	key := meta.SubscriptionKey(m.ID(), name)
	var first *meta.Subscription // what an earlier try met
	unknown := false
	for range maxTries {
		// By version: a request that arrives late must not delete one that was made anew.
		sub, version, err := meta.Fetch[*meta.Subscription](ctx, s.meta, key)
		switch {
		case queue.Is(err, queue.KindNotFound) && first != nil:
			return nil
		case queue.Is(err, queue.KindNotFound):
			return noSubscription("delete subscription", name)
		case err != nil:
			return queue.Unsure(err, unknown)
		case first != nil && sub.Created != first.Created:
			return nil // what was to be deleted is; this was made anew
		}
		_, err = s.meta.Transact(ctx, []meta.Op{
			meta.Delete{Key: key, If: meta.At(version), Kind: meta.KindSubscription}, s.retire(m.ID(), sub.ID),
		})
		_, refused := meta.AsRefused(err)
		lost := queue.Is(err, queue.KindOutcomeUnknown)
		if !refused && !lost {
			return queue.Unsure(err, unknown)
		}
		first, unknown = sub, unknown || lost
	}
	return tooBusy("delete subscription", name, unknown)
}

// Subscription finds one past the cache. Errors: NotFound with CodeTopicNotFound or
// CodeSubscriptionNotFound; the store's.
func (s *Service) Subscription(ctx context.Context, topic, name string) (*meta.Subscription, error) {
	m, err := s.Reload(ctx, topic)
	if err != nil {
		return nil, err
	}
	sub := m.Subscriptions[name]
	if sub == nil {
		return nil, noSubscription("find subscription", name)
	}
	return sub, nil
}

// ListSubscriptions gives a topic's subscriptions by name, limit (1 to queue.MaxPageSize) at most. A
// further page starts with the cursor that it answers; "" means that there is none.
func (s *Service) ListSubscriptions(ctx context.Context, topic, cursor string, limit int) ([]*meta.Subscription, string, error) {
	if limit < 1 || limit > queue.MaxPageSize {
		return nil, "", queue.Invalid("limit", queue.MaxPageSize, "must be 1 to %d", queue.MaxPageSize)
	}
	if cursor != "" && queue.ValidateSubscriptionName("cursor", cursor) != nil {
		return nil, "", queue.Invalid("cursor", nil, "is not one that a listing gave")
	}
	m, err := s.Reload(ctx, topic)
	if err != nil {
		return nil, "", err
	}
	var out []*meta.Subscription
	for _, sub := range m.Subscriptions {
		if sub.Name > cursor {
			out = append(out, sub)
		}
	}
	slices.SortFunc(out, func(a, b *meta.Subscription) int { return strings.Compare(a.Name, b.Name) })
	if len(out) > limit {
		return out[:limit], out[limit-1].Name, nil
	}
	return out, "", nil
}
