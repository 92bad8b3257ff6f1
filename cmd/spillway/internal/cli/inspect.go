package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// shownBody is how many characters of a body a table shows.
const shownBody = 60

// messageJSON is a message in the API's own form, with its body.
func messageJSON(m *client.Received, body []byte) wire.Message {
	out := wire.Message{
		DelayedID: m.DelayedID, Headers: m.Headers(), DedupID: m.DedupID, Attempt: m.Attempt,
		CreatedAt: timeOf(m.Created), VisibleAt: timeOf(m.Visible), ExpiresAt: timeOf(m.Expires),
		ClaimExpiresAt: timeOf(m.ClaimExpires),
	}
	if m.DelayedID == "" {
		out.ID = m.ID.String()
	}
	if m.Receipt.Segment != "" && m.Attempt > 0 {
		out.Receipt = m.Receipt.String()
	}
	if utf8.Valid(m.Key) {
		out.Key = string(m.Key)
	} else {
		out.KeyBase64 = base64.StdEncoding.EncodeToString(m.Key)
	}
	switch {
	case len(body) == 0 && m.Size > 0: // not told
	case utf8.Valid(body):
		out.Body = client.Of(string(body))
	default:
		out.BodyBase64 = client.Of(base64.StdEncoding.EncodeToString(body))
	}
	if m.Err != nil {
		out.Error = wire.ErrorOf(m.Err)
	}
	return out
}

func timeOf(t time.Time) wire.Time { return wire.Time(queue.MillisOf(t)) }

// idOf is the id of a message, delayed or not.
func idOf(m *client.Received) string {
	if m.DelayedID != "" {
		return m.DelayedID
	}
	return m.ID.String()
}

// bodyCell makes a body fit a table.
func bodyCell(body []byte) string {
	if !utf8.Valid(body) {
		return "(" + units.FormatBytes(float64(len(body))) + ", not text)"
	}
	// Cut before the control characters are replaced, as a body may be large.
	return cell(shorten(string(body[:min(len(body), 4*shownBody)]), shownBody))
}

// printMessages writes a list of messages; JSON is one message a line, as consume prints it.
func (a *app) printMessages(ctx context.Context, s *connection, list []*client.Received) error {
	var out *table
	if !s.json {
		out = newTable(a.Stdout, "ID", "KEY", "CREATED", "VISIBLE", "SIZE", "BODY")
	}
	for _, m := range list {
		if out != nil {
			out.add(idOf(m), string(m.Key), timeOf(m.Created), timeOf(m.Visible), m.Size, listedBody(m))
			continue
		}
		var body []byte
		var err error
		if m.Err == nil {
			if body, err = m.Bytes(ctx); err != nil {
				return err
			}
		}
		line, err := jsonLine(messageJSON(m, body))
		if err != nil {
			return err
		}
		if _, err := a.Stdout.Write(line); err != nil {
			return err
		}
	}
	if out != nil {
		return out.flush()
	}
	return nil
}

// listedBody is what a table shows of a body without fetching it.
func listedBody(m *client.Received) string {
	switch {
	case m.Err != nil:
		return "(damaged)"
	case m.ByReference():
		return "(by reference)"
	case len(m.Body) == 0 && m.Size > 0:
		return "(as it was)"
	}
	return bodyCell(m.Body)
}

func (a *app) peekCommand() *cobra.Command {
	var o client.PeekOptions
	var segment, from string
	var offset uint64
	limit := 10
	c := &cobra.Command{
		Use:               "peek TOPIC",
		Short:             "Show messages without claiming them",
		Example:           "  spillway peek orders --from 1h --max 100 --include-delayed",
		Args:              args("TOPIC"),
		ValidArgsFunction: a.completeTopic,
		RunE: func(c *cobra.Command, words []string) error {
			if limit < 1 {
				return exit.Usagef("--max: must be at least 1")
			}
			if offset > 0 && segment == "" {
				return exit.Usagef("--offset needs --segment: offsets count within a segment")
			}
			o.Segment, o.Offset = queue.SegmentID(segment), queue.Offset(offset)
			if from != "" {
				p, err := parsePosition("--from", from)
				if err != nil {
					return err
				}
				o.From = p.Time.Millis().Time()
				if p.Word == client.Latest {
					return exit.Usagef("--from: there is nothing to show behind the latest message")
				}
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				list, err := peek(ctx, s.client, words[0], o, limit)
				if err != nil {
					return err
				}
				return a.printMessages(ctx, s, list)
			})
		},
	}
	fs := c.Flags()
	fs.StringVar(&segment, "segment", "", "`id` of the segment to look into")
	fs.Uint64Var(&offset, "offset", 0, "offset in the segment to begin at")
	fs.StringVar(&from, "from", "", "begin with messages created at that `time`, or that long ago")
	fs.BoolVar(&o.IncludeDelayed, "include-delayed", false, "show messages that are not visible yet, too")
	fs.IntVar(&limit, "max", limit, "most messages to show")
	return c
}

func peek(ctx context.Context, c *client.Client, topic string, o client.PeekOptions, limit int) ([]*client.Received, error) {
	var list []*client.Received
	for {
		o.Limit = min(limit-len(list), queue.MaxPageSize)
		page, err := c.Peek(ctx, topic, o)
		if err != nil {
			return nil, err
		}
		list = append(list, page.Messages...)
		if len(list) >= limit || page.NextCursor == "" {
			return list[:min(limit, len(list))], nil
		}
		o.Cursor = page.NextCursor
	}
}

func (a *app) delayedCommand() *cobra.Command {
	c := asGroup(&cobra.Command{Use: "delayed", Short: "List, change and cancel messages that are not visible yet"})
	c.AddCommand(a.delayedList(), a.delayedEdit(), a.delayedCancel())
	return c
}

func (a *app) delayedList() *cobra.Command {
	limit := 100
	c := &cobra.Command{
		Use:               "list TOPIC",
		Aliases:           []string{"ls"},
		Short:             "List delayed messages, the next one first",
		Args:              args("TOPIC"),
		ValidArgsFunction: a.completeTopic,
		RunE: func(c *cobra.Command, words []string) error {
			if limit < 1 {
				return exit.Usagef("--max: must be at least 1")
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				var list []*client.Received
				for m, err := range s.client.ListDelayed(ctx, words[0]) {
					if err != nil {
						return err
					}
					if list = append(list, m); len(list) == limit {
						break
					}
				}
				return a.printMessages(ctx, s, list)
			})
		},
	}
	c.Flags().IntVar(&limit, "max", limit, "most messages to show")
	return c
}

func (a *app) delayedEdit() *cobra.Command {
	var body, file string
	var headers []string
	var delay units.Duration
	c := &cobra.Command{
		Use:               "edit TOPIC ID",
		Short:             "Change body, headers or delay of a delayed message",
		Example:           "  spillway delayed edit orders 1767225600000-0123456789abcdef-0 --delay 5m --body '{\"n\":2}'",
		Args:              args("TOPIC", "ID"),
		ValidArgsFunction: a.completeTopic,
		RunE: func(c *cobra.Command, words []string) error {
			var edit client.DelayedEdit
			fs := c.Flags()
			if !anyChanged(c.LocalNonPersistentFlags()) {
				return exit.Usagef("nothing to change: give --body, --body-file, --header or --delay")
			}
			if fs.Changed("body") && fs.Changed("body-file") {
				return exit.Usagef("--body and --body-file exclude each other")
			}
			if fs.Changed("body") {
				edit.Body = append([]byte{}, body...)
			}
			if fs.Changed("body-file") {
				text, err := a.readBody(file)
				if err != nil {
					return err
				}
				edit.Body = text
			}
			var err error
			if edit.Headers, err = pairs("--header", headers); err != nil {
				return err
			}
			if delay.Given {
				edit.Delay = &delay.D
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				m, err := s.client.EditDelayed(ctx, words[0], words[1], edit)
				if err != nil {
					return err
				}
				// The answer does not repeat the body.
				m.Body = edit.Body
				return a.printMessages(ctx, s, []*client.Received{m})
			})
		},
	}
	fs := c.Flags()
	fs.StringVar(&body, "body", "", "new body")
	fs.StringVar(&file, "body-file", "", "`file` with the new body; - for standard input")
	fs.StringArrayVar(&headers, "header", nil, "`name=value`; those given replace all headers")
	fs.Var(&delay, "delay", "new delay, counted from when the message was produced")
	return c
}

// readBody reads a file whole, up to what a body may be.
func (a *app) readBody(path string) ([]byte, error) {
	r := a.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--body-file: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		r = f
	}
	body, err := io.ReadAll(io.LimitReader(r, queue.MaxInlineMessageBytes+1))
	if err != nil {
		return nil, fmt.Errorf("--body-file: %w", err)
	}
	if len(body) > queue.MaxInlineMessageBytes {
		return nil, exit.Usagef("--body-file: is longer than %d bytes", queue.MaxInlineMessageBytes)
	}
	return body, nil
}

func (a *app) delayedCancel() *cobra.Command {
	return &cobra.Command{
		Use:               "cancel TOPIC ID...",
		Short:             "Cancel delayed messages",
		ValidArgsFunction: a.completeTopic,
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) < 2 {
				return exit.Usagef("missing argument %s", []string{"TOPIC", "ID"}[len(words)])
			}
			return nil
		},
		RunE: func(c *cobra.Command, words []string) error {
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				ids := words[1:]
				var failed uint64
				var first error
				for _, id := range ids {
					if err := s.client.CancelDelayed(ctx, words[0], id); err != nil {
						failed++
						if first == nil {
							first = err
						}
					}
				}
				if failed > 0 && len(ids) > 1 {
					return &exit.PartialError{Failed: failed, Total: uint64(len(ids)), What: "cancelled", First: first}
				}
				return first
			})
		},
	}
}
