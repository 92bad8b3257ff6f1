package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

func (s *server) createSubscription(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readSubscription(w, r)
	if err != nil {
		return err
	}
	config := topics.SubscriptionConfig{
		VisibilityTimeout: deref(in.patch.VisibilityTimeout), MaxDeliveries: deref(in.patch.MaxDeliveries),
		DeadLetterTopic: deref(in.patch.DeadLetterTopic), MaxInFlight: deref(in.patch.MaxInFlight),
		Backoff: deref(in.patch.Backoff),
	}
	if config.Ordering, err = orderingOf(in.config.Ordering); err != nil {
		return err
	}
	if in.config.Start != nil {
		config.Start = startOf(*in.config.Start)
	}
	sub, created, err := s.Subscriptions.CreateSubscription(r.Context(), in.topic, in.name, config)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return s.writeSubscription(w, r, status, in.topic, sub)
}

func (s *server) updateSubscription(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readSubscription(w, r)
	switch {
	case err != nil:
		return err
	case in.config.Start != nil:
		return queue.Invalid("start", nil, "cannot be changed; seek moves a subscription")
	case in.config.Ordering != nil:
		return queue.Invalid("ordering", nil, "cannot be changed; create another subscription")
	}
	sub, err := s.Subscriptions.UpdateSubscription(r.Context(), in.topic, in.name, in.patch)
	if err != nil {
		return err
	}
	return s.writeSubscription(w, r, http.StatusOK, in.topic, sub)
}

// subscriptionRequest is what PUT and PATCH share: config as it came, and what of it can be changed.
type subscriptionRequest struct {
	topic, name string
	config      wire.SubscriptionConfig
	patch       topics.SubscriptionPatch
}

func (s *server) readSubscription(w http.ResponseWriter, r *http.Request) (in subscriptionRequest, err error) {
	if in.topic, in.name, err = names(r); err != nil {
		return in, err
	}
	if _, err = parseQuery(r); err != nil {
		return in, err
	}
	if err := s.readJSON(w, r, &in.config); err != nil {
		return in, err
	}
	in.patch, err = subscriptionPatch(in.config)
	return in, err
}

func subscriptionPatch(in wire.SubscriptionConfig) (topics.SubscriptionPatch, error) {
	out := topics.SubscriptionPatch{
		MaxDeliveries: in.MaxDeliveries, DeadLetterTopic: in.DeadLetterTopic, MaxInFlight: in.MaxInFlight,
	}
	var err error
	out.VisibilityTimeout, err = seconds("visibility_timeout", in.VisibilityTimeout, queue.MinVisibilityTimeout, queue.MaxVisibilityTimeout)
	if err != nil {
		return out, err
	}
	// A max_in_flight of 0 would be taken as absent.
	if n := in.MaxInFlight; n != nil {
		if err := queue.Whole("max_in_flight", *n, 1, queue.MaxMaxInFlight); err != nil {
			return out, err
		}
	}
	if in.Backoff != nil {
		if len(*in.Backoff) > queue.MaxBackoffSteps {
			return out, queue.Invalid("backoff", queue.MaxBackoffSteps, "has more than %d steps", queue.MaxBackoffSteps)
		}
		steps := make([]time.Duration, len(*in.Backoff))
		for i, v := range *in.Backoff {
			if steps[i], err = queue.Seconds("backoff["+strconv.Itoa(i)+"]", v, 0, queue.MaxVisibilityTimeout); err != nil {
				return out, err
			}
		}
		out.Backoff = &steps
	}
	return out, nil
}

func orderingOf(word *string) (meta.Ordering, error) {
	switch {
	case word == nil, *word == wire.OrderingNone:
		return meta.OrderingNone, nil
	case *word == wire.OrderingKey:
		return meta.OrderingKey, nil
	}
	return "", queue.Invalid("ordering", nil, "must be %s or %s", wire.OrderingNone, wire.OrderingKey)
}

func startOf(p wire.Position) topics.Start {
	switch {
	case p.Cut != nil:
		return topics.Start{Kind: topics.StartCut, Cut: p.Cut}
	case p.Time != 0:
		return topics.Start{Kind: topics.StartTime, Time: p.Time.Millis()}
	case p.Word == wire.Latest:
		return topics.Start{Kind: topics.StartLatest}
	}
	return topics.Start{Kind: topics.StartEarliest}
}

func (s *server) getSubscription(w http.ResponseWriter, r *http.Request) error {
	topic, name, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	sub, err := s.Subscriptions.Subscription(r.Context(), topic, name)
	if err != nil {
		return err
	}
	return s.writeSubscription(w, r, http.StatusOK, topic, sub)
}

func (s *server) deleteSubscription(w http.ResponseWriter, r *http.Request) error {
	topic, name, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if err := s.Subscriptions.DeleteSubscription(r.Context(), topic, name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) listSubscriptions(w http.ResponseWriter, r *http.Request) error {
	topic, _, err := names(r)
	if err != nil {
		return err
	}
	q, err := parseQuery(r, "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := q.page()
	if err != nil {
		return err
	}
	page, next, err := s.Subscriptions.ListSubscriptions(r.Context(), topic, cursor, limit)
	if err != nil {
		return err
	}
	out := wire.SubscriptionList{Subscriptions: make([]wire.Subscription, len(page)), NextCursor: opaque(next)}
	for i, sub := range page {
		out.Subscriptions[i] = subscription(topic, sub)
	}
	return s.writeJSON(w, http.StatusOK, out)
}

func (s *server) seek(w http.ResponseWriter, r *http.Request) error {
	topic, name, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var in wire.SeekRequest
	if err := s.readJSON(w, r, &in); err != nil {
		return err
	}
	if in.To == nil {
		return queue.Invalid("to", nil, "is needed")
	}
	sub, err := s.Subscriptions.Seek(r.Context(), topic, name, startOf(*in.To))
	if err != nil {
		return renameField(err, "start", "to")
	}
	return s.writeSubscription(w, r, http.StatusOK, topic, sub)
}

func subscription(topic string, sub *meta.Subscription) wire.Subscription {
	backoff := make([]float64, len(sub.Backoff))
	for i, d := range sub.Backoff {
		backoff[i] = d.Seconds()
	}
	ordering := wire.OrderingNone
	if sub.Keyed() {
		ordering = wire.OrderingKey
	}
	return wire.Subscription{
		Name: sub.Name, Topic: topic, CreatedAt: wire.Time(sub.Created), ModifiedAt: wire.Time(sub.Modified),
		Config: wire.SubscriptionConfig{
			Ordering: &ordering, VisibilityTimeout: wire.Of(sub.VisibilityTimeout.Seconds()),
			MaxDeliveries: wire.Of(sub.MaxDeliveries), DeadLetterTopic: wire.Of(sub.DeadLetterTopic),
			MaxInFlight: wire.Of(sub.MaxInFlight), Backoff: &backoff, Start: positionOf(sub.Start),
		},
	}
}

// positionOf reads the text that a subscription's start is kept as. Of a cut only a hash is kept; it is
// left out.
func positionOf(text string) *wire.Position {
	switch text {
	case wire.Earliest, wire.Latest:
		return &wire.Position{Word: text}
	}
	m, err := wire.ParseTime("start", text)
	if err != nil {
		return nil
	}
	return &wire.Position{Time: wire.Time(m)}
}
