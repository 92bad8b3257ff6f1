package cloud

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Check asks table and bucket once each whether they are there, may be used, and are ours: that the table has the
// store's keys, and that this program can read its first topic name, if there is one. It costs a query of one
// record and a listing of one key, and needs no right that serving does not need.
//
// Errors name the table or the bucket and say what to do: NotFound if it is missing; Denied without credentials, or
// where they lack a right; Corrupt if the table has other keys, or records of another program or a newer version;
// the store's for everything else.
func (s *Stores) Check(ctx context.Context) error {
	// The lower bound has the table compare sort keys, so that one without them shows.
	names := meta.Range{PK: meta.NamespacePK, From: firstName, Limit: 1}
	if _, err := s.Meta.Query(ctx, names); err != nil {
		return explain(err, "open table", s.config.Table)
	}
	if _, err := s.Blob.List(ctx, blob.PrefixBatches, "", 1); err != nil {
		return explain(err, "open bucket", s.config.Bucket)
	}
	return nil
}

// firstName is below the name of any topic.
const firstName = "!"

// explain tells whoever starts a process what a store's first error means.
func explain(err error, op, subject string) error {
	e := &queue.Error{Op: op, Subject: subject, Kind: queue.KindOf(err), Err: err}
	var api smithy.APIError
	code := ""
	if errors.As(err, &api) {
		code, e.Err = api.ErrorCode(), api // what wraps it says nothing that is not said here
	}
	switch {
	case code == "ResourceNotFoundException", code == "NoSuchBucket":
		e.Kind, e.Code = queue.KindNotFound, queue.CodeNotFound
		e.Message = "there is none of that name here: check name, region and account"
	case code == "ValidationException", code == "ValidationError":
		e.Kind = queue.KindCorrupt
		e.Message = "it is not a table of Spillway: its keys must be the strings pk and sk"
	case e.Kind == queue.KindCorrupt:
		e.Message = "it holds records of another program, or of a newer version of this one"
	case code == "PermanentRedirect", code == "IllegalLocationConstraintException", code == "AuthorizationHeaderMalformed":
		e.Kind, e.Message = queue.KindInvalid, "it is in another region"
	case errors.Is(err, context.DeadlineExceeded):
		// Without its cause: a command line that sees a deadline takes it for one of its own.
		e.Kind, e.Message, e.Err = queue.KindUnavailable, "no answer in time", nil
	case strings.Contains(err.Error(), "get identity: "):
		e.Kind, e.Message = queue.KindDenied, "no AWS credentials were found"
	case strings.Contains(code, "AccessDenied"), strings.Contains(code, "Token"), strings.Contains(code, "Signature"),
		code == "UnrecognizedClientException", code == "InvalidAccessKeyId", code == "Forbidden":
		e.Kind, e.Message = queue.KindDenied, "the credentials are not accepted, or lack a right (docs/aws.md lists them)"
	case e.Kind == queue.KindUnavailable && e.Message == "":
		e.Message = "it cannot be reached"
	}
	return e
}
