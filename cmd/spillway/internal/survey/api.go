package survey

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// nothing is the name of a topic that nobody has: a function that says so has read its table.
const nothing = "spillway.doctor.no-such-topic"

// api asks each function for what is not there. Nothing is written, even where it is.
func (s *surveyor) api(ctx context.Context) {
	f := s.facts
	s.invoke(ctx)
	var t *doctor.Trouble
	var c *client.Client
	switch u, err := url.Parse(f.API.URL); {
	case f.API.URL == "" && s.place.Emulated:
		t = unasked("AWS_ENDPOINT_URL names an emulator: give the API's address there with --endpoint")
	case f.API.URL == "":
		t = unasked("give the API's URL with --endpoint, or name the stack with --stack")
	case err != nil || u.Host == "":
		t = unasked("--endpoint is not a URL")
	default:
		if c, err = s.o.Dial(ctx, f.API.URL); err != nil {
			t = &doctor.Trouble{Text: oneLine(err)}
		}
	}
	if t != nil {
		f.API.Answers = each(doctor.Answering(), doctor.Fact[string]{Trouble: t})
		f.API.Same.Trouble = t
		return
	}
	defer c.Close()
	_, leader := c.GetTopic(ctx, nothing)
	_, consume := c.GetSubscription(ctx, nothing, "doctor")
	_, produce := c.Reference(ctx, nothing, []client.Reference{{Object: client.Object{Name: "uploads/none"}}}, client.Guard{IdempotencyKey: "spillway-doctor"})
	f.API.Answers = map[doctor.Function]doctor.Fact[string]{
		doctor.Leader: answerOf(leader), doctor.Consume: answerOf(consume), doctor.Produce: answerOf(produce),
	}
	document, err := c.Document(ctx)
	if f.API.Same.Trouble = answerOf(err).Trouble; err == nil {
		f.API.Same.Value = bytes.Equal(document, s.o.Document)
	} else if f.API.Same.Trouble == nil {
		f.API.Same.Trouble = &doctor.Trouble{Text: oneLine(err)}
	}
}

// answerOf makes a fact of what a call for something that is not there came to.
func answerOf(err error) (fact doctor.Fact[string]) {
	var api *client.APIError
	switch {
	case err == nil, errors.Is(err, client.ErrTopicNotFound), errors.Is(err, client.ErrSubscriptionNotFound):
	case queue.Is(err, queue.KindDenied):
		fact.Trouble = &doctor.Trouble{Kind: doctor.Denied, Text: oneLine(err)}
	case errors.As(err, &api) && api.RequestID != "":
		fact.Value = oneLine(err)
	default:
		fact.Trouble = &doctor.Trouble{Text: oneLine(err)}
	}
	return fact
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
