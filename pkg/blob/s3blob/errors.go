package s3blob

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Codes of S3's errors (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
const (
	codeConflict     = "ConditionalRequestConflict"
	codeNoSuchKey    = "NoSuchKey"
	codeNoSuchBucket = "NoSuchBucket"
	codeNoSuchUpload = "NoSuchUpload"
	codeSlowDown     = "SlowDown"
)

// effect says what a call may have done when it ends in doubt.
type effect bool

const (
	// reading: the call changes nothing that anyone can see.
	reading effect = false
	// writing: the call may have taken effect.
	writing effect = true
)

// watch is the Retryer of one call of the SDK. It decides nothing; it remembers whether an attempt
// that failed was doubtful, for the SDK gives only the error of the last one. Not safe for concurrent
// use, and needs not be: attempts follow one another.
type watch struct {
	aws.RetryerV2
	doubt bool
}

func (w *watch) over(inner aws.Retryer) aws.Retryer {
	v2, ok := inner.(aws.RetryerV2)
	if !ok {
		// Nothing in the SDK is so. Attempts that are not seen may have been doubtful.
		w.doubt = true
		return inner
	}
	w.RetryerV2 = v2
	return w
}

// IsErrorRetryable is asked once for each attempt that failed.
func (w *watch) IsErrorRetryable(err error) bool {
	w.doubt = w.doubt || doubtful(err)
	return w.RetryerV2.IsErrorRetryable(err)
}

// believe refuses the answer to a write that did not come from S3, which gives every object an ETag,
// but from something between us that says 200 to all.
func (w *watch) believe(etag *string) error {
	if aws.ToString(etag) != "" {
		return nil
	}
	w.doubt = true
	return errors.New("the answer has no ETag: it is not from S3")
}

// doubtful reports whether the attempt that ended with err may have taken effect.
func doubtful(err error) bool {
	if status, code := answerOf(err); status != 0 {
		// S3 answers SlowDown before it does anything. Any other 5xx, or an answer that cannot
		// be understood, says nothing.
		return code != codeSlowDown && (status < http.StatusBadRequest || status >= http.StatusInternalServerError)
	}
	var send *smithyhttp.RequestSendError
	if !errors.As(err, &send) {
		// It ended before it was sent: no credentials, say.
		return false
	}
	var netErr *net.OpError
	return !errors.As(send.Err, &netErr) || netErr.Op != "dial"
}

// answerOf is the HTTP status and S3's code of an answer; 0 if none came.
func answerOf(err error) (status int, code string) {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	return status, code
}

// call is what an error is about.
type call struct {
	ctx    context.Context // a call lives no longer than its context
	op     string
	key    string
	effect effect
}

// fail translates the end of a call of the SDK.
func (c call) fail(w *watch, err error) *queue.Error {
	status, code := answerOf(err)
	e := &queue.Error{Op: c.op, Subject: c.key, Err: err}
	if c.ctx.Err() != nil {
		// The SDK's error tells of it, too, but not always in a form that errors.Is finds.
		e.Kind, e.Err = queue.KindCanceled, c.ctx.Err()
		return e
	}
	e.Kind, e.Message = kindOf(status, code)
	switch {
	case e.Kind == queue.KindNotFound:
		e.Code = queue.CodeObjectNotFound
	case e.Kind == queue.KindExists:
		e.Message = blob.Exists(c.key).Message
	case c.effect == writing && (e.Kind == queue.KindUnavailable || e.Kind == queue.KindThrottled) &&
		(w.doubt || doubtful(err)):
		e.Kind = queue.KindOutcomeUnknown
	}
	return e
}

// refusedKey is the error of a DeleteObjects that was carried out for some keys only.
func (c call) refusedKey(one *types.Error, failed, of int) *queue.Error {
	code := aws.ToString(one.Code)
	e := &queue.Error{
		Op: c.op, Subject: aws.ToString(one.Key),
		Message: fmt.Sprintf("%d of %d keys were not deleted, this one for %s", failed, of, code),
	}
	switch code {
	case "InternalError", "ServiceUnavailable":
		e.Kind = queue.KindOutcomeUnknown
	case "AccessDenied":
		e.Kind = queue.KindInternal
	default:
		e.Kind, _ = kindOf(http.StatusBadRequest, code)
	}
	return e
}

// kindOf is the kind of an answer, doubt left aside, and a message where the code alone does not say
// what to do. status is 0 if no answer came.
func kindOf(status int, code string) (queue.Kind, string) {
	if _, ok := retry.DefaultThrottleErrorCodes[code]; ok || code == codeSlowDown || status == http.StatusTooManyRequests {
		return queue.KindThrottled, ""
	}
	switch code {
	case codeNoSuchBucket:
		return queue.KindInternal, "the bucket does not exist: deploy it, or correct the setting"
	case codeNoSuchUpload:
		return queue.KindUnavailable, "the upload in parts has ended without an object"
	case "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "IncompleteBody":
		// The bytes were checked here before they were sent.
		return queue.KindUnavailable, "the bytes changed on their way"
	case "RequestTimeout", codeConflict, "OperationAborted":
		return queue.KindUnavailable, ""
	case "EntityTooLarge":
		return queue.KindTooLarge, ""
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		return queue.KindInternal, "the store refuses our credentials: " + code
	case "XMinioStorageFull", "QuotaExceeded":
		return queue.KindFull, ""
	}
	switch {
	case status == http.StatusNotFound:
		return queue.KindNotFound, ""
	case status == http.StatusPreconditionFailed:
		return queue.KindExists, ""
	case status == http.StatusRequestedRangeNotSatisfiable:
		return queue.KindInvalid, "span: does not lie in the object"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return queue.KindInternal, "the store refuses our credentials: " + code
	case status == http.StatusInsufficientStorage:
		return queue.KindFull, ""
	case status == 0, status < http.StatusBadRequest, status >= http.StatusInternalServerError:
		if status == http.StatusNotImplemented {
			return queue.KindInternal, "the store cannot do what we need of S3"
		}
		return queue.KindUnavailable, ""
	}
	return queue.KindInternal, ""
}
