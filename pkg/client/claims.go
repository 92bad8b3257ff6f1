package client

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// ClaimOptions say what to claim. Zero fields take the defaults of the server or the subscription.
type ClaimOptions struct {
	// MaxMessages is 1 to queue.MaxClaimMessages.
	MaxMessages int
	// MaxBytes bounds the bodies together, 1 to queue.MaxClaimBytes; the first message is given
	// even if it is larger.
	MaxBytes int64
	// Wait is how long to wait for a first message, 0 to queue.MaxWait.
	Wait time.Duration
	// VisibilityTimeout is how long the claim holds, queue.MinVisibilityTimeout to
	// queue.MaxVisibilityTimeout.
	VisibilityTimeout time.Duration
	// ByReference asks for presigned URLs in place of bodies. A body that is too large for an
	// answer comes so in any case.
	ByReference bool
}

// Claim takes messages of a subscription for a while; none if there are none. One whose Err is set
// is claimed, too. A claim whose answer is cut off gives what
// arrived besides the error; what did not arrive comes back after the visibility timeout.
func (c *Client) Claim(ctx context.Context, topic, subscription string, o ClaimOptions) ([]*Received, error) {
	req := wire.ClaimRequest{}
	if o.MaxMessages > 0 {
		req.MaxMessages = &o.MaxMessages
	}
	if o.MaxBytes > 0 {
		req.MaxBytes = &o.MaxBytes
	}
	if o.Wait > 0 {
		req.Wait = Seconds(o.Wait)
	}
	if o.VisibilityTimeout > 0 {
		req.VisibilityTimeout = Seconds(o.VisibilityTimeout)
	}
	if o.ByReference {
		req.Deliver = wire.DeliverReference
	}
	f := frames{client: c, op: "claim", limit: orDefault(o.MaxMessages, queue.MaxClaimMessages)}
	var cut error
	err := c.onSubscription(ctx, topic, subscription, &call{
		op: f.op, method: http.MethodPost, in: &req, accept: wire.MediaTypeBatch, wait: o.Wait,
		// Not an error of the call: making it again would claim other messages.
		read: func(resp *http.Response) error { cut = f.readAll(ctx, resp.Body); return nil },
	}, "claims")
	if err != nil {
		return nil, err
	}
	return f.messages, cut
}

// Ack says that messages are done. It gives one error for each receipt, nil where the ack counts;
// ErrClaimLost where the claim had ended. A receipt may cover consecutive messages of one claim.
func (c *Client) Ack(ctx context.Context, topic, subscription string, receipts []Receipt) ([]error, error) {
	return c.settle(ctx, topic, subscription, settlement{"ack", receipts, &wire.ReceiptsRequest{Receipts: texts(receipts)}})
}

// ReleaseOptions say how messages are given back.
type ReleaseOptions struct {
	// Delay is how long they stay hidden, 0 to queue.MaxVisibilityTimeout, if HasDelay is set; the
	// subscription's backoff decides otherwise.
	Delay    time.Duration
	HasDelay bool
	// Uncounted: this delivery does not count towards max_deliveries.
	Uncounted bool
	// Reason goes with the messages to the dead-letter topic; cut to wire.MaxReasonBytes of UTF-8.
	Reason string
	// DeadLetter sends the messages to the dead-letter topic now.
	DeadLetter bool
}

// Release gives messages back, to be delivered again. Results are as for Ack.
func (c *Client) Release(ctx context.Context, topic, subscription string, receipts []Receipt, o ReleaseOptions) ([]error, error) {
	req := wire.ReleaseRequest{Receipts: texts(receipts), Reason: cutUTF8(o.Reason, wire.MaxReasonBytes), DeadLetter: o.DeadLetter}
	if o.HasDelay {
		req.Delay = Seconds(o.Delay)
	}
	if o.Uncounted {
		req.CountDelivery = Of(false)
	}
	return c.settle(ctx, topic, subscription, settlement{"release", receipts, &req})
}

// Extend makes claims hold until visibility from now. Results are as for Ack.
func (c *Client) Extend(ctx context.Context, topic, subscription string, receipts []Receipt, visibility time.Duration) ([]error, error) {
	return c.settle(ctx, topic, subscription, settlement{
		"extend", receipts, &wire.ExtendRequest{Receipts: texts(receipts), VisibilityTimeout: Seconds(visibility)},
	})
}

// settlement is a call about receipts; in is its body.
type settlement struct {
	verb     string
	receipts []Receipt
	in       any
}

// settle makes a call about receipts. It may be repeated: the server knows a claim by its id, and one
// that has ended is not touched again.
func (c *Client) settle(ctx context.Context, topic, subscription string, s settlement) ([]error, error) {
	if err := checkReceipts(s.receipts); err != nil {
		return nil, err
	}
	var answer wire.ReceiptsAnswer
	call := &call{op: s.verb, method: http.MethodPost, in: s.in, out: &answer}
	if err := c.onSubscription(ctx, topic, subscription, call, s.verb); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(s.receipts) {
		return nil, malformed(s.verb, errCount(len(answer.Results), len(s.receipts)))
	}
	out := make([]error, len(s.receipts))
	for i := range answer.Results {
		out[i] = apiError(s.verb, answer.Results[i].Error)
	}
	return out, nil
}

func texts(receipts []Receipt) []string {
	out := make([]string, len(receipts))
	for i, r := range receipts {
		out[i] = r.String()
	}
	return out
}
