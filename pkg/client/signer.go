package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Signer signs calls of the API for what stands before the server, as API Gateway does. Implementations
// are safe for concurrent use.
type Signer interface {
	// Sign adds headers to a request that is complete otherwise. It is called for each try anew. Body
	// is what will be sent; neither it nor req may be kept. req.Context bounds it. An error ends the
	// call; one that is no *queue.Error becomes one of KindDenied.
	Sign(req *http.Request, body []byte) error
	// Refused hears of an answer with status 401 or 403 that does not come from the server but from
	// what stands before it, so that the call has changed nothing. It reports whether the call should
	// be signed and made once more, at once, as after the clock was corrected; and in a few words what
	// to do about it, if it knows, which becomes the error's Advice.
	Refused(r Refusal) (again bool, advice string)
}

// Refusal is an answer that refused a signed call.
type Refusal struct {
	Status int
	Header http.Header
	// Message is what the answer says; empty if it says nothing that can be read.
	Message string
}

// authorize says who calls: with a signature or a token. parent is the caller's context.
func (c *Client) authorize(parent context.Context, req *http.Request, call *call) error {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.signer == nil {
		return nil
	}
	err := c.signer.Sign(req, call.body)
	var known *queue.Error
	switch {
	case err == nil:
		return nil
	case parent.Err() != nil:
		return canceled(parent, call.op)
	case req.Context().Err() != nil: // a try's time; nothing was sent
		return &failure{&queue.Error{Op: call.op, Kind: queue.KindUnavailable, Message: "the call could not be signed in time", Err: err}}
	case errors.As(err, &known):
		out := *known
		out.Op = call.op
		return &failure{&out}
	}
	return &failure{&queue.Error{
		Op: call.op, Kind: queue.KindDenied, Code: queue.CodeUnauthorized, Message: "the call cannot be signed", Err: err,
	}}
}

// refused lets the signer say what it makes of an answer of what stands before the server.
func (c *Client) refused(resp *http.Response, e *APIError) (again bool) {
	if c.signer == nil || resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return false
	}
	again, e.Advice = c.signer.Refused(Refusal{Status: resp.StatusCode, Header: resp.Header, Message: e.gateway})
	return again
}

// maxGatewayMessage bounds, in characters, what is repeated of an answer that is not the server's.
const maxGatewayMessage = 300

// gatewayMessage reads what API Gateway, and what is like it, says in an answer; empty if nothing.
func gatewayMessage(body []byte) string {
	var answer struct{ Message string }
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(answer.Message))
	if runes := []rune(text); len(runes) > maxGatewayMessage {
		text = string(runes[:maxGatewayMessage])
	}
	return text
}
