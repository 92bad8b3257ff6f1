package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/lineage"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// segmentsFlags are the flags of segments.
type segmentsFlags struct {
	all        bool
	out, since string
	from       time.Time
}

func (a *app) segmentsCommand() *cobra.Command {
	var f segmentsFlags
	c := &cobra.Command{
		Use:   "segments TOPIC",
		Short: "Show, draw, split and merge the segments of a topic",
		Long: `Show the segments of a topic: which slots of the ring of 65,536 each owns, what it carries, and what
it came from. With --out they are drawn, too: time from left to right, slots from bottom to top, each
segment in the colour of its load.

A topic named split or merge is shown with: spillway segments -- split`,
		Example: `  spillway segments orders --all
  spillway segments orders --out orders.svg --since 2h
  spillway segments split orders 0123456789abcdef --into 4 --dry-run`,
		Args:              args("TOPIC"),
		ValidArgsFunction: a.completeTopic,
		RunE: func(c *cobra.Command, words []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				return a.showSegments(ctx, s, words[0], f)
			})
		},
	}
	fs := c.Flags()
	fs.BoolVar(&f.all, "all", false, "sealed segments, too")
	fs.StringVar(&f.out, "out", "", "draw all segments into a `file`, named .svg or .png")
	fs.StringVar(&f.since, "since", "", "begin the picture at that `time`, or that long ago (default with the topic)")
	c.AddCommand(a.segmentsSplit(), a.segmentsMerge())
	return c
}

// check reads the flags that need no server.
func (f *segmentsFlags) check() error {
	if kind := strings.ToLower(filepath.Ext(f.out)); f.out != "" && kind != ".svg" && kind != ".png" {
		return exit.Usagef("--out: %q is named neither .svg nor .png", f.out)
	}
	if f.since == "" {
		return nil
	}
	if f.out == "" {
		return exit.Usagef("--since needs --out: it is where the picture begins")
	}
	p, err := parsePosition("--since", f.since)
	if err != nil {
		return err
	}
	if p.Word == client.Latest {
		return exit.Usagef("--since: there is nothing to draw after now")
	}
	f.from = p.Time.Millis().Time() // zero for earliest
	return nil
}

func (a *app) showSegments(ctx context.Context, s *connection, topic string, f segmentsFlags) error {
	list := []*client.Segment{}
	listing := s.client.OpenSegments
	if f.all || f.out != "" {
		listing = s.client.Segments
	}
	for seg, err := range listing(ctx, topic) {
		if err != nil {
			return err
		}
		list = append(list, seg)
	}
	if f.out != "" {
		if err := a.draw(ctx, s, topic, f, list); err != nil {
			return err
		}
	}
	shown := []*client.Segment{}
	for _, seg := range list {
		if f.all || seg.State == "open" {
			shown = append(shown, seg)
		}
	}
	if s.json {
		return printJSON(a.Stdout, shown)
	}
	return segmentsTable(a.Stdout, shown, f.all)
}

// segmentsTable is the ring; with lineage, what each segment came from and became.
func segmentsTable(w io.Writer, list []*client.Segment, whole bool) error {
	columns := []string{"SEGMENT", "SLOTS", "STATE", "EPOCH", "FIRST", "NEXT", "BYTES", "RATE", "LOAD", "CREATED"}
	if whole {
		columns = append(columns, "SEALED", "FROM", "INTO")
	}
	out := newTable(w, columns...)
	for _, seg := range list {
		rate, load := seg.Mean, fmt.Sprintf("%.2f", seg.Mean.Score)
		if seg.Load != nil {
			rate, load = seg.Load.Last, fmt.Sprintf("%.2f", seg.Load.Score)
			if seg.Load.Hot {
				load += " hot"
			}
		}
		row := []any{
			seg.ID, seg.Range, seg.State, seg.Epoch, seg.FirstOffset, seg.NextOffset, seg.Bytes,
			units.FormatCount(rate.MessagesPerSecond) + "/s", load, seg.CreatedAt,
		}
		if whole {
			row = append(row, seg.SealedAt, joinIDs(seg.Predecessors), joinIDs(seg.Successors))
		}
		out.add(row...)
	}
	return out.flush()
}

func joinIDs(ids []queue.SegmentID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	return strings.Join(words, ",")
}

// draw writes the picture of a topic's segments.
func (a *app) draw(ctx context.Context, s *connection, topic string, f segmentsFlags, list []*client.Segment) error {
	t, err := s.client.GetTopic(ctx, topic)
	if err != nil {
		return err
	}
	h := &lineage.History{
		Topic: topic, Policy: t.Scaling, Segments: list, Hot: map[queue.SegmentID]bool{}, From: f.from, To: time.Now(),
	}
	for e, err := range s.client.Events(ctx, topic) {
		if err != nil {
			return err
		}
		if e.Action == "hot" {
			for _, id := range e.Segments {
				h.Hot[id] = true
			}
		}
	}
	write := h.SVG
	if strings.EqualFold(filepath.Ext(f.out), ".png") {
		write = h.PNG
	}
	if err := writeFile(f.out, write); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.Stderr, "drew %s\n", f.out)
	return nil
}

// writeFile makes or replaces a file, which is there whole or not at all.
func writeFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".spillway-*")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	err = write(tmp)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644) // #nosec G302 -- a picture, as any other file that a user writes
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

func (a *app) segmentsSplit() *cobra.Command {
	var o client.SplitOptions
	var at []uint
	c := &cobra.Command{
		Use:   "split TOPIC SEGMENT",
		Short: "Split an open segment, into two unless told",
		Example: `  spillway segments split orders 0123456789abcdef --into 4
  spillway segments split orders 0123456789abcdef --at 20000 --at 40000 --dry-run`,
		Args:              args("TOPIC", "SEGMENT"),
		ValidArgsFunction: a.completeSegment,
		RunE: func(c *cobra.Command, words []string) error {
			if c.Flags().Changed("into") && (o.Into < 2 || o.Into > queue.MaxSplit) {
				return exit.Usagef("--into: must be 2 to %d", queue.MaxSplit)
			}
			if c.Flags().Changed("into") && len(at) > 0 {
				return exit.Usagef("--into and --at exclude each other")
			}
			for _, slot := range at {
				if slot >= queue.Slots {
					return exit.Usagef("--at: %d is no slot; they are 0 to %d", slot, queue.Slots-1)
				}
				o.At = append(o.At, queue.Slot(slot))
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				made, err := s.client.Split(ctx, words[0], queue.SegmentID(words[1]), o)
				if err != nil {
					return err
				}
				return a.printChange(s, made)
			})
		},
	}
	fs := c.Flags()
	fs.IntVar(&o.Into, "into", 0, "number of parts, of equal load by the last minutes (default 2)")
	fs.UintSliceVar(&at, "at", nil, "`slot` to cut at, the first of its part; may be repeated, ascending")
	fs.BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	return c
}

func (a *app) segmentsMerge() *cobra.Command {
	var o client.MergeOptions
	c := &cobra.Command{
		Use:               "merge TOPIC SEGMENT SEGMENT...",
		Short:             "Merge open neighbours into one segment",
		Example:           "  spillway segments merge orders 0123456789abcdef fedcba9876543210 --dry-run",
		ValidArgsFunction: a.completeSegment,
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) < 3 {
				return exit.Usagef("missing argument %s", []string{"TOPIC", "SEGMENT", "SEGMENT"}[len(words)])
			}
			return nil
		},
		RunE: func(c *cobra.Command, words []string) error {
			ids := make([]queue.SegmentID, len(words)-1)
			for i, word := range words[1:] {
				ids[i] = queue.SegmentID(word)
			}
			return a.call(c.Context(), func(ctx context.Context, s *connection) error {
				made, err := s.client.Merge(ctx, words[0], ids, o)
				if err != nil {
					return err
				}
				return a.printChange(s, made)
			})
		},
	}
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	return c
}

// printChange says what became of which segments.
func (a *app) printChange(s *connection, c *client.SegmentChange) error {
	if s.json {
		return printJSON(a.Stdout, c)
	}
	out := newTable(a.Stdout, strings.ToUpper(c.Action), "SLOTS")
	for i, r := range c.Ranges {
		made := "(dry run)"
		if i < len(c.Made) {
			made = string(c.Made[i])
		}
		out.add(made, r)
	}
	return out.flush()
}

// completeSegment offers topics, then the topic's open segments.
func (a *app) completeSegment(c *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(words) == 0 {
		return a.completeTopic(c, words, prefix)
	}
	if c.Name() == "split" && len(words) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(c.Context(), func(ctx context.Context, s *connection) (ids []string) {
		for seg, err := range s.client.OpenSegments(ctx, words[0]) {
			if err != nil {
				break
			}
			ids = append(ids, fmt.Sprintf("%s\tslots %v", seg.ID, seg.Range))
		}
		return ids
	})
}
