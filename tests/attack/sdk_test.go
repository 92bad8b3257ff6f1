package attack

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

// TestDelaysOfTheirOwn: messages of one batch may each have a delay of their own, also in a batch of the
// SDK, whose calls are guarded.
func TestDelaysOfTheirOwn(t *testing.T) {
	s := start(t)
	s.must("PUT", "/v1/topics/later", map[string]any{"default_delay": 1, "max_delay": 1000}, nil)
	c, err := client.New(s.url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := client.NewProducer(c, "later", client.ProducerOptions{Linger: 200 * time.Millisecond, Lanes: 1})
	if err != nil {
		t.Fatal(err)
	}
	const messages = 500
	for i := range messages {
		delay := time.Duration(i+100) * time.Second
		if _, err := p.Send(t.Context(), client.Message{Body: []byte(secret), Delay: &delay}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	var st wire.Topic
	s.must("GET", "/v1/topics/later", nil, &st)
	if st.Messages.Delayed != messages {
		t.Errorf("%d messages wait", st.Messages.Delayed)
	}
}
