package queue

// Code is the stable word of an API error; clients switch on it. The table below is its only
// source: status and retriability are looked up here, and docs/openapi.yaml is checked against it.
type Code string

// The codes of the API.
const (
	CodeInvalidArgument       Code = "invalid_argument"
	CodeUnauthorized          Code = "unauthorized"
	CodeForbidden             Code = "forbidden"
	CodeRouteNotFound         Code = "route_not_found"
	CodeMethodNotAllowed      Code = "method_not_allowed"
	CodeTopicNotFound         Code = "topic_not_found"
	CodeSubscriptionNotFound  Code = "subscription_not_found"
	CodeSegmentNotFound       Code = "segment_not_found"
	CodeMessageNotFound       Code = "message_not_found"
	CodeDelayedNotFound       Code = "delayed_not_found"
	CodeObjectNotFound        Code = "object_not_found"
	CodeNotFound              Code = "not_found"
	CodeTopicExists           Code = "topic_exists"
	CodeSubscriptionExists    Code = "subscription_exists"
	CodeExists                Code = "exists"
	CodeTopicSealed           Code = "topic_sealed"
	CodeSegmentSealed         Code = "segment_sealed"
	CodeSegmentBounds         Code = "segment_bounds"
	CodeClaimLost             Code = "claim_lost"
	CodeAlreadyPromoted       Code = "already_promoted"
	CodeSequenceOutOfOrder    Code = "sequence_out_of_order"
	CodeIdempotencyInProgress Code = "idempotency_in_progress"
	CodeIdempotencyMismatch   Code = "idempotency_mismatch"
	CodeFenced                Code = "fenced"
	CodeConflict              Code = "conflict"
	CodeTooLarge              Code = "too_large"
	CodeUnsupportedMediaType  Code = "unsupported_media_type"
	CodeObjectInvalid         Code = "object_invalid"
	CodeThrottled             Code = "throttled"
	CodeTooManyInFlight       Code = "too_many_in_flight"
	CodeUnavailable           Code = "unavailable"
	CodeOutcomeUnknown        Code = "outcome_unknown"
	CodeStorageFull           Code = "storage_full"
	CodeCorrupt               Code = "corrupt"
	CodeCanceled              Code = "canceled"
	CodeInternal              Code = "internal"
)

// CodeInfo is one row of the code table.
type CodeInfo struct {
	Code      Code
	Status    int // HTTP status
	Retryable bool
	Doc       string
}

// codeTable is ordered as the documentation prints it.
var codeTable = [...]CodeInfo{
	{CodeInvalidArgument, 400, false, "A field breaks a rule; details name the field and its limit."},
	{CodeObjectInvalid, 400, false, "A referenced object has another size, checksum or format than said."},
	{CodeUnauthorized, 401, false, "No valid credentials came with the call."},
	{CodeForbidden, 403, false, "The signature of a presigned URL does not fit, or it has expired."},
	{CodeRouteNotFound, 404, false, "No such path in the API."},
	{CodeTopicNotFound, 404, false, "No topic has that name."},
	{CodeSubscriptionNotFound, 404, false, "The topic has no subscription of that name."},
	{CodeSegmentNotFound, 404, false, "The topic has no such segment."},
	{CodeMessageNotFound, 404, false, "No message has that id, or it has expired or been truncated."},
	{CodeDelayedNotFound, 404, false, "No delayed message has that id."},
	{CodeObjectNotFound, 404, false, "No object has that key."},
	{CodeNotFound, 404, false, "The subject of the call does not exist."},
	{CodeMethodNotAllowed, 405, false, "The path exists, but not with that method."},
	{CodeTopicExists, 409, false, "A topic of that name exists with another config."},
	{CodeSubscriptionExists, 409, false, "A subscription of that name exists with another config."},
	{CodeExists, 409, false, "The subject exists already and is not replaced."},
	{CodeTopicSealed, 409, false, "The topic takes no more messages."},
	{CodeSegmentSealed, 409, false, "The segment has been split or merged; its successors take its messages."},
	{CodeSegmentBounds, 409, false, "The topic would have fewer segments than its minimum or more than its maximum."},
	{CodeClaimLost, 409, false, "The receipt's claim has ended: the message was claimed anew, released or dead-lettered."},
	{CodeAlreadyPromoted, 409, false, "The delayed message has become visible and can no longer be changed."},
	{CodeSequenceOutOfOrder, 409, false, "The producer's sequence is older than the last one and no longer remembered."},
	{CodeIdempotencyInProgress, 409, true, "A call with the same Idempotency-Key has not finished yet."},
	{CodeFenced, 409, false, "Another owner has taken over; the write had no effect."},
	{CodeConflict, 409, true, "Someone else changed the subject at the same time."},
	{CodeTooLarge, 413, false, "The input is past a size limit; details name the field and its limit."},
	{CodeUnsupportedMediaType, 415, false, "The Content-Type is not one that the call takes."},
	{CodeIdempotencyMismatch, 422, false, "The Idempotency-Key was used with another body."},
	{CodeThrottled, 429, true, "Too many calls at once; wait for Retry-After."},
	{CodeTooManyInFlight, 429, true, "The subscription's limit of messages in flight is reached; ack or release some first."},
	{CodeCanceled, 499, true, "The caller went away before the call had an outcome."},
	{CodeInternal, 500, false, "A fault of the server; the log has the request id."},
	{CodeCorrupt, 500, false, "Stored data fails its checksum."},
	{CodeUnavailable, 503, true, "A store did not answer in time; nothing was changed."},
	{CodeOutcomeUnknown, 503, true, "A store did not say whether the write took effect; a retry under the same producer sequence or Idempotency-Key is safe."},
	{CodeStorageFull, 507, true, "The storage has no room; nothing was changed."},
}

// Codes lists the whole table; the caller may change its copy.
func Codes() []CodeInfo { return append([]CodeInfo(nil), codeTable[:]...) }

// Info finds the row of c; an unknown code is answered as CodeInternal.
func (c Code) Info() CodeInfo {
	var internal CodeInfo
	for _, row := range codeTable {
		if row.Code == c {
			return row
		}
		if row.Code == CodeInternal {
			internal = row
		}
	}
	return internal
}

// Status is the HTTP status that goes with c.
func (c Code) Status() int { return c.Info().Status }

// Retryable reports whether a call that was answered with c may be made again as it is.
func (c Code) Retryable() bool { return c.Info().Retryable }

func defaultCode(k Kind) Code {
	switch k {
	case KindNotFound:
		return CodeNotFound
	case KindExists:
		return CodeExists
	case KindConflict:
		return CodeConflict
	case KindFenced:
		return CodeFenced
	case KindSealed:
		return CodeTopicSealed
	case KindInvalid:
		return CodeInvalidArgument
	case KindTooLarge:
		return CodeTooLarge
	case KindThrottled:
		return CodeThrottled
	case KindUnavailable:
		return CodeUnavailable
	case KindCorrupt:
		return CodeCorrupt
	case KindOutcomeUnknown:
		return CodeOutcomeUnknown
	case KindDenied:
		return CodeForbidden
	case KindFull:
		return CodeStorageFull
	case KindCanceled:
		return CodeCanceled
	case KindInternal:
		return CodeInternal
	}
	return CodeInternal
}
