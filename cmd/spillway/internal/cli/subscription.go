package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

func (a *app) subscriptionCommand() *cobra.Command {
	c := asGroup(&cobra.Command{
		Use: "subscription", Aliases: []string{"subscriptions", "sub"},
		Short: "Create, list, show, change, delete and move subscriptions",
	})
	c.AddCommand(a.subscriptionCreate(), a.subscriptionList(), a.subscriptionShow(),
		a.subscriptionUpdate(), a.subscriptionDelete(), a.subscriptionSeek())
	return c
}

// subscriptionFlags are the flags of a subscription's config.
type subscriptionFlags struct {
	visibility                 units.Duration
	maxDeliveries, maxInFlight int
	deadLetter, start, backoff string
	ordering                   string
}

func (f *subscriptionFlags) register(fs *pflag.FlagSet) {
	fs.Var(&f.visibility, "visibility-timeout", "how long a claim holds (default 30s)")
	fs.IntVar(&f.maxDeliveries, "max-deliveries", 0, "deliveries after which a message is given up; 0 for no limit")
	fs.StringVar(&f.deadLetter, "dead-letter-topic", "", "`topic` that takes messages which are given up")
	fs.IntVar(&f.maxInFlight, "max-in-flight", 0, "most messages claimed at once, in each segment")
	fs.StringVar(&f.backoff, "backoff", "", "`delays` after the first, second, … failed delivery, as in 1s,10s,5m")
}

func (f *subscriptionFlags) config(fs *pflag.FlagSet) (client.SubscriptionConfig, error) {
	c := client.SubscriptionConfig{VisibilityTimeout: f.visibility.Seconds()}
	if fs.Changed("max-deliveries") {
		c.MaxDeliveries = &f.maxDeliveries
	}
	if fs.Changed("max-in-flight") {
		c.MaxInFlight = &f.maxInFlight
	}
	if fs.Changed("dead-letter-topic") {
		c.DeadLetterTopic = &f.deadLetter
	}
	if fs.Changed("backoff") {
		steps := []float64{}
		for word := range strings.SplitSeq(f.backoff, ",") {
			if f.backoff == "" {
				break
			}
			d, err := units.ParseDuration(strings.TrimSpace(word))
			if err != nil {
				return c, exit.Usagef("--backoff: %w", err)
			}
			steps = append(steps, d.Seconds())
		}
		c.Backoff = &steps
	}
	if f.ordering != "" {
		c.Ordering = &f.ordering
	}
	if f.start != "" {
		p, err := parsePosition("--start", f.start)
		if err != nil {
			return c, err
		}
		c.Start = &p
	}
	return c, nil
}

// parsePosition reads earliest, latest, a time, or how long ago.
func parsePosition(flag, text string) (client.Position, error) {
	if text == client.Earliest || text == client.Latest {
		return client.Position{Word: text}, nil
	}
	if ago, err := units.ParseDuration(text); err == nil {
		at, err := wire.ParseTime(flag, time.Now().Add(-ago).Format(time.RFC3339Nano))
		return client.Position{Time: wire.Time(at)}, err
	}
	at, err := wire.ParseTime(flag, text)
	if err != nil {
		return client.Position{}, exit.Usagef(
			"%s: %q is none of earliest, latest, a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h", flag, text)
	}
	return client.Position{Time: wire.Time(at)}, nil
}

func (a *app) subscriptionCreate() *cobra.Command {
	var f subscriptionFlags
	c := &cobra.Command{
		Use:               "create TOPIC NAME",
		Short:             "Create a subscription; the same again is no error",
		Example:           "  spillway subscription create shop.orders billing --start earliest --max-deliveries 5 --dead-letter-topic shop.failed",
		Args:              args("TOPIC", "NAME"),
		ValidArgsFunction: a.completeTopic,
		RunE:              a.subscriptionChange(&f, (*client.Client).CreateSubscription),
	}
	f.register(c.Flags())
	c.Flags().StringVar(&f.start, "start", "", "where it begins: earliest, latest, a time or how long ago (default latest)")
	c.Flags().StringVar(&f.ordering, "ordering", "", "none, or key: those of one key one after another (default none)")
	return c
}

func (a *app) subscriptionUpdate() *cobra.Command {
	var f subscriptionFlags
	c := &cobra.Command{
		Use:               "update TOPIC NAME",
		Short:             "Change the config of a subscription; what is not given stays",
		Args:              args("TOPIC", "NAME"),
		ValidArgsFunction: a.completeSubscription,
	}
	f.register(c.Flags())
	change := a.subscriptionChange(&f, (*client.Client).UpdateSubscription)
	c.RunE = func(c *cobra.Command, words []string) error {
		if !anyChanged(c.LocalNonPersistentFlags()) {
			return exit.Usagef("nothing to change: give at least one flag")
		}
		return change(c, words)
	}
	return c
}

type changeSubscription func(*client.Client, context.Context, string, string, client.SubscriptionConfig) (*client.Subscription, error)

func (a *app) subscriptionChange(f *subscriptionFlags, do changeSubscription) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, words []string) error {
		config, err := f.config(c.Flags())
		if err != nil {
			return err
		}
		return a.call(c.Context(), func(ctx context.Context, s *connection) error {
			sub, err := do(s.client, ctx, words[0], words[1], config)
			if err != nil {
				return err
			}
			return a.printSubscription(s, sub)
		})
	}
}

func (a *app) subscriptionList() *cobra.Command {
	return &cobra.Command{
		Use:               "list TOPIC",
		Aliases:           []string{"ls"},
		Short:             "List the subscriptions of a topic",
		Args:              args("TOPIC"),
		ValidArgsFunction: a.completeTopic,
		RunE: func(c *cobra.Command, words []string) error {
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				list := []*client.Subscription{}
				for sub, err := range s.client.ListSubscriptions(ctx, words[0]) {
					if err != nil {
						return err
					}
					list = append(list, sub)
				}
				if s.json {
					return printJSON(a.Stdout, list)
				}
				out := newTable(a.Stdout, "SUBSCRIPTION", "VISIBILITY", "MAX DELIVERIES", "DEAD LETTER TOPIC", "ORDERING", "CREATED")
				for _, sub := range list {
					out.add(sub.Name, seconds(sub.Config.VisibilityTimeout), optional(sub.Config.MaxDeliveries),
						optional(sub.Config.DeadLetterTopic), optional(sub.Config.Ordering), sub.CreatedAt)
				}
				return out.flush()
			})
		},
	}
}

func (a *app) subscriptionShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show TOPIC NAME",
		Short:             "Show config and counts of a subscription",
		Args:              args("TOPIC", "NAME"),
		ValidArgsFunction: a.completeSubscription,
		RunE: func(c *cobra.Command, words []string) error {
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				sub, err := s.client.GetSubscription(ctx, words[0], words[1])
				if err != nil {
					return err
				}
				return a.printSubscription(s, sub)
			})
		},
	}
}

func (a *app) printSubscription(s *connection, sub *client.Subscription) error {
	if s.json {
		return printJSON(a.Stdout, sub)
	}
	out := newTable(a.Stdout)
	out.add("subscription", sub.Name)
	out.add("topic", sub.Topic)
	out.add("created", sub.CreatedAt)
	out.add("modified", sub.ModifiedAt)
	config := sub.Config
	out.add("ordering", optional(config.Ordering))
	out.add("visibility timeout", seconds(config.VisibilityTimeout))
	out.add("max deliveries", optional(config.MaxDeliveries))
	out.add("dead letter topic", optional(config.DeadLetterTopic))
	out.add("max in flight", optional(config.MaxInFlight))
	if config.Backoff != nil && len(*config.Backoff) > 0 {
		steps := make([]string, len(*config.Backoff))
		for i := range steps {
			steps[i] = seconds(&(*config.Backoff)[i])
		}
		out.add("backoff", strings.Join(steps, ", "))
	}
	if st := sub.Status; st != nil {
		out.add("messages", fmt.Sprintf("%s ready, %s in flight, %s delayed", units.Group(int64(st.Ready)),
			units.Group(int64(st.InFlight)), units.Group(int64(st.Delayed))))
		if st.OldestAge != nil {
			out.add("oldest", seconds(st.OldestAge))
		}
		done := 0
		for _, seg := range st.Segments {
			// Sealed segments stay for good: of a topic that has been reshaped often most are done.
			if seg.Floor == seg.End && seg.Ready+seg.InFlight+seg.Delayed == 0 {
				done++
				continue
			}
			out.add("segment "+string(seg.Segment), fmt.Sprintf("done below %d, next %d, end %d; %d ready, %d in flight, %d delayed",
				seg.Floor, seg.Next, seg.End, seg.Ready, seg.InFlight, seg.Delayed))
		}
		out.add("segments done", fmt.Sprintf("%s of %s", units.Group(int64(done)), units.Group(int64(len(st.Segments)))))
	}
	return out.flush()
}

func (a *app) subscriptionDelete() *cobra.Command {
	return &cobra.Command{
		Use:               "delete TOPIC NAME",
		Short:             "Delete a subscription with its position",
		Args:              args("TOPIC", "NAME"),
		ValidArgsFunction: a.completeSubscription,
		RunE: func(c *cobra.Command, words []string) error {
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				return s.client.DeleteSubscription(ctx, words[0], words[1])
			})
		},
	}
}

func (a *app) subscriptionSeek() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "seek TOPIC NAME --to POSITION",
		Short: "Move a subscription: back to read again, or ahead to skip",
		Example: `  spillway subscription seek orders billing --to earliest
  spillway subscription seek orders billing --to 2h
  spillway subscription seek orders billing --to 2026-01-31T12:00:00Z`,
		Args:              args("TOPIC", "NAME"),
		ValidArgsFunction: a.completeSubscription,
		RunE: func(c *cobra.Command, words []string) error {
			if to == "" {
				return exit.Usagef("--to is missing: give earliest, latest, a time or how long ago")
			}
			position, err := parsePosition("--to", to)
			if err != nil {
				return err
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				return s.client.Seek(ctx, words[0], words[1], position)
			})
		},
	}
	c.Flags().StringVar(&to, "to", "", "`position`: earliest, latest, a time or how long ago")
	return c
}
