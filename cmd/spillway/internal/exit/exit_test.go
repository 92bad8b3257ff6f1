package exit_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/client/sigv4"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func noCredentials(text string) error {
	return &queue.Error{
		Op: "show topic", Kind: queue.KindDenied, Code: queue.CodeUnauthorized, Message: "the call cannot be signed",
		Err: &sigv4.CredentialsError{Err: errors.New(text)},
	}
}

func TestCodesAndLines(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		name string
		err  error
		code exit.Code
		line string
	}{
		{"nothing", nil, exit.OK, ""},
		{"other", errors.New("a\nb"), exit.Failure, "a b"},
		{"usage", exit.Usagef("--x: no"), exit.Usage, "--x: no"},
		{
			"no server", fmt.Errorf("x: %w", &queue.Error{Op: "claim", Kind: queue.KindUnavailable, Err: refused}),
			exit.Unavailable, "no server at http://h:1 : start one with: spillway serve",
		},
		{"no answer", context.DeadlineExceeded, exit.Unavailable, "no answer from http://h:1 in time"},
		{"no file", fs.ErrNotExist, exit.NotFound, ""},
		{
			"no topic", &queue.Error{Op: "show topic", Subject: "a", Kind: queue.KindNotFound, Code: queue.CodeTopicNotFound},
			exit.NotFound, "spillway topic create NAME",
		},
		{"sealed", &queue.Error{Kind: queue.KindSealed}, exit.Conflict, ""},
		{"invalid", queue.Invalid("ttl", 7, "is wrong"), exit.Usage, "ttl: is wrong (limit 7)"},
		{"denied", &queue.Error{Kind: queue.KindDenied, Code: queue.CodeUnauthorized}, exit.Failure, "--token-file"},
		{"forbidden", &client.APIError{Op: "show topic", Status: 403, Code: queue.CodeForbidden, Message: "no"}, exit.Failure, "--auth iam"},
		{
			"refused, with advice", &client.APIError{Op: "show topic", Status: 403, Code: queue.CodeForbidden, Message: "no", Advice: "set the clock"},
			exit.Failure, "(forbidden); set the clock",
		},
		{"no credentials", noCredentials("no EC2 IMDS role found, operation error ec2imds: GetMetadata, canceled"), exit.Failure, "set AWS_PROFILE"},
		{"an ended session", noCredentials("the SSO session has expired or is invalid"), exit.Failure, "aws sso login"},
		{"credentials that are odd", noCredentials("process\nended"), exit.Failure, "no AWS credentials: process ended"},
		{"partial", &exit.PartialError{Failed: 2, Total: 5, What: "produced"}, exit.Partial, "2 of 5 messages were not produced"},
		{"interrupted", fmt.Errorf("x: %w", exit.ErrInterrupted), exit.Interrupted, ""},
		{"silent", &exit.SilentError{Code: exit.Partial}, exit.Partial, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := exit.CodeOf(c.err); got != c.code {
				t.Errorf("code %d, want %d", got, c.code)
			}
			if c.err == nil {
				return
			}
			line := exit.Line(c.err, "http://h:1")
			if !strings.Contains(line, c.line) || strings.Contains(line, "\n") {
				t.Errorf("line %q, want %q in it", line, c.line)
			}
		})
	}
}
