package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// What topics look like in the API.
type (
	// TopicConfig is what the owner of a topic sets; a nil field is not given.
	TopicConfig = wire.TopicConfig
	// TopicPatch changes a topic's config: a nil field stays as it is.
	TopicPatch = wire.TopicPatch
	// TopicEntry is one line of a listing.
	TopicEntry = wire.TopicEntry
	// Scaling is how a topic's segments follow its load, as far as its owner says.
	Scaling = wire.Scaling
	// Policy is the scaling policy in effect.
	Policy = wire.Policy
	// Topic is the status of a topic.
	Topic = wire.Topic
)

// Of gives a pointer to v, for the optional fields of a config.
func Of[T any](v T) *T { return &v }

// Seconds gives a duration in the form of a config's optional field.
func Seconds(d time.Duration) *float64 { return Of(d.Seconds()) }

// CreateTopic creates a topic; one that exists with the same config is given as it is. A nil field
// of config takes its default. ErrTopicExists if there is one with another config.
func (c *Client) CreateTopic(ctx context.Context, name string, config TopicConfig) (*Topic, error) {
	out := new(Topic)
	return out, c.onTopic(ctx, name, &call{
		op: "create topic", method: http.MethodPut, path: topicPath(name), in: &config, out: out,
	})
}

// UpdateTopic changes what patch gives and leaves the rest as it is.
func (c *Client) UpdateTopic(ctx context.Context, name string, patch TopicPatch) (*Topic, error) {
	out := new(Topic)
	return out, c.onTopic(ctx, name, &call{
		op: "update topic", method: http.MethodPatch, path: topicPath(name), in: &patch, out: out,
	})
}

// GetTopic gives a topic's status, with its segments and messages counted.
func (c *Client) GetTopic(ctx context.Context, name string) (*Topic, error) {
	out := new(Topic)
	return out, c.onTopic(ctx, name, &call{
		op: "get topic", method: http.MethodGet, path: topicPath(name), out: out,
	})
}

// DeleteTopic deletes a topic with its messages. Where an answer was lost and the topic is gone at
// the next try, it was deleted.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	return c.onTopic(ctx, name, &call{
		op: "delete topic", method: http.MethodDelete, path: topicPath(name),
	})
}

// ListTopics iterates over the topics whose names start with prefix, by name. It ends with an error
// or with the last topic.
func (c *Client) ListTopics(ctx context.Context, prefix string) iter.Seq2[*TopicEntry, error] {
	query := url.Values{}
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	return pages(ctx, c, &call{op: "list topics", path: "/v1/topics", query: query},
		func(page *wire.TopicList) ([]TopicEntry, string) { return page.Topics, page.NextCursor })
}

// onTopic makes a call that may be repeated.
func (c *Client) onTopic(ctx context.Context, topic string, call *call) error {
	if err := queue.ValidateTopicName("topic", topic); err != nil {
		return err
	}
	call.repeatable = true
	unsure, err := c.do(ctx, call)
	if unsure && call.method == http.MethodDelete && queue.Is(err, queue.KindNotFound) {
		return nil
	}
	return err
}

// maxPages bounds a listing, so that a cursor which does not end cannot hold its reader for ever.
const maxPages = 1 << 20

// pages iterates over all entries of a paged listing. T is an entry, P a page.
func pages[T, P any](ctx context.Context, c *Client, first *call, split func(*P) ([]T, string)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		cursor := ""
		for range maxPages {
			next := *first
			next.method, next.repeatable = http.MethodGet, true
			next.query = url.Values{"limit": {strconv.Itoa(queue.MaxPageSize)}}
			for k, v := range first.query {
				next.query[k] = v
			}
			if cursor != "" {
				next.query.Set("cursor", cursor)
			}
			page := new(P)
			next.out = page
			if _, err := c.do(ctx, &next); err != nil {
				yield(nil, err)
				return
			}
			entries, more := split(page)
			for i := range entries {
				if !yield(&entries[i], nil) {
					return
				}
			}
			if more == "" {
				return
			}
			if more == cursor {
				yield(nil, malformed(first.op, errors.New("its cursor does not move on")))
				return
			}
			cursor = more
		}
	}
}

// failed is a listing that gives an error alone.
func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		yield(zero, err)
	}
}

// maxDocumentBytes bounds what is read of a description of the API.
const maxDocumentBytes = 4 << 20

// Document gives the OpenAPI document that the server serves, at most 4 MiB.
func (c *Client) Document(ctx context.Context) (document []byte, err error) {
	call := &call{op: "read API document", method: http.MethodGet, path: "/v1/openapi.yaml", accept: "*/*", repeatable: true}
	call.read = func(resp *http.Response) error {
		if document, err = readBounded(resp.Body, resp.ContentLength, maxDocumentBytes); err != nil {
			return transportError(ctx, call.op, err)
		}
		if len(document) > maxDocumentBytes {
			return malformed(call.op, fmt.Errorf("longer than %d bytes", maxDocumentBytes))
		}
		return nil
	}
	if _, err := c.do(ctx, call); err != nil {
		return nil, err
	}
	return document, nil
}
