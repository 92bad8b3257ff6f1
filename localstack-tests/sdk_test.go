//go:build localstack

package localstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
)

// signing signs the SDK's calls of the API, and leaves presigned ones alone.
type signing struct{ d *deployment }

func (s signing) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(req.URL.String(), s.d.api) {
		return s.d.client.Transport.RoundTrip(req)
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	sum := sha256.Sum256(body)
	signed := req.Clone(req.Context())
	signed.Body = io.NopCloser(bytes.NewReader(body))
	if err := sign(req.Context(), "execute-api", signed, hex.EncodeToString(sum[:])); err != nil {
		return nil, err
	}
	return s.d.client.Transport.RoundTrip(signed)
}

// sdk: producer and consumer speak the batch format, which API Gateway carries in base 64 both ways; nothing is
// lost between them with several of each function at work.
func sdk(t *testing.T, d *deployment) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New(d.api, client.Options{HTTPClient: &http.Client{Transport: signing{d}}})
	if err != nil {
		t.Fatal(err)
	}
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
