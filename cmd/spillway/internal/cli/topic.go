package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
)

func (a *app) topicCommand() *cobra.Command {
	c := asGroup(&cobra.Command{Use: "topic", Aliases: []string{"topics"}, Short: "Create, list, show, change and delete topics"})
	c.AddCommand(a.topicCreate(), a.topicList(), a.topicShow(), a.topicUpdate(), a.topicDelete())
	return c
}

// topicFlags are the flags of a topic's config.
type topicFlags struct {
	defaultDelay, maxDelay, defaultTTL units.Duration
	maxMessage                         units.Size
	partitionKey                       string
	segments                           int
	minSegments, maxSegments           int
	targetMessages                     int64
	targetBytes                        units.Size
	attributes, removed                []string
}

func (f *topicFlags) register(fs *pflag.FlagSet, create bool) {
	fs.Var(&f.defaultDelay, "default-delay", "delay of messages that bring none; above 0 it makes a delayed topic")
	fs.Var(&f.maxDelay, "max-delay", "longest delay a message may have (default 15m)")
	fs.Var(&f.defaultTTL, "default-ttl", "life of messages that bring no ttl; 0 for ever (default 0)")
	fs.Var(&f.maxMessage, "max-message-bytes", "largest body that goes through the server (default 1MiB)")
	fs.StringVar(&f.partitionKey, "partition-key", "", "`rule` for messages without a key: $.path into a JSON body, or header:name")
	fs.StringArrayVar(&f.attributes, "attribute", nil, "free attribute, as `name=value`; may be repeated")
	if !create {
		fs.StringArrayVar(&f.removed, "remove-attribute", nil, "`name` of an attribute to remove; may be repeated")
	} else {
		fs.IntVar(&f.segments, "segments", 1, "the same as --min-segments")
	}
	fs.IntVar(&f.minSegments, "min-segments", 1, "fewest open segments; a new topic starts with as many")
	fs.IntVar(&f.maxSegments, "max-segments", 0, "most open segments; 0 for the default (256)")
	fs.Int64Var(&f.targetMessages, "target-messages", 0, "messages a second that one segment should carry; 0 for the server's own")
	fs.Var(&f.targetBytes, "target-bytes", "bytes a second that one segment should carry; 0 for the server's own")
}

// config gives what was given on the command line; fields that were not stay nil.
func (f *topicFlags) config(fs *pflag.FlagSet) (client.TopicConfig, error) {
	c := client.TopicConfig{
		DefaultDelay: f.defaultDelay.Seconds(), MaxDelay: f.maxDelay.Seconds(), DefaultTTL: f.defaultTTL.Seconds(),
	}
	if f.maxMessage.Given {
		c.MaxMessageBytes = &f.maxMessage.Bytes
	}
	if fs.Changed("partition-key") {
		c.PartitionKey = &f.partitionKey
	}
	var err error
	if c.Scaling, err = f.scaling(fs); err != nil {
		return c, err
	}
	c.Attributes, err = pairs("--attribute", f.attributes)
	return c, err
}

// scaling gives what was given on the command line; nil if nothing was.
func (f *topicFlags) scaling(fs *pflag.FlagSet) (*client.Scaling, error) {
	var c client.Scaling
	if fs.Changed("segments") {
		if fs.Changed("min-segments") {
			return nil, exit.Usagef("--segments and --min-segments are the same")
		}
		c.MinSegments = &f.segments
	}
	if fs.Changed("min-segments") {
		c.MinSegments = &f.minSegments
	}
	if fs.Changed("max-segments") {
		c.MaxSegments = &f.maxSegments
	}
	if fs.Changed("target-messages") {
		c.TargetMessagesPerSecond = &f.targetMessages
	}
	if f.targetBytes.Given {
		c.TargetBytesPerSecond = &f.targetBytes.Bytes
	}
	if c == (client.Scaling{}) {
		return nil, nil
	}
	return &c, nil
}

// patch gives what was given on the command line, as a change.
func (f *topicFlags) patch(fs *pflag.FlagSet) (client.TopicPatch, error) {
	c, err := f.config(fs)
	p := client.TopicPatch{
		DefaultDelay: c.DefaultDelay, MaxDelay: c.MaxDelay, DefaultTTL: c.DefaultTTL,
		MaxMessageBytes: c.MaxMessageBytes, PartitionKey: c.PartitionKey, Scaling: c.Scaling,
	}
	if len(c.Attributes)+len(f.removed) > 0 {
		p.Attributes = make(map[string]*string, len(c.Attributes)+len(f.removed))
	}
	for name, value := range c.Attributes {
		p.Attributes[name] = &value
	}
	for _, name := range f.removed {
		if _, set := p.Attributes[name]; set {
			return p, exit.Usagef("attribute %q is set and removed", name)
		}
		p.Attributes[name] = nil
	}
	return p, err
}

// pairs reads name=value words; none give nil.
func pairs(flag string, words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(words))
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			return nil, exit.Usagef("%s: %q is not name=value", flag, word)
		}
		if _, twice := m[name]; twice {
			return nil, exit.Usagef("%s: %q is given twice", flag, name)
		}
		m[name] = value
	}
	return m, nil
}

func (a *app) topicCreate() *cobra.Command {
	var f topicFlags
	c := &cobra.Command{
		Use:     "create TOPIC",
		Short:   "Create a topic; the same again is no error",
		Example: "  spillway topic create shop.orders --segments 4 --partition-key '$.customer'",
		Args:    args("TOPIC"),
		RunE: func(c *cobra.Command, words []string) error {
			config, err := f.config(c.Flags())
			if err != nil {
				return err
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				t, err := s.client.CreateTopic(ctx, words[0], config)
				if err != nil {
					return err
				}
				return a.printTopic(s, t)
			})
		},
	}
	f.register(c.Flags(), true)
	return c
}

func (a *app) topicUpdate() *cobra.Command {
	var f topicFlags
	c := &cobra.Command{
		Use:               "update TOPIC",
		Short:             "Change the config of a topic; what is not given stays",
		Args:              args("TOPIC"),
		ValidArgsFunction: a.completeTopic,
		RunE: func(c *cobra.Command, words []string) error {
			if !anyChanged(c.LocalNonPersistentFlags()) {
				return exit.Usagef("nothing to change: give at least one flag")
			}
			patch, err := f.patch(c.Flags())
			if err != nil {
				return err
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				t, err := s.client.UpdateTopic(ctx, words[0], patch)
				if err != nil {
					return err
				}
				return a.printTopic(s, t)
			})
		},
	}
	f.register(c.Flags(), false)
	return c
}

func anyChanged(fs *pflag.FlagSet) bool {
	changed := false
	fs.VisitAll(func(f *pflag.Flag) { changed = changed || f.Changed })
	return changed
}

func (a *app) topicList() *cobra.Command {
	var prefix string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List topics",
		Args:    args(),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				list := []*client.TopicEntry{}
				for t, err := range s.client.ListTopics(ctx, prefix) {
					if err != nil {
						return err
					}
					list = append(list, t)
				}
				if s.json {
					return printJSON(a.Stdout, list)
				}
				out := newTable(a.Stdout, "TOPIC", "ID", "CREATED")
				for _, t := range list {
					out.add(t.Name, t.ID, t.CreatedAt)
				}
				return out.flush()
			})
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "", "only topics whose name starts so")
	return c
}

func (a *app) topicShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show TOPIC",
		Short:             "Show config and counts of a topic",
		Args:              args("TOPIC"),
		ValidArgsFunction: a.completeTopic,
		RunE: func(c *cobra.Command, words []string) error {
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				t, err := s.client.GetTopic(ctx, words[0])
				if err != nil {
					return err
				}
				return a.printTopic(s, t)
			})
		},
	}
}

func (a *app) topicDelete() *cobra.Command {
	return &cobra.Command{
		Use:               "delete TOPIC",
		Short:             "Delete a topic with its messages and subscriptions",
		Args:              args("TOPIC"),
		ValidArgsFunction: a.completeTopic,
		RunE: func(c *cobra.Command, words []string) error {
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				return s.client.DeleteTopic(ctx, words[0])
			})
		},
	}
}

func (a *app) printTopic(s *connection, t *client.Topic) error {
	if s.json {
		return printJSON(a.Stdout, t)
	}
	out := newTable(a.Stdout)
	out.add("topic", t.Name)
	out.add("id", t.ID)
	out.add("state", t.State)
	out.add("created", t.CreatedAt)
	out.add("modified", t.ModifiedAt)
	m := t.Messages
	out.add("segments", fmt.Sprintf("%d open, %d sealed", t.Segments.Open, t.Segments.Sealed))
	out.add("messages", fmt.Sprintf("%s ready, %s delayed, %s",
		units.Group(int64(m.Ready)), units.Group(int64(m.Delayed)), units.FormatBytes(float64(m.Bytes)))) // #nosec G115 -- counts
	out.add("scaling", policyText(t.Scaling))
	config := t.Config
	out.add("default delay", seconds(config.DefaultDelay))
	out.add("max delay", seconds(config.MaxDelay))
	out.add("default ttl", seconds(config.DefaultTTL))
	out.add("max message bytes", optional(config.MaxMessageBytes))
	out.add("partition key", optional(config.PartitionKey))
	for _, name := range sortedKeys(config.Attributes) {
		out.add("attribute "+name, config.Attributes[name])
	}
	return out.flush()
}

// policyText says what holds for a topic's segments, whoever set it.
func policyText(p client.Policy) string {
	return fmt.Sprintf("%d to %d segments, each for %s messages/s or %s/s",
		p.MinSegments, p.MaxSegments, units.Group(p.TargetMessagesPerSecond), units.FormatBytes(float64(p.TargetBytesPerSecond)))
}

// seconds renders an optional number of seconds; none and 0 are "-".
func seconds(s *float64) string {
	if s == nil || *s == 0 {
		return ""
	}
	if *s > maxShownSeconds {
		return strconv.FormatFloat(*s, 'f', -1, 64) + "s"
	}
	return time.Duration(*s * float64(time.Second)).String()
}

// maxShownSeconds keeps a time.Duration from overflowing, whatever a server says.
const maxShownSeconds = 1e9

func optional[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
