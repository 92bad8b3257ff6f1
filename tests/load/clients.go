package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

// producer sends batch after batch until stop is closed, and then returns once the last one has its
// answer.
type producer struct {
	*Load
	name  string
	topic string
	rng   *rand.Rand
	// guard gives the headers and the producer of the n-th call; nil if a call whose answer is
	// lost is not repeated.
	guard func(n uint64) (map[string]string, *wire.Producer)
	// upload sends bodies by reference.
	upload bool
}

func bySequence(name string) func(uint64) (map[string]string, *wire.Producer) {
	return func(n uint64) (map[string]string, *wire.Producer) {
		return nil, &wire.Producer{ID: name, Sequence: &n}
	}
}

func byKey(name string) func(uint64) (map[string]string, *wire.Producer) {
	return func(n uint64) (map[string]string, *wire.Producer) {
		return map[string]string{"Idempotency-Key": fmt.Sprintf("%s-%d", name, n)}, nil
	}
}

func (p *producer) run(ctx context.Context, stop <-chan struct{}) error {
	for n := uint64(1); ; n++ {
		select {
		case <-stop:
			return nil
		case <-time.After(p.Pace):
		}
		bodies := make([]string, 1+p.rng.IntN(12))
		for i := range bodies {
			bodies[i] = fmt.Sprintf("%s/%d/%d", p.name, n, i)
		}
		p.Ledger.send(p.topic, p.guard != nil, bodies)
		if err := p.deliver(ctx, n, bodies); err != nil {
			return fmt.Errorf("producer %s, call %d: %w", p.name, n, err)
		}
	}
}

// deliver makes one call, and repeats it through crashes if it is guarded.
func (p *producer) deliver(ctx context.Context, n uint64, bodies []string) error {
	send, err := p.request(n, bodies)
	if err != nil {
		return err
	}
	for {
		results, err := send(ctx)
		if err == nil {
			err = p.Ledger.acknowledge(bodies, results)
		}
		if err == nil || p.guard == nil && errors.Is(err, ErrDown) {
			return nil
		}
		if !errors.Is(err, ErrDown) && !Retryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// request makes the call, the same each time it is sent.
func (p *producer) request(n uint64, bodies []string) (func(context.Context) ([]wire.ProduceResult, error), error) {
	var headers map[string]string
	var guard *wire.Producer
	if p.guard != nil {
		headers, guard = p.guard(n)
	}
	if p.upload {
		return p.uploads(n, bodies, headers, guard), nil
	}
	req := wire.ProduceRequest{Producer: guard}
	for _, b := range bodies {
		m := wire.MessageIn{Key: fmt.Sprint(p.rng.IntN(50)), Body: wire.Text(b)}
		if p.topic == Later {
			m.Delay = wire.Of(float64(p.rng.IntN(4)) / 2)
		}
		req.Messages = append(req.Messages, m)
	}
	return func(ctx context.Context) ([]wire.ProduceResult, error) {
		var out wire.ProduceAnswer
		err := Call(ctx, p.Target, Request{http.MethodPost, "/v1/topics/" + p.topic + "/messages", headers, req}, &out)
		return out.Results, err
	}, nil
}

// uploads puts each body as an object of its own and submits the references. The objects are put
// once: a repeated call submits the same ones.
func (p *producer) uploads(n uint64, bodies []string, headers map[string]string, guard *wire.Producer) func(context.Context) ([]wire.ProduceResult, error) {
	req := wire.ReferencesRequest{Producer: guard}
	return func(ctx context.Context) ([]wire.ProduceResult, error) {
		for i := len(req.References); i < len(bodies); i++ {
			object, err := p.put(ctx, bodies[i])
			if err != nil {
				return nil, err
			}
			req.References = append(req.References, wire.ReferenceIn{Object: object, Format: wire.FormatPayload, Key: fmt.Sprint(n)})
		}
		var out wire.ProduceAnswer
		err := Call(ctx, p.Target, Request{http.MethodPost, "/v1/topics/" + p.topic + "/references", headers, req}, &out)
		return out.Results, err
	}
}

func (p *producer) put(ctx context.Context, body string) (string, error) {
	var up wire.UploadsAnswer
	in := wire.UploadsRequest{Objects: []wire.ObjectIn{{Size: wire.Of(int64(len(body)))}}}
	if err := Call(ctx, p.Target, Request{http.MethodPost, "/v1/topics/" + p.topic + "/uploads", nil, in}, &up); err != nil {
		return "", err
	}
	u := up.Uploads[0]
	req, err := http.NewRequestWithContext(ctx, u.Method, u.URL, bytes.NewReader([]byte(body)))
	if err != nil {
		return "", err
	}
	for k, v := range u.Headers {
		req.Header.Set(k, v)
	}
	data, status, err := p.Target.Do(req)
	if err != nil {
		return "", err
	}
	if status >= http.StatusMultipleChoices {
		return "", fmt.Errorf("put %s: %d %s", u.Object, status, data)
	}
	return u.Object, nil
}

// consumer claims and acks, releases or forgets what it gets, until stop is closed and nothing has
// come for a while.
type consumer struct {
	*Load
	topic, sub string
	rng        *rand.Rand
}

func (c *consumer) path(verb string) string {
	return "/v1/topics/" + c.topic + "/subscriptions/" + c.sub + "/" + verb
}

// quiet is how many empty claims in a row end a consumer after stop: longer than any claim holds.
func (c *consumer) quiet() int { return 2 + int(c.Visibility/claimWait) }

func (c *consumer) run(ctx context.Context, stop <-chan struct{}) error {
	empty := 0
	for empty < c.quiet() {
		draining := false
		select {
		case <-stop:
			draining = true
		default:
		}
		n, err := c.once(ctx, draining)
		switch {
		case errors.Is(err, ErrDown) || err != nil && Retryable(err):
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		case err != nil:
			return fmt.Errorf("consumer of %s/%s: %w", c.topic, c.sub, err)
		case n == 0 && draining:
			empty++
		default:
			empty = 0
		}
	}
	return nil
}

// once claims and settles one answer's messages.
func (c *consumer) once(ctx context.Context, draining bool) (int, error) {
	req := wire.ClaimRequest{MaxMessages: wire.Of(1 + c.rng.IntN(c.Claim)), Wait: wire.Of(claimWait.Seconds())}
	if draining {
		req.MaxMessages = wire.Of(200)
	}
	asked := time.Now()
	var got wire.MessageList
	if err := Call(ctx, c.Target, Request{http.MethodPost, c.path("claims"), nil, req}, &got); err != nil {
		return 0, err
	}
	answered := time.Now()
	sub := c.topic + "/" + c.sub
	var acks, releases []wire.Message
	for i := range got.Messages {
		m := &got.Messages[i]
		c.Ledger.deliver(sub, m, asked, answered)
		switch dice := c.rng.IntN(100); {
		case draining || dice < 85:
			acks = append(acks, *m)
		case dice < 93:
			releases = append(releases, *m)
		}
	}
	if err := c.settle(ctx, sub, "ack", acks, true); err != nil {
		return len(got.Messages), err
	}
	return len(got.Messages), c.settle(ctx, sub, "release", releases, false)
}

func (c *consumer) settle(ctx context.Context, sub, verb string, messages []wire.Message, ack bool) error {
	if len(messages) == 0 {
		return nil
	}
	req := wire.ReceiptsRequest{}
	for _, m := range messages {
		c.Ledger.settle(sub, m.ID, ack)
		req.Receipts = append(req.Receipts, m.Receipt)
	}
	var out wire.ReceiptsAnswer
	if err := Call(ctx, c.Target, Request{http.MethodPost, c.path(verb), nil, req}, &out); err != nil {
		return err
	}
	now := time.Now()
	for i, r := range out.Results {
		if ack && r.OK {
			c.Ledger.ack(sub, messages[i].ID, now)
		}
	}
	return nil
}
