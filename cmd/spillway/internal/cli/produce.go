package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/digest"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/input"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/load"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

type produceFlags struct {
	format, key, delimiter            string
	headers                           []string
	delay, ttl                        units.Duration
	maxRecord                         units.Size
	batch, lanes                      int
	byReference, progress, noProgress bool
	checksum, failFast, create        bool
}

func (a *app) produceCommand() *cobra.Command {
	f := produceFlags{maxRecord: units.NewSize(queue.MaxInlineMessageBytes)}
	c := &cobra.Command{
		Use:   "produce TOPIC [FILE]",
		Short: "Send messages from a file or standard input",
		Long: `Send messages from a file or standard input, in constant memory, and wait until all are durable.

Formats:
  lines   a message is a line; empty lines are skipped
  jsonl   a message is a line with one JSON value; --key '$.customer.id' takes its key from there
  csv     the first row names the columns; a message is a row as a JSON object; --key COLUMN
  deb822  a message is a stanza of "Field: value" lines, as apt-cache dumpavail prints them;
          --key 'Source|Package' takes the first field that is there
  raw     the whole input is one message
  auto    by the name of the file and its first bytes
Without --format it is lines, or jsonl if --key starts with a $.

A record that breaks its format is reported, counted and skipped, and the exit code is 6.`,
		Example: `  echo 'hello' | spillway produce orders
  spillway produce orders orders.jsonl --key '$.customer'
  apt-cache dumpavail | spillway produce debian --format deb822 --key 'Source|Package' --checksum`,
		Args:              args("TOPIC", "[FILE]"),
		ValidArgsFunction: a.completeTopicThenFile,
		RunE:              func(c *cobra.Command, words []string) error { return a.produce(c.Context(), words, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.format, "format", "", "`format` of the input: lines, jsonl, csv, deb822, raw or auto (default lines)")
	fs.StringVar(&f.key, "key", "", "where a message's key is: $.path, a column or a field, by format")
	fs.StringVar(&f.delimiter, "delimiter", ",", "`character` between columns of csv; \\t for a tab")
	fs.StringArrayVar(&f.headers, "header", nil, "`name=value` for every message; may be repeated")
	fs.Var(&f.delay, "delay", "delay of every message; honoured on delayed topics")
	fs.Var(&f.ttl, "ttl", "life of every message")
	fs.Var(&f.maxRecord, "max-record", "largest record of the input")
	fs.IntVar(&f.batch, "batch", 0, "most messages of one call (default the SDK's)")
	fs.IntVar(&f.lanes, "lanes", 0, "calls side by side; messages of one key stay in order (default the SDK's)")
	fs.BoolVar(&f.byReference, "by-reference", false, "upload bodies straight to the object store and submit references")
	fs.BoolVar(&f.progress, "progress", false, "show progress though standard error is no terminal")
	fs.BoolVar(&f.noProgress, "no-progress", false, "show no progress")
	fs.BoolVar(&f.checksum, "checksum", false, "print a checksum of all bodies that does not depend on their order")
	fs.BoolVar(&f.failFast, "fail-fast", false, "stop at the first record or message that fails")
	fs.BoolVar(&f.create, "create", false, "create the topic if it does not exist")
	return c
}

// settings are the flags of produce, validated.
type settings struct {
	format  input.Format
	options input.Options
	load    load.Options
	sender  load.SenderOptions
}

func (f *produceFlags) settings() (settings, error) {
	var s settings
	var err error
	s.format = input.Lines
	switch {
	case f.format != "":
		if s.format, err = input.ParseFormat(f.format); err != nil {
			return s, exit.Usagef("--format: %w", err)
		}
	case len(f.key) > 0 && f.key[0] == '$':
		s.format = input.JSONL
	}
	s.options = input.Options{Key: f.key, MaxRecordBytes: int(f.maxRecord.Bytes)}
	if s.options.Delimiter, err = parseDelimiter(f.delimiter); err != nil {
		return s, err
	}
	const largest = 1 << 30
	if f.maxRecord.Bytes < 1 || f.maxRecord.Bytes > largest {
		return s, exit.Usagef("--max-record: must be 1 to %d bytes", largest)
	}
	if f.batch < 0 || f.batch > queue.MaxBatchRecords {
		return s, exit.Usagef("--batch: must be 1 to %d", queue.MaxBatchRecords)
	}
	if f.lanes < 0 || f.lanes > load.MaxLanes {
		return s, exit.Usagef("--lanes: must be 1 to %d", load.MaxLanes)
	}
	s.sender = load.SenderOptions{Batch: f.batch, Lanes: f.lanes, ByReference: f.byReference}
	s.load = load.Options{TTL: f.ttl.D, FailFast: f.failFast, Checksum: f.checksum}
	if f.delay.Given {
		s.load.Delay = &f.delay.D
	}
	if s.load.Headers, err = pairs("--header", f.headers); err != nil {
		return s, err
	}
	return s, queue.ValidateHeaders("--header", s.load.Headers)
}

func parseDelimiter(s string) (rune, error) {
	if s == `\t` {
		return '\t', nil
	}
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 || n != len(s) || r == '"' || r == '\n' || r == '\r' || r == utf8.RuneError {
		return 0, exit.Usagef("--delimiter: %q is not one character", s)
	}
	return r, nil
}

func (a *app) produce(ctx context.Context, words []string, f produceFlags) error {
	set, err := f.settings()
	if err != nil {
		return err
	}
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer s.client.Close()
	src, err := a.openInput(words)
	if err != nil {
		return err
	}
	defer src.close()
	if err := checkTopic(ctx, s, words[0], f.create); err != nil {
		return err
	}
	format, r := input.Detect(set.format, src.name, src)
	if format == input.Raw && f.byReference && src.size >= 0 {
		return a.produceObject(ctx, s, words[0], src, objectJob{set.load, f})
	}
	set.options.Format = format
	reader, err := input.New(r, set.options)
	if err != nil {
		return inputError(src, err)
	}
	report := a.reporter("line", s.endpoint)
	set.load.Report = func(line int, err error) { report(strconv.Itoa(line), err) }
	set.sender.Timeout = s.timeout
	sender, err := load.NewSender(s.client, words[0], set.sender)
	if err != nil {
		return err
	}
	var counts load.Counts
	started := time.Now()
	bar := a.bar(f, src.size, func() (int64, string) {
		return src.read.Load(), messagesText(counts.Sent.Load(), counts.Failed.Load(), time.Since(started))
	})
	sum, err := load.Run(ctx, reader, sender, set.load, &counts)
	bar.end()
	took := time.Since(started)
	if printErr := a.printProduced(s, &counts, sum, took, f.checksum); err == nil {
		err = printErr
	}
	failed := counts.Failed.Load()
	switch {
	case errors.Is(err, load.ErrFailFast):
		return &exit.PartialError{Failed: failed, Total: counts.Read.Load(), What: "produced, and it stopped there"}
	case err != nil && !errors.Is(err, exit.ErrInterrupted) && counts.Sent.Load() == 0:
		return inputError(src, err)
	case err != nil:
		return err
	case failed > 0:
		return &exit.PartialError{Failed: failed, Total: counts.Read.Load(), What: "produced"}
	}
	return nil
}

// bar is the progress on a terminal, or where it was asked for; nil otherwise.
func (a *app) bar(f produceFlags, total int64, state func() (int64, string)) *progress {
	if f.progress || isTerminal(a.Stderr) && !f.noProgress {
		return startProgress(a.Stderr, total, state)
	}
	return nil
}

// inputError makes an error of the options of reading one of usage, with the file's name.
func inputError(src *source, err error) error {
	var e *queue.Error
	var api *client.APIError
	if errors.As(err, &e) || errors.As(err, &api) || errors.Is(err, exit.ErrInterrupted) || errors.Is(err, os.ErrPermission) {
		return err
	}
	return exit.Usagef("%s: %w", src.name, err)
}

// checkTopic finds out before the input is read whether there is a topic to send it to.
func checkTopic(ctx context.Context, s *connection, topic string, create bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.client.GetTopic(ctx, topic)
	if create && errors.Is(err, client.ErrTopicNotFound) {
		_, err = s.client.CreateTopic(ctx, topic, client.TopicConfig{})
	}
	return err
}

// produced is the JSON form of the summary.
type produced struct {
	Messages      uint64  `json:"messages"`
	Bytes         uint64  `json:"bytes"`
	Failed        uint64  `json:"failed"`
	WithoutKey    uint64  `json:"without_key"`
	DelayIgnored  uint64  `json:"delay_ignored"`
	Seconds       float64 `json:"seconds"`
	PerSecond     float64 `json:"messages_per_second"`
	Checksum      string  `json:"checksum,omitempty"`
	ChecksumCount uint64  `json:"checksum_messages,omitempty"`
}

func (a *app) printProduced(s *connection, c *load.Counts, sum digest.Sum, took time.Duration, checksum bool) error {
	sent := c.Sent.Load()
	out := produced{
		Messages: sent, Bytes: c.Bytes.Load(), Failed: c.Failed.Load(), WithoutKey: c.Keyless.Load(),
		DelayIgnored: c.Ignored.Load(), Seconds: took.Seconds(), PerSecond: float64(sent) / max(took.Seconds(), 1e-9),
	}
	if checksum {
		out.Checksum, out.ChecksumCount = sum.String(), sum.Count
	}
	if s.json {
		return printJSON(a.Stdout, out)
	}
	_, err := fmt.Fprintf(a.Stdout, "produced %s, %s in %s\n", messagesText(sent, out.Failed, took),
		units.FormatBytes(float64(out.Bytes)), took.Round(time.Millisecond))
	if out.DelayIgnored > 0 {
		_, _ = fmt.Fprintf(a.Stderr, "spillway: the delay of %s was ignored: the topic's default_delay is 0\n", countOf(out.DelayIgnored))
	}
	if checksum && err == nil {
		_, err = fmt.Fprintf(a.Stdout, "checksum %s of %s\n", out.Checksum, countOf(sum.Count))
	}
	return err
}

// source is an input whose bytes are counted, also those that are read again after a Seek.
type source struct {
	name string
	r    io.Reader
	// size is -1 if it is not known.
	size  int64
	read  atomic.Int64
	close func()
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.read.Add(int64(n))
	return n, err
}

// Seek implements io.Seeker for a file.
func (s *source) Seek(offset int64, whence int) (int64, error) {
	f, ok := s.r.(io.Seeker)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return f.Seek(offset, whence)
}

func (a *app) openInput(words []string) (*source, error) {
	if len(words) < 2 || words[1] == "-" {
		if isTerminal(a.Stdin) {
			_, _ = fmt.Fprintln(a.Stderr, "reading from the terminal; Ctrl-D ends")
		}
		return &source{name: "standard input", r: a.Stdin, size: -1, close: func() {}}, nil
	}
	f, err := os.Open(words[1])
	if err != nil {
		return nil, err
	}
	s := &source{name: words[1], r: f, size: -1, close: func() { _ = f.Close() }}
	info, err := f.Stat()
	switch {
	case err != nil:
		s.close()
		return nil, err
	case info.IsDir():
		s.close()
		return nil, exit.Usagef("%s is a folder", words[1])
	case info.Mode().IsRegular():
		s.size = info.Size()
	}
	return s, nil
}
