package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completeTimeout bounds what a press of the tab key may wait for the server.
const completeTimeout = 2 * time.Second

// completeTopic offers the names of topics for a first argument.
func (a *app) completeTopic(c *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(words) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(c.Context(), func(ctx context.Context, s *connection) (names []string) {
		for t, err := range s.client.ListTopics(ctx, prefix) {
			if err != nil {
				break
			}
			names = append(names, t.Name)
		}
		return names
	})
}

// completeSubscription offers topics, then the topic's subscriptions.
func (a *app) completeSubscription(c *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(words) != 1 {
		return a.completeTopic(c, words, prefix)
	}
	return a.complete(c.Context(), func(ctx context.Context, s *connection) (names []string) {
		for sub, err := range s.client.ListSubscriptions(ctx, words[0]) {
			if err != nil {
				break
			}
			names = append(names, sub.Name)
		}
		return names
	})
}

func (a *app) complete(ctx context.Context, list func(context.Context, *connection) []string) ([]string, cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	s, err := a.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer s.client.Close()
	return list(ctx, s), cobra.ShellCompDirectiveNoFileComp
}

// completeTopicThenFile offers topics, then files.
func (a *app) completeTopicThenFile(c *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(words) == 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completeTopic(c, words, prefix)
}
