package client

import (
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// PeekOptions say where a peek begins and what it shows. The zero value begins with the oldest
// message of each segment.
type PeekOptions struct {
	// Segment and Offset begin at one place of one segment.
	Segment queue.SegmentID
	Offset  queue.Offset
	// From begins with the messages created at that time or after it.
	From time.Time
	// IncludeDelayed shows messages that wait for their visible time, too.
	IncludeDelayed bool
	// Limit is the number of messages of a page, 1 to queue.MaxPageSize; 0 takes the server's
	// default.
	Limit int
	// Cursor continues a peek: a Page's NextCursor.
	Cursor string
}

// Page is a part of a listing of messages.
type Page struct {
	Messages []*Received
	// NextCursor continues the listing; empty at its end.
	NextCursor string
}

// Peek shows messages without claiming them.
func (c *Client) Peek(ctx context.Context, topic string, o PeekOptions) (*Page, error) {
	q := url.Values{}
	if o.Segment != "" {
		q.Set("segment", string(o.Segment))
		q.Set("offset", strconv.FormatUint(uint64(o.Offset), 10))
	}
	if !o.From.IsZero() {
		q.Set("from", queue.MillisOf(o.From).String())
	}
	if o.IncludeDelayed {
		q.Set("include_delayed", "true")
	}
	return c.messagePage(ctx, topic, &call{op: "peek", path: topicPath(topic, "messages"), query: q}, o.Limit, o.Cursor)
}

// messagePage reads one page of messages. A page of delayed messages has the same fields.
func (c *Client) messagePage(ctx context.Context, topic string, call *call, limit int, cursor string) (*Page, error) {
	if limit > 0 {
		call.query.Set("limit", strconv.Itoa(limit))
	}
	if cursor != "" {
		call.query.Set("cursor", cursor)
	}
	var answer wire.MessageList
	call.method, call.out = http.MethodGet, &answer
	if err := c.onTopic(ctx, topic, call); err != nil {
		return nil, err
	}
	list, err := receivedList(c, call.op, answer.Messages)
	if err != nil {
		return nil, err
	}
	return &Page{Messages: list, NextCursor: answer.NextCursor}, nil
}

// GetMessage gives one message. ErrMessageNotFound if there is none, or none any more.
func (c *Client) GetMessage(ctx context.Context, topic string, id MessageID) (*Received, error) {
	var answer wire.Message
	call := &call{op: "get message", method: http.MethodGet, path: topicPath(topic, "messages", id.String()), out: &answer}
	if err := c.onTopic(ctx, topic, call); err != nil {
		return nil, err
	}
	return receivedOfJSON(c, call.op, &answer)
}

// RecordsOptions say what part of a segment to read.
type RecordsOptions struct {
	Segment queue.SegmentID
	// Offset is where to begin.
	Offset queue.Offset
	// Limit is the number of records, 1 to queue.MaxPageSize; 0 takes the server's default.
	Limit int
	// Wait is how long to wait for a first record at the segment's end, 0 to queue.MaxWait.
	Wait time.Duration
}

// Records is a part of a segment, in order of offset.
type Records struct {
	Messages []*Received
	// NextOffset is where to read on; it moves past records that have expired, too.
	NextOffset queue.Offset
	// EndOfSegment: the segment is sealed and NextOffset is its end; read on in Successors.
	EndOfSegment bool
	Successors   []queue.SegmentID
}

// ReadRecords reads a segment as a log. It claims nothing and moves no subscription.
func (c *Client) ReadRecords(ctx context.Context, topic string, o RecordsOptions) (*Records, error) {
	q := url.Values{"offset": {strconv.FormatUint(uint64(o.Offset), 10)}}
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Wait > 0 {
		q.Set("wait", formatSeconds(o.Wait))
	}
	out := new(Records)
	err := c.onTopic(ctx, topic, &call{
		op: "read records", method: http.MethodGet, path: topicPath(topic, "segments", string(o.Segment), "records"),
		query: q, accept: wire.MediaTypeBatch, wait: o.Wait,
		read: func(resp *http.Response) error { return c.readRecords(ctx, resp, out) },
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func formatSeconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// readRecords decodes the stream of frames and what the headers say besides.
func (c *Client) readRecords(ctx context.Context, resp *http.Response, out *Records) error {
	*out = Records{}
	next, err := strconv.ParseUint(resp.Header.Get(wire.HeaderNextOffset), 10, 64)
	if err != nil || next > uint64(queue.MaxOffset)+1 {
		return malformed("read records", errors.New("no "+wire.HeaderNextOffset+" header"))
	}
	out.NextOffset = queue.Offset(next)
	out.EndOfSegment = resp.Header.Get(wire.HeaderEndOfSegment) == "true"
	for id := range strings.SplitSeq(resp.Header.Get(wire.HeaderSuccessors), ",") {
		if id = strings.TrimSpace(id); id != "" {
			out.Successors = append(out.Successors, queue.SegmentID(id))
		}
	}
	f := frames{client: c, limit: queue.MaxBatchRecords, op: "read records"}
	err = f.readAll(ctx, resp.Body)
	out.Messages = f.messages
	return err
}

// ListDelayed iterates over a topic's delayed messages, by visible time.
func (c *Client) ListDelayed(ctx context.Context, topic string) iter.Seq2[*Received, error] {
	return func(yield func(*Received, error) bool) {
		cursor := ""
		for range maxPages {
			page, err := c.messagePage(ctx, topic,
				&call{op: "list delayed", path: topicPath(topic, "delayed"), query: url.Values{}}, queue.DefaultPageSize, cursor)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, m := range page.Messages {
				if !yield(m, nil) {
					return
				}
			}
			if cursor = page.NextCursor; cursor == "" {
				return
			}
		}
	}
}

// DelayedEdit changes a delayed message; what is nil stays as it is.
type DelayedEdit struct {
	// Body replaces the body if it is not nil; an empty one is allowed.
	Body []byte
	// Headers replace all headers if they are not nil.
	Headers map[string]string
	// Delay counts from the message's creation, 0 to the topic's max_delay.
	Delay *time.Duration
}

// EditDelayed changes a message before it becomes visible, and gives it without its body.
// ErrAlreadyPromoted if it has become visible.
func (c *Client) EditDelayed(ctx context.Context, topic, id string, edit DelayedEdit) (*Received, error) {
	patch := wire.DelayedPatch{Headers: edit.Headers}
	if edit.Body != nil {
		patch.BodyBase64 = wire.Text(base64.StdEncoding.EncodeToString(edit.Body))
	}
	if edit.Delay != nil {
		patch.Delay = Seconds(*edit.Delay)
	}
	var answer wire.Message
	call := &call{op: "edit delayed", method: http.MethodPatch, path: topicPath(topic, "delayed", id), in: &patch, out: &answer}
	if err := c.onTopic(ctx, topic, call); err != nil {
		return nil, err
	}
	return receivedOfJSON(c, call.op, &answer)
}

// CancelDelayed removes a message before it becomes visible. ErrAlreadyPromoted if it has. Where an
// answer was lost and the message is gone at the next try, it was cancelled.
func (c *Client) CancelDelayed(ctx context.Context, topic, id string) error {
	return c.onTopic(ctx, topic, &call{
		op: "cancel delayed", method: http.MethodDelete, path: topicPath(topic, "delayed", id),
	})
}

// GetDelayed gives one delayed message. ErrAlreadyPromoted if it has become visible.
func (c *Client) GetDelayed(ctx context.Context, topic, id string) (*Received, error) {
	var answer wire.Message
	call := &call{op: "get delayed", method: http.MethodGet, path: topicPath(topic, "delayed", id), out: &answer}
	if err := c.onTopic(ctx, topic, call); err != nil {
		return nil, err
	}
	return receivedOfJSON(c, call.op, &answer)
}
