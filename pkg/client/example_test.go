package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/local"
)

// serve starts a server for an example; a program has one running elsewhere.
func serve() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "spillway-example")
	if err != nil {
		panic(err)
	}
	srv, err := local.Start(context.Background(), local.Options{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		panic(err)
	}
	return srv.URL(), func() {
		_ = srv.Close(context.Background())
		_ = os.RemoveAll(dir)
	}
}

// A topic, a subscription, a message there and back.
func Example() {
	url, stop := serve()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, "shop.orders", client.TopicConfig{}); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.CreateSubscription(ctx, "shop.orders", "billing", client.SubscriptionConfig{}); err != nil {
		fmt.Println(err)
		return
	}

	results, err := c.Produce(ctx, "shop.orders", []client.Message{{
		Key: []byte("customer-42"), Body: []byte("one umbrella"), Headers: map[string]string{"kind": "new"},
	}}, client.Guard{})
	if err != nil || results[0].Err != nil {
		fmt.Println(err, results)
		return
	}

	messages, err := c.Claim(ctx, "shop.orders", "billing", client.ClaimOptions{Wait: 5 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range messages {
		kind, _ := m.Header("kind")
		fmt.Printf("%s: %s (%s), attempt %d\n", m.Key, m.Body, kind, m.Attempt)
		if _, err := c.Ack(ctx, "shop.orders", "billing", []client.Receipt{m.Receipt}); err != nil {
			fmt.Println(err)
		}
	}
	// Output: customer-42: one umbrella (new), attempt 1
}

// A producer batches; Close comes back when everything is durable.
func ExampleProducer() {
	url, stop := serve()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, "readings", client.TopicConfig{}); err != nil {
		fmt.Println(err)
		return
	}

	p, err := client.NewProducer(c, "readings", client.ProducerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 1000 {
		// The Future that Send gives tells the message's id; Close tells of every failure.
		if _, err := p.Send(ctx, client.Message{Key: []byte("sensor-7"), Body: fmt.Appendf(nil, "reading %d", i)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := p.Close(ctx); err != nil {
		fmt.Println("some readings were not stored:", err)
		return
	}

	topic, err := c.GetTopic(ctx, "readings")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(topic.Messages.Ready, "readings are stored")
	// Output: 1000 readings are stored
}

// A consumer hands messages to a handler until its context ends.
func ExampleConsumer() {
	url, stop := serve()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	_, err = c.CreateTopic(ctx, "jobs", client.TopicConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.CreateSubscription(ctx, "jobs", "workers", client.SubscriptionConfig{}); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.Produce(ctx, "jobs", []client.Message{{Body: []byte("resize picture 1")}}, client.Guard{}); err != nil {
		fmt.Println(err)
		return
	}

	consumer, err := client.NewConsumer(c, "jobs", "workers", client.ConsumerOptions{
		Parallelism: 4,
		OnError:     func(err error) { slog.Debug("consumer", "error", err) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = consumer.Run(ctx, func(_ context.Context, m *client.Received) error {
		if m.Attempt == 1 {
			// Back in a moment; any other error takes the subscription's backoff.
			return client.RetryAfter(10*time.Millisecond, errors.New("picture is not there yet"))
		}
		fmt.Printf("%s, attempt %d\n", m.Body, m.Attempt)
		cancel() // a service would go on; the context's end drains and ends Run
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: resize picture 1, attempt 2
}

// Errors are told apart by their codes.
func ExampleAPIError() {
	url, stop := serve()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	_, err = c.GetTopic(context.Background(), "nowhere")
	var api *client.APIError
	if errors.Is(err, client.ErrTopicNotFound) && errors.As(err, &api) {
		fmt.Println(api.Status, api.Code, api.Retryable)
	}
	// Output: 404 topic_not_found false
}
