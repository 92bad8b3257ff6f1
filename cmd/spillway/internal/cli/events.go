package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// followEvery is how often events --follow asks.
const followEvery = 2 * time.Second

func (a *app) eventsCommand() *cobra.Command {
	var topic string
	var follow bool
	limit := 20
	c := &cobra.Command{
		Use:     "events",
		Short:   "Show splits, merges and hot segments, the newest last",
		Example: "  spillway events --topic orders --follow",
		Args:    args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 || limit > queue.MaxPageSize {
				return exit.Usagef("--limit: must be 1 to %d", queue.MaxPageSize)
			}
			s, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			defer s.client.Close()
			return a.showEvents(c.Context(), s, topic, limit, follow)
		},
	}
	fs := c.Flags()
	fs.StringVar(&topic, "topic", "", "events of this `topic` only")
	fs.IntVar(&limit, "limit", limit, "most events to show of those that there are")
	fs.BoolVar(&follow, "follow", false, "go on with those that come, until interrupted")
	_ = c.RegisterFlagCompletionFunc("topic", func(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return a.completeTopic(c, nil, prefix)
	})
	return c
}

func (a *app) showEvents(ctx context.Context, s *connection, topic string, limit int, follow bool) error {
	seen := &seenEvents{at: make(map[string]queue.Millis)}
	first := true
	for {
		page, err := latestEvents(ctx, s, topic, limit)
		if err != nil {
			return err
		}
		if err := a.printEvents(s, seen.fresh(page), first); err != nil {
			return err
		}
		if !follow {
			return nil
		}
		// Enough that none is missed: leaders of all topics make a few a second at most.
		first, limit = false, queue.MaxPageSize
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followEvery):
		}
	}
}

func latestEvents(ctx context.Context, s *connection, topic string, limit int) ([]client.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.client.LatestEvents(ctx, topic, limit)
}

// seenEvents tells events that were shown from new ones. Processes whose clocks differ put events out of
// order, so that the newest one alone does not tell.
type seenEvents struct {
	at map[string]queue.Millis
	// floor is the time up to which everything counts as shown.
	floor queue.Millis
}

// fresh gives the events of a page, the newest first, that were not shown yet, the oldest first.
func (s *seenEvents) fresh(page []client.Event) []client.Event {
	var out []client.Event
	begun := len(s.at) > 0 || s.floor > 0
	for _, e := range page {
		at := e.At.Millis()
		if _, shown := s.at[e.ID]; shown || begun && at < s.floor {
			continue
		}
		s.at[e.ID] = at
		out = append(out, e)
	}
	if len(page) > 0 {
		s.floor = max(s.floor, page[0].At.Millis().Add(-queue.ClockSlack))
		if !begun { // what is older than the first page was not to be shown
			s.floor = max(s.floor, page[len(page)-1].At.Millis())
		}
	}
	for id, at := range s.at {
		if at < s.floor {
			delete(s.at, id)
		}
	}
	slices.Reverse(out)
	return out
}

// printEvents writes events, JSON as one object a line.
func (a *app) printEvents(s *connection, list []client.Event, first bool) error {
	for i := range list {
		if !s.json {
			break
		}
		line, err := jsonLine(&list[i])
		if err != nil {
			return err
		}
		if _, err := a.Stdout.Write(line); err != nil {
			return err
		}
	}
	if s.json {
		return nil
	}
	const layout = "%-24s  %-20s  %-6s  %s\n"
	if first {
		if _, err := fmt.Fprintf(a.Stdout, layout, "TIME", "TOPIC", "ACTION", "WHAT"); err != nil {
			return err
		}
	}
	for i := range list {
		e := &list[i]
		if _, err := fmt.Fprintf(a.Stdout, layout, e.At, cell(e.Topic), cell(e.Action), printable(eventText(e))); err != nil {
			return err
		}
	}
	return nil
}

// eventText says in a line what happened and why.
func eventText(e *client.Event) string {
	ranges := make([]string, len(e.Ranges))
	for i, r := range e.Ranges {
		ranges[i] = fmt.Sprint(r)
	}
	what := joinIDs(e.Segments)
	if len(e.Made) > 0 {
		what += " -> " + joinIDs(e.Made)
	}
	return fmt.Sprintf("%s %s: %s", what, strings.Join(ranges, " "), e.Reason)
}
