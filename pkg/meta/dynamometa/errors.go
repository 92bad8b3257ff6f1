package dynamometa

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// call follows one call of the client through its tries.
type call struct {
	op, subject string
	write       bool
	// seen: the client reported at least one try; lost: one of them may have taken effect.
	seen, lost bool
	// single: the client must not send the request again once a try may have taken effect.
	single bool
}

// watch hands the client a retryer that notes how each try ended: a later try's clean refusal says
// nothing about an earlier one whose answer was lost.
func (c *call) watch(o *dynamodb.Options) {
	if o.Retryer == nil {
		return
	}
	o.Retryer = &watcher{Retryer: o.Retryer, call: c}
}

// watcher is the client's retryer, watched.
type watcher struct {
	aws.Retryer
	call *call
}

// IsErrorRetryable implements aws.Retryer. The client asks it of each try that failed.
func (w *watcher) IsErrorRetryable(err error) bool {
	w.call.note(err)
	if w.call.single && w.call.lost {
		return false
	}
	return w.Retryer.IsErrorRetryable(err)
}

// GetAttemptToken implements aws.RetryerV2.
func (w *watcher) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	if v2, ok := w.Retryer.(aws.RetryerV2); ok {
		return v2.GetAttemptToken(ctx)
	}
	return w.Retryer.GetInitialToken(), nil
}

func (c *call) note(err error) {
	c.seen = true
	if _, definite := classify(err); !definite {
		c.lost = true
	}
}

// fail translates the error that a call ended with.
func (c *call) fail(ctx context.Context, err error) error {
	if !c.seen {
		c.note(err)
	}
	kind, _ := classify(err)
	message := messageOf(err)
	switch {
	case c.write && c.lost:
		kind = queue.KindOutcomeUnknown
	case ctx.Err() != nil:
		// No try is on its way: a write that was would count as lost.
		kind, err = queue.KindCanceled, errors.Join(context.Cause(ctx), err)
	}
	return &queue.Error{Op: c.op, Subject: c.subject, Kind: kind, Message: message, Err: err}
}

// unknown is the answer to a condition that did not hold, perhaps because an earlier try made it so.
func (c *call) unknown(err error) error {
	return &queue.Error{
		Op: c.op, Subject: c.subject, Kind: queue.KindOutcomeUnknown, Err: err,
		Message: "a retry found the record changed, perhaps by the try whose answer was lost",
	}
}

// classify finds the kind of a client's error, and whether it is certain that the request changed
// nothing. What is not known is not certain.
func classify(err error) (kind queue.Kind, definite bool) {
	var api smithy.APIError
	var res *smithyhttp.ResponseError
	var dial *net.OpError
	switch {
	case errors.As(err, &res) && res.HTTPStatusCode() == http.StatusRequestEntityTooLarge:
		return queue.KindTooLarge, true
	case errors.As(err, &res) && res.HTTPStatusCode() >= http.StatusInternalServerError:
		return queue.KindUnavailable, false
	case errors.As(err, &api):
		return classifyCode(api)
	case errors.As(err, &dial) && dial.Op == "dial":
		return queue.KindUnavailable, true
	case strings.Contains(err.Error(), "get identity: "):
		return queue.KindUnavailable, true // no credentials, for which the client has no type: nothing was sent
	}
	return queue.KindUnavailable, false
}

func classifyCode(api smithy.APIError) (queue.Kind, bool) {
	switch api.ErrorCode() {
	case "ConditionalCheckFailedException", "TransactionConflictException", "ReplicatedWriteConflictException",
		"TransactionCanceledException":
		return queue.KindConflict, true
	case "ProvisionedThroughputExceededException", "ThrottlingException", "ThrottledException", "Throttling",
		"RequestLimitExceeded", "TooManyRequestsException", "LimitExceededException", "RequestThrottledException",
		"RequestThrottled", "SlowDown":
		return queue.KindThrottled, true
	case "ItemCollectionSizeLimitExceededException":
		return queue.KindFull, true
	case "ValidationException", "ValidationError":
		if isTooLarge(api.ErrorMessage()) {
			return queue.KindTooLarge, true
		}
		return queue.KindInternal, true
	case "InternalServerError", "InternalFailure", "ServiceUnavailable", "TransactionInProgressException",
		"IdempotentParameterMismatchException", "RequestTimeout", "RequestTimeoutException":
		return queue.KindUnavailable, false
	}
	if api.ErrorFault() == smithy.FaultServer {
		return queue.KindUnavailable, false
	}
	// The table is missing, or the caller's rights, credentials or clock are wrong: whoever runs the
	// service has to act, and until then it is not available.
	return queue.KindUnavailable, true
}

// isTooLarge recognises what DynamoDB says of an item or a transaction past its limits. There is no
// code of its own for it.
func isTooLarge(message string) bool {
	return strings.Contains(message, "size has exceeded") || strings.Contains(message, "size to update has exceeded") ||
		strings.Contains(message, "aggregate size")
}

// messageOf says to an operator what to do, where that is known.
func messageOf(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	switch api.ErrorCode() {
	case "ResourceNotFoundException":
		return "the table is missing: check its name, region and that the stack is deployed"
	case "ValidationException":
		if wrongKeys(strings.ToLower(api.ErrorMessage())) {
			return "the table's keys are not pk and sk: it is another program's table, or an older version's; correct the setting"
		}
	case "AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "MissingAuthenticationTokenException":
		return "the table's service does not accept the credentials or they lack a right"
	}
	return ""
}

// wrongKeys recognises what DynamoDB says of a request with the keys of another table. There is no code of its own
// for it, and each kind of request has words of its own.
func wrongKeys(message string) bool {
	return strings.Contains(message, "key element") || strings.Contains(message, "key schema") ||
		strings.Contains(message, "missing the key") || strings.Contains(message, "conditions on the keys")
}

// conflicted reports whether a write was refused because a transaction held its record just then.
func conflicted(err error) bool {
	var c *types.TransactionConflictException
	var r *types.ReplicatedWriteConflictException
	return errors.As(err, &c) || errors.As(err, &r)
}

// refusedWith gives the item that a condition did not hold for; nil if there was none, or if the
// server did not say.
func refusedWith(err error) (attrs, bool) {
	var c *types.ConditionalCheckFailedException
	if !errors.As(err, &c) {
		return nil, false
	}
	return c.Item, true
}
