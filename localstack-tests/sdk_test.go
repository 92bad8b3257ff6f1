//go:build localstack

package localstack

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/client/sigv4"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// sdkClient gives the SDK's client of a deployment, which signs with the credentials of the tests.
func sdkClient(t *testing.T, d *deployment) *client.Client {
	t.Helper()
	signer, err := sigv4.New(credentials.NewStaticCredentialsProvider("test", "test", ""), sigv4.Options{Region: region})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(d.api, client.Options{HTTPClient: d.client, Signer: signer, MaxRequestBytes: sigv4.MaxRequestBytes})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// limits: the largest call that the SDK makes goes through API Gateway and Lambda, what is larger goes by
// reference, and what comes back is bounded.
func limits(t *testing.T, d *deployment) {
	c := sdkClient(t, d)
	defer c.Close()
	d.topic(t, "limits", object{"max_message_bytes": 8 << 20}, object{})
	noise := make([]byte, 6<<20)
	for i := range noise {
		noise[i] = byte(i*i>>5 ^ i*7)
	}
	// Headers of the batch and of the record take less than a kilobyte.
	whole := noise[:sigv4.MaxRequestBytes-1024]
	r, err := c.Produce(t.Context(), "limits", []client.Message{{Body: whole}}, client.Guard{})
	if err != nil || r[0].Err != nil {
		t.Fatalf("a call of %d bytes: %v, %+v", len(whole), err, r)
	}
	if _, err := c.Produce(t.Context(), "limits", []client.Message{{Body: noise}}, client.Guard{}); !queue.Is(err, queue.KindTooLarge) {
		t.Errorf("a call of %d bytes: %v", len(noise), err)
	}
	p, err := client.NewProducer(c, "limits", client.ProducerOptions{ReferenceAbove: 8 << 20, MaxBatchBytes: 32 << 20, Lanes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // 9 MB in one batch: a file
		if _, err := p.Send(t.Context(), client.Message{Body: noise[i : 3<<20+i]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for range 10 {
		// A claim may ask for more than an answer holds.
		got, err := c.Claim(t.Context(), "limits", "s", client.ClaimOptions{MaxMessages: 10, MaxBytes: 32 << 20, Wait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			body, err := m.Bytes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range [][]byte{whole, noise[:3<<20], noise[1 : 3<<20+1], noise[2 : 3<<20+2]} {
				seen[i] = seen[i] || bytes.Equal(body, want)
			}
		}
		if len(seen) == 4 && seen[0] && seen[1] && seen[2] && seen[3] {
			return
		}
	}
	t.Errorf("came back: %v, want four", seen)
}

// sdk: producer and consumer speak the batch format, which API Gateway carries in base 64 both ways; nothing is
// lost between them with several of each function at work.
func sdk(t *testing.T, d *deployment) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := sdkClient(t, d)
	defer c.Close()
	if _, err := c.CreateTopic(ctx, "sdk", client.TopicConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSubscription(ctx, "sdk", "s", client.SubscriptionConfig{}); err != nil {
		t.Fatal(err)
	}
	const messages = 500
	p, err := client.NewProducer(c, "sdk", client.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if _, err := p.Send(ctx, client.Message{Key: fmt.Appendf(nil, "k%d", i%7), Body: fmt.Appendf(nil, "\xff message %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	// A large object takes the way past the functions.
	large := bytes.Repeat([]byte{0, 1, 2, 0xff}, 2<<20)
	object, err := c.UploadBytes(ctx, "sdk", large)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Reference(ctx, "sdk", []client.Reference{{Object: object}}, client.Guard{}); err != nil || len(r) != 1 || len(r[0].Results) != 1 || r[0].Results[0].Err != nil {
		t.Fatalf("reference: %+v, %v", r, err)
	}

	consumer, err := client.NewConsumer(c, "sdk", "s", client.ConsumerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex // guards seen
	seen := map[string]int{}
	err = consumer.Run(running, func(ctx context.Context, m *client.Received) error {
		body, err := m.Bytes(ctx)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		seen[string(body)]++
		if len(seen) == messages+1 {
			stop()
		}
		return nil
	})
	if ctx.Err() != nil {
		t.Fatalf("consumed %d of %d: %v", len(seen), messages+1, err)
	}
	if seen[string(large)] != 1 {
		t.Errorf("the large object came %d times", seen[string(large)])
	}
	for i := range messages {
		if n := seen[fmt.Sprintf("\xff message %d", i)]; n != 1 {
			t.Errorf("message %d came %d times", i, n)
		}
	}
}
